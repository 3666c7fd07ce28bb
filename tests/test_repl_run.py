"""A conversation in the real program: streaming, queueing, steering, interrupts, questions, commands of one's own."""

import json
import shutil
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from bareagent.platform import descendants
from tests.program import logs
from tests.screen import Terminal, repl
from tests.server.fixtures import StartServer
from tests.server.server import Server

MARKDOWN = """# Title

A paragraph with **bold** and `code`, 你好世界 and 👩‍👩‍👧 and e\u0301 in it,
long enough that it has to be broken somewhere.

- one
- two
  - nested

```python
def f(x):
    return x + 1
```

| name | value |
|------|-------|
| a    | 1     |

LAST LINE
"""


def bash(command: str, **more: Any) -> dict[str, Any]:
    return {"calls": [{"name": "bash", "input": {"command": command}}], **more}


def count(t: Terminal, text: str) -> int:
    return sum(text in row for row in t.rows)


def test_streamed_rows_stand_once_and_lines_queue(
    start_server: StartServer, project: Path, home: Path
) -> None:
    many = "\n\n".join(f"paragraph {n:03}." for n in range(120))
    server = start_server(
        [
            {"text": MARKDOWN, "fault": {"kind": "stall", "at": {"event": 9}}},
            {"text": many, "chunk": 50},
            "third",
        ]
    )
    with repl(project, home=home, server=server, rows=20) as t:
        t.enter("go")
        t.wait("bold")
        t.enter("second line")
        t.wait("queued: second line")
        t.enter("to be changed")
        t.wait("queued: to be changed")
        t.enter("/cost")
        t.wait("$")
        t.press("up")
        t.wait(lambda t: t.draft == "to be changed")
        t.wait(lambda t: "queued: to be changed" not in t.shown_text)
        t.send(" now")
        t.press("enter")
        t.wait("queued: to be changed now")
        server.release()
        t.wait("third")
        t.wait_prompt()
        for text in (
            "LAST LINE",
            "return x + 1",
            "• two",
            "name │ value",
            "> second line",
            "> to be changed now",
        ):
            assert count(t, text) == 1, text
        numbers = [row for row in t.rows if row.startswith("paragraph ")]
        assert numbers == [f"paragraph {n:03}." for n in range(120)]
        assert [r.last_text for r in server.requests] == ["go", "second line", "to be changed now"]
        t.leave()


def steer(t: Terminal, line: str) -> None:
    """Type a line and send it into the run."""
    t.type(line)
    t.press("c-s")
    t.wait(f": {line}")


def test_steering(start_server: StartServer, project: Path, home: Path) -> None:
    server = start_server([bash("until [ -e go ]; do sleep 0.05; done"), "Done.", "Later."])
    with repl(project, home=home, server=server, arguments=["--mode", "bypass"]) as t:
        t.enter("go")
        t.wait("running bash")
        steer(t, "look at b instead")
        t.wait("goes out after this step: look at b instead")
        t.enter("and then this")
        t.wait("queued: and then this")
        (project / "go").touch()
        t.wait("Later.")
        t.wait_prompt()
        assert count(t, "> look at b instead") == 1
        assert "look at b instead" in server.requests[1].last_text
        assert server.requests[2].last_text == "and then this"
        t.press("c-c")
        t.wait("Ctrl-C again")
        t.enter("/todo")
        t.wait("There is no todo list.")
        t.press("c-c")
        t.leave()


def test_steering_where_no_step_follows(start_server: StartServer, project: Path, home: Path) -> None:
    """The line goes out when the answer, or the compaction, has ended."""
    stall = {"kind": "stall", "at": {"event": 5}}
    slow = {"text": "the last words " * 9, "fault": stall}
    summary = {"summary": True, "text": "They spoke of a plover. " * 9, "fault": stall}
    server = start_server([slow, "Too late for that run.", summary, "A.", "B."])
    with repl(project, home=home, server=server) as t:
        t.enter("talk")
        t.wait("the last words")
        steer(t, "no step left for this")
        server.release()
        t.wait("Too late for that run.")
        t.wait_prompt()
        assert server.requests[1].last_text == "no step left for this"
        t.enter("/compact")
        t.wait("compacting")
        t.enter("line a")
        t.wait("queued: line a")
        steer(t, "line b")
        server.release()
        t.wait("Context compaction finished.")
        t.wait("B.")
        t.wait_prompt()
        assert [each.last_text for each in server.requests[-2:]] == ["line a", "line b"]
        t.leave()


