"""mock-ai-api: a session of twelve lines, its one call, its errors; it plays no script of ours."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bareagent.entries import Retrying
from bareagent.errors import BadKey, BadRequest, ProviderError, TryLater
from bareagent.messages import user
from bareagent.provider import make_provider
from bareagent.seams import Request
from tests.compat.foreign import command, free_port, serving
from tests.conversation import config_of, conversation
from tests.program import run

MODEL = "claude-sonnet-4-20250514"
GREETING = "Hello. It's nice to meet you."


@dataclass(frozen=True)
class Foreign:
    env: dict[str, str]


@pytest.fixture(scope="module")
def server() -> Iterator[Foreign]:
    # Its own command starts a server for another API beside this one.
    port = free_port()
    started = [
        command("python", of="mock-ai-api"),
        "-m",
        "uvicorn",
        "app.anthropic_app:app",
        "--port",
        str(port),
    ]
    with serving(started, port, "/health") as url:
        yield Foreign({"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "any"})


async def test_a_session_of_twelve_lines(server: Foreign, tmp_path: Path) -> None:
    config = config_of(provider={"model": f"{MODEL}:mock-anthropic-stream"})
    async with conversation(server, tmp_path, config) as talk:
        for number in range(12):
            stop = await talk.agent.run(f"Line {number}.")
            assert (stop.reason, stop.text) == ("end_turn", GREETING)
        assert talk.session.view.n_turns == 12


async def test_its_models_and_its_count_are_taken(server: Foreign) -> None:
    provider = await make_provider(config_of(), server.env, model=f"{MODEL}:mock-text")
    try:
        assert f"{MODEL}:mock-tool-use" in await provider.list_models()
        short, long = (Request(messages=[user("word " * n)]) for n in (10, 1000))
        assert 0 < (await provider.count_tokens(short) or 0) < (await provider.count_tokens(long) or 0)
    finally:
        await provider.aclose()


def test_calls_of_a_tool_we_have_not_get_results(server: Foreign, tmp_path: Path) -> None:
    done = run(
        ["-p", "go", "--mode", "bypass", "--model", f"{MODEL}:mock-tool-stream", "--max-turns", "2"],
        tmp_path,
        home=tmp_path / "home",
        env=server.env,
    )
    assert (done.returncode, done.stdout) == (4, ""), done.stderr
    assert not (tmp_path / "tmp").exists()
    (log,) = (tmp_path / ".transcripts").glob("*/log.jsonl")
    assert log.read_text().count('"is_error":true') == 2


@pytest.mark.parametrize(
    ("scenario", "expected", "n_retried"),
    [
        ("mock-400", BadRequest, 0),
        ("mock-401", BadKey, 0),
        ("mock-429", TryLater, 2),
        ("mock-500", TryLater, 2),
        ("mock-503", TryLater, 2),
        ("mock-stream-error", TryLater, 2),
    ],
)
async def test_its_errors_are_told_apart(
    server: Foreign, tmp_path: Path, scenario: str, expected: type[ProviderError], n_retried: int
) -> None:
    config = config_of(provider={"model": f"{MODEL}:{scenario}"})
    async with conversation(server, tmp_path, config) as talk:
        with pytest.raises(expected):
            await talk.agent.run("hi")
        assert sum(isinstance(heard, Retrying) for heard in talk.heard) == n_retried
        await talk.agent.provider.select(f"{MODEL}:mock-text")
        assert (await talk.agent.run("again")).text == GREETING
