"""What other programs' sessions broke on, tried on the real one: moved projects, lost names, odd logs, old files."""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bareagent.entries import Name
from bareagent.messages import text_of
from bareagent.session import Session
from bareagent.store.transcripts import TranscriptManager
from tests.play import turn
from tests.program import PROGRAM, environment, logs, run
from tests.screen import Terminal, repl
from tests.server.fixtures import StartServer
from tests.server.record import Record
from tests.server.server import Server

AT = "2026-01-01T00:00:00.000Z"


def heard(record: Record) -> dict[str, str]:
    """Answer with the end of what was said."""
    return {"text": f"Heard {record.last_text.split()[-1]}."}


@pytest.fixture
def server(start_server: StartServer) -> Iterator[Server]:
    """A model that says what it heard; nothing it was sent may be refused."""
    server = start_server([], default=heard)
    yield server
    server.check()


def make_project(folder: Path) -> Path:
    (folder / ".git").mkdir(parents=True)
    return folder


def say(terminal: Terminal, line: str, wanted: str) -> None:
    terminal.enter(line)
    terminal.wait(wanted)
    terminal.wait_prompt()


def write_log(project: Path, key: str, *entries: dict[str, Any]) -> Path:
    """A saved session as some other program may have left it."""
    log = project / ".transcripts" / key / "log.jsonl"
    log.parent.mkdir(parents=True)
    start = {"type": "session", "id": key, "cwd": str(project), "created": AT}
    log.write_text(
        "".join(
            json.dumps({"v": 1, "n": n, "at": AT, **entry}) + "\n"
            for n, entry in enumerate((start, *entries), 1)
        )
    )
    return log


def message(role: str, *content: Any, kind: str) -> dict[str, Any]:
    return {"type": "message", "kind": kind, "message": {"role": role, "content": list(content)}}


def test_a_project_may_be_moved_linked_and_deleted(server: Server, tmp_path: Path) -> None:
    home = tmp_path / "home"
    one, two = make_project(tmp_path / "sessions" / "one"), make_project(tmp_path / "two")

    def ask(line: str, cwd: Path, *arguments: str) -> None:
        done = run(["-p", line, *arguments], cwd, home=home, server=server)
        assert (done.returncode, done.stdout) == (0, f"Heard {line.rsplit(maxsplit=1)[-1]}.\n"), done.stderr

    def listed() -> str:
        return run(["sessions", "list", "--all"], two, home=home).stdout

    ask("about one", one)
    ask("about two", two)
    assert "sessions/one  about one" in listed()
    moved = one.rename(one.parent / "moved")
    ask("more of one", moved, "--continue")
    assert str(moved) in str(server.requests[-1].body["system"])
    assert "sessions/moved  about one" in listed()
    (tmp_path / "link").symlink_to(two)
    ask("through a link", tmp_path / "link", "--continue")
    ask("not through it", two, "--continue")
    assert len(logs(two)) == 1
    assert listed().count("about two") == 1
    (log,) = logs(moved)
    shutil.rmtree(moved)
    assert "about one" not in listed()
    assert "about two" in listed()
    gone = run(["-p", "hi", "--resume", str(log.parent)], two, home=home, server=server)
    assert (gone.returncode, gone.stdout) == (66, "")
    assert not moved.exists()


def test_a_name_stays_with_its_session(server: Server, tmp_path: Path) -> None:
    project, home = make_project(tmp_path / "project"), tmp_path / "home"
    with repl(project, home=home, server=server) as terminal:
        say(terminal, "about fish", "Heard fish.")
        say(terminal, "/name zoo", "Session name: zoo")
        say(terminal, "/compact", "Context compaction finished.")
        say(terminal, "/new", "New conversation started.")
        say(terminal, "/name", "Session name: (none yet)")
        say(terminal, "about birds", "Heard birds.")
        say(terminal, "/name", "Session name: about birds")
        say(terminal, "/resume ZOO", "Resumed session:")
        terminal.enter("/name")
        terminal.wait(lambda t: t.text.count("Session name: zoo") == 2)
        say(terminal, "/new aviary", "New conversation started.")
        say(terminal, "/name", "Session name: aviary")
        assert terminal.leave() == 0
    rows = run(["sessions", "list"], project, home=home).stdout.splitlines()
    assert sorted(row.split("  ")[-1] for row in rows) == ["about birds", "zoo"]


