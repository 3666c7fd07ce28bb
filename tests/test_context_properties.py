"""What must hold for any order of lines, replies, calls, failures, clears, compactions, undo, rewind, resume."""

import asyncio
import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bareagent import context
from bareagent.config import Compaction as Rules
from bareagent.config import Config
from bareagent.entries import (
    Cleared,
    Compaction,
    Epoch,
    Interrupted,
    MessageEntry,
    Model,
    Prompt,
    Rewound,
    Todo,
    TodoItem,
    ToolSpec,
    Undone,
    Usage,
)
from bareagent.errors import ServerUnreachable
from bareagent.messages import INTERRUPTED_TEXT, system, text_block, unanswered, user
from bareagent.provider.request import build
from bareagent.seams import ModelInfo, Price, Reply, Request
from bareagent.session import Session, fold
from tests.fakes import FakeProvider, call, result, said
from tests.fakes import results as answered

SIZES = st.sampled_from([3, 60, 700, 4_000])
OFTEN = ["line", "round"]
SELDOM = ["answer", "interrupt", "notice", "todo", "compact", "cancel", "undo", "rewind", "resume", "mixed"]
STEPS = st.sampled_from([*OFTEN * 3, *SELDOM])
EPOCHS = (Cleared, Compaction, Undone, Rewound, Model, Epoch, Prompt)
MODEL = ModelInfo(
    name="claude-test",
    window=24_000,
    max_output=2_000,
    token_factor=1.0,
    price=Price(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75),
)


