"""Tables and pictures of numbers: what a session cost, what fills the window. Pure: data to rows."""

from collections.abc import Sequence

from bareagent.cells import cells
from bareagent.context import Picture, Preview
from bareagent.provider.cost import Cost, Total
from bareagent.repl.styles import Styles
from bareagent.repl.view import cut, paint, tokens, wrapped
from bareagent.sanitize import clean, counted, one_line

N_SHOWN = 8
_SHARES = ("system", "tools", "user", "assistant", "thinking", "results", "cleared")
_LETTERS = "stuahrc"
_FREE = "·"
_MARK = "│"


def dollars(value: float) -> str:
    """Return a sum of money with as many digits as it needs; a minus stands before the sign."""
    size = abs(value)
    text = f"{size:.2f}" if size >= 1 or size == 0 else f"{size:.4f}"
    return f"{'-' if value < 0 else ''}${text}"


def table(rows: Sequence[Sequence[str]], width: int, styles: Styles) -> list[str]:
    """Return rows of cells in columns, the first one to the left, all others to the right.

    The first row is the head. Columns that do not fit are left out from the second on.
    """
    sizes = [max(cells(row[k]) for row in rows) for k in range(len(rows[0]))]
    kept = list(range(len(sizes)))
    while len(kept) > 2 and sum(sizes[k] + 2 for k in kept) - 2 > width:
        del kept[-2]
    lines = []
    for index, row in enumerate(rows):
        parts = [_padded(row[k], sizes[k], is_left=k == 0) for k in kept]
        line = cut("  ".join(parts), width)
        lines.append(paint(line, styles.faint) if index == 0 else line)
    return lines


def _padded(text: str, size: int, *, is_left: bool) -> str:
    blank = " " * (size - cells(text))
    return text + blank if is_left else blank + text


def cost_lines(cost: Cost, width: int, styles: Styles) -> list[str]:
    """Return the bill: by model, what subagents and summaries took, the cache's share, what was saved."""
    if not cost.total.n_calls:
        return ["Nothing was sent yet: $0.00"]
    head = ["model", "calls", "input", "cache read", "cache write", "output", "thinking", "cost"]
    rows = [head, *map(_row, cost.models)]
    if len(cost.models) > 1:
        rows.append(_row(cost.total))
    lines = table(rows, width, styles)
    others = [total for total in cost.purposes if total.name != "turn"]
    for total in others:
        spent = f"{counted(total.n_calls, 'call')}, {dollars(total.cost_usd)}"
        lines.append(cut(f"of it for {_purpose(total.name)}: {spent}", width))
    return [*lines, *(row for line in _savings(cost) for row in _folded(line, width))]


def _row(total: Total) -> list[str]:
    usage = total.usage
    counts = (usage.uncached, usage.cache_read, usage.cache_write, usage.output, usage.thinking)
    name = one_line(total.name, 40) or "unknown"
    return [name, f"{total.n_calls:,}", *(tokens(count) for count in counts), dollars(total.cost_usd)]


def _purpose(name: str) -> str:
    known = {
        "summary": "summaries",
        "subagent": "subagents",
        "empty": "empty answers",
        "refusal": "refused answers",
    }
    return known.get(name, one_line(name, 30))


def _savings(cost: Cost) -> list[str]:
    return [
        f"cache hit rate {cost.hit_rate:.0%} of all input",
        f"saved by caching {dollars(cost.saved_by_caching_usd)}, by clearing {dollars(cost.saved_by_clearing_usd)}",
    ]


def _folded(text: str, width: int) -> list[str]:
    return wrapped(clean(text), max(width, 4))


def epoch_lines(cost: Cost, width: int, styles: Styles) -> list[str]:
    """Return every deliberate break of the cached prefix: entry, time, reason, tokens sent anew, price."""
    if not cost.epochs:
        return _folded("The cache was never broken on purpose in this session.", width)
    rows = [["reason", "entry", "at", "sent anew", "price"]]
    for epoch in cost.epochs:
        at = one_line(epoch.at, 24)[:16].replace("T", " ")
        reason = one_line(epoch.reason, max(width - 48, 16))
        rows.append([reason, str(epoch.n), at, tokens(epoch.tokens), dollars(epoch.cost_usd)])
    total = sum(epoch.cost_usd for epoch in cost.epochs)
    n = len(cost.epochs)
    last = f"{counted(n, 'break')} of the cache, {dollars(total)} in all"
    return [*table(rows, width, styles), cut(last, width)]


def preview_lines(preview: Preview, width: int, styles: Styles) -> list[str]:
    """Return what a compaction would do: what goes, what stays, sizes, about what it costs."""
    if not preview.is_possible:
        return ["Nothing to compact."]
    price = f" · costs about {dollars(preview.cost_usd)}" if preview.cost_usd else ""
    sizes = f"{preview.tokens_before:,} → about {preview.tokens_after:,} tokens{price} · nothing was changed"
    lines = [cut(sizes, width)]
    for name, items in (("Into the summary", preview.goes), ("Stays word for word", preview.stays)):
        lines.append(paint(cut(f"{name} ({len(items)}):", width), styles.subheading))
        lines += [cut(f"  {item}", width) for item in _ends(items) or ["nothing"]]
    return lines


