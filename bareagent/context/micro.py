"""Micro-compaction: which old results give way to a placeholder, and whether it pays now.

The rent rule (ski rental): each request that carries the clearable batch pays rent for it; once the
rent reaches what clearing costs, the whole batch goes. docs/context.md has the sum.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from bareagent.config import Compaction
from bareagent.context.measure import Result, Sized
from bareagent.seams import Price

Reason = Literal["rent", "cold", "no cache", "limit", "eager"]
LEAST_SAVING = 20.0
_USUAL = Price(input=1.0, cache_read=0.1, cache_write=1.25)
"""Prices relative to fresh input where the real ones are unknown."""
_HOUR_S = 3600


class Slot(msgspec.Struct, frozen=True):
    """A result that can be cleared: where its message stands, and its sizes."""

    message: int
    result: Result


class Cache(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the provider's cache.

    `n_messages` of the view stood in the last request; `rent` is what the present batch has paid so
    far, in tokens of fresh input.
    """

    exists: bool = True
    is_cold: bool = False
    n_messages: int = 0
    rent: float = 0.0
    life_s: int = 300


class Batch(msgspec.Struct, kw_only=True):
    """What clearing would free and cost, in tokens; `cost` is in tokens of fresh input.

    `rewritten` are the cached tokens from the first cleared block on; `saving` is what each later
    request saves, in tokens of fresh input.
    """

    slots: list[Slot] = msgspec.field(default_factory=list)
    freed: float = 0.0
    plain_freed: int = 0
    rewritten: float = 0.0
    cost: float = 0.0
    saving: float = 0.0

    @property
    def pays_after(self) -> int:
        """Calls after which it has paid; 0 when it costs nothing."""
        if self.cost <= 0 or self.saving <= 0:
            return 0
        return -int(-self.cost // self.saving)


class Micro(msgspec.Struct, kw_only=True):
    """What micro-compaction does at this call: clear the batch for a reason, or wait and pay rent."""

    batch: Batch
    reason: Reason | None = None
    rent: float = 0.0
    due: float = 0.0


def candidates(
    view: Sequence[Sized], config: Compaction, ratio: float = 1.0, *, is_frugal: bool = True
) -> list[Slot]:
    """Return the results that may be cleared, oldest first.

    `is_frugal` leaves the newest `keep_tokens` of tool output and results that save little (auto);
    without it everything older than the newest `keep_recent` messages with results goes. `ratio` makes
    tokens of estimates.
    """
    old = _old_slots(view, config.keep_recent)
    kept = _kept(view, config.keep_tokens / ratio) if is_frugal else set()
    return [slot for slot in old if _may_go(slot, config, is_frugal) and id(slot.result) not in kept]


def _old_slots(view: Sequence[Sized], keep_recent: int) -> list[Slot]:
    """Return all results older than the newest messages with results, that a whole reply follows."""
    n_seen = next((i for i in range(len(view) - 1, -1, -1) if view[i].is_reply), 0)
    holders = [index for index, message in enumerate(view) if message.results]
    return [
        Slot(index, result)
        for index in holders[: max(len(holders) - keep_recent, 0)]
        if index < n_seen
        for result in view[index].results
    ]


def _may_go(slot: Slot, config: Compaction, is_frugal: bool) -> bool:
    result = slot.result
    if result.is_cleared or result.tool in config.protect:
        return False
    if result.chars <= config.min_chars and not result.n_images:
        return False
    return not is_frugal or result.saving > LEAST_SAVING


def _kept(view: Sequence[Sized], keep_tokens: float) -> set[int]:
    """Return the results within the newest `keep_tokens` of tool output, by identity."""
    kept: set[int] = set()
    total = 0.0
    for message in reversed(view):
        for result in reversed(message.results):
            total += result.tokens
            if total > keep_tokens:
                return kept
            kept.add(id(result))
    return kept


def weigh(view: Sequence[Sized], slots: list[Slot], cache: Cache, price: Price, ratio: float) -> Batch:
    """Return what clearing these results frees and costs now."""
    if not slots:
        return Batch()
    read, write = relative_prices(cache, price)
    freed = ratio * sum(slot.result.saving for slot in slots)
    rewritten = 0.0 if cache.is_cold or not cache.exists else ratio * _cached_from(view, slots[0], cache)
    return Batch(
        slots=slots,
        freed=freed,
        plain_freed=sum(slot.result.plain_saving for slot in slots),
        rewritten=rewritten,
        cost=(write - read) * rewritten - write * freed,
        saving=read * freed,
    )


def relative_prices(cache: Cache, price: Price) -> tuple[float, float]:
    """Return the prices of a cache read and a cache write, relative to fresh input."""
    if not cache.exists:
        return 1.0, 1.0
    if price.input <= 0:
        price = _USUAL
    write = price.cache_write
    if cache.life_s >= _HOUR_S and price.cache_write_1h > 0:
        write = price.cache_write_1h
    return price.cache_read / price.input, (write or price.input) / price.input


def _cached_from(view: Sequence[Sized], first: Slot, cache: Cache) -> float:
    """Return the estimate of what the cache holds from a result on."""
    if first.message >= cache.n_messages:
        return 0.0
    whole = sum(message.tokens for message in view[first.message : cache.n_messages])
    before = sum(result.tokens for result in view[first.message].results if result.index < first.result.index)
    return whole - before


def decide(view: Sequence[Sized], config: Compaction, cache: Cache, price: Price, ratio: float) -> Micro:
    """Return what is cleared at this call by its own sum; the limit is not looked at."""
    if config.micro == "off":
        return Micro(batch=Batch())
    is_frugal = config.micro == "auto"
    batch = weigh(view, candidates(view, config, ratio, is_frugal=is_frugal), cache, price, ratio)
    if not batch.slots:
        return Micro(batch=batch)
    due = config.rent * max(batch.cost, 0.0)
    reason = _reason(config, cache, due, batch.saving)
    rent = 0.0 if reason else cache.rent + batch.saving
    return Micro(batch=batch, reason=reason, rent=rent, due=due)


def _reason(config: Compaction, cache: Cache, due: float, saving: float) -> Reason | None:
    if config.micro == "eager":
        return "eager"
    if not cache.exists:
        return "no cache"
    if cache.is_cold:
        return "cold"
    return "rent" if cache.rent + saving >= due else None
