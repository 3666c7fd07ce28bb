"""What is to be done before a model call: nag, micro, full, in this order. Pure.

`prepare`, `/compact preview`, `/context` and the benchmarks all ask `plan`; nothing here reads text,
clocks or files.
"""

from collections.abc import Sequence

import msgspec

from bareagent.config import Compaction, Config
from bareagent.context import micro
from bareagent.context.measure import BLOCK_OVERHEAD, Measured, Sized
from bareagent.context.micro import Batch, Cache, Micro
from bareagent.context.reminder import Todos, due
from bareagent.context.room import LEAST_OUTPUT, RELIEF, Load, Room, is_over, is_over_window, load_of
from bareagent.context.tail import Cut, cut
from bareagent.context.tokens import Meter, fast_tokens, text_quarters
from bareagent.entries import Trigger
from bareagent.seams import Price

SHRINK = 0.9
"""An automatic compaction must leave at most this share of the view."""


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What happened before that changes what is due.

    `forced` compacts whatever the size; `is_resting` stops automatic compaction (the thrash guard);
    `waits` ignores the threshold after an undo.
    """

    forced: Trigger | None = None
    is_resting: bool = False
    waits: bool = False


class Full(msgspec.Struct, kw_only=True):
    """A full compaction that is due: why, where it cuts, and the sizes expected, in tokens.

    `is_urgent` says that the next request would not fit without it.
    """

    trigger: Trigger
    cut: Cut
    before: float
    after: float
    is_urgent: bool = False


class Plan(msgspec.Struct, kw_only=True):
    """What is due before this call; `load` is what stands before anything is done.

    `nag` is the reminder's text or empty; `full` None with `is_stuck` means that no compaction can
    bring the request under its limit. `view` are the sizes it was planned on.
    """

    load: Load
    micro: Micro
    nag: str = ""
    full: Full | None = None
    is_stuck: bool = False
    is_cold: bool = False
    view: Sequence[Sized] = ()


def plan(
    view: Measured,
    meter: Meter,
    todo: Todos,
    cache: Cache,
    prices: Price,
    config: Config,
    room: Room,
    wishes: Wishes | None = None,
) -> Plan:
    """Return what is due before the next model call."""
    wishes = wishes or Wishes()
    load = load_of(view, meter)
    nag = due(todo, config.reminder)
    loaded = _with_text(load, nag, meter.ratio)
    rules = config.compaction
    if wishes.waits:
        room = msgspec.structs.replace(room, threshold=None)
    chosen = _micro(view.messages, loaded, cache, prices, rules, room, meter.ratio)
    lighter = without(loaded, chosen.batch) if chosen.reason else loaded
    planned = Plan(load=load, micro=chosen, nag=nag, is_cold=cache.is_cold, view=view.messages)
    trigger = wishes.forced or _automatic(lighter, room, rules, wishes)
    if trigger:
        planned.full = _full(view, trigger, lighter, rules, room, meter.ratio)
        planned.is_stuck = planned.full is None
    return planned


def _with_text(load: Load, text: str, ratio: float) -> Load:
    if not text:
        return load
    return msgspec.structs.replace(
        load,
        size=load.size + (fast_tokens(text) + BLOCK_OVERHEAD) * ratio,
        plain=load.plain + text_quarters(text) / 4,
    )


def without(load: Load, batch: Batch) -> Load:
    """Return the load once a batch is cleared."""
    return Load(
        size=load.size - batch.freed,
        plain=load.plain - batch.plain_freed / 4,
        n_bytes=load.n_bytes - sum(slot.result.n_bytes for slot in batch.slots),
        n_images=load.n_images - sum(slot.result.n_images for slot in batch.slots),
    )


def _micro(
    view: Sequence[Sized],
    load: Load,
    cache: Cache,
    prices: Price,
    rules: Compaction,
    room: Room,
    ratio: float,
) -> Micro:
    """Return what micro-compaction does: at the limit what brings relief, else what is due anyway."""
    usual = micro.decide(view, rules, cache, prices, ratio)
    if rules.micro != "auto" or not is_over(load, room):
        return usual
    for batch in (usual.batch, _everything(view, rules, cache, prices, ratio)):
        if batch.slots and _brings_relief(load, batch, room):
            return Micro(batch=batch, reason="limit", due=usual.due)
    return usual


def _everything(view: Sequence[Sized], rules: Compaction, cache: Cache, prices: Price, ratio: float) -> Batch:
    slots = micro.candidates(view, rules, is_frugal=False)
    return micro.weigh(view, slots, cache, prices, ratio)


def _brings_relief(load: Load, batch: Batch, room: Room) -> bool:
    """Each measure that is over comes down to its share of the limit; the others stay under."""
    after = without(load, batch)
    if is_over(after, room):
        return False
    by_window, by_threshold = (
        is_over_window(load, room),
        is_over(load, room) and not is_over_window(load, room),
    )
    if by_window and is_over_window(after, room, RELIEF):
        return False
    return not (by_threshold and room.threshold and after.plain > room.threshold * RELIEF)


def _automatic(load: Load, room: Room, rules: Compaction, wishes: Wishes) -> Trigger | None:
    if room.max_tokens(load.size) < LEAST_OUTPUT:
        return None if wishes.is_resting else "overflow"
    if not rules.automatic or wishes.is_resting:
        return None
    return "auto" if is_over(load, room) else None


def _full(
    view: Measured, trigger: Trigger, load: Load, rules: Compaction, room: Room, ratio: float
) -> Full | None:
    """Return the compaction for a trigger; None where none can help (or nothing is there to compact)."""
    usable = max(room.limit - view.fixed * ratio, room.limit / 8)
    # A tail near the threshold would bring the next compaction at once.
    most = usable / 4 if room.threshold is None else min(usable / 4, room.threshold / 2)
    budget = min(rules.tail_tokens, most) / ratio
    is_forced = trigger in {"manual", "tool"}
    for turns in dict.fromkeys((rules.tail_turns, min(1, rules.tail_turns), 0)):
        chosen = cut(view.messages, budget, turns, keeps_all_items=rules.profile == "seed")
        full = _expected(view, chosen, trigger, load, rules, room, ratio)
        if not chosen.source:
            continue
        if is_forced or rules.profile == "seed" or full.after <= SHRINK * full.before:
            return full if is_forced or full.after <= room.limit else None
    return None


def _expected(
    view: Measured, chosen: Cut, trigger: Trigger, load: Load, rules: Compaction, room: Room, ratio: float
) -> Full:
    items = sum(view.messages[index].tokens for index in chosen.system)
    rest = ratio * (view.fixed + items + chosen.tail_tokens)
    history = max(load.size - rest, 0.0)
    summary = min(rules.summary_max_tokens, history / 4)
    is_urgent = load.size > room.limit or trigger == "overflow"
    return Full(trigger=trigger, cut=chosen, before=load.size, after=rest + summary, is_urgent=is_urgent)
