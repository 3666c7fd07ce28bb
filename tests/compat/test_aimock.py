"""@copilotkit/aimock: the whole task of twelve turns, thinking with signatures and parallel calls included."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.foreign import TASK, aimock, ask, check_task, free_port, serving, task_steps
from tests.program import result_of, run

# It refuses replies with calls but no thinking where thinking has a budget; for this model each reply has some.
THINKS = "claude-sonnet-4-5"


def fixture(turn: int, step: dict[str, Any], model: str = "") -> dict[str, Any]:
    """A step of ours as one of its fixtures: the reply after so many replies."""
    calls = [{"name": call["name"], "arguments": json.dumps(call["input"])} for call in step.get("calls", [])]
    response: dict[str, Any] = {"content": step.get("text", "")} if step.get("text") or not calls else {}
    response |= {"toolCalls": calls} if calls else {}
    thinking = step.get("thinking") or (model and "The next step.")
    response |= {"reasoning": thinking} if thinking else {}
    return {"match": {"turnIndex": turn} | ({"model": model} if model else {}), "response": response}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    steps = list(enumerate(task_steps()))
    fixtures = [fixture(*step, model=THINKS) for step in steps] + [fixture(*step) for step in steps]
    path = tmp_path_factory.mktemp("aimock") / "task.json"
    path.write_text(json.dumps({"fixtures": fixtures}))
    port = free_port()
    started = [*aimock(), "--port", str(port), "--fixtures", str(path), "--strict", "--chunk-size", "7"]
    with serving(started, port, "/health", AIMOCK_STRICT_TURN_INDEX="1") as url:
        yield url


@pytest.mark.parametrize(
    ("model", "n_refused"),
    [
        (THINKS, 0),
        ("claude-opus-4-8", 0),
        # First the thinking of earlier replies is left out, then thinking altogether; each is said.
        pytest.param("claude-haiku-4-5", 2, id="a budget, and replies without thinking"),
    ],
)
def test_the_task_of_twelve_turns(server: str, tmp_path: Path, model: str, n_refused: int) -> None:
    env = {"ANTHROPIC_BASE_URL": server, "ANTHROPIC_API_KEY": "any"}
    before = len(ask(f"{server}/__aimock/journal"))
    done = run(
        ["-p", TASK, "--mode", "bypass", "--output", "json", "--model", model],
        tmp_path,
        home=tmp_path / "home",
        env=env,
    )
    result = result_of(done)
    assert (done.returncode, result["stop"], result["turns"]) == (0, "end_turn", 12), done.stderr
    check_task(tmp_path)
    journal = ask(f"{server}/__aimock/journal")[before:]
    statuses = sorted(entry["response"]["status"] for entry in journal)
    assert statuses == [200] * 12 + [400] * n_refused