ODD_CALLS: list[Any] = [
    {"type": "tool_use", "id": "c1", "name": "read_file", "input": {"file_path": 5}},
    {"type": "tool_use", "id": "c2", "name": "edit_file", "input": {"file_path": ["a"], "old_string": None}},
    {"type": "tool_use", "id": "c3", "name": "bash", "input": {"command": ["ls", 1]}},
    {"type": "tool_use", "id": "c4", "name": "todo_write", "input": {"items": "none"}},
    {"type": "tool_use", "id": "c5", "name": "write_file", "input": None},
    {"type": "tool_use", "id": "c6", "name": 5, "input": "text"},
    {"type": "tool_use", "name": None},
]
ODD_RESULTS: list[Any] = [
    {"type": "tool_result", "tool_use_id": "c1", "content": "a bare string"},
    {"type": "tool_result", "tool_use_id": "c2", "content": None},
    {
        "type": "tool_result",
        "tool_use_id": "c3",
        "content": [None, 5, "text", {"type": "text"}],
        "is_error": 1,
    },
    {
        "type": "tool_result",
        "tool_use_id": "c4",
        "content": [{"type": "image", "source": {"type": "base64"}}],
    },
    {"type": "tool_result", "tool_use_id": "c5"},
    {"type": "tool_result", "tool_use_id": "c6", "content": {"type": "text", "text": "alone"}},
]
ODD_BLOCKS: list[Any] = [
    {"type": "text", "text": None},
    {"type": "thinking", "signature": "s"},
    {"type": "redacted_thinking"},
    {"type": ["text"]},
    {"no": "type"},
    None,
    7,
    {"type": "text", "text": "That was odd."},
]


def test_an_odd_log_is_shown_told_and_gone_on_with(server: Server, tmp_path: Path) -> None:
    project, home = make_project(tmp_path / "project"), tmp_path / "home"
    attached = {"type": "image", "source": 5}
    log = write_log(
        project,
        "20260101-000000-aaaa",
        message("user", {"type": "text", "text": "look at this"}, attached, kind="line"),
        message("assistant", *ODD_CALLS, kind="reply"),
        message("user", *ODD_RESULTS, kind="results"),
        message("assistant", *ODD_BLOCKS, kind="reply"),
    )
    before = log.read_bytes()
    checked = run(["sessions", "check"], project, home=home)
    assert checked.returncode == 65
    assert [f"line {n}: holds blocks of no known shape" in checked.stdout for n in range(2, 6)] == [True] * 4
    with repl(project, home=home, server=server, arguments=["--continue"], rows=50, columns=200) as terminal:
        terminal.wait("as is ≈")
        for text in ("look at this", "That was odd.", "read_file", "4 faults (line 2, 3, 4, 5)"):
            terminal.wait(text)
        say(terminal, "and go on", "Heard on.")
        for form in ("md", "json", "jsonl"):
            say(terminal, f"/export {form} out.{form}", f"Exported to {project}/out.{form}")
            assert "That was odd." in (project / f"out.{form}").read_text()
        say(terminal, "/context", "Compactions so far: 0")
        say(terminal, "/compact", "Context compaction finished.")
        say(terminal, "/compact undo", "undone")
        say(terminal, "again the end", "Heard end.")
        terminal.enter("/transcript")
        terminal.wait(lambda t: "## You" in t.shown_text)
        terminal.send("q")
        terminal.wait_prompt()
        assert "fault of its own" not in terminal.text
        assert terminal.leave() == 0
    assert log.read_bytes().startswith(before)
    assert run(["-p", "once more", "--continue"], project, home=home, server=server).stdout == "Heard more.\n"


def test_an_old_session_that_is_open_is_left_alone(server: Server, tmp_path: Path) -> None:
    project, home = make_project(tmp_path / "project"), tmp_path / "home"
    with repl(project, home=home, server=server) as terminal:
        say(terminal, "the first line", "Heard line.")
        (log,) = logs(project)
        long_ago = time.time() - 400 * 86_400
        for path in (log, log.parent, log.parent.parent):
            os.utime(path, (long_ago, long_ago))
        before = log.read_bytes()
        for arguments in (["-p", "another"], ["sessions", "list", "--all"], ["sessions", "check"]):
            assert run(arguments, project, home=home, server=server).returncode == 0
        with repl(project, home=home, server=server) as other:
            assert other.leave() == 0
        assert log.read_bytes() == before
        say(terminal, "the second line", "> the second line")
        assert terminal.leave() == 0
    assert log.read_bytes().startswith(before)
    assert "the second line" in log.read_text()


