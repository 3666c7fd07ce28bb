"""How long a key takes to echo while a 10 MB output streams and while a 50,000-line diff is made.

The baseline is the same measured at the idle prompt of the same run. The server is a process of its own:
in a thread it would keep the typist waiting. Prints one JSON object, milliseconds.
"""

import contextlib
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.bench_start import Child
from tests.program import PROGRAM, environment

N_IDLE = 60
PAUSE_S = 0.03
STREAM = "for i in $(seq 100); do head -c 100000 /dev/zero | tr '\\0' x | fold -w 99; sleep 0.05; done"
LINES = 50_000


def call(name: str, **given: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "input": given}]}


def steps() -> list[Any]:
    new = "".join(f"new line {n % 97} of it\n" for n in range(LINES))
    return [call("read_file", file_path="big.txt", limit=5), call("bash", command=STREAM), "STREAMED",
            call("write_file", file_path="big.txt", content=new), "DIFFED"]  # fmt: skip


@contextlib.contextmanager
def served(script: Path) -> Iterator[dict[str, str]]:
    """Serve a script; give the variables that lead there."""
    script.write_text(json.dumps(steps()))
    command = [sys.executable, "-m", "tests.server", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            lines = [(server.stdout or sys.stdin).readline() for _ in range(2)]
            yield dict(line.removeprefix("export ").strip().split("=", 1) for line in lines)
        finally:
            server.kill()


class Typist:
    """Types one character after another, each never seen before, and measures until it stands there."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._next = 0x4E00

    def key_ms(self) -> float:
        char = chr(self._next).encode()
        self._next += 1
        start = len(self._child.seen)
        began = time.perf_counter()
        self._child.send(char)
        while char not in self._child.seen[start:]:
            if not select.select([self._child.fd], [], [], 10)[0]:
                raise TimeoutError("a key was not echoed")
            self._child.seen += os.read(self._child.fd, 1 << 16)
        took = time.perf_counter() - began
        self._child.send(b"\x7f")
        return 1000 * took

    def while_running(self, until: bytes) -> list[float]:
        """Type until these bytes have come."""
        start = len(self._child.seen)
        taken = []
        while until not in self._child.seen[start:]:
            taken.append(self.key_ms())
            time.sleep(PAUSE_S)
        return taken


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1] if len(values) > 1 else values[0]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, served(Path(folder, "script.json")) as where:
        cwd = Path(folder, "project")
        cwd.mkdir()
        (cwd / "big.txt").write_text("".join(f"old line {n % 89} of it\n" for n in range(LINES)))
        env = {**environment(Path(folder, "home")), "PYTHONPATH": str(Path.cwd()), **where}
        child = Child([*PROGRAM, "--mode", "bypass"], cwd, env)
        child.until(b"BareAgent REPL")
        child.until(b"\x1b[?25h")
        time.sleep(2)
        typist = Typist(child)
        idle = [typist.key_ms() for _ in range(N_IDLE)]
        child.send(b"go")
        child.until(b"go")
        child.send(b"\r")
        child.until(b"to interrupt")
        streaming = typist.while_running(b"STREAMED")
        time.sleep(0.5)
        child.send(b"again")
        child.until(b"again")
        child.send(b"\r")
        child.until(b"to interrupt")
        diffing = typist.while_running(b"DIFFED")
        child.end()
    figures = {
        "idle_p95_ms": p95(idle),
        "streaming_p95_ms": p95(streaming),
        "streaming_max_ms": max(streaming),
        "streaming_keys": len(streaming),
        "diff_p95_ms": p95(diffing),
        "diff_max_ms": max(diffing),
        "diff_keys": len(diffing),
    }
    print(json.dumps({name: round(value, 1) for name, value in figures.items()}, indent=1))


if __name__ == "__main__":
    main()
