"""What differs by terminal, and how it is left: colours by its background, sequences it takes, faults, pending keys."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bareagent.repl.start import own_command
from bareagent.repl.terminal import ask_background, copy_sequence
from tests.program import PROGRAM, environment, run
from tests.screen import Terminal, repl
from tests.server.fixtures import StartServer

ASKED = b"\x1b]11;?\x1b\\"
CODE = "See [the page](https://example.org/x):\n\n```python\nreturn 1\n```\n"
LIGHT_KEYWORD = b"38;5;90m"


def test_colours_and_links_follow_the_terminal(start_server: StartServer, project: Path, home: Path) -> None:
    """A light background gives the light theme; links and the clipboard only where they are known to be taken."""
    server = start_server(default={"text": CODE})
    with repl(project, home=home, server=server, env={"TERM_PROGRAM": "WezTerm"}) as t:
        t.wait(lambda t: ASKED in bytes(t.raw))
        t.send("\x1b]11;rgb:ffff/ff")
        t.pump(0.01)
        t.send("ff/f0f0\x1b\\")
        t.settle(0.05)
        assert t.draft == ""
        t.enter("show")
        t.wait("return 1")
        t.wait_prompt()
        assert LIGHT_KEYWORD in bytes(t.raw)
        assert b"\x1b]8;;https://example.org/x" in bytes(t.raw)
        t.enter("/copy")
        t.wait("Copied ")
        t.wait(lambda t: b"\x1b]52;c;" in bytes(t.raw))
        t.leave()
    with repl(project, home=home, server=server, env={"TERM": "linux"}) as t:
        t.enter("show")
        t.wait("return 1")
        t.wait_prompt()
        assert LIGHT_KEYWORD not in bytes(t.raw)
        t.enter("/copy")
        t.wait("no clipboard")
        assert b"\x1b]" not in bytes(t.raw)
        t.leave()
    assert ask_background({"TERM": "vt100"}) == copy_sequence("x", {"TERM": "vt100"}) == ""


def in_a_shell(project: Path, env: dict[str, str]) -> Terminal:
    return Terminal(["bash", "--norc", "--noprofile", "--noediting", "-i"], project, {**env, "PS1": "$ "})


def test_keys_still_pending_do_not_reach_the_shell(
    start_server: StartServer, project: Path, home: Path
) -> None:
    shell = in_a_shell(project, environment(home, start_server(default="echo")))
    try:
        shell.wait("$")
        # Only what came before the program's last words can be kept from the shell.
        assert any(left_with_keys_pending(shell, n) for n in range(1, 9)), shell.text
    finally:
        shell.kill()


def left_with_keys_pending(shell: Terminal, n: int) -> bool:
    """Start the program and leave it with keys on their way, none of which may arrive; False if it was too fast."""
    shell.send(" ".join([*PROGRAM, "\r"]))
    shell.wait(lambda t: t.text.count("BareAgent REPL") == n, 60)
    shell.wait_prompt()
    shell.send("\x04")
    shell.wait(lambda t: not t.has_prompt)
    for _ in range(8):
        shell.send(f"echo leaked-{n}-$((1+1))\r\x1b[27;5:3u")
    shell.settle(0.02)
    was_in_time = shell.text.count("Exiting BareAgent.") < n
    shell.wait(lambda t: t.text.count("Exiting BareAgent.") == n)
    shell.settle(0.2)
    shell.send(f"\x15\recho mine-{n}-$((1+2))\r")
    shell.wait(f"mine-{n}-3")
    assert not (was_in_time and f"leaked-{n}-2" in shell.text), shell.text
    return was_in_time


FAULT = """
import signal

def fault(*_):
    raise RuntimeError("a fault [/red] \\x1b]0;of ours\\x07")