def test_the_picker_over_all_projects(server: Server, tmp_path: Path) -> None:
    home = tmp_path / "home"
    here, there = make_project(tmp_path / "here"), make_project(tmp_path / "there")
    for line, where in (("about fish", here), ("about birds", there), ("about cats", there)):
        assert run(["-p", line], where, home=home, server=server).returncode == 0
    with repl(here, home=home, server=server, arguments=["--resume", "?"], is_awaited=False) as terminal:
        terminal.wait("Resume a session")
        terminal.wait("> about fish")
        assert "about birds" not in terminal.text
        terminal.press("tab")
        terminal.wait("Resume a session (all)")
        terminal.wait("about birds")
        terminal.wait("0/there")
        terminal.type("cats")
        terminal.wait(lambda t: "about birds" not in t.shown_text)
        terminal.press("c-r")
        terminal.wait("new name>")
        terminal.press("c-u")
        terminal.type("felines")
        terminal.wait("new name> felines")
        terminal.press("enter")
        terminal.wait("search>")
        terminal.wait("Resume a session (all)")
        terminal.wait("about birds")
        terminal.type("birds")
        terminal.wait(lambda t: "felines" not in t.shown_text)
        terminal.press("c-d")
        terminal.wait("Delete it for good?")
        terminal.press("y")
        terminal.wait(lambda t: "felines" in t.shown_text and "about birds" not in t.shown_text)
        terminal.type("felines")
        terminal.wait("search> felines")
        terminal.press("enter")
        terminal.wait("Resumed session:")
        terminal.wait("Heard cats.")
        terminal.wait_prompt()
        say(terminal, "and dogs", "Heard dogs.")
        assert terminal.leave() == 0
    (log,) = logs(there)
    assert "and dogs" in log.read_text()
    assert "felines" in run(["sessions", "list"], there, home=home).stdout


def test_what_is_kept_is_private_whatever_the_umask(server: Server, tmp_path: Path) -> None:
    project, home = make_project(tmp_path / "project"), tmp_path / "home"
    before = os.umask(0)
    try:
        assert run(["-p", "keep this"], project, home=home, server=server).returncode == 0
        assert "keep this" in run(["sessions", "list"], project, home=home).stdout
    finally:
        os.umask(before)
    kept = [*(project / ".transcripts").rglob("*"), *(home / ".local").rglob("*"), home / ".local"]
    assert any(path.name == "catalogue.sqlite3" for path in kept)
    assert [path for path in kept if path.stat().st_mode & 0o077] == []


def test_a_session_that_could_not_be_saved_is_said_where_it_is_left(server: Server, tmp_path: Path) -> None:
    project, home = make_project(tmp_path / "project"), tmp_path / "home"
    limited = ["/bin/bash", "-c", 'ulimit -f 6; exec "$@"', "-", *PROGRAM]
    terminal = Terminal(limited, project, environment(home, server))
    try:
        terminal.wait_prompt()
        say(terminal, "a line to keep", "Heard keep.")
        terminal.wait(lambda t: t.text.count("cannot be saved") == 1)
        say(terminal, "/new", "New conversation started.")
        terminal.wait(lambda t: " ".join(t.text.split()).count("could not be saved and is lost.") == 1)
        assert terminal.leave() == 0
    finally:
        terminal.kill()


def test_a_session_open_for_reading_says_so_and_can_be_forked(server: Server, tmp_path: Path) -> None:
    project, home = make_project(tmp_path / "project"), tmp_path / "home"
    with repl(project, home=home, server=server) as holder:
        say(holder, "the first line", "Heard line.")
        (log,) = logs(project)
        before = log.read_bytes()
        with repl(project, home=home, server=server, arguments=["--continue"], is_awaited=False) as reader:
            reader.wait("is open in another place")
            reader.press("down")
            reader.wait("> read only")
            reader.press("enter")
            reader.wait("Open for reading only")
            reader.wait_prompt()
            say(reader, "may I?", "This session is open for reading only.")
            say(reader, "/fork", f"Forked {log.parent.name}")
            say(reader, "now I may", "Heard may.")
            assert reader.leave() == 0
        assert log.read_bytes() == before
        say(holder, "and more", "Heard more.")


def test_an_empty_id_begins_no_session(project: Path, home: Path) -> None:
    done = run(["-p", "hi", "--resume", ""], project, home=home, env={"ANTHROPIC_API_KEY": "k"})
    assert (done.returncode, done.stdout) == (2, "")
    assert "--resume needs a session" in done.stderr
    assert logs(project) == []


