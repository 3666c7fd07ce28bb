"""What floor 2 remembers of a session between calls: the Meter, the sizes, the cache, the guards.

It lives in `session.working`, is never logged, and is made again from the log when a session is opened.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeGuard

import msgspec

from bareagent.config import Config
from bareagent.context.guard import Guard
from bareagent.context.measure import Measured, Measurer
from bareagent.context.micro import Cache
from bareagent.context.reminder import Todos, is_reminder
from bareagent.context.tokens import Meter, compact_json, fast_tokens
from bareagent.entries import (
    Cleared,
    Compaction,
    Epoch,
    Kind,
    MessageEntry,
    Model,
    Prompt,
    Rewound,
    ToolSpec,
    Undone,
    Usage,
    UsageEntry,
)
from bareagent.messages import Message, text_of
from bareagent.seams import Emit, Heard, ModelInfo, Provider, Tool
from bareagent.toolspec import spec
from bareagent.view import View

SLOT = "context"
_GENTLE_MESSAGES = 1_000
_UNCACHED_REPLIES = 3
"""Replies in a row without a cache field after which the provider counts as having no cache."""
_BILLS_SOUGHT = 8
"""Replies of an earlier process that are looked at for a bill: some servers leave it out now and then."""


class Book(Protocol):
    """What context needs of a session; `Session` is one, so is a plain list in a `Compactor`."""

    view: View
    listeners: list[Emit]
    working: dict[str, object]

    @property
    def full_id(self) -> str:
        """The id that is shown."""

    def append(self, message: Message, kind: Kind = "other") -> MessageEntry:
        """Append a message."""

    def clear(
        self,
        handles: list[str],
        reason: str = "",
        *,
        tokens: int = 0,
        cost_usd: float = 0.0,
        pays_after: int = 0,
    ) -> Cleared:
        """Clear results."""

    def compact(self, compaction: Compaction) -> Compaction:
        """Apply a compaction."""

    def record(self, entry: UsageEntry) -> UsageEntry:
        """Append a usage entry."""

    def message_entry(self, n: int) -> MessageEntry:
        """Return a message's entry as it was appended."""

    def snapshot(self, suffix: str) -> Path | None:
        """Write the view whole."""


