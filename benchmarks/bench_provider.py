"""The wire: cost of an event in a long stream, of building a large request, share read from the cache.

Baselines of the same run: the bare SDK's `messages.create(stream=True)` over the same bytes, counting
the same text; `json.dumps` of the same view; what the cache could have given. Prints one JSON object.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from bareagent.config import Config
from bareagent.entries import ToolSpec
from bareagent.messages import Message, answer, calls, system, text_block, user
from bareagent.provider import ClaudeProvider, models
from bareagent.provider.client import sdk
from bareagent.provider.presets import Found, Preset
from bareagent.provider.request import build
from bareagent.seams import Request
from tests.server import Call, Server, Step

MODEL = "claude-sonnet-5-5"
TOOL = ToolSpec(name="bash", description="Runs a command.", input_schema={"type": "object", "properties": {}})


def stream_bytes(n_events: int) -> bytes:
    def event(name: str, **fields: Any) -> str:
        return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n"

    start: dict[str, Any] = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
        "stop_reason": None,
    }
    usage = {"input_tokens": 10, "output_tokens": 1}
    parts = [event("message_start", message={**start, "stop_sequence": None, "usage": usage})]
    parts.append(event("content_block_start", index=0, content_block={"type": "text", "text": ""}))
    delta = {"type": "text_delta", "text": "some words "}
    parts += [event("content_block_delta", index=0, delta=delta)] * n_events
    parts.append(event("content_block_stop", index=0))
    parts.append(event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": n_events}))
    return "".join([*parts, event("message_stop")]).encode()


class Replayed:
    """A transport that answers with the same stream, in pieces as a network gives them."""

    def __init__(self, data: bytes) -> None:
        import httpx2

        pieces = [data[at : at + 16_384] for at in range(0, len(data), 16_384)]

        async def body() -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

        def respond(_request: httpx2.Request) -> httpx2.Response:
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body())

        self.client = httpx2.AsyncClient(transport=httpx2.MockTransport(respond))


async def ours(data: bytes) -> int:
    preset = Preset(name="bench", about="", base_url="http://bench.test", is_open=True)
    provider = ClaudeProvider(preset, Found(provider="bench", key="k"), models.look_up(MODEL), Config())
    provider.connect_by(Replayed(data).client)
    n_chars = 0

    def hear(heard: Any) -> None:
        nonlocal n_chars
        n_chars += len(getattr(heard, "text", ""))

    await provider.reply(Request(messages=[user("go")], max_tokens=1000), hear)
    await provider.aclose()
    return n_chars


async def theirs(data: bytes) -> int:
    client = sdk().AsyncAnthropic(
        api_key="k", base_url="http://bench.test", http_client=Replayed(data).client
    )
    n_chars = 0
    fields = {"model": MODEL, "max_tokens": 1000, "messages": [{"role": "user", "content": "go"}]}
    async for event in await client.messages.create(**fields, stream=True):
        if event.type == "content_block_delta" and event.delta.type == "text_delta":
            n_chars += len(event.delta.text)
    await client.close()
    return n_chars


def compare(work: Callable[[], Any], baseline: Callable[[], Any], n: int) -> tuple[float, float]:
    """Return the median processor times of both, run in turn, after one each that counts for nothing."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(n + 1):
        for one, kept in zip((work, baseline), times, strict=True):
            began = time.process_time()
            one()
            if number:
                kept.append(time.process_time() - began)
    return statistics.median(times[0]), statistics.median(times[1])


def bench_stream(n_events: int, n_runs: int) -> dict[str, float]:
    data = stream_bytes(n_events)
    mine, bare = compare(lambda: asyncio.run(ours(data)), lambda: asyncio.run(theirs(data)), n_runs)
    per_event = 1e6 / n_events
    return {"us_per_event": mine * per_event, "baseline_us_per_event": bare * per_event, "ratio": mine / bare}


def large_view(size: int) -> list[Message]:
    view: list[Message] = [system("You are an agent. " * 200), user("go")]
    line = 'def f(x): return "x\\n" + str(x)  # 注\n'
    while len(json.dumps(view, ensure_ascii=False)) < size:
        n = len(view)
        call = {"type": "tool_use", "id": f"toolu_{n}", "name": "bash", "input": {"command": f"cat {n}.py"}}
        view.append({"role": "assistant", "content": [text_block("I will look."), call]})
        view.append({"role": "user", "content": [answer(call, line * 60)]})
    return view


def bench_build(size: int, n_runs: int) -> dict[str, float]:
    view = large_view(size)
    model = models.look_up(MODEL)
    request = Request(messages=view, tools=[TOOL], max_tokens=8000)
    mine, bare = compare(lambda: build(request, model), lambda: json.dumps(view), n_runs * 10)
    return {
        "ms": mine * 1e3,
        "baseline_ms": bare * 1e3,
        "ratio": mine / bare,
        "bytes": len(build(request, model).body),
    }


async def bench_cache(n_turns: int) -> dict[str, float]:
    steps = [
        Step(
            text="Next.",
            calls=[Call(name="bash", input={"command": f"cat {n}"}) for _ in range(1 + 25 * (n % 10 == 9))],
        )
        for n in range(n_turns)
    ]
    async with Server(steps) as server:
        preset = Preset(name="bench", about="", base_url=server.url, is_open=True)
        provider = ClaudeProvider(preset, Found(provider="bench", key="k"), models.look_up(MODEL), Config())
        view: list[Message] = [system("You are an agent. " * 200), user("go")]
        n_breaks = 0
        for _ in range(n_turns):
            request = Request(messages=view, tools=[TOOL], max_tokens=4096)
            reply = await provider.reply(request, lambda _heard: None)
            n_breaks += bool(reply.prefix_break)
            view.append(reply.message)
            view.append(
                {"role": "user", "content": [answer(call, "output " * 300) for call in calls(reply.message)]}
            )
        await provider.aclose()
        share = server.cache_share()
    return {"read": share["read"], "possible": share["possible"], "share": share["share"], "breaks": n_breaks}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--turns", type=int, default=50)
    given = parser.parse_args()
    sdk()
    result = {
        "stream": bench_stream(given.events, given.runs),
        "build": bench_build(1_000_000, given.runs),
        "cache": asyncio.run(bench_cache(given.turns)),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
