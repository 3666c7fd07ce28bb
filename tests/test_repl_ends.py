"""Ways out of the real program, and terminals that are none: the terminal restored, children ended, all saved."""

import json
import os
import shutil
import signal
import statistics
import subprocess
import termios
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from tests.canned import canned
from tests.program import PROGRAM, environment, logs, run
from tests.screen import Terminal, repl
from tests.server.fixtures import StartServer

SLEEP = {"calls": [{"name": "bash", "input": {"command": "echo $$ > pid; sleep 300"}}]}


def modes(t: Terminal) -> list[object]:
    return termios.tcgetattr(t.child.child_fd)[:4]


def is_restored(t: Terminal) -> bool:
    """Whether paste mode is off and the cursor seen, by the last word said about each."""
    raw = bytes(t.raw)
    return raw.rfind(b"\x1b[?2004l") > raw.rfind(b"\x1b[?2004h") and raw.rfind(b"\x1b[?25h") > raw.rfind(
        b"\x1b[?25l"
    )


def running(project: Path) -> int:
    deadline = time.monotonic() + 20
    while not ((project / "pid").exists() and (project / "pid").read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return int((project / "pid").read_text())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_told_to_go_in_a_command(
    start_server: StartServer, project: Path, home: Path, number: signal.Signals, code: int
) -> None:
    server = start_server([SLEEP])
    with repl(project, home=home, server=server, arguments=["--mode", "bypass"]) as t:
        before = modes(t)
        t.enter("go")
        child = running(project)
        assert modes(t) == before
        t.child.kill(number)
        assert t.ended(10) == code
    assert is_restored(t)
    assert "Exiting BareAgent." in t.text
    assert not Path(f"/proc/{child}").exists()
    (log,) = logs(project)
    assert "interrupted by the user" in log.read_text()


def test_modes_are_given_back(start_server: StartServer, project: Path, home: Path) -> None:
    """In a shell: the program leaves by /exit, by a refused start, after a suspend; the shell's line works."""
    server = start_server(default="echo")
    bash = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
    shell = Terminal(bash, project, environment(home, server, PS1="$ "))
    try:
        shell.wait("$")
        shell.send(" ".join([*PROGRAM, "\r"]))
        shell.wait("BareAgent REPL", 60)
        shell.wait_prompt()
        shell.enter("before")
        shell.wait("echo: before")
        shell.wait_prompt()
        shell.press("c-z")
        shell.wait("Stopped")
        assert is_restored(shell)
        shell.send("echo a-$((1+1))\r")
        shell.wait("a-2")
        shell.send("fg\r")
        shell.wait(lambda t: t.has_prompt and "Stopped" not in t.shown[-1])
        shell.enter("after")
        shell.wait("echo: after")
        shell.wait_prompt()
        shell.enter("/exit")
        shell.wait(f"Go on with: {PROGRAM[0]} -m bareagent --resume")
        shell.send("echo b-$((1+2)); stty -a | grep -o ' echo '\r")
        shell.wait("b-3")
        shell.wait(lambda t: "\n echo\n" in t.text + "\n")
        shell.send(" ".join([*PROGRAM, "--resume", "nothing-of-the-kind", "\r"]))
        shell.wait("bareagent: ")
        shell.send("echo code-$?\r")
        shell.wait("code-66")
        assert is_restored(shell)
    finally:
        shell.kill()


def test_odd_ends(start_server: StartServer, project: Path, home: Path) -> None:
    """A command killed from outside, a deleted folder: told, and the prompt comes back."""
    server = start_server(
        [SLEEP, "It died.", {"calls": [{"name": "bash", "input": {"command": "true"}}]}, "Gone."]
    )
    with repl(project, home=home, server=server, arguments=["--mode", "bypass"]) as t:
        t.enter("go")
        os.kill(running(project), signal.SIGKILL)
        t.wait("It died.")
        t.wait_prompt()
        assert "SIGKILL" in server.requests[1].last_text
        shutil.rmtree(project)
        t.enter("once more")
        t.wait("Gone.")
        t.wait_prompt()
        t.enter("/new")
        t.settle(0.2)
        assert t.leave() == 0
    assert "Traceback" not in t.text


def test_a_hang_up_ends_it(start_server: StartServer, project: Path, home: Path) -> None:
    server = start_server([SLEEP])
    with repl(project, home=home, server=server, arguments=["--mode", "bypass"]) as t:
        t.enter("go")
        child = running(project)
        pid = t.child.pid
        os.close(t.child.child_fd)
        deadline = time.monotonic() + 10
        while Path(f"/proc/{child}").exists() or not _is_zombie(pid):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_piped(start_server: StartServer, project: Path, home: Path) -> None:
    server = start_server(default="echo")
    done = run([], project, home=home, server=server, stdin="hello\n/status\n/exit\n")
    assert done.returncode == 0
    for text in ("BareAgent REPL (", "> hello", "echo: hello", "model", "Exiting BareAgent.", "--resume "):
        assert text in done.stdout
    assert "\x1b" not in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    (log,) = logs(project)
    again = run(["--continue"], project, home=home, server=server, stdin="")
    assert again.returncode == 0
    assert "> hello" in again.stdout
    assert "as is ≈" in again.stdout
    listed = run(["--resume", "?"], project, home=home, server=server, stdin="")
    assert listed.returncode == 0
    assert "1  " in listed.stdout
    assert "hello" in listed.stdout
    assert log.exists()


def slowdown(project: Path, home: Path, n_turns: int) -> float:
    """How much longer a turn takes near the end of so many than at their beginning, by the log."""
    with canned() as env:
        done = run([], project, home=home, env=env, stdin="go on\n" * n_turns, timeout_s=1200)
    assert done.returncode == 0, done.stderr
    rows = map(json.loads, logs(project)[0].read_text().splitlines())
    ends = [datetime.fromisoformat(row["at"]).timestamp() for row in rows if row["type"] == "turn_end"]
    took = [after - before for before, after in pairwise(ends)]
    assert len(took) >= n_turns - 1
    part = n_turns // 4
    return statistics.median(took[-part:]) / statistics.median(took[part : 2 * part])


def test_turns_take_their_time_each(project: Path, home: Path) -> None:
    assert slowdown(project, home, 40) < 2.5


def test_plain_lines_tell_which_files_have_changed(
    start_server: StartServer, project: Path, home: Path
) -> None:
    (project / "notes.txt").write_text("one\n")
    read = {"calls": [{"name": "read_file", "input": {"file_path": "notes.txt"}}]}
    server = start_server([read, "Read."])
    run([], project, home=home, server=server, stdin="read it\n")
    later = time.time() + 60
    os.utime(project / "notes.txt", (later, later))
    again = run(["--continue"], project, home=home, server=server, stdin="")
    assert "Changed on disk since the session saw them: notes.txt" in again.stdout


def test_nothing_is_asked_of_a_pipe(start_server: StartServer, project: Path, home: Path) -> None:
    call = {"calls": [{"name": "bash", "input": {"command": "touch x"}}]}
    server = start_server([call, "Refused, then."])
    done = run([], project, home=home, server=server, stdin="go\n")
    assert "Refused, then." in done.stdout
    assert "nobody can be asked" in server.requests[1].last_text
    assert not (project / "x").exists()


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"BAREAGENT_UI_PLAIN": "true"}])
def test_plain_terminals(start_server: StartServer, project: Path, home: Path, env: dict[str, str]) -> None:
    call = {"calls": [{"name": "bash", "input": {"command": "echo $((40+2)) > made"}}]}
    server = start_server([call, "Done.", "Second."])
    with repl(project, home=home, server=server, env=env) as t:
        t.send("go\r")
        t.wait("May bash run?")
        t.send("y\r")
        t.wait("Done.")
        t.wait(lambda t: t.rows[-1].endswith("bareagent>"))
        t.send("again\r")
        t.wait("Second.")
        t.wait(lambda t: t.rows[-1].endswith("bareagent>"))
        t.press("c-c")
        t.wait("Ctrl-C again")
        t.press("c-d")
        assert t.ended() == 0
        assert b"\x1b" not in bytes(t.raw)
    assert (project / "made").read_text() == "42\n"


def test_a_closed_pipe_is_no_fault(start_server: StartServer, project: Path, home: Path) -> None:
    server = start_server(default="echo")
    shell = f"echo hello | {' '.join(PROGRAM)} | head -1; exit ${{PIPESTATUS[1]}}"
    done = subprocess.run(
        ["bash", "-c", shell],
        cwd=project,
        env=environment(home, server),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.startswith("BareAgent REPL (")
    assert "Traceback" not in done.stderr


def test_what_could_not_be_saved_is_not_offered(start_server: StartServer, project: Path, home: Path) -> None:
    server = start_server(["Hello."])
    done = subprocess.run(
        ["/bin/bash", "-c", 'ulimit -f 1; echo hi | "$@"', "-", *PROGRAM],
        cwd=project,
        env=environment(home, server),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Hello." in done.stdout
    assert "could not be saved and is lost" in done.stdout
    assert "--resume" not in done.stdout
