"""The real program killed, cut off, shut out and run out of room: what a session keeps of it.

Each call of the scripted run leaves its own line in a counter file, so that one run twice shows.
"""

import contextlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from bareagent.messages import text_of
from bareagent.session import Session
from bareagent.store.transcripts import TranscriptManager
from tests.play import check_sendable
from tests.program import PROGRAM, environment, logs, run
from tests.screen import WAIT_S, repl
from tests.server.fixtures import StartServer
from tests.server.jsonish import Json
from tests.server.record import Record
from tests.server.server import Server, serve

TASK = Path(__file__).parent / "server" / "scripts" / "task.json"
LINE = re.compile(r"run (\d+)")
N_CALLS = 9


class Counting:
    """A model that answers each line by nine calls, each of its own number, then by one text."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)

    def __call__(self, record: Record) -> Json:
        if not record.body.get("tools"):
            return {"text": "All of it was counted."}  # a summary
        since = 0
        for message in reversed(record.messages):
            if any(block["type"] == "text" and LINE.search(block["text"]) for block in message["content"]):
                break
            since += message["role"] == "assistant"
        if since == N_CALLS:
            return {"text": f"All done after {next(self.numbers)}."}
        command = f"echo {next(self.numbers)} >> counter; sleep 0.02"
        return {
            "thinking": "One more.",
            "text": "Counting on.",
            "calls": [{"name": "bash", "input": {"command": command}}],
            "delay_s": 0.001,
        }


class Played:
    """A project with a session that is killed again and again, and what must still be true of it."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.project = folder / "project"
        self.project.mkdir()
        self.home = folder / "home"
        self.n = 0
        self.finished: list[int] = []
        self.known: list[Json] = []

    def next(self) -> tuple[str, list[str]]:
        """The next line to say, and the arguments that take up the newest session if there is one."""
        self.n += 1
        return f"run {self.n}", ["--mode", "bypass", *(["--continue"] if logs(self.project) else [])]

    def start(self) -> "subprocess.Popen[bytes]":
        """Say the next line in print mode."""
        line, arguments = self.next()
        return subprocess.Popen(
            [*PROGRAM, "-p", line, *arguments],
            cwd=self.project,
            env=environment(self.home, self.server),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def kill_in_print_mode(self, chance: random.Random) -> None:
        """Kill the program while a reply streams, while a command runs, or in between."""
        wanted = self._wanted(chance)
        program = self.start()
        while program.poll() is None and len(self.server.requests) < wanted:
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.06))
        program.kill()
        _, err = program.communicate()
        assert program.returncode in {-signal.SIGKILL, 0}, err.decode()

    def kill_in_a_terminal(self, chance: random.Random) -> None:
        """The same in the REPL."""
        wanted = self._wanted(chance)
        line, arguments = self.next()
        with repl(self.project, home=self.home, server=self.server, arguments=arguments) as terminal:
            terminal.enter(line)
            n_known, deadline = -1, 0.0
            while len(self.server.requests) < wanted:
                if len(self.server.requests) != n_known:
                    n_known, deadline = len(self.server.requests), time.monotonic() + WAIT_S
                assert terminal.pump(0.005), terminal.shown_text
                assert time.monotonic() < deadline, terminal.shown_text
            terminal.pump(chance.uniform(0, 0.06))
            terminal.kill()

    def _wanted(self, chance: random.Random) -> int:
        return len(self.server.requests) + chance.randint(1, N_CALLS)

    def check(self) -> None:
        """Nothing that was on the disk before is lost or changed; no call ran twice."""
        (log,) = logs(self.project)
        entries = [_entry(line) for line in log.read_bytes().split(b"\n")]
        whole = [entry for entry in entries if entry]
        assert whole[: len(self.known)] == self.known
        self.known = whole
        counted = Counter((self.project / "counter").read_text().split())
        assert all(times == 1 for times in counted.values()), counted
        self.server.check()


def _entry(line: bytes) -> Json:
    try:
        entry: Json = json.loads(line)
    except ValueError:
        return {}
    return entry


