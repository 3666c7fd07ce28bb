"""What waits and what is asked while the program works: held lines, commands that only show, blind typing."""

import json
from functools import partial
from pathlib import Path
from typing import Any

from tests.program import logs
from tests.screen import Terminal, repl
from tests.server.fixtures import StartServer

STALLED = {"text": "x", "fault": {"kind": "stall", "at": "headers"}}


SLOW_TO_END = {"name": "bash", "input": {"command": "trap '' TERM; sleep 300 & wait; sleep 300"}}


def bash(command: str, **more: Any) -> dict[str, Any]:
    return {"calls": [{"name": "bash", "input": {"command": command}}], **more}


GATE = bash("until [ -e go ]; do sleep 0.05; done")


def queue(t: Terminal, *lines: str) -> None:
    for line in lines:
        t.enter(line)
        t.wait(f"queued: {line}")


def stop(t: Terminal, key: str = "escape") -> None:
    t.press(key)
    t.wait(lambda t: not t.is_busy)
    t.wait_prompt()


def test_after_a_stop_lines_wait_apart(start_server: StartServer, project: Path, home: Path) -> None:
    """They are neither sent by themselves nor joined: Up gives one back, Enter sends the rest in order."""
    server = start_server([STALLED, {"text": "Slow.", "delay_s": 0.3}, "Fine.", "Fine."])
    with repl(project, home=home, server=server) as t:
        t.enter("go")
        t.wait("waiting for the model")
        queue(t, "/name first", "second", "third")
        t.type("draft")
        stop(t)
        t.wait("Not sent: Enter sends them in order, Up takes one back.")
        t.wait(lambda t: t.draft == "draft")
        assert len(server.requests) == 1
        t.press("c-c")
        t.wait(lambda t: t.draft == "")
        t.press("up")
        t.wait(lambda t: t.draft == "third")
        t.wait(lambda t: "held: third" not in t.shown_text)
        t.send(" changed")
        t.press("enter")  # goes out alone; what is held stays
        t.wait("\n> third changed\n")
        t.enter("typed meanwhile")
        t.wait("\n> typed meanwhile\n")
        t.wait("Fine.")
        t.wait_prompt()
        t.wait("held: /name first")
        t.press("enter")
        t.wait("Session name: first")
        t.wait("\n> second\n")
        t.wait_prompt()
        t.wait(lambda t: "held" not in t.shown_text and "Not sent" not in t.shown_text)
        t.leave()
    lines = [r.last_text.split("\n")[-1] for r in server.requests]
    assert lines == ["go", "third changed", "typed meanwhile", "second"]


def test_a_wrong_command_holds_nothing_up(start_server: StartServer, project: Path, home: Path) -> None:
    """One that is none is answered at Enter; one that proves wrong when its turn comes lets the next go on."""
    server = start_server([GATE, "Done.", "Second done."])
    with repl(project, home=home, server=server, arguments=["--mode", "bypass"]) as t:
        t.enter("go")
        t.wait("running bash")
        t.enter("/compcat")
        t.wait("There is no command /compcat. The nearest is /compact.")
        t.enter("!")
        t.wait("! runs a command of the shell")
        t.type("/nosuch")
        t.press("c-s")
        t.wait("There is no command /nosuch.")
        t.wait(lambda t: t.is_busy)
        assert "queued" not in t.shown_text
        queue(t, "/config nosuch", "second")
        (project / "go").touch()
        t.wait("Second done.")
        t.wait_prompt()
        t.wait("/config does not know nosuch.")
        assert "held" not in t.text
        assert [request.last_text for request in server.requests][-1] == "second"
        t.leave()


def test_leaving_keeps_what_was_held(start_server: StartServer, project: Path, home: Path) -> None:
    """It is in the history; a line entered right behind the stop is not held, it goes out."""
    server = start_server([{"calls": [SLOW_TO_END]}, "At once."])
    with repl(project, home=home, server=server, arguments=["--mode", "bypass"]) as t:
        t.enter("go")
        t.wait("running bash")
        queue(t, "never sent")
        t.press("c-c")
        t.send("right away")
        t.press("enter")
        t.wait("At once.")
        t.wait_prompt()
        t.wait("held: never sent")
        assert t.leave() == 0
    assert server.requests[-1].last_text.endswith("right away")
    with repl(project, home=home, server=server) as t:
        t.press("up")
        t.wait(lambda t: t.draft == "right away")
        t.press("up")
        t.wait(lambda t: t.draft == "never sent")


