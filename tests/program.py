"""Runs the real program as a user would, in a home of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.server.server import Server

PROGRAM = (sys.executable, "-m", "bareagent")


def environment(home: Path, server: Server | None = None, **more: str) -> dict[str, str]:
    """An environment with its own HOME, no key but the test server's, and no colours asked for."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ANTHROPIC", "BAREAGENT", "XDG", "CLAUDE"))
        and name not in {"NO_COLOR", "FORCE_COLOR", "COLORTERM", "TERM_PROGRAM"}
    }
    home.mkdir(parents=True, exist_ok=True)
    served = server.env if server else {}
    return {**kept, "HOME": str(home), "TERM": "xterm-256color", **served, **more}


def run(
    arguments: Sequence[str],
    cwd: Path,
    *,
    home: Path,
    server: Server | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    timeout_s: float = 60.0,
) -> subprocess.CompletedProcess[str]:
    """Run the program to its end."""
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=cwd,
        env=environment(home, server, **(env or {})),
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def result_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The result object of `--output json` and `stream-json`."""
    last = done.stdout.strip().splitlines()[-1]
    value: dict[str, Any] = json.loads(last)
    assert value["type"] == "result"
    return value


def logs(project: Path) -> list[Path]:
    """The logs of a project's sessions, oldest first."""
    return sorted((project / ".transcripts").glob("*/log.jsonl"))
