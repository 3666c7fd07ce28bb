"""Finds the foreign servers, starts them and asks them what they saw.

The Python ones live in an environment of their own (`make compat` builds `.venv/compat`), since one of
them brings a pytest plugin and another a top-level module named `app`. BAREAGENT_COMPAT names another
folder of commands, BAREAGENT_AIMOCK the `cli.js` of the one for Node.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TASK = "Write slug.py with a function slug(title), and a test for it."
STARTED_IN_S = 30.0
# Nothing between the test and a server on this machine.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def task_steps() -> list[dict[str, Any]]:
    """The steps of the task of twelve turns."""
    path = ROOT / "tests" / "server" / "scripts" / "task.json"
    steps: list[dict[str, Any]] = json.loads(path.read_text())["steps"]
    assert len(steps) == 12
    return steps


def check_task(project: Path) -> None:
    """What the task leaves behind works."""
    tested = subprocess.run(
        [sys.executable, "-B", "-m", "unittest", "test_slug"], cwd=project, capture_output=True, check=False
    )
    assert tested.returncode == 0, tested.stderr


def command(name: str, of: str = "") -> str:
    """A command of the Python server `of` (its own name, if none); the test is skipped where it is not installed."""
    folder = Path(os.environ.get("BAREAGENT_COMPAT") or ROOT / ".venv" / "compat" / "bin")
    path = folder / name
    if not path.is_file():
        pytest.skip(f"{of or name} is not installed (make compat)")
    return str(path)


def aimock() -> list[str]:
    """The command of @copilotkit/aimock; the test is skipped where Node or the package is missing."""
    node = shutil.which("node")
    found = os.environ.get("BAREAGENT_AIMOCK", "")
    if not node or not found:
        pytest.skip("@copilotkit/aimock is not here (BAREAGENT_AIMOCK names its dist/cli.js) or Node is not")
    return [node, found]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def ask(url: str, body: object = None) -> Any:
    """GET or POST JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with OPENER.open(request, timeout=10) as response:
        return json.loads(response.read())


@contextlib.contextmanager
def serving(arguments: Sequence[str], port: int, alive: str, **env: str) -> Iterator[str]:
    """Run a server until the block ends; `alive` is the path that answers once it is up."""
    url = f"http://127.0.0.1:{port}"
    quiet = subprocess.DEVNULL
    server = subprocess.Popen(arguments, env={**os.environ, **env}, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        _wait(server, url + alive)
        yield url
    finally:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(10)
        server.kill()
        server.wait()


def _wait(server: "subprocess.Popen[bytes]", url: str) -> None:
    deadline = time.monotonic() + STARTED_IN_S
    while time.monotonic() < deadline:
        assert server.poll() is None, f"the server ended with {server.returncode}"
        with contextlib.suppress(OSError, ValueError):
            ask(url)
            return
        time.sleep(0.1)
    raise AssertionError(f"no answer from {url}")
