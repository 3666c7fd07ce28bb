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
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bareagent.messages import Message, text_of
from bareagent.session import Session
from bareagent.store.transcripts import TranscriptManager
from tests.play import check_sendable
from tests.program import PROGRAM, environment, logs, run
from tests.server.fixtures import StartServer
from tests.server.jsonish import Json
from tests.server.record import Record
from tests.server.script import load as load_script
from tests.server.server import Server

TASK = Path(__file__).parent / "server" / "scripts" / "task.json"
LINE = re.compile(r"run (\d+)")
N_CALLS = 9


class Counting:
    """A model that answers each line by nine calls, each of its own number, then by one text."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)

    def __call__(self, record: Record) -> Json:
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

    def start(self) -> "subprocess.Popen[bytes]":
        """Say the next line to the newest session, or to a new one."""
        self.n += 1
        go_on = ["--continue"] if logs(self.project) else []
        return subprocess.Popen(
            [*PROGRAM, "-p", f"run {self.n}", "--mode", "bypass", *go_on],
            cwd=self.project,
            env=environment(self.home, self.server),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def kill_somewhere(self, chance: random.Random) -> None:
        """Run the program and kill it while a reply streams, while a command runs, or in between."""
        n_before = len(self.server.requests)
        program = self.start()
        wanted = n_before + chance.randint(1, N_CALLS)
        while program.poll() is None and len(self.server.requests) < wanted:
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.06))
        program.kill()
        _, err = program.communicate()
        assert program.returncode in {-signal.SIGKILL, 0}, err.decode()

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


@pytest.mark.parametrize(
    "n_kills", [15, pytest.param(500, marks=[pytest.mark.soak, pytest.mark.timeout(3000)])]
)
def test_a_run_killed_at_any_moment_is_taken_up(
    start_server: StartServer, tmp_path: Path, n_kills: int
) -> None:
    """Every start resumes what the kill before it left behind."""
    played = _played(start_server, tmp_path)
    chance = random.Random(n_kills)
    for _ in range(n_kills):
        played.kill_somewhere(chance)
        played.check()
    last = played.start()
    out, err = last.communicate(timeout=60)
    assert last.returncode == 0, err.decode()
    assert out.decode().startswith("All done")
    played.check()
    (log,) = logs(played.project)
    lines = [text_of(message) for message in _view(played.project, log) if message["role"] == "user"]
    said = [int(found) for line in lines for found in LINE.findall(line)]
    assert said == list(range(1, n_kills + 2)), "each line that was said is there, in order, once"


def _view(project: Path, log: Path) -> list[Message]:
    manager = TranscriptManager(project, project)
    with contextlib.closing(Session.open(manager, log.parent.name)) as session:
        check_sendable(session)
        return list(session.messages)
