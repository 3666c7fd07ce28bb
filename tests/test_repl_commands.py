"""Commands in the real program, in a terminal: what is typed, completed, chosen and printed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.program import logs
from tests.screen import Terminal, repl
from tests.server.fixtures import StartServer


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    (tmp_path / "project" / ".git" / "HEAD").write_text("ref: refs/heads/trunk\n")
    (tmp_path / "project" / "notes.txt").write_text("fish\n" * 300)
    return tmp_path / "project"


@pytest.fixture
def terminal(start_server: StartServer, project: Path, tmp_path: Path) -> Iterator[Terminal]:
    """The REPL behind a first exchange about a file, with answers for more."""
    read = {"calls": [{"name": "read_file", "input": {"file_path": "notes.txt"}}]}
    more = ["All fish.", "Again.", "A summary or an answer.", "New."]
    server = start_server([read, *({"text": text} for text in more)])
    with repl(project, home=tmp_path / "home", server=server) as opened:
        say(opened, "what is in it?", "All fish.")
        yield opened
    assert server.refused == []


def say(terminal: Terminal, line: str, wanted: str) -> None:
    """Send a line and wait for what it brings."""
    terminal.enter(line)
    terminal.wait(wanted)
    terminal.wait_prompt()


def test_compact_new_and_resume(terminal: Terminal, project: Path) -> None:
    say(terminal, "and now?", "Again.")
    say(terminal, "/compact", "Context compaction finished.")
    first = logs(project)[0].parent.name
    terminal.wait(f"{first}.1")
    say(terminal, "/new", "New conversation started.")
    say(terminal, "something else", "New.")
    terminal.enter("/resume")
    terminal.wait("Resume a session")
    terminal.wait("trunk")
    terminal.press("enter")
    terminal.wait(f"Resumed session: {first}.1")
    terminal.wait("as is ≈")
    terminal.wait_prompt()
    say(terminal, "/rewind 1", "Back to before: and now?")
    terminal.wait(lambda t: t.draft == "and now?")
    terminal.press("c-c")
    terminal.enter("/exit")
    assert terminal.ended() == 0
    assert terminal.text.count("Context compaction finished.") == 1
    assert terminal.text.count("New conversation started.") == 1


def test_completion_and_the_picture(terminal: Terminal) -> None:
    terminal.send("/cont")
    terminal.wait("Show what fills the window")
    terminal.press("tab")
    terminal.wait(lambda t: t.draft == "/context")
    terminal.press("enter")
    terminal.wait("Compactions so far: 0")
    terminal.wait("read_file result")
    terminal.wait_prompt()
    say(terminal, "/compatc", "The nearest is /compact.")
    terminal.send("look at @nts")
    terminal.wait(lambda t: "  notes.txt" in t.shown)
    terminal.press("tab")
    terminal.wait(lambda t: t.draft == "look at @notes.txt")
    terminal.press("escape", "c-c")
    terminal.wait(lambda t: t.draft == "")


def test_a_theme_is_shown_in_its_own_colours(terminal: Terminal) -> None:
    terminal.enter("/theme")
    terminal.wait("Choose a theme")
    terminal.press("down", "down")
    terminal.wait("return answer(42, 'text')")
    light_keyword = b"38;5;90m"
    terminal.wait(lambda t: light_keyword in bytes(t.raw))
    terminal.press("enter")
    terminal.wait("Theme: light.")
    terminal.wait_prompt()


def test_the_picker_before_the_first_line(start_server: StartServer, project: Path, tmp_path: Path) -> None:
    server = start_server([{"text": "Hello."}])
    home = tmp_path / "home"
    with repl(project, home=home, server=server) as terminal:
        terminal.enter("greet me")
        terminal.wait("Hello.")
        terminal.wait_prompt()
        terminal.leave()
    with repl(project, home=home, server=server, arguments=["--resume", "?"], is_awaited=False) as terminal:
        terminal.wait("Resume a session")
        terminal.press("enter")
        terminal.wait("Resumed session:")
        terminal.wait("Hello.")
        terminal.wait_prompt()
        assert terminal.leave() == 0
    (log,) = logs(project)
    assert log.read_text().count("greet me") >= 1