signal.signal(signal.SIGUSR1, fault)
"""


def test_a_crash_gives_the_terminal_back(start_server: StartServer, project: Path, home: Path) -> None:
    """A fault raised anywhere in the program, a command running: exit code 70, one line, no child, `stty` as before."""
    site = home / "site"
    site.mkdir(parents=True)
    (site / "sitecustomize.py").write_text(FAULT)
    call = {
        "calls": [{"name": "bash", "input": {"command": "echo $$ > pid; echo begun-$((1+1)); sleep 300"}}]
    }
    # A fault that hits the tool is the tool's failure, and the model is asked again.
    server = start_server([call], default="echo", strict=False)
    shell = in_a_shell(project, environment(home, server, PYTHONPATH=str(site)))
    try:
        shell.wait("$")
        shell.send("stty -a > before\r")
        shell.send(" ".join([*PROGRAM, "--mode", "bypass", "\r"]))
        shell.wait("BareAgent REPL", 60)
        shell.wait_prompt()
        shell.enter("go")
        child = pid_in(project / "pid")
        shell.wait("begun-2")
        crash(shell)
        shell.wait("a fault of its own: RuntimeError: a fault [/red]")
        shell.send("echo code-$?; stty -a > after\r")
        shell.wait("code-70")
        shell.settle(0.1)
        assert (project / "before").read_text() == (project / "after").read_text()
        assert bytes(shell.raw).rfind(b"\x1b[?2004l") > bytes(shell.raw).rfind(b"\x1b[?25l")
        assert b"\x1b]0;" not in bytes(shell.raw)
        shell.wait(lambda _: not Path(f"/proc/{child}").exists())
        assert "Traceback" not in shell.text
    finally:
        shell.kill()


def crash(shell: Terminal) -> None:
    """Raise the fault until it ends the program: one that hits a callback is told, and the program goes on."""
    for _ in range(5):
        (program,) = children(shell.child.pid)
        os.kill(program, signal.SIGUSR1)
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            shell.settle(0.1)
            if not children(shell.child.pid):
                return
    raise AssertionError("it did not end")


def pid_in(path: Path) -> int:
    deadline = time.monotonic() + 20
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return int(path.read_text())


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_the_farewell_names_a_command_that_works(tmp_path: Path) -> None:
    script = tmp_path / "bin dir" / "bareagent"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    link = tmp_path / "links" / "bareagent"
    link.parent.mkdir()
    link.symlink_to(script)
    other = tmp_path / "other" / "bareagent"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    quoted = shlex.quote(str(script))
    assert own_command(str(script), str(script.parent)) == "bareagent"
    assert own_command(str(script), str(link.parent)) == "bareagent"
    assert own_command(str(script), str(other.parent)) == quoted
    assert own_command(str(script), "/nowhere") == quoted
    assert own_command("/x/bareagent/__main__.py", "/nowhere").endswith(" -m bareagent")
    assert own_command("/x/pytest", "/nowhere") == "bareagent"


def test_a_relative_start_can_be_repeated(start_server: StartServer, project: Path, home: Path) -> None:
    script = Path(sys.executable).parent / "bareagent"
    if not script.exists():
        pytest.skip("the program is not installed as a script here")
    (project / "bin").symlink_to(script.parent)
    server = start_server(default="echo")
    with repl(project, home=home, server=server, command=["sh", "-c", "exec bin/bareagent"]) as t:
        t.enter("hello")
        t.wait("echo: hello")
        t.wait_prompt()
        t.leave()
    (command,) = [row.partition(": ")[2] for row in t.rows if row.startswith("Go on with: ")]
    assert command.startswith("bin/bareagent --resume ")
    assert run(["sessions", "show", command.split()[-1]], project, home=home).returncode == 0


@pytest.mark.parametrize("arguments", ["--help", "models", "doctor"])
def test_nobody_reads_it(project: Path, home: Path, arguments: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(
            [*PROGRAM, *arguments.split()],
            cwd=project,
            env=environment(home),
            stdin=subprocess.DEVNULL,
            stdout=write_end,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) in {(0, ""), (1, "")}
    assert done.returncode == 0 or arguments == "doctor"


def test_the_help_is_plain_words(project: Path, home: Path) -> None:
    for arguments in (["--help"], ["sessions", "--help"], ["sessions", "show", "--help"]):
        said = run(arguments, project, home=home).stdout
        for noise in ("<", "x>=", "--no-debug", "range", "default:"):
            assert noise not in said, (arguments, noise)
    refused = run(["--max-turns", "-1"], project, home=home)
    assert (refused.returncode, refused.stdout) == (2, "")