def test_what_failed_and_what_waited_go_out_by_one_enter(
    start_server: StartServer, project: Path, home: Path
) -> None:
    fault = {"kind": "status", "status": 401}
    slow = {"text": "x", "fault": fault, "delay_s": 0.1}
    server = start_server([GATE, slow, "Worked.", "Second."])
    with repl(project, home=home, server=server, arguments=["--mode", "bypass"]) as t:
        t.enter("first")
        t.wait("running bash")
        queue(t, "second")
        (project / "go").touch()
        t.wait("refused the key")
        t.wait("held: second")
        t.wait_prompt()
        t.press("enter")
        t.wait("Worked.")
        t.wait("Second.")
        t.wait_prompt()
        t.leave()
    assert server.requests[-1].last_text == "second"


SHOWN = {
    "/config": 'permissions.mode = "bypass"',
    "/config rules": "No rule was granted",
    "/theme": "Theme: auto (there are also dark",
    "/mode": "Mode: bypass (there are",
    "/model": "Model: anthropic/claude",
    "/tools": "read_file",
    "/skills": "There are no skills",
    "/pins": "Nothing is pinned",
    "/sessions": "0 turns, 0 tokens  go",
    "/name": "Session name: go",
    "/compact preview": "Nothing to compact",
    "/context": "Micro-compaction",
    "/todo": "There is no todo list",
    "/help mode": "Show or change the permission mode",
    "/help compact": "Any other text is the focus.",
}
CHANGES = ("/theme light", "/config forget 1", "/mode plan", "/model x", "/name y", "/compact")


def has_more(t: Terminal, wanted: str, n_before: int) -> bool:
    return t.text.count(wanted) > n_before


def test_what_only_shows_answers_during_a_run(start_server: StartServer, project: Path, home: Path) -> None:
    server = start_server([STALLED, "Done."])
    with repl(project, home=home, server=server, arguments=["--mode", "bypass"], rows=60) as t:
        t.enter("go")
        t.wait("waiting for the model")
        for line, wanted in SHOWN.items():
            n_before = t.text.count(wanted)
            t.send(f"{line}\r")
            t.wait(partial(has_more, wanted=wanted, n_before=n_before))
            t.wait(lambda t: t.is_busy)
            assert "queued" not in t.shown_text, line
        assert "Choose" not in t.text
        for n, line in enumerate(CHANGES, 1):
            t.enter(line)
            t.wait(f"{n} queued")
        stop(t)
        t.wait(lambda t: t.text.count("held: ") + t.text.count("more") >= 3)
        for _ in CHANGES:
            t.press("up")
            t.wait(lambda t: t.draft in CHANGES)
            t.press("c-c")
            t.wait(lambda t: t.draft == "")
        t.enter("/frobnicate")
        t.wait("There is no command /frobnicate.")
        assert "nearest" not in t.text
        # An empty row stands behind every echoed command.
        rows = t.rows
        for line in ("/context", "/todo", "/frobnicate"):
            at = max(n for n, row in enumerate(rows) if row == f"> {line}")
            assert (rows[at - 1], rows[at + 1]) == ("", ""), line
            assert rows[at + 2], line
        t.leave()


def blindly(t: Terminal) -> str:
    """Type a line until the question is there and on; return what the draft must hold."""
    text = ""
    while "May bash run?" not in t.shown_text:
        text += "x"
        t.send("x")
        t.settle(0.02)
    for char in " yes please, any name; n":
        t.send(char)
        t.pump(0.05)
    t.wait("No answer, so kept as your draft: ")
    t.press("enter")
    t.answer("enter")
    t.settle(0.05)
    t.wait(lambda t: "May bash run?" in t.shown_text)
    t.press("backspace", "backspace")
    t.wait(lambda t: t.shown_text.rstrip().split("\n")[-2].endswith("any name;"))
    t.answer()
    t.answer("n")
    return f"{text} yes please, any name;"


def too_soon(t: Terminal) -> None:
    """A key right behind a question answers nothing."""
    t.enter("again")
    t.wait("touch one")
    t.answer("y")
    t.wait("touch two")
    t.press("y")
    t.wait("No answer, so kept as your draft: y")
    t.answer()
    t.answer("n")
    t.wait("Done.")
    t.wait_prompt()
    t.wait(lambda t: t.draft == "y")
    t.press("c-c")


