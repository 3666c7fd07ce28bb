"""What takes long, or needs a terminal that lays its rows out anew: the bell after a long run, resizes in tmux."""

import itertools
import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.program import PROGRAM, environment
from tests.screen import repl
from tests.server.fixtures import StartServer
from tests.test_repl_ends import slowdown

pytestmark = pytest.mark.soak

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")


def test_a_long_run_rings(start_server: StartServer, project: Path, home: Path) -> None:
    call = {"calls": [{"name": "bash", "input": {"command": "sleep 21"}}]}
    server = start_server(["Short.", call, "Done."])
    with repl(project, home=home, server=server, arguments=["--mode", "bypass"]) as t:
        t.enter("one")
        t.wait("Short.")
        t.wait_prompt()
        assert b"\x07" not in bytes(t.raw)
        t.enter("two")
        t.wait("Done.", 60)
        t.wait(lambda t: b"\x07" in bytes(t.raw))
        t.leave()


class Tmux:
    """A program in a tmux of its own."""

    def __init__(self, name: str, command: str, cwd: Path, env: dict[str, str]) -> None:
        self._name = name
        size = ["-x", "100", "-y", "24"]
        # Its variables go by a shell: the server of another tmux keeps its own.
        given = " ".join(
            f"{key}='{value}'" for key, value in env.items() if key.isidentifier() and "'" not in value
        )
        self(
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            *size,
            f"cd {cwd}; {given} TERM=tmux-256color {command}; sleep 9",
        )

    def __call__(self, *words: str) -> str:
        done = subprocess.run(["tmux", "-L", self._name, *words], capture_output=True, text=True, check=True)
        return done.stdout

    def text(self) -> str:
        return self("capture-pane", "-p", "-J", "-S", "-2000")

    def wait(self, is_there: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + 60
        while not is_there(self.text()):
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.05)


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[str]:
    name = re.sub(r"\W", "", tmp_path.name)
    yield name
    subprocess.run(["tmux", "-L", name, "kill-server"], check=False, capture_output=True)


@needs_tmux
def test_resizes_in_tmux(start_server: StartServer, project: Path, home: Path, socket: str) -> None:
    """Each finished row stands once; each resize leaves one live region behind at most."""
    text = "\n\n".join(f"row {n:03} of many and a few words more so that it is broken" for n in range(100))
    server = start_server([{"text": text, "chunk": 40, "delay_s": 0.03}])
    keys = ("HOME", "PATH", "PYTHONPATH", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "LANG")
    env = {key: value for key, value in environment(home, server).items() if key in keys}
    tmux = Tmux(socket, " ".join(PROGRAM), project, env)
    tmux.wait(lambda text: "BareAgent REPL" in text)
    tmux("send-keys", "go", "Enter")
    tmux.wait(lambda text: "row 005" in text)
    widths = [80, 60, 100, 50, 90, 45, 100]
    for width in widths:
        tmux("resize-window", "-x", str(width), "-y", "24")
        time.sleep(0.25)
    tmux.wait(lambda text: "row 099" in text and "to interrupt" not in text.rpartition("row 099")[2])
    shown = tmux.text()
    found = [int(n) for n in re.findall(r"^row (\d{3})", shown, re.MULTILINE)]
    assert [n for n in range(100) if found.count(n) != 1] == []
    assert shown.count("bareagent>") <= 1 + len(widths)


def pile(chance: random.Random, n_blocks: int) -> tuple[str, int]:
    """Return a document of paragraphs, lists, quotes and tables, and how many numbered words it has."""
    numbers = itertools.count()

    def words(most: int) -> str:
        return " ".join(f"w{next(numbers):04}" for _ in range(chance.randint(1, most)))

    makers = (
        lambda: words(60),
        lambda: "# " + words(4),
        lambda: "\n".join("- " + words(12) for _ in range(4)),
        lambda: "> " + words(30),
        lambda: "| a | b |\n|---|---|\n" + "\n".join(f"| {words(1)} | {words(1)} |" for _ in range(8)),
    )
    text = "\n\n".join(chance.choice(makers)() for _ in range(n_blocks))
    return f"{text}\n\nENDMARK", next(numbers)


@needs_tmux
@pytest.mark.parametrize("seed", range(3))
def test_a_storm_of_resizes_in_tmux(
    start_server: StartServer, project: Path, home: Path, socket: str, seed: int
) -> None:
    """tmux lays its rows out at once and tells the new size later: no word is lost or doubled meanwhile."""
    chance = random.Random(seed)
    text, n_words = pile(chance, 50)
    server = start_server([{"text": text, "chunk": 10, "delay_s": 0.02}])
    keys = ("HOME", "PATH", "PYTHONPATH", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "LANG")
    env = {key: value for key, value in environment(home, server).items() if key in keys}
    tmux = Tmux(socket, " ".join(PROGRAM), project, env)
    tmux.wait(lambda text: "bareagent>" in text)
    tmux("send-keys", "go", "Enter")
    tmux.wait(lambda text: "w0001" in text)
    for _ in range(40):
        tmux("resize-window", "-x", str(chance.randint(20, 160)), "-y", str(chance.randint(6, 50)))
        time.sleep(chance.random() * 0.15)
    tmux("resize-window", "-x", "150", "-y", "40")
    tmux.wait(lambda text: "ENDMARK" in text and "to interrupt" not in text)
    found = [int(n) for n in re.findall(r"w(\d{4})", tmux.text())]
    assert [n for n in range(n_words) if found.count(n) != 1] == []
    assert tmux.text().count("bareagent>") == 1


@needs_tmux
def test_small_and_back_in_tmux(start_server: StartServer, project: Path, home: Path, socket: str) -> None:
    """To 10 by 5 and back, in a run: shrinking leaves at most one old status line, growing none."""
    server = start_server([{"text": "slow " * 400, "chunk": 5, "delay_s": 0.2}])
    keys = ("HOME", "PATH", "PYTHONPATH", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "LANG")
    env = {key: value for key, value in environment(home, server).items() if key in keys}
    tmux = Tmux(socket, " ".join(PROGRAM), project, env)
    tmux.wait(lambda text: "BareAgent REPL" in text)
    tmux("send-keys", "go", "Enter")
    tmux.wait(lambda text: "slow slow" in text)
    for n in range(1, 4):
        for size in (("10", "5"), ("100", "24")):
            tmux("resize-window", "-x", size[0], "-y", size[1])
            time.sleep(0.7)
        shown = tmux.text()
        assert len(re.findall("writing|waiting for the model", shown)) <= 1 + n, shown
        assert shown.count("bareagent>") <= 1 + n, shown


@pytest.mark.timeout(1200)
def test_two_thousand_turns_take_their_time_each(project: Path, home: Path) -> None:
    assert slowdown(project, home, 2_000) < 3
