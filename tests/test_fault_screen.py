"""Faults of the wire through the real program in a terminal: screen, log, next request, and how it goes on."""

import re
from pathlib import Path

from tests.program import logs
from tests.screen import Terminal, repl
from tests.server.fixtures import StartServer
from tests.server.jsonish import Json
from tests.test_fault_program import entries_of, replies

QUICK = {
    "BAREAGENT_RETRY_BASE_S": "0",
    "BAREAGENT_RETRY_MAX_ATTEMPTS": "2",
    "BAREAGENT_RETRY_STREAM_IDLE_S": "3",
    "BAREAGENT_UI_THINKING": "show",
}
# Faults that the second attempt survives, and whether the first has left something on the screen.
PASSING: list[tuple[Json, bool]] = [
    ({"kind": "cut", "at": "text"}, True),
    ({"kind": "garble", "at": "thinking"}, True),
    ({"kind": "error", "error_type": "overloaded_error", "at": "tool_input"}, True),
    ({"kind": "stall", "at": "between"}, True),
    ({"kind": "drop"}, True),
    ({"kind": "reset"}, False),
    ({"kind": "status", "status": 529}, False),
]
# Faults that end the run, what the screen says of them, and how the line is sent again.
LASTING: list[tuple[Json, str, str]] = [
    ({"kind": "status", "status": 401}, "refused the key", ""),
    ({"kind": "status", "status": 400, "preset": "credit"}, "--provider", "/retry"),
    ({"kind": "cut", "at": "text", "times": 2}, "broke off", ""),
]
AGAIN = "Enter on an empty line, or /retry, sends it again."
MARK = "what follows begins anew"


def count(t: Terminal, text: str) -> int:
    return " ".join(t.rows).count(text)


def stands(t: Terminal, text: str, times: int) -> None:
    """Wait until a text stands on the screen so many times."""
    t.wait(lambda t: count(t, text) == times)


def says(t: Terminal, text: str) -> None:
    """Wait until a text stands on the screen, wherever its rows are broken."""
    t.wait(lambda t: count(t, text) > 0)


def test_faults_in_a_terminal(start_server: StartServer, tmp_path: Path) -> None:
    steps: list[Json] = []
    for number, (fault, _) in enumerate(PASSING):
        step = {
            "thinking": "a thought",
            "text": f"half {number}",
            "calls": [{"name": "bash", "input": {"command": f"echo {number} >> counter"}}],
        }
        steps += [{**step, "fault": fault}, step, {"text": f"answer {number}"}]
    for number, (fault, _, _) in enumerate(LASTING):
        steps += [{"text": "lost words", "fault": fault}, {"text": f"lasting answer {number}"}]
    wait = {"kind": "status", "status": 429, "retry_after": 50}
    server = start_server([*steps, {"text": "never seen", "fault": wait}, {"text": "the last answer"}])
    with repl(
        tmp_path,
        home=tmp_path / "home",
        server=server,
        arguments=["--mode", "bypass"],
        rows=60,
        env=QUICK,
    ) as t:
        n_marks = 0
        for number, (_, is_shown) in enumerate(PASSING):
            t.enter(f"line {number}")
            t.wait(f"answer {number}")
            t.wait_prompt()
            n_marks += is_shown
            stands(t, MARK, n_marks)
        for number, (_, said, way) in enumerate(LASTING):
            t.enter(f"lasting line {number}")
            stands(t, AGAIN, number + 1)
            says(t, said)
            t.wait_prompt()
            t.enter(way) if way else t.press("enter")
            t.wait(f"lasting answer {number}")
            t.wait_prompt()
        counted_down(t)
        t.enter("and on")
        t.wait("the last answer")
        t.wait_prompt()
        n_sent = len(server.requests)
        t.press("enter")
        t.settle()
        assert len(server.requests) == n_sent, "after an answer an empty line sends nothing"
        t.enter("/exit")
        assert t.ended() == 0
    server.check_done()
    assert server.prefix_breaks() == []
    assert (tmp_path / "counter").read_text().split() == [str(number) for number in range(len(PASSING))]
    check_log(tmp_path)
    asked = [in_one_row(record.last_text) for record in server.requests[-2:]]
    assert asked == ["patience", "patience and on"]


def in_one_row(text: str) -> str:
    return " ".join(text.split())


def counted_down(t: Terminal) -> None:
    """A pause is counted down in the status line, and can be stopped."""
    t.enter("patience")
    t.wait("attempt 2 of 2 in 50 s")
    t.wait(lambda t: bool(re.search(r"attempt 2 of 2 in 4[0-8] s", t.shown_text)))
    t.press("escape")
    t.wait("Interrupted.")
    t.wait_prompt()


def check_log(project: Path) -> None:
    """The log holds each line once, no word of a failed attempt, and a view that can be sent."""
    kept = logs(project)[0].read_text()
    assert "lost words" not in kept
    assert "never seen" not in kept
    assert len(entries_of(project)) > 0
    passing = [text for n in range(len(PASSING)) for text in (f"half {n}", f"answer {n}")]
    lasting = [f"lasting answer {n}" for n in range(len(LASTING))]
    assert replies(project) == [*passing, *lasting, "the last answer"]
