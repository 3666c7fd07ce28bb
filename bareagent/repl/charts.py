"""Tables and pictures of numbers: what a session cost, what fills the window. Pure: data to rows."""

from collections.abc import Sequence

from bareagent.cells import cells
from bareagent.context import Preview
from bareagent.provider.cost import Cost, Total
from bareagent.repl.styles import Styles
from bareagent.repl.view import cut, paint, tokens
from bareagent.sanitize import one_line

_NARROW = 72
N_SHOWN = 8


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
        lines.append(
            cut(f"of it for {_purpose(total.name)}: {total.n_calls} calls, {dollars(total.cost_usd)}", width)
        )
    return lines + [cut(line, width) for line in _savings(cost)]


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


def epoch_lines(cost: Cost, width: int, styles: Styles) -> list[str]:
    """Return every deliberate break of the cached prefix: entry, time, reason, tokens sent anew, price."""
    if not cost.epochs:
        return ["The cache was never broken on purpose in this session."]
    rows = [["reason", "entry", "at", "sent anew", "price"]]
    for epoch in cost.epochs:
        at = one_line(epoch.at, 24)[:16].replace("T", " ")
        reason = one_line(epoch.reason, max(width - 48, 16))
        rows.append([reason, str(epoch.n), at, tokens(epoch.tokens), dollars(epoch.cost_usd)])
    total = sum(epoch.cost_usd for epoch in cost.epochs)
    n = len(cost.epochs)
    last = f"{n} break{'s' if n != 1 else ''} of the cache, {dollars(total)} in all"
    return [*table(rows, width, styles), cut(last, width)]


def preview_lines(preview: Preview, width: int, styles: Styles) -> list[str]:
    """Return what a compaction would do: what goes, what stays, sizes, about what it costs."""
    if not preview.is_possible:
        return ["Nothing to compact."]
    price = f" · about {dollars(preview.cost_usd)}" if preview.cost_usd else ""
    sizes = f"{preview.tokens_before:,} → about {preview.tokens_after:,} tokens{price} · nothing was changed"
    lines = [cut(sizes, width)]
    for name, items in (("goes into the summary", preview.goes), ("stays word for word", preview.stays)):
        lines.append(paint(cut(f"{len(items)} messages: {name}", width), styles.subheading))
        lines += [cut(f"  {item}", width) for item in _ends(items)]
    return lines


def _ends(items: Sequence[str]) -> list[str]:
    """The first and last few of a long list."""
    if len(items) <= N_SHOWN:
        return list(items)
    half = N_SHOWN // 2
    return [*items[:half], f"… {len(items) - 2 * half} more …", *items[-half:]]