def _played(start_server: StartServer, folder: Path) -> Played:
    return Played(start_server([], default=Counting()), folder)


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("n_kills", [15, pytest.param(500, marks=pytest.mark.soak)])
def test_a_run_killed_at_any_moment_is_taken_up(
    start_server: StartServer, tmp_path: Path, n_kills: int
) -> None:
    """Every start resumes what the kill before it left behind."""
    played = _played(start_server, tmp_path)
    chance = random.Random(n_kills)
    for number in range(n_kills):
        kill = played.kill_in_a_terminal if number % 2 else played.kill_in_print_mode
        kill(chance)
        played.check()
    last = played.start()
    out, err = last.communicate(timeout=60)
    assert last.returncode == 0, err.decode()
    assert out.decode().startswith("All done")
    played.check()
    (log,) = logs(played.project)
    said = [int(found) for line in _lines(played.project, log) for found in LINE.findall(line)]
    assert said == list(range(1, n_kills + 2)), "each line that was said is there, in order, once"


def _lines(project: Path, log: Path) -> list[str]:
    """The lines of the user's, those too that were compacted since; the view must be one that can be sent."""
    manager = TranscriptManager(project, project)
    with contextlib.closing(Session.open(manager, log.parent.name)) as session:
        check_sendable(session)
        return [text_of(entry.message) for entry in session.conversation() if entry.kind == "line"]


