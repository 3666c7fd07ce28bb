"""The entries that a view comes from, as far as it still holds them: for a log that was cut short from outside."""

from collections.abc import Iterator

import msgspec

from bareagent.entries import (
    AnyEntry,
    Grant,
    MessageEntry,
    Mode,
    Model,
    Name,
    Pin,
    Todo,
    UsageEntry,
)
from bareagent.store.redact import MASK
from bareagent.view import View, strings


def remembered(view: View) -> Iterator[AnyEntry]:
    """Yield entries that fold into the conversation as it stands.

    Messages and compactions keep their numbers; the rest takes numbers that are free. What a compaction
    took away, and the full text of cleared results, memory does not hold.
    """
    if view.session is None:
        return
    yield view.session
    at = view.session.at
    fixed = {entry.n: entry for entry in (*_messages(view, at), *_compactions(view))}
    free = (n for n in range(2, view.n + 1) if n not in fixed)
    for n, entry in zip(free, _state(view), strict=False):
        yield msgspec.structs.replace(entry, n=n, at=at)
    yield from fixed.values()


def _messages(view: View, at: str) -> Iterator[MessageEntry]:
    for n, message, kind in zip(view.ids, view.messages, view.kinds, strict=True):
        if not view.is_header(n):
            n_masks = sum(len(MASK.findall(text)) for text in strings(message)) if view.masks else 0
            yield MessageEntry(message=message, kind=kind, n=n, at=at, masked=n_masks)


def _compactions(view: View) -> Iterator[AnyEntry]:
    # What they capped stands capped in the messages; what they cost, in the sum.
    for entry in view.compactions:
        yield msgspec.structs.replace(entry, capped={}, usage=None, cost_usd=0.0)


def _state(view: View) -> Iterator[AnyEntry]:
    if view.prompt is not None:
        yield view.prompt
    if view.model:
        yield Model(model=view.model, provider=view.provider)
    if view.mode:
        yield Mode(mode=view.mode)
    yield from _spent(view)
    if view.name:
        yield Name(name=view.name, is_automatic=view.is_name_automatic)
    if view.pins:
        yield Pin(pins=list(view.pins))
    if view.todo:
        yield Todo(items=list(view.todo), next_id=view.next_todo)
    yield from (Grant(rule=rule) for rule in view.grants)


def _spent(view: View) -> Iterator[AnyEntry]:
    cost_usd = view.cost_usd
    for model, usage in view.usage.items():
        yield UsageEntry(usage=usage, model=model, purpose="log cut short", cost_usd=cost_usd)
        cost_usd = 0.0