STALLED = {"text": "x", "fault": {"kind": "stall", "at": "headers"}}
CHILD = bash("echo begun; sleep 300 & echo $! > pid; wait")
JOB = {
    "calls": [
        {
            "name": "bash",
            "input": {"command": "echo $$ > job; sleep 300 # of the background", "run_in_background": True},
        }
    ]
}
TWO = {
    "calls": [
        {"name": "bash", "input": {"command": f"echo two-{n}; sleep 300"}, "id": f"two{n}"} for n in (1, 2)
    ]
}
# Line, what the server does, what is awaited, the key that stops it, whether a draft can be typed meanwhile.
MOMENTS: list[tuple[str, list[Any], str, str, bool]] = [
    ("before a word", [STALLED], "waiting for the model", "escape", True),
    ("in text", [{"text": "said so far, " * 40, "delay_s": 0.1}], "said so far", "c-c", True),
    ("in thought", [{"thinking": "pondered " * 60, "text": "x", "delay_s": 0.1}], "pondered", "escape", True),
    (
        "in a call's input",
        [bash("never run", fault={"kind": "stall", "at": "tool_input"})],
        "writing a call",
        "c-c",
        True,
    ),
    ("in a question", [bash("touch never")], "May bash run", "c-c", False),
    ("/bypass", [], "", "", False),
    ("in a command", [CHILD], "begun", "escape", True),
    ("in two commands", [TWO], "running bash", "c-c", True),
    ("between calls", [bash("echo between-$((1+1))"), STALLED], "between-2", "escape", True),
    (
        "before another try",
        [{"fault": {"kind": "status", "status": 529, "retry_after": 50}}],
        "attempt 2 of",
        "escape",
        True,
    ),
    ("!echo own-$((1+1)); sleep 300", [], "own-2", "escape", True),
    ("/compact", [STALLED], "compacting", "c-c", True),
    ("beside a background task", [JOB, STALLED], "of the background", "escape", True),
]


def stopped(t: Terminal, key: str, *, has_draft: bool) -> float:
    """Stop what is under way: within a second (and what a busy machine adds), the draft kept; return when."""
    if has_draft:
        t.type("kept")
        t.wait(lambda t: t.draft == "kept")
    began, pressed_at = time.monotonic(), time.time()
    t.press(key)
    t.wait(lambda t: not t.is_busy, 5)
    assert time.monotonic() - began < 4
    t.wait_prompt()
    if has_draft:
        t.wait(lambda t: t.draft == "kept")
        t.press("c-c")
        t.wait(lambda t: t.draft == "")
    return pressed_at


def logged_stops(project: Path) -> list[float]:
    """When the log says that a run was stopped, in seconds of the clock."""
    rows = map(json.loads, logs(project)[0].read_text().splitlines())
    return [datetime.fromisoformat(row["at"]).timestamp() for row in rows if row["type"] == "interrupted"]


def test_interrupts(start_server: StartServer, project: Path, home: Path) -> None:
    """At twelve moments, within a second; nothing that was stopped lives on, and the conversation goes on."""
    server = start_server([step for moment in MOMENTS for step in moment[1]] + ["All fine."], strict=False)
    env = {"BAREAGENT_UI_THINKING": "show"}
    pressed: list[float] = []
    with repl(project, home=home, server=server, env=env) as t:
        for line, _, wanted, key, has_draft in MOMENTS:
            t.enter(line)
            if key:
                t.wait(wanted)
                t.wait(lambda t: t.is_busy or "May bash run" in t.shown_text)
                at = stopped(t, key, has_draft=has_draft)
                pressed += [] if line[0] in "!/" else [at]
                assert descendants(t.child.pid) == [] or "background" in line, line
            else:
                t.wait("Mode: bypass")
        t.enter("well?")
        t.wait("All fine.")
        t.wait_prompt()
        t.leave()
    for name in ("pid", "job"):
        assert not Path(f"/proc/{int((project / name).read_text())}").exists()
    stops = logged_stops(project)
    assert [n for n, (at, stop) in enumerate(zip(pressed, stops, strict=True)) if stop - at > 1] == []
    assert not (project / "never").exists()
    assert server.refused == []
    kept = json.dumps(server.requests[-1].body["messages"])
    for text in ("[interrupted by the user]", "begun", "not run", "between-2", "two-1"):
        assert text in kept, text