@pytest.fixture(scope="module")
def ten_turns(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The log of a run of ten turns."""
    folder = tmp_path_factory.mktemp("ten")
    with serve([], default=Counting()) as server:
        done = run(["-p", "run 1", "--mode", "bypass"], folder, home=folder / "home", server=server)
    assert done.returncode == 0, done.stderr
    (log,) = logs(folder)
    return log.read_bytes()


def _cuts(data: bytes, n: int) -> list[int]:
    """Places in a log behind its first line of the user: some right at an entry's end, the rest anywhere."""
    first = data.index(b'"line"')
    borders = [place + 1 for place, byte in enumerate(data) if byte == 10 and place > first]
    chance = random.Random(n)
    anywhere = [chance.randrange(borders[0], len(data)) for _ in range(n - n // 4)]
    return sorted(chance.sample(borders, n // 4) + anywhere)


@pytest.mark.parametrize("n_cuts", [6, pytest.param(20, marks=pytest.mark.soak)])
def test_a_log_cut_at_any_byte_goes_on(
    start_server: StartServer, tmp_path: Path, ten_turns: bytes, n_cuts: int
) -> None:
    server = start_server([], default={"text": "I go on."})
    for cut in _cuts(ten_turns, n_cuts):
        folder = tmp_path / str(cut) / ".transcripts" / "20260101-000000-aaaa"
        folder.mkdir(parents=True)
        log = folder / "log.jsonl"
        log.write_bytes(ten_turns[:cut])
        project = tmp_path / str(cut)
        done = run(["-p", "go on", "--continue"], project, home=tmp_path / "home", server=server)
        assert (done.returncode, done.stdout) == (0, "I go on.\n"), f"cut at {cut}: {done.stderr}"
        kept = log.read_bytes()
        whole = ten_turns[: ten_turns.rfind(b"\n", 0, cut) + 1]
        assert kept.startswith(whole)
        assert all(map(_entry, kept.splitlines())), f"cut at {cut}"
        assert not (project / "counter").exists(), "what was asked for before the cut does not run now"
        asked = server.requests[-1]
        assert asked.last_text.endswith("go on")
        calls = [block for block in _blocks(asked) if block["type"] == "tool_use"]
        assert all(block["id"].encode() in ten_turns[:cut] for block in calls)
    server.check()


def _blocks(record: Record) -> list[Json]:
    return [block for message in record.messages for block in message["content"]]


class Holder:
    """A program that waits in a command of its run, holding its session."""

    def __init__(self, server: Server, project: Path, home: Path) -> None:
        self.program = subprocess.Popen(
            [*PROGRAM, "-p", "hold", "--mode", "bypass"],
            cwd=project,
            env=environment(home, server),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.started = project / "started"
        deadline = time.monotonic() + 60
        while not self.started.exists():
            assert self.program.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_session_has_one_writer(start_server: StartServer, tmp_path: Path) -> None:
    command = "touch started; while [ ! -e free ]; do sleep 0.05; done"
    hold = {"calls": [{"name": "bash", "input": {"command": command}}]}
    server = start_server([hold, {"text": "I held it."}, {"text": "It is mine now."}])
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    (tmp_path / "link").symlink_to(project)
    holder = Holder(server, project, home)
    (log,) = logs(project)
    linked = [log.parents[1] / f"2020010{n}-000000-aaaa" for n in range(1, 4)]
    linked[0].mkdir()
    (linked[0] / "log.jsonl").hardlink_to(log)
    linked[1].symlink_to(log.parent)
    linked[2].mkdir()
    (linked[2] / "log.jsonl").symlink_to(log)
    before = log.read_bytes()
    ways = [
        (["--continue"], tmp_path / "link"),
        (["--resume", log.parent.name[:-4]], project),
        (["--resume", str(log.parent)], tmp_path),
        (["--continue", "--transcripts", str(log.parents[1])], tmp_path),
        (["--resume", linked[1].name], project),
    ]
    for way, cwd in ways:
        done = run(["-p", "me too", *way], cwd, home=home, server=server)
        assert (done.returncode, done.stdout) == (75, ""), f"{way}: {done.stderr}"
        assert str(holder.program.pid) in done.stderr, f"{way}: {done.stderr}"
    for folder in (linked[0], linked[2]):
        done = run(["-p", "me too", "--resume", folder.name], project, home=home, server=server)
        assert (done.returncode, done.stdout) == (75, ""), f"{folder}: {done.stderr}"
    for folder in linked:
        shutil.rmtree(folder) if not folder.is_symlink() else folder.unlink()
    holder.program.send_signal(signal.SIGSTOP)
    assert run(["-p", "me too", "--continue"], project, home=home, server=server).returncode == 75
    holder.program.send_signal(signal.SIGCONT)
    assert log.read_bytes() == before
    (project / "free").touch()
    out, err = holder.program.communicate(timeout=60)
    assert (holder.program.returncode, out) == (0, b"I held it.\n"), err.decode()
    done = run(["-p", "now me", "--continue"], project, home=home, server=server)
    assert (done.returncode, done.stdout) == (0, "It is mine now.\n"), done.stderr
    assert len(logs(project)) == 1


def test_a_holder_that_was_killed_holds_nothing(start_server: StartServer, tmp_path: Path) -> None:
    command = "echo $$ > started; exec sleep 300"
    hold = {"calls": [{"name": "bash", "input": {"command": command}}]}
    server = start_server([hold, {"expect": ["interrupted"], "text": "On with it."}])
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    holder = Holder(server, project, home)
    holder.program.kill()
    holder.program.communicate()
    (log,) = logs(project)
    done = run(["-p", "go on", "--resume", log.parent.name], project, home=home, server=server)
    assert (done.returncode, done.stdout) == (0, "On with it.\n"), done.stderr
    with contextlib.suppress(ProcessLookupError, ValueError):
        os.kill(int(holder.started.read_text()), signal.SIGKILL)
    server.check_done()


def test_a_disk_that_fills_up_is_told_once_and_the_run_goes_on(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server([], default=Counting())
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    limited = 'ulimit -f 14; exec "$@"'
    done = subprocess.run(
        ["/bin/bash", "-c", limited, "-", *PROGRAM, "-p", "run 1", "--mode", "bypass"],
        cwd=project,
        env=environment(home, server),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "All done after 10.\n"), done.stderr
    assert done.stderr.count("cannot be saved") == 1
    assert (project / "counter").read_text().split() == [str(n) for n in range(1, N_CALLS + 1)]
    (log,) = logs(project)
    kept = log.read_bytes()
    assert kept.endswith(b"\n")
    assert all(map(_entry, kept.splitlines()))
    again = run(["-p", "run 2", "--mode", "bypass", "--continue"], project, home=home, server=server)
    assert (again.returncode, again.stdout) == (0, "All done after 20.\n"), again.stderr
    assert log.read_bytes().startswith(kept)
    server.check()


def test_where_nothing_can_be_saved_it_is_said_and_answered(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server([], default={"text": "Hello."})
    (tmp_path / ".transcripts").write_text("a file in the way")
    done = run(["-p", "hi"], tmp_path, home=tmp_path / "home", server=server)
    assert (done.returncode, done.stdout) == (0, "Hello.\n")
    assert done.stderr.count("saved") == 1
    assert (tmp_path / ".transcripts").read_text() == "a file in the way"


def _mortal() -> list[str]:
    """What to put before a command so that file modes count for it, root or not."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv") or pytest.skip("root may write anywhere, and setpriv is not here")
    mortal = [setpriv, "--bounding-set", "-dac_override", "--"]
    if subprocess.run([*mortal, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("root may write anywhere, and setpriv may not change that here")
    return mortal


def test_a_folder_for_reading_only_is_said_once_and_left_alone(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server([], default={"text": "Hello."})
    project = tmp_path / "project"
    project.mkdir(mode=0o500)
    done = subprocess.run(
        [*_mortal(), *PROGRAM, "-p", "hi"],
        cwd=project,
        env=environment(tmp_path / "home", server),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "Hello.\n"), done.stderr
    assert done.stderr.count("saved") == 1
    assert list(project.iterdir()) == []


def test_no_two_projects_share_their_sessions(start_server: StartServer, tmp_path: Path) -> None:
    """Paths that differ in `/`, `-`, `_` or `.` only, or behind their 200th character, and a symlink."""
    server = start_server([], default=lambda record: {"text": f"Heard {record.last_text.split()[-1]}."})
    home = tmp_path / "home"
    env = {"BAREAGENT_SESSION_DIR": "user"}
    long = Path("d" * 110) / ("e" * 110)
    places = [Path("a/b-c"), Path("a-b/c"), Path("a_b.c"), long / "one", long / "two"]
    for number, place in enumerate(places):
        project = tmp_path / place
        project.mkdir(parents=True)
        done = run(["-p", f"first of {number}"], project, home=home, server=server, env=env)
        assert (done.returncode, done.stderr) == (0, "")
        assert not (project / ".transcripts").exists()
    (tmp_path / "link").symlink_to(tmp_path / places[0])
    run(["-p", "second of 0", "--continue"], tmp_path / "link", home=home, server=server, env=env)
    saved = [path.read_text() for path in home.rglob("log.jsonl")]
    assert len(saved) == len(places)
    for number in range(len(places)):
        (mine,) = [log for log in saved if f"first of {number}" in log]
        assert ("second of 0" in mine) == (number == 0)


def test_a_log_of_many_gigabytes_is_refused_at_once(project: Path, home: Path) -> None:
    folder = project / ".transcripts" / "20260101-000000-aaaa"
    folder.mkdir(parents=True)
    with (folder / "log.jsonl").open("wb") as file:
        file.truncate(37 << 30)  # a hole: it takes no room
    done = run(["-p", "hi", "--resume", folder.name], project, home=home, env={"ANTHROPIC_API_KEY": "k"})
    assert done.returncode == 65
    assert "logs over 4.3 GB are not opened" in done.stderr


@pytest.mark.parametrize("where", ["README.md", "./README.md"])
def test_a_path_given_for_an_id_is_never_written(project: Path, home: Path, where: str) -> None:
    text = "# A readme\n"
    (project / "README.md").write_text(text)
    done = run(["-p", "hi", "--resume", where], project, home=home, env={"ANTHROPIC_API_KEY": "k"})
    assert done.returncode in {65, 66}
    assert (project / "README.md").read_text() == text
