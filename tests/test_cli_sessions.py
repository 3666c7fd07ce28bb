"""`bareagent sessions …`, through the real program."""

import json
import subprocess
from pathlib import Path

from bareagent.entries import Compaction, Name
from bareagent.sanitize import clean
from bareagent.session import Session
from bareagent.store.transcripts import TranscriptManager
from tests.play import line, reply, round_of, turn
from tests.program import run
from tests.server.fixtures import StartServer


def new(project: Path, home: Path) -> Session:
    return Session.new(TranscriptManager(project, home / ".local" / "share" / "bareagent"), project)


def saved(project: Path, home: Path, *lines: str, name: str = "") -> str:
    """A saved session of these lines, with a result each; its id."""
    session = new(project, home)
    for text in lines:
        turn(session, text, f"the output of {text}")
    if name:
        session.record(Name(name=name))
    session.record(session.card(tokens=1200, branch="main"))
    session.close()
    return session.id


def sessions(project: Path, home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run(["sessions", *arguments], project, home=home)


def log_of(project: Path, key: str) -> Path:
    return project / ".transcripts" / key / "log.jsonl"


def test_list(project: Path, home: Path, tmp_path: Path) -> None:
    empty = sessions(project, home)
    assert (empty.returncode, empty.stdout) == (0, "No saved sessions.\n")
    evil = "evil \x1b[2J\u202e name"
    first, second = saved(project, home, "about fish"), saved(project, home, "about birds", name=evil)
    rows = sessions(project, home, "list").stdout.splitlines()
    assert [row.split()[:2] for row in rows] == [["1", second], ["2", first]]
    assert "about fish" in rows[1]
    assert "2 turns, 1.2k tokens, $0.50, main" in rows[1]
    assert clean(rows[0]) == rows[0]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert sessions(elsewhere, home).stdout == "No saved sessions.\n"
    found = json.loads(sessions(elsewhere, home, "list", "--all", "--json").stdout)
    assert [card["id"] for card in found] == [second, first]
    assert found[0]["name"] == evil
    assert found[1]["first_line"] == "about fish"
    assert found[1]["cwd"] == str(project)
    by_flag = run(["--transcripts", str(project / ".transcripts"), "sessions"], elsewhere, home=home)
    assert first in by_flag.stdout


def test_show_and_export(project: Path, home: Path) -> None:
    key = saved(project, home, "about fish", "about \x1b[31mbirds", name="zoo")
    shown = sessions(project, home, "show", "zoo")
    assert shown.returncode == 0
    for text in (key, "about fish", "about birds", "the output of about fish", "4 turns"):
        assert text in shown.stdout
    assert clean(shown.stdout) == shown.stdout
    whole = json.loads(sessions(project, home, "show", key[:-2], "--json").stdout)
    assert (whole["id"], whole["name"], len(whole["messages"])) == (key, "zoo", 8)
    to_stdout = sessions(project, home, "export", "1").stdout
    assert to_stdout.startswith("# zoo")
    done = sessions(project, home, "export", key, "--format", "jsonl", "-o", "out.jsonl")
    assert (done.returncode, done.stdout) == (0, "")
    texts = [json.loads(row) for row in (project / "out.jsonl").read_text().splitlines()]
    assert len(texts) == 8
    again = sessions(project, home, "export", key, "-o", "out.jsonl")
    assert again.returncode == 2
    assert "not overwritten" in again.stderr


def test_what_is_not_there_and_what_cannot_be_read(project: Path, home: Path) -> None:
    key = saved(project, home, "about fish")
    missing = sessions(project, home, "show", "20200101-000000-aaaa")
    assert missing.returncode == 66
    assert key in missing.stderr
    assert sessions(project, home, "rm", "nothing").returncode == 66
    assert sessions(project, home, "show", key, "--request", "3").returncode == 66
    assert sessions(project, home, "what").returncode == 2
    log_of(project, key).write_bytes(b"this is no log\n" * 20)
    assert sessions(project, home, "show", key).returncode == 65
    assert sessions(project, home, "export", key).returncode == 65
    assert sessions(project, home, "check").returncode == 65


def test_check_and_repair(project: Path, home: Path) -> None:
    key, sound = saved(project, home, "about fish", "more"), saved(project, home, "about birds")
    path = log_of(project, key)
    rows = path.read_bytes().split(b"\n")
    rows[4] = b"\0" * 300
    path.write_bytes(b"\n".join(rows) + b'{"v":1,"n":99,"ty')
    damaged = path.read_bytes()
    done = sessions(project, home, "check")
    assert done.returncode == 65
    assert f"{sound}  " in done.stdout
    assert "sound" in done.stdout
    assert "line 5: holds no record" in done.stdout
    assert "is cut off" in done.stdout
    (report,) = json.loads(sessions(project, home, "check", key, "--json").stdout)
    assert {fault["line"] for fault in report["faults"]} >= {5, 6}
    assert sessions(project, home, "check", sound).returncode == 0
    repaired = sessions(project, home, "repair", key)
    made = repaired.stdout.split()[2].rstrip(";")
    assert path.read_bytes() == damaged
    shown = sessions(project, home, "show", made)
    assert "more" in shown.stdout
    assert f"fork of {key}" in shown.stdout
    listed = sessions(project, home).stdout.splitlines()
    assert [row.split()[1] for row in listed if ", fork  " in row] == [made]
    assert sessions(project, home, "check", made).stdout.count("line") <= 2


def test_remove_but_not_what_another_program_writes(project: Path, home: Path) -> None:
    key, other = saved(project, home, "about fish"), saved(project, home, "about birds")
    assert sessions(project, home, "rm", key, "--yes").stdout == f"Deleted {key}.\n"
    assert not log_of(project, key).parent.exists()
    session = Session.open(TranscriptManager(project, home), other)
    held = sessions(project, home, "rm", other, "--yes")
    assert held.returncode == 75
    assert "pid" in held.stderr
    assert "about birds" in sessions(project, home, "show", other).stdout
    session.close()


def test_remove_takes_no_row_and_is_sure_or_asks(project: Path, home: Path) -> None:
    key = saved(project, home, "about fish", name="zoo")
    by_row = sessions(project, home, "rm", "1", "--yes")
    assert (by_row.returncode, by_row.stdout) == (2, "")
    assert "give the id: `bareagent sessions list` shows it" in by_row.stderr
    unasked = sessions(project, home, "rm", key)
    assert unasked.returncode == 2
    assert "--yes" in unasked.stderr
    assert log_of(project, key).exists()
    assert sessions(project, home, "rm", "zoo", "-y").stdout == f"Deleted {key}.\n"
    assert not log_of(project, key).exists()


def test_a_row_that_is_not_there_points_at_the_shell_s_own_list(project: Path, home: Path) -> None:
    saved(project, home, "about fish")
    missing = sessions(project, home, "show", "7")
    assert missing.returncode == 66
    assert "`bareagent sessions list`" in missing.stderr
    assert "/sessions" not in missing.stderr


def test_an_older_generation_is_shown_without_a_fork(project: Path, home: Path) -> None:
    session = new(project, home)
    line(session, "before it")
    round_of(session, "output")
    reply(session, "done")
    session.compact(Compaction(summary="all about it", generation=0))
    line(session, "after it")
    session.record(session.card())
    session.close()
    assert "after it" in sessions(project, home, "show", session.id).stdout
    old = sessions(project, home, "show", f"{session.id}.0").stdout
    assert "before it" in old
    assert "after it" not in old
    assert sessions(project, home, "show", f"{session.id}.7").returncode == 66
    assert len(json.loads(sessions(project, home, "list", "--json").stdout)) == 1


def test_a_request_is_shown_as_it_was_sent(start_server: StartServer, project: Path, home: Path) -> None:
    (project / "a.txt").write_text("fish\n")
    read = {"calls": [{"name": "read_file", "input": {"file_path": "a.txt"}}]}
    server = start_server([read, {"text": "It holds fish."}])
    assert run(["-p", "what is in a.txt?"], project, home=home, server=server).returncode == 0
    for number, record in enumerate(server.requests, 1):
        done = sessions(project, home, "show", "1", "--request", str(number))
        assert done.stdout == record.raw.decode() + "\n"
        assert done.stderr.rstrip().endswith(": exact")