def test_blind_typing_answers_nothing(start_server: StartServer, project: Path, home: Path) -> None:
    """A question that comes up under the fingers takes no letter of the line; the draft has all of it."""
    blind = [bash("touch made", delay_s=0.15), "Refused.", "Got it."]
    server = start_server([*blind, bash("touch one"), bash("touch two"), "Done."])
    with repl(project, home=home, server=server) as t:
        t.enter("go")
        server.wait(1)
        text = blindly(t)
        t.wait("Refused.")
        t.wait_prompt()
        t.wait(lambda t: t.draft == text)
        t.press("enter")
        t.wait("Got it.")
        t.wait_prompt()
        too_soon(t)
        t.leave()
    assert server.requests[2].last_text.endswith(text)
    assert {path.name for path in project.iterdir() if path.name != ".transcripts"} == {"one"}


def todo(*states: str) -> dict[str, Any]:
    items = [{"text": f"step {n}", "status": state} for n, state in enumerate(states, 1)]
    return {"calls": [{"name": "todo_write", "input": {"items": items}}]}


def test_helpers_and_lists_are_shown(start_server: StartServer, project: Path, home: Path) -> None:
    """A subagent's question says who asks; the todo list is drawn whenever it changes."""
    helper = {"calls": [{"name": "subagent", "input": {"task": "touch a file"}}]}
    lists = [todo("in_progress", "pending"), todo("completed", "in_progress"), todo("completed", "completed")]
    server = start_server([helper, bash("touch made"), "Helped.", *lists, "All done."])
    with repl(project, home=home, server=server) as t:
        t.enter("go")
        t.wait("Subagent a1 (touch a file) asks: May bash run?")
        t.answer("y")
        t.wait("All done.")
        t.wait_prompt()
        t.leave()
    assert (project / "made").exists()
    rows = [row.strip() for row in t.rows if row.strip()[:1] in set("◐☐☑")]
    assert rows == ["◐ step 1", "☐ step 2", "☑ step 1", "◐ step 2", "☑ step 1", "☑ step 2"]


def test_a_plan_stays_and_a_reminder_is_one_line(
    start_server: StartServer, project: Path, home: Path
) -> None:
    """What was approved can be read above, live and when the session is gone on with."""
    plan = {
        "text": "Ready.",
        "calls": [{"name": "exit_plan", "input": {"plan": "# Steps\n\n- take **one**"}}],
    }
    server = start_server([plan, todo("in_progress", "pending"), "Carried out.", "Reminded.", "Done."])
    settings = {"BAREAGENT_REMINDER_ROUNDS": "0"}
    with repl(project, home=home, server=server, arguments=["--mode", "plan"], env=settings) as t:
        t.enter("go")
        t.wait("Carry out this plan?")
        t.answer("y")
        t.wait("Reminded the model of its todo list (2 open).")
        t.wait_prompt()
        assert "nag-reminder" not in t.text
        rows = t.rows
        at = rows.index("• take one")
        assert [row.strip() for row in rows[at + 1 : at + 3]] == ["", "● exit_plan"]
        assert any("Steps" in row for row in rows[at - 3 : at])
        assert t.text.count("take one") == 1
        t.leave()
    with repl(project, home=home, server=server, arguments=["--continue"]) as t:
        t.wait("as is ≈")
        at = t.rows.index("• take one")
        assert "Ready." in t.rows[at - 5 : at]
        assert [row.strip() for row in t.rows[at + 1 : at + 3]] == ["", "● exit_plan"]
        t.leave()


def test_plain_lines_hold_and_take_only_answers(start_server: StartServer, project: Path, home: Path) -> None:
    """Without a live screen: whole words answer, any other line waits; a stop holds what was typed ahead."""
    server = start_server([bash("touch made"), "Refused.", "Heard.", STALLED, "Sent."])
    with repl(project, home=home, server=server, env={"BAREAGENT_UI_PLAIN": "true"}) as t:
        t.send("go\r")
        t.wait("May bash run?")
        t.send("yes please\r")
        t.wait("This is no answer; the line waits until the run has ended.")
        t.send("n\r")
        t.wait("Refused.")
        t.wait("Heard.")
        t.wait(lambda t: t.rows[-1].endswith("bareagent>"))
        t.send("stall\r")
        server.wait(4)
        t.send("typed ahead\r")
        t.settle(0.1)
        t.press("c-c")
        t.wait("Not sent yet: Enter on an empty line sends them in order.")
        assert len(server.requests) == 4
        t.send("\r")
        t.wait("Sent.")
        t.wait(lambda t: t.rows[-1].endswith("bareagent>"))
        t.press("c-d")
        assert t.ended() == 0
    assert server.requests[2].last_text.endswith("yes please")
    assert server.requests[4].last_text.endswith("typed ahead")
    assert not (project / "made").exists()
    assert "yes please" in json.dumps([json.loads(row) for row in logs(project)[0].read_text().splitlines()])
