"""What `/context` and `/compact preview` show, as data; drawing is the faces' work."""

from collections.abc import Iterator, Sequence
from heapq import nlargest

import msgspec

from bareagent.config import Config
from bareagent.context.measure import Result, Sized
from bareagent.context.micro import Micro
from bareagent.context.plan import Full, Plan
from bareagent.context.room import Room
from bareagent.context.tokens import fast_tokens
from bareagent.context.working import Book, Working
from bareagent.messages import Block, Message, blocks_of, calls, text_of
from bareagent.sanitize import counted

N_LARGEST = 10
SHARES = ("system", "tools", "user", "assistant", "thinking", "results", "cleared")
PREVIEW_CHARS = 80


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One large part of the view: its handle (empty for a summary's header), what it is, tokens."""

    handle: str
    what: str
    tokens: int


class Picture(msgspec.Struct, kw_only=True):
    """The window in tokens.

    `shares` adds up to `size`; `free` is what is left of the window; `cached` stands at its beginning.
    `threshold` is by the classic estimate and has `plain` beside it (None: only the window counts).
    `waits` says what micro-compaction would free now and why it waits.
    """

    window: int
    limit: int
    threshold: int | None
    size: int
    plain: int
    free: int
    cached: int
    shares: dict[str, int]
    largest: list[Item]
    waits: str
    n_compactions: int
    cost_usd: float


class Preview(msgspec.Struct, kw_only=True):
    """What a compaction would do now: how many messages go and stay, sizes, about what it costs.

    `goes` and `stays` show the first words of each message. `is_possible` False: nothing to compact.
    """

    is_possible: bool
    goes: list[str] = msgspec.field(default_factory=list)
    stays: list[str] = msgspec.field(default_factory=list)
    tokens_before: int = 0
    tokens_after: int = 0
    cost_usd: float = 0.0


def picture_of(book: Book, state: Working, now: Plan, room: Room, fixed: tuple[float, float]) -> Picture:
    """Return the picture of a planned view; `fixed` are the estimates of system prompt and tools."""
    sizes = now.view
    ratio = now.load.size / max(sum(fixed) + sum(sized.tokens for sized in sizes), 1.0)
    shares = _shares(book.view.messages, sizes, fixed)
    held = sum(sized.tokens for sized in sizes[: state.n_cached])
    cached = (sum(fixed) + held) * ratio if state.n_cached and not now.is_cold else 0.0
    return Picture(
        window=room.window,
        limit=room.limit,
        threshold=room.threshold,
        size=round(now.load.size),
        plain=round(now.load.plain),
        free=max(room.window - round(now.load.size), 0),
        cached=round(cached),
        shares={name: round(tokens * ratio) for name, tokens in shares.items()},
        largest=_largest(book.view.messages, sizes, ratio),
        waits=waits(now.micro),
        n_compactions=len(book.view.compactions),
        cost_usd=book.view.cost_usd,
    )


def _shares(
    messages: Sequence[Message], sizes: Sequence[Sized], fixed: tuple[float, float]
) -> dict[str, float]:
    shares = dict.fromkeys(SHARES, 0.0)
    shares["system"], shares["tools"] = fixed
    for message, sized in zip(messages, sizes, strict=True):
        results = sum(result.tokens for result in sized.results)
        cleared = sum(result.tokens for result in sized.results if result.is_cleared)
        thinking = sum(fast_tokens(str(b.get("thinking", ""))) for b in _thinking(message))
        shares["results"] += results - cleared
        shares["cleared"] += cleared
        shares["thinking"] += thinking
        shares[sized.role] += max(sized.tokens - results - thinking, 0.0)
    return shares


def _thinking(message: Message) -> Iterator[Block]:
    return (block for block in blocks_of(message) if block.get("type") == "thinking")


def _largest(messages: Sequence[Message], sizes: Sequence[Sized], ratio: float) -> list[Item]:
    found: list[tuple[float, str, Message, Result | None]] = []
    for message, sized in zip(messages, sizes, strict=True):
        found += [(r.tokens, r.handle, message, r) for r in sized.results if not r.is_cleared]
        rest = sized.tokens - sum(result.tokens for result in sized.results)
        if rest > 0:
            found.append((rest, "" if sized.is_header else f"m{sized.id}", message, None))
    return [_item(*one, ratio) for one in nlargest(N_LARGEST, found, key=lambda one: round(one[0] * ratio))]


def _item(tokens: float, handle: str, message: Message, result: Result | None, ratio: float) -> Item:
    what = f"{result.tool} result" if result else f"{message['role']}: {glimpse(message)}"
    return Item(handle=handle, what=what, tokens=round(tokens * ratio))


def waits(micro: Micro) -> str:
    """Return what micro-compaction would free now, and why it waits or does not."""
    batch = micro.batch
    if not batch.slots:
        return "Nothing can be cleared now."
    n = len(batch.slots)
    what = f"{counted(n, 'old result')}, {round(batch.freed):,} tokens"
    if micro.reason:
        return f"{what}, will be cleared before the next call ({micro.reason})."
    paid = f"{micro.rent / micro.due:.0%}" if micro.due else "0%"
    return (
        f"{what}, can be cleared; it waits: {round(batch.rewritten):,} cached tokens would be written again, "
        f"{paid} of that is paid so far."
    )


def glimpse(message: Message) -> str:
    """Return the first words of a message, or the names of its calls."""
    words = " ".join(text_of(message).split())
    named = ", ".join(str(call.get("name")) for call in calls(message))
    shown = words or (f"calls {named}" if named else "no text")
    return shown if len(shown) <= PREVIEW_CHARS else shown[: PREVIEW_CHARS - 1] + "…"


def preview_of(book: Book, full: Full | None, config: Config, prices: tuple[float, float]) -> Preview:
    """Return what a planned compaction would do; `prices` of input and output in dollars a million."""
    if full is None:
        return Preview(is_possible=False)
    messages, cut = book.view.messages, full.cut
    gone = {*cut.source, *cut.dropped}
    return Preview(
        is_possible=True,
        goes=[_shown(messages[index]) for index in sorted(gone)],
        stays=[_shown(message) for index, message in enumerate(messages) if index not in gone],
        tokens_before=round(full.before),
        tokens_after=round(full.after),
        cost_usd=compacting_cost(full, config, prices),
    )


def compacting_cost(full: Full, config: Config, prices: tuple[float, float]) -> float:
    """Return about what the summary of a planned compaction costs, in dollars."""
    history = max(full.before - full.after, 0.0)
    return (history * prices[0] + config.compaction.summary_max_tokens * prices[1]) / 1e6


def _shown(message: Message) -> str:
    return f"{message['role']}: {glimpse(message)}"