def test_a_name_that_two_projects_have_is_asked_about(server: Server, tmp_path: Path) -> None:
    home = tmp_path / "home"
    here, there = make_project(tmp_path / "here"), make_project(tmp_path / "there")
    for project, name in ((here, "zoo"), (there, "zoo"), (there, "aviary")):
        manager = TranscriptManager(project, home / ".local" / "share" / "bareagent")
        with contextlib.closing(Session.new(manager, project)) as session:
            turn(session, f"about the {name}", "output")
            session.record(Name(name=name))
    with repl(here, home=home, server=server) as terminal:
        terminal.enter("/resume zoo")
        terminal.wait("2 sessions have this name")
        terminal.wait("0/there")
        terminal.press("escape")
        terminal.wait_prompt()
        assert "Resumed session:" not in terminal.text
        terminal.enter("/resume aviary")
        terminal.wait("This session is of another project")
        terminal.settle(0.4)
        terminal.press("n")
        terminal.wait_prompt()
        assert "Resumed session:" not in terminal.text
        assert terminal.leave() == 0
    done = run(["-p", "hi", "--resume", "aviary"], here, home=home, server=server)
    assert (done.returncode, done.stdout) == (66, "")


def test_what_was_said_before_a_compaction_is_known_to_the_next_process(
    start_server: StartServer, tmp_path: Path
) -> None:
    def answer(record: Record) -> dict[str, str]:
        return heard(record) if record.body.get("tools") else {"text": "They spoke of a plover."}

    server = start_server([], default=answer)
    project, home = make_project(tmp_path / "project"), tmp_path / "home"
    with repl(project, home=home, server=server) as terminal:
        say(terminal, "you must never forget nonce-7341", "Heard nonce-7341.")
        for generation in (1, 2):
            say(terminal, "/compact", f".{generation} · ")
        assert terminal.leave() == 0
    assert run(["-p", "and now", "--continue"], project, home=home, server=server).returncode == 0
    sent = json.dumps(server.requests[-1].messages)
    assert "They spoke of a plover." in sent
    assert "you must never forget nonce-7341" in sent
    assert sent.count("Context Compressed") == 1
    server.check()


def test_a_run_stopped_in_the_second_of_three_calls_tells_the_truth_of_each(
    start_server: StartServer, tmp_path: Path
) -> None:
    commands = ["echo one > first", "touch begun; sleep 60", "echo three > third"]
    calls = [{"name": "bash", "input": {"command": command}} for command in commands]
    server = start_server([{"calls": calls}], default=heard)
    project, home = make_project(tmp_path / "project"), tmp_path / "home"
    with repl(project, home=home, server=server, arguments=["--mode", "bypass"]) as terminal:
        terminal.enter("do all three")
        terminal.wait(lambda _: (project / "begun").exists())
        terminal.press("c-c")
        terminal.wait("Interrupted.")
        terminal.wait_prompt()
        say(terminal, "and go on", "Heard on.")
        say(terminal, "/compact", "Context compaction finished.")
        assert terminal.leave() == 0
    answered = server.requests[1].messages[2]["content"]
    told = [text_of(block) for block in answered if block["type"] == "tool_result"]
    assert ["exit code 0" in told[0], "may have had effects" in told[1], "not run" in told[2]] == [True] * 3
    assert not (project / "third").exists()
    server.check()


def test_a_project_moved_in_mid_session(server: Server, tmp_path: Path) -> None:
    """A command of the user's and a fork say what is gone; the conversation goes on."""
    project = make_project(tmp_path / "p")
    with repl(project, home=tmp_path / "home", server=server) as terminal:
        say(terminal, "first", "Heard first.")
        project.rename(tmp_path / "p2")
        say(terminal, "!pwd; ls", "(the working directory")
        say(terminal, "/fork", "cannot be copied: ")
        assert not project.exists()
        say(terminal, "last", "Heard last.")
        assert "a fault of its own" not in terminal.text
        assert "Errno" not in terminal.text
        assert terminal.leave() == 0


def test_a_log_cut_short_in_mid_session(server: Server, tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    with repl(project, home=tmp_path / "home", server=server) as terminal:
        say(terminal, "first", "Heard first.")
        say(terminal, "second", "Heard second.")
        (log,) = logs(project)
        os.truncate(log, 0)
        say(terminal, "/rewind 1", "was cut short from outside")
        terminal.press("c-c")
        os.truncate(log, 0)
        say(terminal, "/export md", "Exported to")
        os.truncate(log, 0)
        say(terminal, "/fork", "Forked ")
        say(terminal, "third", "Heard third.")
        assert "a fault of its own" not in terminal.text
        assert terminal.leave() == 0
    (exported,) = project.glob("*.md")
    assert "Heard first." in exported.read_text()
