"""What a session cost, read off its log: per model, by purpose, saved by caching and clearing, per epoch."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from bareagent.entries import (
    AnyEntry,
    Cleared,
    Compaction,
    Epoch,
    MessageEntry,
    Model,
    Prompt,
    Rewound,
    Undone,
    Usage,
    UsageEntry,
)
from bareagent.seams import Price

Prices = Callable[[str], Price]


class Total(msgspec.Struct, kw_only=True):
    """What the calls of one model, or of one purpose, came to."""

    name: str
    n_calls: int = 0
    usage: Usage = msgspec.field(default_factory=Usage)
    cost_usd: float = 0.0


class EpochCost(msgspec.Struct, frozen=True, kw_only=True):
    """One deliberate break of the prefix: entry number, reason, tokens sent anew by the next call, price.

    The price is what sending them anew cost beyond reading them from the cache, with the call that
    made the epoch (a summary's) added.
    """

    n: int
    at: str
    reason: str
    tokens: int = 0
    cost_usd: float = 0.0


class Cost(msgspec.Struct, kw_only=True):
    """A session's account; `hit_rate` is the share of all prompt tokens that was read from the cache."""

    models: list[Total] = msgspec.field(default_factory=list)
    purposes: list[Total] = msgspec.field(default_factory=list)
    epochs: list[EpochCost] = msgspec.field(default_factory=list)
    total: Total = msgspec.field(default_factory=lambda: Total(name="total"))
    saved_by_caching_usd: float = 0.0
    saved_by_clearing_usd: float = 0.0

    @property
    def hit_rate(self) -> float:
        """Share of the prompts read from the cache, 0 where nothing was sent."""
        return self.total.usage.cache_read / max(1, self.total.usage.prompt)


class Call(NamedTuple):
    """One model call of a log."""

    usage: Usage
    model: str
    purpose: str
    cost_usd: float


def account(entries: Iterable[AnyEntry], prices: Prices) -> Cost:
    """Return what all calls of a log cost; what was undone or taken back was paid all the same."""
    ledger = _Ledger(prices)
    for entry in entries:
        ledger.take(entry)
    return ledger.closed()


def call_of(entry: AnyEntry) -> Call | None:
    """Return the model call that an entry tells of, None where there is none."""
    match entry:
        case MessageEntry(usage=Usage() as usage):
            return Call(usage, entry.model, "turn", entry.cost_usd)
        case UsageEntry():
            return Call(entry.usage, entry.model, entry.purpose or "other", entry.cost_usd)
        case Compaction(usage=Usage() as usage):
            return Call(usage, entry.model, "summary", entry.cost_usd)
    return None


def reason_of(entry: AnyEntry) -> str:
    """Return why the prefix broke at an entry, "" where it did not."""
    match entry:
        case Cleared():
            return f"cleared {len(entry.handles)} results" + (f": {entry.reason}" if entry.reason else "")
        case Compaction():
            return f"compaction ({entry.trigger})"
        case Undone():
            return "undo"
        case Rewound():
            return "rewind"
        case Model():
            return f"model {entry.model}"
        case Prompt():
            return "system prompt or tools changed"
        case Epoch():
            return entry.reason
    return ""


def is_explained(entries: Iterable[AnyEntry]) -> bool:
    """Tell whether an epoch stands behind a log's newest reply: a broken prefix is meant then."""
    has_reason = True
    for entry in entries:
        if isinstance(entry, MessageEntry) and entry.request is not None:
            has_reason = False
        has_reason = has_reason or bool(reason_of(entry))
    return has_reason


def added(one: Usage, other: Usage) -> Usage:
    """Return the sum of two usages."""
    return Usage(**{name: getattr(one, name) + getattr(other, name) for name in Usage.__struct_fields__})


class _Ledger:
    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._cost = Cost()
        self._models: dict[str, Total] = {}
        self._purposes: dict[str, Total] = {}
        self._open: list[EpochCost] = []
        self._cleared_tokens = 0
        self._has_begun = False

    def take(self, entry: AnyEntry) -> None:
        call = call_of(entry)
        if call is not None:
            self._book(call)
        reason = reason_of(entry) if self._has_begun else ""
        if reason:
            own = call.cost_usd if call is not None else 0.0
            self._open.append(EpochCost(n=entry.n, at=entry.at, reason=reason, cost_usd=own))
        if isinstance(entry, Cleared):
            self._cleared_tokens += entry.tokens
        elif isinstance(entry, Compaction | Undone | Rewound):
            self._cleared_tokens = 0

    def closed(self) -> Cost:
        self._cost.epochs += self._open
        self._cost.models = sorted(self._models.values(), key=lambda total: -total.cost_usd)
        self._cost.purposes = list(self._purposes.values())
        return self._cost

    def _book(self, call: Call) -> None:
        for total in (
            self._cost.total,
            self._models.setdefault(call.model, Total(name=call.model)),
            self._purposes.setdefault(call.purpose, Total(name=call.purpose)),
        ):
            total.n_calls += 1
            total.usage = added(total.usage, call.usage)
            total.cost_usd += call.cost_usd
        price = self._prices(call.model)
        self._cost.saved_by_caching_usd += _saved_by_caching(call.usage, price)
        if call.purpose == "turn":
            self._close_epochs(call.usage, price)
            self._cost.saved_by_clearing_usd += self._cleared_tokens * price.cache_read / 1e6
            self._has_begun = True

    def _close_epochs(self, usage: Usage, price: Price) -> None:
        """The call after one or more epochs pays for them; the last one caused it."""
        if not self._open:
            return
        *before, last = self._open
        anew = usage.cache_write + usage.uncached
        paid = (
            usage.cache_write * price.cache_write + usage.uncached * price.input - anew * price.cache_read
        ) / 1e6
        priced = msgspec.structs.replace(last, tokens=anew, cost_usd=last.cost_usd + max(0.0, paid))
        self._cost.epochs += [*before, priced]
        if last.reason.startswith("cleared"):
            self._cost.saved_by_clearing_usd -= max(0.0, paid)
        self._open = []


def _saved_by_caching(usage: Usage, price: Price) -> float:
    uncached = msgspec.structs.replace(
        usage, uncached=usage.prompt, cache_read=0, cache_write=0, cache_write_1h=0
    )
    return price.cost(uncached) - price.cost(usage)
