"""What a call costs this machine: prepare, build, validate and log, by the length of log and view.

`by_log`: the view is held under the limit, the log grows from 100 to 10,000 messages. `by_view`: nothing is
cleared; time per message of prepare, build, validate and log, JSON encoding left out (`anew_us`: lowering
and checking of a request that has none before it, as after a resume). `compaction`: local work
of one full compaction of 1,000 messages against `json.dumps` of a tenth of them (the baseline).
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from bareagent import context
from bareagent.config import Compaction, Config
from bareagent.entries import Prompt, Usage
from bareagent.messages import Message, text_block, user
from bareagent.provider.lower import lower
from bareagent.provider.request import Builder
from bareagent.provider.validate import check
from bareagent.seams import Emit, ModelInfo, Price, Reply, Request
from bareagent.session import Session
from bareagent.store.transcripts import TranscriptManager

MODEL = ModelInfo(
    name="claude-bench",
    token_factor=1.1,
    price=Price(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75),
)
OUTPUT = "".join(f"{n:4}: value_{n} = compute(item, {n * 7})\n" for n in range(40))
CALLS = 120


class Instant:
    """A provider that summarises at once."""

    name = "instant"
    model = MODEL

    async def reply(self, _request: Request, _on_event: Emit, /) -> Reply:
        """Answer with a summary."""
        message: Message = {"role": "assistant", "content": [text_block("The work goes on.")]}
        return Reply(message=message, stop_reason="end_turn", usage=Usage(uncached=1, output=1))

    async def select(self, _name: str, /) -> ModelInfo:
        """Keep the model."""
        return MODEL

    async def facts(self, _name: str, /) -> ModelInfo:
        """Know the model."""
        return MODEL

    async def aclose(self) -> None:
        """Hold nothing."""


class Bench:
    """One session that grows by rounds, and the CPU seconds of its calls."""

    def __init__(self, session: Session, config: Config) -> None:
        self.session = session
        self.config = config
        self.provider = Instant()
        self.builder = Builder()
        self.n = 0
        session.record(Prompt(system="You help with code. " * 200))
        session.append(user("Work through the list."), "line")

    def round(self, output: str = OUTPUT) -> None:
        """Append a reply with a call, and its result."""
        self.n += 1
        call = {
            "type": "tool_use",
            "id": f"c{self.n}",
            "name": "bash",
            "input": {"command": f"make {self.n}"},
        }
        reply: Message = {"role": "assistant", "content": [text_block("Next."), call]}
        usage = Usage(cache_read=1, uncached=20_000, output=30)
        self.session.append(reply, "reply", Reply(message=reply, stop_reason="tool_use", usage=usage))
        result = {"type": "tool_result", "tool_use_id": f"c{self.n}", "content": [text_block(output)]}
        self.session.append({"role": "user", "content": [result]}, "results")

    async def prepare(self) -> None:
        """Prepare the next call."""
        await context.prepare(self.session, self.provider, [], self.config, ignore)

    async def grow(self, size: int) -> None:
        """Let the log grow to so many messages, the view prepared now and then."""
        while 2 * self.n < size:
            self.round()
            if self.n % 10 == 0:
                await self.prepare()

    async def call(self) -> float:
        """Return the CPU seconds of one whole call: prepare, build with its checks, log."""
        start = time.process_time()
        await self.prepare()
        self.builder.build(context.request(self.session, self.provider, [], self.config), MODEL)
        self.round()
        return time.process_time() - start

    async def bare_call(self) -> float:
        """Return the CPU seconds of one whole call but for joining the JSON of its blocks."""
        start = time.process_time()
        await self.prepare()
        self.builder.take(context.request(self.session, self.provider, [], self.config), MODEL)
        self.round("ok")
        return time.process_time() - start

    def anew(self) -> float:
        """Return the CPU seconds of lowering and checking a view that was never sent."""
        request = context.request(self.session, self.provider, [], self.config)
        start = time.process_time()
        check(lower(request.messages, MODEL).messages)
        return time.process_time() - start


def ignore(_heard: object) -> None:
    """Nobody listens."""


def median(values: list[float]) -> float:
    """Return the middle value."""
    return sorted(values)[len(values) // 2]


async def by_log(sizes: tuple[int, int]) -> dict[str, Any]:
    """Measure calls with a short view over a short and a long log, in turn."""
    config = Config(compaction=Compaction(threshold=20_000, micro="off"))
    with tempfile.TemporaryDirectory() as folder:
        manager = TranscriptManager(Path(folder), Path(folder) / "user")
        benches = [Bench(Session.new(manager, Path(folder)), config) for _ in sizes]
        for bench, size in zip(benches, sizes, strict=True):
            await bench.grow(size)
        spent = [[await bench.call() for bench in benches] for _ in range(CALLS)]
        for bench in benches:
            bench.session.close()
    small, large = (median(list(column)) * 1e3 for column in zip(*spent, strict=True))
    return {"ms": {sizes[0]: round(small, 3), sizes[1]: round(large, 3)}, "ratio": round(large / small, 2)}


async def by_view(sizes: tuple[int, int]) -> dict[str, Any]:
    """Measure time per message with everything left in the view, in turn."""
    config = Config(compaction=Compaction(threshold="auto", micro="off", automatic=False))
    benches = [Bench(Session.in_memory(), config) for _ in sizes]
    for bench, size in zip(benches, sizes, strict=True):
        while 2 * bench.n < size:
            bench.round("ok")
        await bench.bare_call()
    spent = [[await bench.bare_call() for bench in benches] for _ in range(15)]
    small, large = _a_message(spent, sizes)
    anew = _a_message([[bench.anew() for bench in benches] for _ in range(5)], sizes)
    return {
        "us_a_message": {sizes[0]: round(small, 3), sizes[1]: round(large, 3)},
        "ratio": round(large / small, 2),
        "anew_us": {sizes[0]: round(anew[0], 2), sizes[1]: round(anew[1], 2)},
    }


def _a_message(spent: list[list[float]], sizes: tuple[int, int]) -> tuple[float, float]:
    """Return the middle of each column in microseconds a message."""
    small, large = (median(list(column)) * 1e6 for column in zip(*spent, strict=True))
    return small / sizes[0], large / sizes[1]


async def compaction(size: int) -> dict[str, Any]:
    """Measure the local work of one full compaction."""
    best, base = float("inf"), float("inf")
    for _ in range(3):
        bench = Bench(Session.in_memory(), Config())
        while 2 * bench.n < size:
            bench.round()
        context.planned(bench.session, bench.provider, [], bench.config)
        tenth = bench.session.messages[: size // 10]
        start = time.process_time()
        json.dumps(tenth)
        base = min(base, time.process_time() - start)
        start = time.process_time()
        await context.compact_now(bench.session, bench.provider, [], bench.config, ignore, "manual")
        best = min(best, time.process_time() - start)
    return {
        "ms": round(best * 1e3, 1),
        "dumps_of_a_tenth_ms": round(base * 1e3, 3),
        "ratio": round(best / base, 1),
    }


async def run(given: argparse.Namespace) -> dict[str, Any]:
    """Return all figures."""
    return {
        "by_log": await by_log((100, given.long)),
        "by_view": await by_view((1_000, given.long)),
        "compaction": await compaction(1_000),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", type=int, default=10_000, help="messages of the long log and view")
    print(json.dumps(asyncio.run(run(parser.parse_args())), indent=1))


if __name__ == "__main__":
    main()
