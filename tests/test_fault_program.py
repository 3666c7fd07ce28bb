"""Faults of the wire through the real program in print mode: outcome, stderr, log and the next request."""

import json
from pathlib import Path

import pytest

from bareagent.entries import AnyEntry, Compaction, MessageEntry
from bareagent.messages import text_of
from bareagent.session import Session
from bareagent.store.transcripts import TranscriptManager
from tests.play import check_sendable
from tests.program import logs, result_of, run
from tests.server.fixtures import StartServer
from tests.server.jsonish import Json

QUICK = {"BAREAGENT_RETRY_BASE_S": "0", "BAREAGENT_RETRY_STREAM_IDLE_S": "3"}
# Ten faults that pass: each meets one turn of a run, which the next attempt answers. What stderr says of it.
PASSING: list[tuple[Json, str]] = [
    ({"kind": "status", "status": 529}, "overloaded"),
    ({"kind": "status", "status": 429, "preset": "tokens_per_minute", "retry_after": 1}, "rate limit"),
    ({"kind": "status", "status": 500}, ""),
    ({"kind": "reset"}, ""),
    ({"kind": "cut", "at": "text"}, ""),
    ({"kind": "cut", "at": "tool_input", "how": "reset"}, ""),
    ({"kind": "error", "error_type": "overloaded_error", "at": "after_last"}, "overloaded"),
    ({"kind": "garble", "at": "thinking"}, ""),
    ({"kind": "stall", "at": "between"}, ""),
    ({"kind": "drop"}, ""),
]


def count(number: int) -> Json:
    return {
        "thinking": "Half a thought that must not be kept.",
        "text": f"I count {number}.",
        "calls": [{"name": "bash", "input": {"command": f"echo {number} >> counter"}}],
    }


def entries_of(project: Path) -> list[AnyEntry]:
    """What is in the log, whose view must be one that can be sent."""
    (log,) = logs(project)
    session = Session.open(TranscriptManager(project, project), log.parent.name, is_read_only=True)
    check_sendable(session)
    entries = list(session.entries())
    session.close()
    return entries


def replies(project: Path) -> list[str]:
    found = [e for e in entries_of(project) if isinstance(e, MessageEntry) and e.kind == "reply"]
    return [text_of(entry.message) for entry in found]


def test_ten_faults_that_pass_cost_an_attempt_each_and_nothing_else(
    start_server: StartServer, tmp_path: Path
) -> None:
    steps: list[Json] = []
    for number, (fault, _) in enumerate(PASSING):
        steps += [{**count(number), "fault": fault}, count(number)]
    server = start_server([*steps, {"text": "Counted to ten."}])
    done = run(
        ["-p", "count", "--mode", "bypass"], tmp_path, home=tmp_path / "home", server=server, env=QUICK
    )
    assert (done.returncode, done.stdout) == (0, "Counted to ten.\n"), done.stderr
    said = done.stderr.splitlines()
    assert len(said) == len(PASSING), done.stderr
    for line, (fault, word) in zip(said, PASSING, strict=True):
        assert "attempt 2 of 8" in line, f"{fault}: {line}"
        assert word in line.lower(), f"{fault}: {line}"
    assert (tmp_path / "counter").read_text().split() == [str(number) for number in range(len(PASSING))]
    server.check_done()
    failed, again = server.requests[:-1:2], server.requests[1::2]
    assert [record.raw for record in failed] == [record.raw for record in again], "sent again byte for byte"
    assert server.prefix_breaks() == []
    assert again[1].at - failed[1].at >= 1, "retry-after is obeyed"
    assert replies(tmp_path) == [*(f"I count {number}." for number in range(10)), "Counted to ten."]


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        ({"kind": "status", "status": 401}, 77, "key"),
        ({"kind": "cut", "at": "tool_input", "times": 2}, 75, "2"),
    ],
    ids=["the key is refused", "cut at each attempt"],
)
def test_a_run_ended_by_a_fault_is_told_in_a_line_and_goes_on_later(
    start_server: StartServer, tmp_path: Path, fault: Json, code: int, said: str
) -> None:
    server = start_server([count(1), {**count(2), "fault": fault}, {"text": "Here I am again."}])
    env = {**QUICK, "BAREAGENT_RETRY_MAX_ATTEMPTS": "2"}
    home = tmp_path / "home"
    done = run(["-p", "count", "--mode", "bypass"], tmp_path, home=home, server=server, env=env)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    lines = done.stderr.splitlines()
    assert 1 <= len(lines) <= 3, done.stderr
    assert said in done.stderr
    assert all(line.startswith(("bareagent: ", "  ")) for line in lines), done.stderr
    assert replies(tmp_path) == ["I count 1."]
    later = run(["-p", "and now?", "--continue"], tmp_path, home=home, server=server, env=env)
    assert (later.returncode, later.stdout) == (0, "Here I am again.\n"), later.stderr
    server.check_done()
    assert server.prefix_breaks() == []
    last = server.requests[-1]
    assert [result["is_error"] for result in last.results() if result.get("is_error")] == []
    assert last.last_text.endswith("and now?")
    assert (tmp_path / "counter").read_text() == "1\n"


def test_a_request_that_is_too_long_is_compacted_and_sent_once_more(
    start_server: StartServer, tmp_path: Path
) -> None:
    too_long = {"kind": "status", "preset": "too_long", "status": 400}
    big = {"calls": [{"name": "bash", "input": {"command": "echo 1 >> counter; seq 1 6000"}}]}
    server = start_server(
        [
            big,
            {"text": "Never seen.", "fault": too_long},
            # The summary's request obeys the same policy as any other.
            {"summary": True, "text": "Lost.", "fault": {"kind": "cut", "at": "text"}},
            {"summary": True, "text": "The user counts; one call ran."},
            {"text": "It fits now."},
        ]
    )
    done = run(
        ["-p", "count", "--mode", "bypass", "--output", "json"],
        tmp_path,
        home=tmp_path / "home",
        server=server,
        env=QUICK,
    )
    assert (done.returncode, result_of(done)["result"]) == (0, "It fits now."), done.stderr
    server.check_done()
    assert (tmp_path / "counter").read_text() == "1\n"
    refused, after = server.requests[1], server.requests[-1]
    assert len(after.raw) < len(refused.raw)
    assert "The user counts" in json.dumps(after.body["messages"])
    assert "Lost." not in json.dumps(after.body["messages"])
    (compaction,) = [entry for entry in entries_of(tmp_path) if isinstance(entry, Compaction)]
    assert compaction.trigger == "overflow"