def test_what_ends_in_the_background_wakes(start_server: StartServer, project: Path, home: Path) -> None:
    job = {"name": "bash", "input": {"command": "sleep 1; echo woke-$((1+1))", "run_in_background": True}}
    server = start_server([{"calls": [job]}, "Started.", "It has ended."])
    env = {"BAREAGENT_BACKGROUND_WAKE": "true"}
    with repl(project, home=home, server=server, env=env, arguments=["--mode", "bypass"]) as t:
        t.enter("go")
        t.wait("It has ended.")
        t.wait_prompt()
        t.leave()
    assert "woke-2" in json.dumps(server.requests[-1].body["messages"])


def nothing_answers(t: Terminal, project: Path) -> None:
    """A paste answers nothing, bracketed or not; nor does a key that means nothing. The draft keeps them."""
    t.answer()
    t.paste("y\n")
    t.send("y\ry\r")
    t.press("tab", "left")
    t.wait("No answer, so kept as your draft: y y y")
    assert not (project / "one").exists()
    t.wait(lambda t: t.is_busy)
    t.answer("enter")  # behind stray letters Enter is no answer, either
    t.settle(0.05)
    t.wait(lambda t: t.is_busy)
    t.answer()


def answers(t: Terminal) -> None:
    t.answer("y")
    t.wait("touch two")
    t.answer("n")
    t.wait("touch three")
    t.answer("enter")
    t.wait("touch four")
    t.answer("c")
    t.wait("why not>")
    t.enter("rather use mkdir")
    t.wait("touch five")
    t.answer("e")
    t.wait("command> touch five")
    t.wait("Enter runs it, Esc goes back")
    t.send("-edited")
    t.wait("five-edited")
    t.press("enter")
    t.wait("2. blue")
    t.answer("2")
    t.wait("May write_file run?")
    t.wait("+new")
    t.answer("y")
    t.wait("Done.")
    t.wait_prompt()
    t.wait(lambda t: t.draft == "y")
    t.press("c-c")
    t.wait(lambda t: "bareagent> y" not in t.shown_text)


def test_questions(start_server: StartServer, project: Path, home: Path) -> None:
    server = start_server(
        [
            bash("touch one"),
            bash("touch two"),
            bash("touch three"),
            bash("touch four"),
            bash("touch five"),
            {"calls": [{"name": "ask_user", "input": {"question": "Which?", "options": ["red", "blue"]}}]},
            {"calls": [{"name": "write_file", "input": {"file_path": "f.txt", "content": "new\n"}}]},
            "Done.",
        ]
    )
    with repl(project, home=home, server=server) as t:
        t.enter("go")
        t.wait("touch one")
        t.wait("May bash run?")
        nothing_answers(t, project)
        answers(t)
        t.leave()
    made = {path.name for path in project.iterdir() if path.name != ".transcripts"}
    assert made == {"one", "five-edited", "f.txt"}
    texts = [json.dumps(request.results()) for request in server.requests[1:]]
    assert "did not allow" in texts[1]
    assert "did not allow" in texts[2]
    assert "rather use mkdir" in texts[3]
    assert "the user changed the command to: touch five-edited" in texts[4]
    assert "blue" in texts[5]


def test_always_makes_the_rule_it_says(start_server: StartServer, project: Path, home: Path) -> None:
    server = start_server(
        [bash("for i in 1; do echo $i; done"), bash("for i in 2; do echo $i; done"), "Done."]
    )
    with repl(project, home=home, server=server) as t:
        t.enter("go")
        t.wait("a this session: bash(echo")
        t.answer("a")
        t.wait("Allowed for this session: bash(echo")
        t.wait("Done.")
        t.wait_prompt()
        t.leave()
    assert count(t, "May bash run?") == 0


LONG = "\n".join(f"row {n}" for n in range(42))