class World:
    """A session driven at random; holds every request against the rules and the one before it."""

    def __init__(self, data: Any) -> None:
        self.draw = data.draw
        micro = self.draw(st.sampled_from(["auto", "eager", "off"]))
        threshold = self.draw(st.sampled_from([2_000, 6_000, "auto"]))
        turns = self.draw(st.sampled_from([0, 2]))
        tail = self.draw(st.sampled_from([300, 3_000]))
        self.config = Config(
            compaction=Rules(
                micro=micro, threshold=threshold, tail_turns=turns, tail_tokens=tail, keep_tokens=500
            )
        )
        self.provider = FakeProvider(model=MODEL)
        self.session = Session.in_memory()
        self.session.record(
            Prompt(system="You help.", tools=[ToolSpec(name="bash", description="d", input_schema={})])
        )
        self.last: list[Any] = []
        self.last_n = 0
        self.n = 0
        self.lines: list[tuple[int, str]] = []

    def summary(self) -> Any:
        def echo(request: Request) -> Reply:
            return said("\n".join(str(message) for message in request.messages))

        good: list[Any] = ["A fine summary.", "第一行\n" * 900]
        bad: list[Any] = [said(""), echo, ServerUnreachable("down"), said("x", call("bash", "z"))]
        return self.draw(st.sampled_from(good + good + bad))

    async def play(self, step: str) -> None:
        self.provider.summary = self.summary()
        await getattr(self, step)()
        self.check_fold()

    async def line(self) -> None:
        if self.session.messages and self.session.messages[-1]["role"] == "user" and self.draw(st.booleans()):
            await self.answer()
        text = f"line {self.n}: " + "say " * self.draw(SIZES)
        self.n += 1
        self.lines.append((self.session.append(user(text), "line").n, text))

    async def turn(self) -> None:
        """Prepare, hold the request against the last one, and bill it."""
        if not any(message["role"] == "user" for message in self.session.messages):
            await self.line()
        if self.session.messages[-1]["role"] == "assistant":
            await self.line()
        before = inner(self.session.messages)
        n_compactions = self.count(Compaction)
        kept_alive = list(self.session.messages)
        await context.prepare(self.session, self.provider, [], self.config, ignore)
        if self.count(Compaction) > n_compactions:
            assert not before & inner(self.session.messages)
        del kept_alive
        self.check_request()

    def check_request(self) -> None:
        request = context.request(self.session, self.provider, [], self.config)
        now = flat(request)
        is_epoch = any(
            isinstance(entry, EPOCHS) and entry.n > self.last_n for entry in self.session.entries()
        )
        if not is_epoch:
            assert now[: len(self.last)] == self.last
        self.last = now
        self.last_n = self.session.view.n

    def reply(self, *blocks: Any, stop: str = "") -> None:
        usage = Usage(cache_read=5, uncached=self.session.view.n * 40, output=7)
        made = said(*blocks, stop=stop, usage=usage)
        self.session.append(made.message, "reply", made)

    async def round(self) -> None:
        await self.turn()
        n_calls = self.draw(st.integers(1, 4))
        thinking = {"type": "thinking", "thinking": "hm " * 9, "signature": "c2ln"}
        lead = self.draw(st.sampled_from([[], ["let me see"], [thinking], [thinking, "so"]]))
        ids = [self.draw(st.sampled_from([f"c{k}", f"d{self.n}.{k}"])) for k in range(n_calls)]
        ids = list(dict.fromkeys(ids))
        self.n += 1
        self.reply(
            *lead, *[call(self.draw(st.sampled_from(["bash", "read_file"])), one, path="a.py") for one in ids]
        )
        blocks = [result("out " * self.draw(SIZES), one, is_error=self.draw(st.booleans())) for one in ids]
        self.session.append(answered(*blocks), "results")

    async def answer(self) -> None:
        if self.session.messages:
            await self.turn()
            self.reply("an answer " * self.draw(SIZES))

    async def interrupt(self) -> None:
        if self.session.messages:
            await self.turn()
            message = {"role": "assistant", "content": [text_block("half"), text_block(INTERRUPTED_TEXT)]}
            self.session.append(message, "reply")  # type: ignore[arg-type]  # a literal role
            self.session.record(Interrupted())

    async def notice(self) -> None:
        self.session.append(system(f"job {self.n} ended"), "notice")

    async def todo(self) -> None:
        self.session.record(Todo(items=[TodoItem(id="t1", text="do", status="in_progress")], next_id=2))

    async def mixed(self) -> None:
        """A reply's results with a line behind them in one message."""
        await self.turn()
        self.reply(call("bash", "m"))
        self.session.append(
            {"role": "user", "content": [result("out", "m"), text_block("and a line")]}, "results"
        )

    async def compact(self) -> None:
        if unanswered(self.session.messages):
            return
        await context.compact_now(self.session, self.provider, [], self.config, ignore, "manual")

    async def cancel(self) -> None:
        before = copy.deepcopy(self.session.messages)
        slow = Slow(model=MODEL)
        task = asyncio.ensure_future(
            context.compact_now(self.session, slow, [], self.config, ignore, "manual")
        )
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert self.session.messages == before

    async def undo(self) -> None:
        if self.session.view.compactions:
            self.session.undo()

    async def rewind(self) -> None:
        view = self.session.view
        places = [n for n, kind in zip(view.ids, view.kinds, strict=True) if kind == "line"]
        if places:
            self.session.rewind(self.draw(st.sampled_from(places)))

    async def resume(self) -> None:
        """Another process opens the log."""
        other = Session.in_memory()
        for entry in self.session.entries():
            if entry.n > 1:
                other.record(copy.deepcopy(entry))
        assert other.messages == self.session.messages
        self.session = other

    def count(self, kind: type) -> int:
        return sum(isinstance(entry, kind) for entry in self.session.entries())

    def check_fold(self) -> None:
        entries = list(self.session.entries())
        assert fold(entries).messages == self.session.messages
        logged = {e.n: e.message for e in entries if isinstance(e, MessageEntry)}
        for n, text in self.lines:
            assert logged[n] == user(text)


class Slow(FakeProvider):
    async def reply(self, *_: object) -> Reply:
        await asyncio.Event().wait()
        raise AssertionError


def ignore(_heard: object) -> None:
    """Nobody listens."""


def flat(request: Request) -> list[tuple[str, Any]]:
    """The request as a sequence of (role, block)."""
    return [(chunk.role, chunk.data) for chunk in build(request, MODEL).chunks]


def inner(value: Any) -> set[int]:
    if isinstance(value, dict):
        return {id(value)} | {found for item in value.values() for found in inner(item)}
    if isinstance(value, list):
        return {found for item in value for found in inner(item)}
    return set()


def play_all(data: Any, steps: list[str]) -> None:
    async def run() -> None:
        world = World(data)
        for step in ["line", *steps, "answer"]:
            await world.play(step)
        assert unanswered(world.session.messages) == []

    asyncio.run(run())


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.lists(STEPS, min_size=3, max_size=30))
def test_every_request_is_valid_and_extends_the_last(data: Any, steps: list[str]) -> None:
    play_all(data, steps)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@settings(max_examples=2_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.lists(STEPS, min_size=3, max_size=60))
def test_the_same_for_long(data: Any, steps: list[str]) -> None:
    play_all(data, steps)
