"""How long until one can type, how long until an answer stands there, and what it takes in memory.

Baselines of the same run: `import prompt_toolkit`, `import typer`, the same request by the bare SDK.
Prints one JSON object. Times are medians in seconds, memory in MB.
"""

import json
import os
import pty
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.program import PROGRAM, environment
from tests.server.server import Server, serve

RUNS = 7
WAIT_S = 60.0
BARE_SDK = """
import anthropic, os
with anthropic.Anthropic() as client:
    with client.messages.stream(
        model="claude-sonnet-5-5", max_tokens=1000, messages=[{"role": "user", "content": "hi"}]
    ) as stream:
        print("".join(stream.text_stream))
"""


class Child:
    """The program on a pseudo-terminal."""

    def __init__(self, command: Sequence[str], cwd: Path, env: dict[str, str]) -> None:
        self.began = time.perf_counter()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe(command[0], list(command), env)
        self.seen = b""

    def until(self, wanted: bytes) -> float:
        """Seconds since the start at which these bytes had come."""
        start = len(self.seen)
        while wanted not in self.seen[start:]:
            if not select.select([self.fd], [], [], WAIT_S)[0]:
                raise TimeoutError(f"{wanted!r} did not come: {self.seen[-2000:]!r}")
            self.seen += os.read(self.fd, 1 << 16)
        return time.perf_counter() - self.began

    def send(self, data: bytes) -> None:
        os.write(self.fd, data)

    def memory_mb(self) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0.0

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def medians(measures: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """The median of each over several rounds, side by side; the first round only warms up."""
    taken: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(RUNS + 1):
        for name, measure in measures.items():
            taken[name].append(measure())
    return {name: statistics.median(values[1:]) for name, values in taken.items()}


def timed(command: Sequence[str], cwd: Path, env: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, cwd=cwd, env=env, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return time.perf_counter() - began


def first_echo(cwd: Path, env: dict[str, str]) -> float:
    """From exec to the first key that echoes."""
    child = Child(PROGRAM, cwd, env)
    child.until(b"bareagent>")
    child.send(b"Q")
    seconds = child.until(b"Q")
    child.end()
    return seconds


def first_answer(server: Server, cwd: Path, env: dict[str, str]) -> float:
    """From exec to the first answer on screen; the line is typed as soon as the prompt stands."""
    server.add("ANSWERED")
    child = Child(PROGRAM, cwd, env)
    child.until(b"bareagent>")
    child.send(b"hi")
    child.until(b"hi")
    child.send(b"\r")
    seconds = child.until(b"ANSWERED")
    child.end()
    return seconds


def memory(server: Server, cwd: Path, env: dict[str, str]) -> tuple[float, float]:
    """At the first prompt, and after an answer."""
    server.add("ANSWERED")
    child = Child(PROGRAM, cwd, env)
    child.until(b"bareagent>")
    before = child.memory_mb()
    child.send(b"hi")
    child.until(b"hi")
    child.send(b"\r")
    child.until(b"ANSWERED")
    after = child.memory_mb()
    child.end()
    return before, after


def one_shot(server: Server, cwd: Path, env: dict[str, str]) -> float:
    server.add("ANSWERED")
    return timed([*PROGRAM, "-p", "hi"], cwd, env)


def bare(server: Server, cwd: Path, env: dict[str, str]) -> float:
    server.add("ANSWERED")
    return timed([sys.executable, "-c", BARE_SDK], cwd, env)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, serve([], default="ANSWERED") as server:
        cwd = Path(folder, "project")
        cwd.mkdir()
        env = environment(Path(folder, "home"), server, PYTHONPATH=str(Path.cwd()))
        python = [sys.executable, "-c"]
        found = medians(
            {
                "import_prompt_toolkit_s": lambda: timed([*python, "import prompt_toolkit"], cwd, env),
                "first_echo_s": lambda: first_echo(cwd, env),
                "first_answer_s": lambda: first_answer(server, cwd, env),
                "import_typer_s": lambda: timed([*python, "import typer"], cwd, env),
                "version_s": lambda: timed([*PROGRAM, "--version"], cwd, env),
                "help_s": lambda: timed([*PROGRAM, "--help"], cwd, env),
                "bare_sdk_request_s": lambda: bare(server, cwd, env),
                "one_shot_s": lambda: one_shot(server, cwd, env),
            }
        )
        before, after = memory(server, cwd, env)
    figures = found | {
        "first_echo_ratio": found["first_echo_s"] / found["import_prompt_toolkit_s"],
        "first_answer_ratio": found["first_answer_s"] / found["import_prompt_toolkit_s"],
        "version_ratio": found["version_s"] / found["import_typer_s"],
        "help_ratio": found["help_s"] / found["import_typer_s"],
        "one_shot_ratio": found["one_shot_s"] / found["bare_sdk_request_s"],
        "memory_first_prompt_mb": before,
        "memory_after_answer_mb": after,
    }
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}, indent=1))


if __name__ == "__main__":
    main()
