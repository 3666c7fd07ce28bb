"""A pager or an editor in front of the real program: signals end both, Ctrl-C is the pager's own."""

import signal
import time
from pathlib import Path

import pytest

from tests.screen import Terminal, repl
from tests.server.fixtures import StartServer
from tests.test_repl_ends import SLEEP, is_restored, running


def is_gone(folder: Path, name: str) -> bool:
    """Whether the program that wrote its number into a file has ended, reaped or not."""
    try:
        stat = Path(f"/proc/{(folder / name).read_text().strip()}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def written(path: Path) -> bool:
    return path.exists() and bool(path.read_text().strip())


@pytest.mark.parametrize(
    ("number", "code", "is_editor"),
    [(signal.SIGTERM, 143, False), (signal.SIGHUP, 129, False), (signal.SIGTERM, 143, True)],
)
def test_told_to_go_behind_a_pager_or_an_editor(
    start_server: StartServer, tmp_path: Path, number: signal.Signals, code: int, *, is_editor: bool
) -> None:
    script = tmp_path / "wrapped"
    if is_editor:
        script.write_text(f"#!/bin/sh\nsh -c 'echo $$ > {tmp_path}/front; sleep 300'\n:\n")
    else:
        script.write_text(f'#!/bin/sh\necho $$ > {tmp_path}/front\nexec less "$1"\n')
    script.chmod(0o755)
    server = start_server(default="echo")
    env = {"PAGER": str(script), "VISUAL": str(script)}
    with repl(tmp_path, home=tmp_path / "home", server=server, env=env) as t:
        t.enter("hello")
        t.wait("echo: hello")
        t.wait_prompt()
        if is_editor:
            t.press("c-g")
        else:
            t.enter("/transcript")
        t.wait(lambda _: written(tmp_path / "front"))
        t.settle()
        t.child.kill(number)
        assert _ended(t) == code
    assert is_gone(tmp_path, "front")
    assert is_restored(t)


def _ended(t: Terminal) -> int:
    began = time.monotonic()
    code = t.ended(10)
    assert time.monotonic() - began < 8
    return code


def test_an_interrupt_in_the_pager_is_the_pagers(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server([SLEEP])
    env = {"PAGER": "less"}
    arguments = ["--mode", "bypass"]
    with repl(tmp_path, home=tmp_path / "home", server=server, env=env, arguments=arguments) as t:
        t.enter("go")
        child = running(tmp_path)
        t.enter("/transcript")
        t.wait("## You")
        t.press("c-c")
        t.settle(0.3)
        assert Path(f"/proc/{child}").exists()
        t.press("q")
        t.wait(lambda t: t.is_busy)
        assert Path(f"/proc/{child}").exists()
        t.press("c-c")
        t.wait_prompt()
        assert not Path(f"/proc/{child}").exists()
