"""llmock: the whole task of twelve turns, and its own verdict on how we take faults."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.foreign import TASK, ask, check_task, command, free_port, serving, task_steps
from tests.program import result_of, run

COUNT = {"name": "bash", "input": {"command": "echo x >> counter"}}


@pytest.fixture(scope="module")
def llmock() -> Iterator[str]:
    port = free_port()
    started = [command("llmock"), "serve", "--port", str(port), "--log-level", "error"]
    with serving(started, port, "/health") as url:
        yield url


@pytest.fixture
def env(llmock: str) -> dict[str, str]:
    ask(f"{llmock}/_llmock/reset", {})
    return {
        "ANTHROPIC_BASE_URL": f"{llmock}/anthropic",
        "ANTHROPIC_API_KEY": "any",
        "BAREAGENT_RETRY_BASE_S": "0.05",
        "BAREAGENT_RETRY_STREAM_IDLE_S": "1",
    }


def queue(url: str, *behaviours: dict[str, Any]) -> None:
    ask(f"{url}/_llmock/scenario", {"behaviors": list(behaviours)})


def reply(text: str, *calls: dict[str, Any]) -> dict[str, Any]:
    made = [{"name": call["name"], "arguments": call["input"]} for call in calls]
    return {"type": "reply", "text": text, "tool_calls": made}


def verdict(url: str) -> dict[str, Any]:
    found: dict[str, Any] = ask(f"{url}/_llmock/verdict")
    return found


def test_the_task_of_twelve_turns(llmock: str, env: dict[str, str], tmp_path: Path) -> None:
    queue(llmock, *[reply(step.get("text", ""), *step.get("calls", [])) for step in task_steps()])
    done = run(
        ["-p", TASK, "--mode", "bypass", "--output", "json"], tmp_path, home=tmp_path / "home", env=env
    )
    result = result_of(done)
    assert (done.returncode, result["stop"], result["turns"]) == (0, "end_turn", 12), done.stderr
    check_task(tmp_path)
    assert verdict(llmock)["findings"] == []


def test_it_finds_nothing_wrong_with_how_faults_are_taken(
    llmock: str, env: dict[str, str], tmp_path: Path
) -> None:
    queue(
        llmock,
        {"type": "fail", "status": 529},
        {"type": "stream_fault", "kind": "truncate", "after_chunks": 4},
        {"type": "stream_fault", "kind": "disconnect", "after_chunks": 6},
        {"type": "stream_fault", "kind": "malformed", "after_chunks": 5},
        {"type": "stream_fault", "kind": "stall", "after_chunks": 5, "stall_seconds": 4},
        {"type": "fail", "status": 429, "retry_after": 1},
        # What breaks off has taken its reply out of the queue: it is queued again behind each fault.
        *[reply("I count now.", COUNT)] * 5,
        reply("Counted."),
    )
    done = run(["-p", "count", "--mode", "bypass"], tmp_path, home=tmp_path / "home", env=env)
    assert (done.returncode, done.stdout) == (0, "Counted.\n"), done.stderr
    assert (tmp_path / "counter").read_text() == "x\n"
    found = verdict(llmock)
    # Waits of full jitter may shrink by chance; it calls that a constant interval.
    wrong = [finding for finding in found["findings"] if finding["code"] != "no_backoff"]
    assert wrong == [], json.dumps(found, indent=1)


@pytest.mark.parametrize("kind", ["malformed_arguments", "unknown_tool"])
def test_a_broken_call_gets_a_result_and_runs_nothing(
    llmock: str, env: dict[str, str], tmp_path: Path, kind: str
) -> None:
    queue(llmock, {"type": "tool_fault", "kind": kind}, reply("First.", COUNT), reply("Left."))
    done = run(["-p", "count", "--mode", "bypass"], tmp_path, home=tmp_path / "home", env=env)
    assert (done.returncode, done.stdout) == (0, "Left.\n"), done.stderr
    assert not (tmp_path / "counter").exists()
    assert verdict(llmock)["findings"] == []
