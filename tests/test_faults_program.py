"""Faults met by the real program in print mode: outcome, output, log and next request."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.program import logs, result_of, run
from tests.server.fixtures import StartServer

AT_ONCE = {"BAREAGENT_RETRY_BASE_S": "0", "BAREAGENT_RETRY_STREAM_IDLE_S": "3"}
COUNT = {"calls": [{"name": "bash", "input": {"command": "echo ran >> counter"}}]}
HALF = {"text": "half of an answer that breaks off"}
WHOLE = {"text": "the whole answer"}

FAULTS = {
    "cut in text": {"kind": "cut", "at": "text", "how": "reset"},
    "garbled": {"kind": "garble", "at": "text"},
    "overloaded in the stream": {"kind": "error", "at": "text", "error_type": "overloaded_error"},
    "stalled": {"kind": "stall", "at": "text"},
    "no end": {"kind": "drop"},
    "rate limit": {"kind": "status", "status": 429, "retry_after": 0},
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_passing_fault_leaves_no_trace(
    name: str, start_server: StartServer, project: Path, tmp_path: Path
) -> None:
    server = start_server([COUNT, {**HALF, "faults": [FAULTS[name]]}, WHOLE])
    arguments = ["-p", "go", "--mode", "bypass", "--output", "json"]
    done = run(arguments, project, home=tmp_path / "home", server=server, env=AT_ONCE)
    assert done.returncode == 0, done.stderr
    assert result_of(done)["result"] == "the whole answer"
    assert (project / "counter").read_text() == "ran\n"
    first, second, third = server.requests
    assert second.raw == third.raw
    assert len(first.raw) < len(second.raw)
    kept = logs(project)[0].read_text()
    assert "half of an answer" not in kept
    assert kept.count("the whole answer") == 1


def test_after_a_lasting_fault_the_session_goes_on(
    start_server: StartServer, project: Path, tmp_path: Path
) -> None:
    fault = {"kind": "status", "status": 529}
    server = start_server([COUNT, {**HALF, "faults": [fault], "times": 2}, WHOLE])
    env = {**AT_ONCE, "BAREAGENT_RETRY_MAX_ATTEMPTS": "2"}
    arguments = ["-p", "go", "--mode", "bypass"]
    failed = run(arguments, project, home=tmp_path / "home", server=server, env=env)
    assert failed.returncode == 75
    assert "Overloaded" in failed.stderr
    assert "half" not in failed.stdout
    done = run(["-p", "again", "--continue"], project, home=tmp_path / "home", server=server, env=env)
    assert (done.returncode, done.stdout.strip()) == (0, "the whole answer")
    assert (project / "counter").read_text() == "ran\n"
    lines = [json.loads(line) for line in logs(project)[0].read_text().splitlines()]
    said = [line["message"]["content"][0].get("text") for line in lines if line.get("kind") == "line"]
    assert said == ["go", "again"]
    assert not server.prefix_breaks()


HEAVY = "import os, signal\n\nos.kill(os.getpid(), signal.SIGINT)\n"


@pytest.mark.parametrize("arguments", [["--version"], ["-p", "hi"]])
def test_ctrl_c_while_the_program_loads_ends_it_quietly(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "typer").mkdir()
    (tmp_path / "typer" / "__init__.py").write_text(HEAVY)
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from bareagent.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