def cleared(t: Terminal) -> None:
    t.press("c-c")
    t.wait(lambda t: t.draft == "")


def sent_pastes(t: Terminal, server: Server) -> None:
    t.send("before ")
    t.paste(LONG)
    t.wait("[pasted 42 lines #1]")
    t.send(" after")
    t.press("enter")
    t.wait("echo:")
    t.wait_prompt()
    assert server.requests[0].last_text == f"before {LONG} after"
    assert count(t, "> before [pasted 42 lines #1] after") == 1
    # Without bracketed paste, and with escape sequences inside: nothing is sent, nothing steers.
    t.send("a\rb \x1b[200~c\x1b[31m\rd\x1b[201~ e")
    t.wait("d e")
    t.settle(0.05)
    assert len(server.requests) == 1
    t.press("enter")
    t.wait("echo: a b c d e")
    t.wait_prompt()
    assert server.requests[1].last_text == "a\nb c\nd e"


def kept_pastes(t: Terminal) -> None:
    """Unbracketed and long it is not sent by its own line ends; folds go and open whole."""
    t.send(LONG.replace("\n", "\r") + "\r")
    t.wait(lambda t: "[pasted" in t.draft or "row 41" in t.shown_text)
    t.settle(0.1)
    cleared(t)
    t.paste("x" * 1500)
    t.wait("[pasted 1500 characters #")
    t.press("backspace")
    t.wait(lambda t: t.draft == "")
    t.paste("\n".join(f"line {n}" for n in range(20)))
    t.wait("[pasted 20 lines")
    t.press("c-o")
    t.wait("line 19")
    cleared(t)
    for piece in ("\x1b[20", "0~one\rt", "wo\x1b[2", "01~"):
        t.send(piece)
        t.pump(0.01)
    t.wait("two")
    cleared(t)


MANY = "\n".join(f"line {n} äöü 你好 👩‍👩‍👧" for n in range(200))


def many_lines(t: Terminal, server: Server) -> None:
    """200 lines, whole and in odd pieces, bracketed and not: one draft, sent as one line by Enter alone."""
    data = MANY.replace("\n", "\r").encode()
    for n, (begin, end, size) in enumerate([(b"\x1b[200~", b"\x1b[201~", 333), (b"", b"", 1000)], 3):
        whole = begin + data + end
        for at in range(0, len(whole), size):
            t.child.send(whole[at : at + size])
        t.settle(0.1)
        assert len(server.requests) == n - 1
        t.press("enter")
        server.wait_settled(n)
        t.wait_prompt()
        assert server.requests[n - 1].last_text == MANY


def test_pastes(start_server: StartServer, project: Path, home: Path) -> None:
    server = start_server(default="echo")
    with repl(project, home=home, server=server) as t:
        sent_pastes(t, server)
        kept_pastes(t)
        many_lines(t, server)
        t.leave()
    assert len(server.requests) == 4


def test_a_command_of_ones_own_that_cannot_start(
    start_server: StartServer, project: Path, home: Path
) -> None:
    """It is told with the reason, and the conversation goes on."""
    with repl(project, home=home, server=start_server(default="echo")) as t:
        shutil.rmtree(project)
        t.enter("!echo never")
        t.wait("The command could not be started: No such file or directory (the working directory")
        t.wait_prompt()
        t.enter("well")
        t.wait("echo: well")
        t.wait_prompt()
        t.leave()


def test_commands_of_ones_own(start_server: StartServer, project: Path, home: Path) -> None:
    server = start_server(default="echo")
    with repl(project, home=home, server=server) as t:
        t.enter("!echo shown-$((40+2))")
        t.wait("shown-42")
        t.wait_prompt()
        t.enter("!!echo hidden-$((40+3))")
        t.wait("hidden-43")
        t.wait_prompt()
        t.enter("//slash")
        t.wait("echo:")
        t.wait_prompt()
        t.enter("/nonsense")
        t.wait("There is no command /nonsense")
        t.leave()
    sent = json.dumps(server.requests[0].body["messages"])
    assert "shown-42" in sent
    assert "hidden-43" not in sent
    assert server.requests[0].last_text.endswith("/slash")
    assert len(logs(project)) == 1