class Working:
    """State of one session. `clock` gives seconds since the epoch."""

    def __init__(self, book: Book, model: ModelInfo, clock: Callable[[], float] = time.time) -> None:
        """Begin without any usage; what the log says of the last reply is taken over."""
        self.book = book
        self.clock = clock
        self.meter = Meter(model.token_factor)
        self.model_name = model.name
        self.measurer = Measurer()
        self.rent = 0.0
        self.n_cached = 0
        self.last_call_at = 0.0
        self.n_uncached_replies = 0
        self.has_cache_fields = False
        self.last_stop = ""
        self.waits = False
        self.guard = Guard()
        self.said: set[str] = set()
        self._billed: tuple[int, int] | None = None
        self._earlier: tuple[int, int] | None = None
        self._fixed: tuple[Prompt | None, int, tuple[float, float]] | None = None
        self._recall_log()

    def _recall_log(self) -> None:
        """Take over what outlives a restart: how the last reply stopped and when, an undo, cache fields."""
        view = self.book.view
        usages = view.usage.values()
        self.has_cache_fields = any(usage.cache_read or usage.cache_write for usage in usages)
        self.n_uncached_replies = 0 if self.has_cache_fields else view.n_turns
        newest = view.compactions[-1].generation if view.compactions else 0
        self.waits = view.generation > newest
        places = range(len(view.ids) - 1, view.tail_start - 1, -1)
        replies = list(islice((i for i in places if view.kinds[i] == "reply"), _BILLS_SOUGHT))
        if not replies:
            return
        last = self.book.message_entry(view.ids[replies[0]])
        is_newest = not view.compactions or view.compactions[-1].n < last.n
        self.last_stop = (last.stop_reason or "") if is_newest else ""
        self.last_call_at = _seconds(last.at)
        # What was compacted since was never sent as it stands now: the cache holds none of it.
        self.n_cached = replies[0] if is_newest else 0
        if is_newest:
            self._recall_bill(replies)

    def _recall_bill(self, replies: Sequence[int]) -> None:
        """Take over the last bill there is; `replies` are places in the view, newest first."""
        oldest = self.book.view.compactions[-1].n if self.book.view.compactions else 0
        for index in replies:
            entry = self.book.message_entry(self.book.view.ids[index])
            if entry.n < oldest or entry.model not in {"", self.model_name}:
                return
            if _is_bill(entry.usage):
                self._earlier = (entry.usage.total, index + 1)
                return

    def hear(self, heard: Heard) -> None:
        """Follow the log."""
        match heard:
            case MessageEntry():
                self._hear_message(heard)
            case Cleared():
                self.rent = 0.0
                self._shorten_cache(heard.handles)
            case Compaction():
                self._break()
                self.last_stop, self.waits = "", False
            case Undone():
                self._break()
                self.last_stop, self.waits = "", True
            case Rewound():
                self._break()
                self.last_stop = ""
            case Model() | Epoch() | Prompt():
                self._break()

    def _hear_message(self, entry: MessageEntry) -> None:
        if entry.message["role"] != "assistant":
            if entry.kind == "line":
                self.guard.wake()
            return
        self.last_stop = entry.stop_reason or ""
        self.last_call_at = self.clock()
        n = len(self.book.view.messages)
        self.n_cached = n - 1
        if _is_bill(entry.usage):
            self._billed = (entry.usage.total, n)
            self._note_cache(entry.usage)

    def _note_cache(self, usage: Usage) -> None:
        if usage.cache_read or usage.cache_write:
            self.has_cache_fields = True
        else:
            self.n_uncached_replies += 1

    def _break(self) -> None:
        """An epoch: sizes, bill and cache of the old prefix are void."""
        self.measurer.forget()
        self.meter.void()
        self._billed = None
        self.n_cached = 0
        self.rent = 0.0

    def _shorten_cache(self, handles: Sequence[str]) -> None:
        for handle in handles:
            try:
                index, _ = self.book.view.find(handle)
            except KeyError:
                continue
            self.n_cached = min(self.n_cached, index)

    def follow(self, model: ModelInfo) -> None:
        """Take over the model in use."""
        if model.name != self.model_name:
            self.meter = Meter(model.token_factor)
            self.model_name = model.name
            self._break()

    def measured(self, tools: Sequence[Tool | ToolSpec]) -> Measured:
        """Return the sizes of the present view; bills that came in meanwhile are learned."""
        view = self.book.view
        sizes = self.measurer.measure(view.messages, view.kinds, view.ids)
        for index in range(min(view.tail_start, len(sizes))):
            sizes[index].is_header = self.is_header(index)
        measured = Measured(sizes, self.fixed(tools))
        if self._billed is not None:
            total, n = self._billed
            self.meter.learn(total, measured.fixed + sum(sized.tokens for sized in sizes[:n]))
            self._billed = None
        elif self._earlier is not None:
            # An earlier process's bill says how this model counts; the size itself is estimated whole.
            total, n = self._earlier
            self.meter.begin_with(total, measured.fixed + sum(sized.tokens for sized in sizes[:n]))
        self._earlier = None
        return measured

    def is_header(self, index: int) -> bool:
        """Tell whether a message is the newest compaction's header or its acknowledgement."""
        view = self.book.view
        return bool(view.compactions) and view.ids[index] == view.compactions[-1].n

    def awaits_reply(self) -> bool:
        """Tell whether the view ends with something the model has not answered."""
        spoken = (
            message["role"] for message in reversed(self.book.view.messages) if message["role"] != "system"
        )
        return next(spoken, "user") == "user"

    def fixed(self, tools: Sequence[Tool | ToolSpec]) -> float:
        """Return the estimate of system prompt and tools."""
        return sum(self.fixed_parts(tools))

    def fixed_parts(self, tools: Sequence[Tool | ToolSpec]) -> tuple[float, float]:
        """Return the estimates of the system prompt and of the tools."""
        prompt = self.book.view.prompt
        if self._fixed is None or self._fixed[0] is not prompt or self._fixed[1] != len(tools):
            specs = tool_specs(self.book.view, tools)
            weight = sum(fast_tokens(compact_json(msgspec.to_builtins(spec))) for spec in specs)
            text = prompt.system if prompt else ""
            self._fixed = (prompt, len(tools), (fast_tokens(text) if text else 0.0, weight))
        return self._fixed[2]

    def cache(self, model: ModelInfo) -> Cache:
        """Return what is known of the provider's cache now."""
        life = model.cache_life.seconds
        exists = model.capabilities.cache and life > 0
        if not self.has_cache_fields and self.n_uncached_replies >= _UNCACHED_REPLIES:
            exists = False
        is_cold = self.n_cached == 0 or self.clock() - self.last_call_at > life
        return Cache(exists=exists, is_cold=is_cold, n_messages=self.n_cached, rent=self.rent, life_s=life)

    def todos(self, config: Config) -> Todos:
        """Return the todo list and how long ago it or a reminder came."""
        view = self.book.view
        newest = ""
        if config.reminder.rounds == 0 and view.todo:
            found = (m for m in reversed(view.messages) if m["role"] != "assistant" and is_reminder(m))
            newest = text_of(next(found, None))
        return Todos(items=view.todo, rounds=view.rounds_since_todo, newest=newest)

    def says_once(self, key: str) -> bool:
        """Tell whether something is to be said: only the first time."""
        is_new = key not in self.said
        self.said.add(key)
        return is_new


def state_of(book: Book, provider: Provider, clock: Callable[[], float] | None = None) -> Working:
    """Return the working state of a session, made when first asked for."""
    found = book.working.get(SLOT)
    if isinstance(found, Working):
        found.follow(provider.model)
        return found
    made = Working(book, provider.model, clock or time.time)
    book.working[SLOT] = made
    if not any(isinstance(listener, _Listener) and listener.book is book for listener in book.listeners):
        book.listeners.append(_Listener(book))
    return made


async def measure_gently(book: Book, provider: Provider) -> None:
    """Measure a view some messages at a time, so that a long one does not hold up whoever types."""
    is_more = True
    while is_more:
        measurer, view = state_of(book, provider).measurer, book.view
        is_more = measurer.measure_more(view.messages, view.kinds, view.ids, _GENTLE_MESSAGES)
        await asyncio.sleep(0)


class _Listener:
    """Passes what a session logs to its present working state, over any rebind."""

    def __init__(self, book: Book) -> None:
        self.book = book

    def __call__(self, heard: Heard, /) -> None:
        found = self.book.working.get(SLOT)
        if isinstance(found, Working):
            found.hear(heard)


def tool_specs(view: View, tools: Sequence[Tool | ToolSpec]) -> list[ToolSpec]:
    """Return the tools as the model sees them: as logged, else made from the tools at hand."""
    if view.prompt is not None:
        return view.prompt.tools
    return [tool if isinstance(tool, ToolSpec) else spec(tool) for tool in tools]


def _is_bill(usage: Usage | None) -> TypeGuard[Usage]:
    """Tell whether a usage says what was sent: a server may leave out `message_start`, which tells it."""
    return usage is not None and usage.prompt > 0


def _seconds(at: str) -> float:
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return 0.0
