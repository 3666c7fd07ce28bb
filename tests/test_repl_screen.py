"""What stands on the screen: any size, any resize, any bytes from anywhere; each row once."""

import random
from pathlib import Path
from typing import Any

import pytest

from tests.screen import repl
from tests.server.fixtures import StartServer

HOSTILE = (
    "\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x07\x1b]8;;http://evil\x07link\x1b]8;;\x07\x1b[2J\x1b[?1049h\x1b[?1000h"
    "\x9b31m\x9d0;c1\x9c\u202e\u200b[/red][bold]markup\x07\r over\x08\x08\x7f{end}"
)
FORBIDDEN = (
    *(b"\x1b]0", b"\x1b]52", b"\x1b]8", b"\x1b[2J", b"\x1b[?1049h", b"\x1b[?1000h"),
    *("\u202e".encode(), "\u200b".encode(), "\x9b".encode(), "\x9d".encode()),
)


def hostile(end: str) -> str:
    return HOSTILE.replace("{end}", end)


def test_nothing_hostile_reaches_the_terminal(start_server: StartServer, project: Path, home: Path) -> None:
    """From the model's text, thinking, tool names, arguments, output, file names, a server's error."""
    (project / "out").write_text(hostile("from-output"))
    (project / f"na\x1b]0;owned\x07me{'x' * 3}").write_text("x")
    steps: list[dict[str, Any]] = [
        {"thinking": hostile("thought"), "text": hostile("from-text")},
        {"calls": [{"name": "bash", "input": {"command": "cat out; ls # " + hostile("x")}}]},
        {"text": "shown"},
        {"calls": [{"name": hostile("tool")[:60], "input": {}}]},
        {"text": "shown too"},
        {"calls": [{"name": "ask_user", "input": {"question": hostile("ask"), "options": [hostile("opt")]}}]},
        {"fault": {"kind": "status", "status": 400, "message": hostile("from-error")}},
    ]
    server = start_server(steps, strict=False)
    with repl(project, home=home, server=server, arguments=["--mode", "bypass"]) as t:
        t.enter("one")
        t.wait("from-text")
        t.wait_prompt()
        t.enter("two")
        t.wait("from-output")
        t.wait("shown")
        t.wait_prompt()
        t.enter("/name odd [bold] name")
        t.wait("Session name: odd [bold] name")
        t.enter("three")
        t.wait("shown too")
        t.wait_prompt()
        t.enter("four")
        t.wait("1 choose")
        t.answer("1")
        t.wait("from-error")
        t.wait_prompt()
        t.leave()
    for wanted in ("[/red][bold]markup", "from-text", "from-output", "from-error"):
        assert wanted in t.text
    for bad in FORBIDDEN:
        assert bad not in bytes(t.raw), bad


@pytest.mark.parametrize(("rows", "columns"), [(5, 10), (10, 40), (60, 200)])
def test_sizes(start_server: StartServer, project: Path, home: Path, rows: int, columns: int) -> None:
    text = "宽字符 and 👩‍👩‍👧 flags 🇨🇳 wide\n\n| a | b |\n|---|---|\n| 很宽的单元格 | x |\n\nEND"
    call = {"calls": [{"name": "bash", "input": {"command": "seq 1 30"}}]}
    server = start_server([{"text": text, "delay_s": 0.01}, call, "END"])
    with repl(project, home=home, server=server, rows=rows, columns=columns, is_awaited=False) as t:
        t.wait("BareAgent", 60)
        t.wait(lambda t: ">" in t.shown_text)
        t.send("go")
        t.wait("go")
        t.press("enter")
        t.wait("END")
        t.send("do it 你好")
        t.wait("好")
        t.press("enter")
        t.wait(lambda t: "/n/c/e?" in t.text or "y once" in t.text)
        t.answer("y")
        t.wait(lambda t: t.text.count("END") >= 2)
        t.press("c-d")
        t.settle(0.1)
        t.press("c-d")
        assert t.ended() == 0
    assert "Traceback" not in t.text
    assert len(server.requests) == 3


def test_a_storm_of_resizes(start_server: StartServer, project: Path, home: Path) -> None:
    """While it streams: no finished row is lost or doubled, and in the end one live region stands."""
    text = "\n\n".join(f"row {n:03} of many" for n in range(150))
    server = start_server([{"text": text, "chunk": 30, "delay_s": 0.01}, "After."])
    choose = random.Random(7)
    with repl(project, home=home, server=server) as t:
        t.enter("go")
        t.wait("row 010")
        for _ in range(15):
            t.resize(30, choose.randint(50, 120))
            for _ in range(choose.randint(1, 8)):
                t.pump(0.02)
        t.resize(30, 100)
        t.wait("row 149")
        t.wait_prompt()
        t.settle(0.2)
        t.enter("well")
        t.wait("After.")
        t.wait_prompt()
        t.settle(0.1)
        t.wait(lambda t: sum("bareagent>" in row for row in t.shown) == 1)
        t.leave()
    assert [row for row in t.rows if row.startswith("row ")] == [f"row {n:03} of many" for n in range(150)]


def test_a_long_session_shows_its_last_exchanges_only(
    start_server: StartServer, project: Path, home: Path
) -> None:
    server = start_server(default="echo")
    with repl(project, home=home, server=server) as t:
        for n in range(6):
            t.enter(f"line {n}")
            t.wait(f"echo: line {n}")
            t.wait_prompt()
        t.leave()
    with repl(project, home=home, server=server, arguments=["--continue"]) as t:
        t.wait("echo: line 5")
        t.wait("> line 3")
        assert "line 2" not in t.text
        t.leave()


def test_first_keys_are_not_lost(start_server: StartServer, project: Path, home: Path) -> None:
    """What is typed and sent before the program stands behind its prompt goes out once it does."""
    server = start_server(default="echo")
    with repl(project, home=home, server=server, is_awaited=False) as t:
        t.wait("bareagent>", 60)
        for line in ("early", "/status"):
            t.send(line)
            t.wait(line)
            t.press("enter")
            t.wait(lambda t: t.draft == "")
        t.send("draft")
        t.wait("echo: early", 60)
        t.wait("saved in")
        t.wait(lambda t: t.draft == "draft")
        t.wait(lambda t: sum("bareagent>" in row for row in t.rows) == 1)
        t.press("c-c")
        t.leave()


def test_a_folder_that_steers_is_asked_about_once(
    start_server: StartServer, project: Path, home: Path
) -> None:
    (project / "AGENTS.md").write_text("Always answer in rhyme.\n")
    server = start_server(default="echo")
    with repl(project, home=home, server=server, is_awaited=False) as t:
        t.wait("This folder has files that would steer the program: AGENTS.md.", 60)
        t.answer("y")
        t.wait("Instructions: AGENTS.md (about ")
        t.enter("hello")
        t.wait("echo: hello")
        t.wait_prompt()
        t.leave()
    assert "Always answer in rhyme." in server.requests[0].system_text
    with repl(project, home=home, server=server) as t:
        t.wait("Last session, now: hello")
        t.wait("Instructions: AGENTS.md")
        assert "would steer" not in t.text
        t.leave()
