"""Every row of the key table, pressed in the real program."""

import json
import re
from functools import partial
from pathlib import Path

from bareagent.repl.keys import OTHERS, TABLE
from tests.screen import Terminal, repl
from tests.server.fixtures import StartServer
from tests.server.server import Server

DOCS = Path(__file__).parent.parent / "docs" / "terminal.md"


def test_the_docs_list_every_key() -> None:
    rows = re.findall(r"^\| (`.+?`(?:, `.+?`)*) \| (.+) \|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    documented = {keys.replace("`", ""): about for keys, about in rows}
    expected = {key.names: key.help for key in TABLE} | dict(OTHERS)
    assert documented == expected


def cleared(t: Terminal) -> None:
    t.press("c-c")
    t.wait(lambda t: t.draft == "")


def typed(t: Terminal, text: str) -> None:
    t.type(text)
    t.wait(lambda t: text in t.shown_text)


def new_lines(t: Terminal, server: Server) -> None:
    """Every key for a new line; Enter sends them as one line."""
    typed(t, "one")
    t.press("alt-enter")
    typed(t, "two")
    t.press("c-j")
    typed(t, "three\\")
    t.press("enter")
    t.wait(lambda t: "three\\" not in t.shown_text)
    t.send("four\x1b[13;2ufive")
    t.wait("five")
    assert server.requests == []
    t.press("enter")
    t.wait("echo: ")
    t.wait_prompt()
    assert server.requests[0].last_text == "one\ntwo\nthree\nfour\nfive"


def clearing_and_history(t: Terminal) -> None:
    typed(t, "a draft")
    cleared(t)
    t.press("up")
    t.wait(lambda t: t.draft == "a draft")
    cleared(t)
    t.press("c-r")
    t.type("a dr")
    t.wait(lambda t: t.draft == "a draft")
    t.press("enter")
    t.settle(0.1)
    cleared(t)


def modes(t: Terminal) -> None:
    """Shift-Tab goes round without bypass and keeps the draft."""
    typed(t, "kept")
    for mode in ("AUTO", "PLAN", "DEFAULT"):
        t.press("shift-tab")
        t.wait(f"[{mode}] bareagent> kept")
    cleared(t)


def test_keys_of_an_idle_draft(start_server: StartServer, project: Path, home: Path) -> None:
    server = start_server(default="echo")
    with repl(project, home=home, server=server) as t:
        new_lines(t, server)
        clearing_and_history(t)
        modes(t)
        # Tab completes a command.
        t.type("/conte")
        t.wait("context  ")
        t.press("tab")
        t.wait(lambda t: t.draft.startswith("/context"))
        t.press("escape")
        cleared(t)
        # A lone file is taken by Tab; the next Enter sends.
        (project / "only-one.txt").write_text("x")
        t.type("see @only")
        t.wait("only-one.txt")
        t.press("tab")
        t.wait(lambda t: t.draft == "see @only-one.txt")
        t.press("enter")
        t.wait("echo: see @only-one.txt")
        t.wait_prompt()
        # Ctrl-L draws anew.
        typed(t, "still here")
        t.press("c-l")
        t.wait(lambda t: any(row.endswith("bareagent> still here") for row in t.shown[:2]))
        cleared(t)
        # Ctrl-C on an empty line says how to leave.
        t.press("c-c")
        t.wait("Ctrl-C again, Ctrl-D or /exit leaves.")
        assert t.leave() == 0
    assert "Exiting BareAgent." in t.text
    assert re.search(r"bareagent --resume \d{8}-\d{6}-\w{4}", t.text)


def editing(t: Terminal, server: Server) -> None:
    """Joined emoji and marked letters go whole; cut and paste as in a shell; Down goes forward in the history."""
    family, marked = "👩\u200d👩\u200d👧", "e\u0301"
    t.send(f"a{family}b{marked}")
    t.wait("a👩👩👧b")  # shown apart: terminals differ in how wide they make joined ones
    t.press("backspace", "left", "backspace")
    t.send("c")
    t.press("c-e")
    t.send("d")
    t.press("c-a", "right")
    t.send("\x1b[3~")  # Delete takes the c
    t.send("X")
    t.wait(lambda t: t.draft == "aXbd")
    t.press("enter")
    t.wait("echo: aXbd")
    t.wait_prompt()
    assert server.requests[-1].last_text == "aXbd"
    typed(t, "one two")
    t.press("c-w", "c-y", "c-y", "c-a", "c-k")
    t.wait(lambda t: t.draft == "")
    t.press("c-y", "c-u")
    t.wait(lambda t: t.draft == "")
    t.press("c-y")
    t.wait(lambda t: t.draft == "one twotwo")
    cleared(t)
    t.press("up", "up")
    t.wait(lambda t: t.draft == "aXbd")
    t.press("down")
    t.wait(lambda t: t.draft == "one twotwo")
    cleared(t)


def arguments(t: Terminal, project: Path) -> None:
    """Tab completes modes, models, sessions and themes behind their commands."""
    session = next((project / ".transcripts").glob("2*")).name
    t.enter("/new")
    t.wait("New conversation started.")
    t.wait_prompt()
    for line, wanted in (
        ("/mode pl", "/mode plan"),
        ("/theme mo", "/theme mono"),
        ("/model claude-sonnet-5-", "/model claude-sonnet-5-5"),
        (f"/resume {session[:10]}", f"/resume {session}"),
    ):
        t.send(line)
        t.press("tab")  # at once: before the candidates have come
        t.wait(partial(has_draft, text=wanted))
        t.press("escape")
        cleared(t)


def gathered_keys(t: Terminal) -> None:
    """A slow line hands over arrows and the Enter behind them in one piece; words in one piece choose nothing."""
    t.enter("/model")
    t.wait("Choose a model")
    t.send("sonnet\r")
    t.wait("search> sonnet")
    t.press("escape")
    t.wait_prompt()
    t.enter("/model")
    t.wait("Choose a model")
    t.send("\x1b[B\x1b[B\r")
    t.wait(" tokens")
    t.wait_prompt()


def has_draft(t: Terminal, text: str) -> bool:
    return t.draft == text


def test_editing_and_arguments(start_server: StartServer, project: Path, home: Path) -> None:
    server = start_server(default="echo")
    with repl(project, home=home, server=server) as t:
        editing(t, server)
        arguments(t, project)
        gathered_keys(t)
        t.press("c-c")
        t.wait("Ctrl-C again, Ctrl-D or /exit leaves.")
        t.press("c-c")
        assert t.ended() == 0
        assert bytes(t.raw).rfind(b"\x1b[?2004l") > bytes(t.raw).rfind(b"\x1b[?2004h")


def test_editor_suspend_pager(start_server: StartServer, project: Path, home: Path) -> None:
    editor = home / "editor.sh"
    home.mkdir()
    editor.write_text('#!/bin/sh\nprintf "%s and edited" "$(cat "$1")" > "$1"\n')
    editor.chmod(0o755)
    call = {"name": "bash", "input": {"command": "seq 1 40"}}
    server = start_server([{"calls": [call]}, "Done."])
    env = {"VISUAL": str(editor), "PAGER": "cat"}
    with repl(project, home=home, server=server, env=env, arguments=["--mode", "bypass"]) as t:
        t.type("typed")
        t.press("c-g")
        t.wait(lambda t: t.draft == "typed and edited")
        t.press("c-c")
        t.wait(lambda t: t.draft == "")
        t.enter("count")
        t.wait("35 more lines (Ctrl-O)")
        t.wait("Done.")
        t.wait_prompt()
        t.wait("\n  6\n")
        assert "\n  20\n" not in t.text
        t.press("c-o")
        t.wait("\n40\n")
        t.wait_prompt()
        t.type("alive")
        t.wait(lambda t: t.draft == "alive")
        t.press("c-d")
        t.press("c-c")
        t.wait(lambda t: t.draft == "")
        assert t.leave() == 0


def test_vi(start_server: StartServer, project: Path, home: Path) -> None:
    server = start_server([{"text": "slow " * 50, "delay_s": 0.5}, "Done."])
    with repl(project, home=home, server=server, env={"BAREAGENT_UI_VI": "true"}) as t:
        t.type("abc")
        t.press("escape")
        t.settle(0.1)
        t.type("0ix")
        t.wait(lambda t: t.draft == "xabc")
        t.press("enter")
        t.wait(lambda t: t.is_busy)
        t.press("escape")
        t.settle(0.03)
        t.wait(lambda t: t.is_busy)
        t.press("escape")
        t.wait("Interrupted.", 3)
        t.wait_prompt()
        t.press("c-d")
        assert t.ended() == 0


def test_history_is_shared_and_holds_no_secret(start_server: StartServer, project: Path, home: Path) -> None:
    secret = "sk-ant-" + "a1B2" * 8
    server = start_server(default="echo")
    with repl(project, home=home, server=server) as one, repl(project, home=home, server=server) as two:
        one.enter("from the first")
        two.enter("from the second")
        one.wait("echo: from the first")
        two.wait("echo: from the second")
        one.wait_prompt()
        two.wait_prompt()
        two.enter(f"my key is {secret}")
        two.wait_prompt()
        one.child.send(b"odd \xed\xa0\xbd\x80 bytes")
        one.wait("bytes")
        one.press("enter")
        one.wait(lambda t: "echo: odd" in t.text)
        one.wait_prompt()
        assert one.leave() == 0
        assert two.leave() == 0
    (file,) = (home / ".local" / "share" / "bareagent" / "history").glob("*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert {"from the first", "from the second"} <= set(lines)
    assert secret not in file.read_text()
    with repl(project, home=home, server=server) as three:
        three.press("up", "up")
        three.wait(lambda t: t.draft in {"from the first", "from the second"})