def _ends(items: Sequence[str]) -> list[str]:
    """The first and last few of a long list."""
    if len(items) <= N_SHOWN:
        return list(items)
    half = N_SHOWN // 2
    return [*items[:half], f"… {len(items) - 2 * half} more …", *items[-half:]]


def context_lines(picture: Picture, saved_usd: float, width: int, styles: Styles) -> list[str]:
    """Return the picture of the window as `/context` shows it; without colours in `styles` it is plain text.

    `saved_usd` is what clearing has saved so far.
    """
    share = picture.size / max(picture.window, 1)
    lines = [f"Context: {picture.size:,} of {picture.window:,} tokens ({share:.0%}), {picture.free:,} free"]
    if width >= 24:
        lines += _bars(picture, min(width - 2, 100), styles)
    lines += legend_lines(picture, width, styles)
    lines += [cut(line, width) for line in _limits(picture)]
    if picture.largest:
        lines.append("Largest:")
        size = max(len(item.handle) for item in picture.largest)
        lines += [
            cut(f"  {tokens(item.tokens):>6}  {item.handle:{size}}  {item.what}".rstrip(), width)
            for item in picture.largest
        ]
    lines += _folded(f"Micro-compaction: {picture.waits}", width)
    lines += _folded(
        f"Compactions so far: {picture.n_compactions} · cost so far {dollars(picture.cost_usd)}"
        f" · saved by clearing {dollars(saved_usd)}",
        width,
    )
    return [cut(lines[0], width), *lines[1:]]


def trigger_at(picture: Picture) -> int:
    """Return the size in tokens at which full compaction comes, by whichever limit is reached first.

    System prompt and tools do not grow with the conversation, and the classic estimate leaves them out.
    """
    if picture.threshold is None or not picture.plain:
        return min(picture.limit, picture.threshold or picture.limit)
    fixed = picture.shares.get("system", 0) + picture.shares.get("tools", 0)
    said = max(picture.size - fixed, 0)
    return min(picture.limit, fixed + round(picture.threshold * said / picture.plain))


def bar_cells(shares: Sequence[int], free: int, width: int) -> list[int]:
    """Return how many of `width` cells each share and what is free get; what is there at all gets one."""
    sizes = [*shares, max(free, 0)]
    total = sum(sizes)
    if not total:
        return [0] * (len(sizes) - 1) + [width]
    exact = [size * width / total for size in sizes]
    given = [max(int(part), 1) if size else 0 for part, size in zip(exact, sizes, strict=True)]
    while (spare := width - sum(given)) != 0:
        step = 1 if spare > 0 else -1
        open_to = [k for k in range(len(given)) if sizes[k] and (step > 0 or given[k] > 1)] or [
            k for k in range(len(given)) if given[k]
        ]
        place = max(open_to, key=lambda k: step * (exact[k] - given[k]))
        given[place] += step
    return given


def _bars(picture: Picture, width: int, styles: Styles) -> list[str]:
    counts = bar_cells([picture.shares[name] for name in _SHARES], picture.free, width)
    mark = min(trigger_at(picture) * width // max(picture.window, 1), width - 1)
    looks, is_coloured = _looks(styles), bool(styles.keyword and styles.string)
    signs = [("█" if is_coloured else letter) for letter in _LETTERS] + [_FREE]
    row = [(sign, look) for sign, look, count in zip(signs, looks, counts, strict=True) for _ in range(count)]
    row[mark] = (_MARK, styles.strong)
    bar = "".join(paint(sign, look) for sign, look in row)
    n_hot = min(picture.cached * width // max(picture.window, 1), width)
    return ["  " + bar, *(["  " + paint("▔" * n_hot, styles.good)] if n_hot else [])]


def _looks(styles: Styles) -> list[str]:
    return [
        styles.faint,
        styles.number,
        styles.accent,
        styles.string,
        styles.keyword,
        styles.warning,
        styles.faint,
        styles.faint,
    ]


def legend_lines(picture: Picture, width: int, styles: Styles) -> list[str]:
    """Return what each part of the bar is, with its tokens, as many beside each other as fit."""
    is_coloured = bool(styles.keyword and styles.string)
    entries = [
        (paint("█", look) if is_coloured else letter, f"{name} {tokens(picture.shares[name])}")
        for name, letter, look in zip(_SHARES, _LETTERS, _looks(styles), strict=False)
    ]
    entries.append((_FREE, f"free {tokens(picture.free)}"))
    entries = [(sign, cut(text, max(width - 4, 1))) for sign, text in entries]
    size = max(len(text) for _, text in entries) + 2
    each = max((width - 2) // (size + 2), 1)
    rows = [entries[k : k + each] for k in range(0, len(entries), each)]
    return ["  " + "".join(f"{sign} {text:{size}}" for sign, text in row).rstrip() for row in rows]


def _limits(picture: Picture) -> list[str]:
    lines = [f"  {_MARK} full compaction at about {trigger_at(picture):,} tokens"]
    if picture.threshold is not None:
        lines.append(f"    threshold {picture.threshold:,} by plain estimate, now {picture.plain:,}")
    lines.append(f"    window less reserve {picture.limit:,}, now {picture.size:,}")
    hot = (
        f"the first {picture.cached:,} tokens" if picture.cached else "nothing, the next call sends all anew"
    )
    return [*lines, f"  ▔ in the cache: {hot}"]
