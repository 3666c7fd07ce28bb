"""Where a full compaction cuts: what is kept word for word, what is summarised, what is dropped."""

from collections.abc import Sequence

import msgspec

from bareagent.context.measure import IMAGE_TOKENS, Result, Sized
from bareagent.context.room import MAX_BYTES, MAX_IMAGES, RELIEF

LEAST_CHARS = 200
"""A capped result of the tail keeps at least this many characters."""


class Cut(msgspec.Struct, kw_only=True):
    """`first` is the index of the first kept message, the view's length where none is kept.

    `source` are the indices that are summarised, `system` those of system items that stay before the
    header, `dropped` those of items that go; `caps` maps handles of the tail to characters, to 0 where
    the result goes whole, its images too.
    """

    first: int
    source: list[int] = msgspec.field(default_factory=list)
    system: list[int] = msgspec.field(default_factory=list)
    dropped: list[int] = msgspec.field(default_factory=list)
    caps: dict[str, int] = msgspec.field(default_factory=dict)
    tail_tokens: float = 0.0


def pending_start(view: Sequence[Sized]) -> int:
    """Return where what the model has not answered yet begins; the view's length if it has.

    A pending message of results takes the reply it answers with it.
    """
    last = _last_spoken(view)
    if last is None or view[last].role != "user":
        return len(view)
    start = last
    while start > 0 and not view[start - 1].is_reply and not view[start - 1].is_header:
        start -= 1
    if not any(view[index].results for index in range(start, last + 1)):
        return last
    return start - 1 if start > 0 and view[start - 1].is_reply else start


def _last_spoken(view: Sequence[Sized]) -> int | None:
    return next((i for i in range(len(view) - 1, -1, -1) if not view[i].is_system), None)


def cut(view: Sequence[Sized], budget: float, turns: int, *, keeps_all_items: bool = False) -> Cut:
    """Return the cut that keeps at most `budget` estimated tokens and `turns` runs.

    `keeps_all_items` keeps reminders and seen notices too (the classic profile).
    """
    pending = pending_start(view)
    first = _first_kept(view, budget, turns, pending)
    chosen = Cut(first=first, tail_tokens=_spoken(view, first))
    if chosen.tail_tokens > budget and turns > 0:
        chosen.caps = _caps(view, first, budget)
    _leave_out_media(view, chosen)
    chosen.tail_tokens -= sum(_saved(result, chosen.caps) for result in _results(view, first))
    chosen.source = [i for i in range(first) if not view[i].is_system]
    _sort_items(view, chosen, keeps_all_items)
    return chosen


def _first_kept(view: Sequence[Sized], budget: float, turns: int, pending: int) -> int:
    if turns == 0:
        return pending
    lines = [index for index, message in enumerate(view) if message.is_line]
    earliest = lines[-turns] if len(lines) >= turns else 0
    first, total = pending, _spoken(view, pending)
    for index in range(pending - 1, earliest - 1, -1):
        message = view[index]
        if message.is_header:
            break
        if message.is_system:
            continue
        total += message.tokens
        if total > budget:
            break
        if message.is_reply or message.is_line:
            first = index
    return first


def _spoken(view: Sequence[Sized], first: int) -> float:
    return sum(message.tokens for message in view[first:] if not message.is_system)


def _spoken_text(view: Sequence[Sized], first: int) -> float:
    held = sum(result.tokens for message in view[first:] for result in message.results)
    return _spoken(view, first) - held


def _caps(view: Sequence[Sized], first: int, budget: float) -> dict[str, int]:
    """Share what the budget leaves among the tail's results; small ones stay whole."""
    results = [result for message in view[first:] for result in message.results if not result.is_cleared]
    room = max(budget - _spoken_text(view, first), budget / 4)
    caps = {}
    for place, result in enumerate(sorted(results, key=lambda item: item.tokens)):
        share = room / (len(results) - place)
        room -= min(result.tokens, share)
        if result.tokens > share and result.chars > LEAST_CHARS:
            caps[result.handle] = max(_chars_for(result, share), LEAST_CHARS)
    return caps


def _leave_out_media(view: Sequence[Sized], chosen: Cut) -> None:
    """Let the oldest results with images go where the tail alone is over what a request may hold."""
    kept = [message for message in view[chosen.first :] if not message.is_system]
    n_bytes = sum(message.n_bytes for message in kept)
    n_images = sum(message.n_images for message in kept)
    for result in (result for message in kept for result in message.results if result.n_images):
        if n_bytes <= MAX_BYTES * RELIEF and n_images <= MAX_IMAGES:
            return
        chosen.caps[result.handle] = 0
        n_bytes -= result.n_bytes
        n_images -= result.n_images


def _results(view: Sequence[Sized], first: int) -> list[Result]:
    return [result for message in view[first:] for result in message.results]


def _saved(result: Result, caps: dict[str, int]) -> float:
    """Return how many tokens less a capped result has; capping leaves its images, leaving it out does not."""
    limit = caps.get(result.handle)
    if limit is None:
        return 0.0
    if not limit:
        return result.saving
    return (result.tokens - IMAGE_TOKENS * result.n_images) * (1 - min(limit / max(result.chars, 1), 1))


def _chars_for(result: Result, tokens: float) -> int:
    return int(result.chars * tokens / result.tokens)


def _sort_items(view: Sequence[Sized], chosen: Cut, keeps_all: bool) -> None:
    seen = max((i for i, message in enumerate(view) if message.is_reply), default=-1)
    for index, message in enumerate(view):
        if not message.is_system:
            continue
        is_spent = message.kind == "reminder" or (message.kind == "notice" and index < seen)
        if is_spent and not keeps_all:
            chosen.dropped.append(index)
        elif index < chosen.first or keeps_all:
            chosen.system.append(index)
