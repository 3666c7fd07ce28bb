"""The bottom line: where the conversation stands. Narrow terminals drop fields by priority."""

from collections.abc import Sequence

import msgspec

from bareagent.cells import cells
from bareagent.repl.ansi import cut, paint
from bareagent.repl.styles import Styles
from bareagent.repl.view import tokens
from bareagent.sanitize import one_line

BAR_CELLS = 10
SEPARATOR = " · "


class Standing(msgspec.Struct, kw_only=True):
    """What the toolbar tells; sizes in tokens, zero or empty where unknown."""

    model: str = ""
    mode: str = ""
    session: str = ""
    size: int = 0
    window: int = 0
    threshold: int = 0
    cost_usd: float = 0.0
    branch: str = ""
    n_queued: int = 0
    n_jobs: int = 0
    note: str = ""


def bar(size: int, window: int, threshold: int) -> str:
    """Return a small bar of how full the window is; `╎` marks the threshold."""
    window = max(window, 1)
    n_full = min(round(BAR_CELLS * size / window), BAR_CELLS)
    drawn = ["█"] * n_full + ["░"] * (BAR_CELLS - n_full)
    if 0 < threshold < window:
        drawn[min(BAR_CELLS * threshold // window, BAR_CELLS - 1)] = "╎"
    return "".join(drawn)


def fields(standing: Standing) -> list[tuple[int, str]]:
    """Return the fields in their order, each with its priority (the smallest stays longest)."""
    percent = f"{100 * standing.size / standing.window:.0f}%" if standing.window else ""
    drawn = bar(standing.size, standing.window, standing.threshold) if standing.window else ""
    cost = f"${standing.cost_usd:.2f}" if standing.cost_usd >= 0.005 else ""
    queued = f"{standing.n_queued} queued" if standing.n_queued else ""
    jobs = f"{standing.n_jobs} in background" if standing.n_jobs else ""
    return [
        (0, one_line(standing.note, 60)),
        (1, one_line(standing.model, 40)),
        (3, standing.mode),
        (6, one_line(standing.session, 30)),
        (2, percent),
        (7, f"{drawn} {tokens(standing.size)}/{tokens(standing.window)}" if drawn else ""),
        (5, cost),
        (8, one_line(standing.branch, 24)),
        (4, queued),
        (4, jobs),
    ]


def text(standing: Standing, width: int, styles: Styles) -> str:
    """Return the toolbar as one row that fits the width."""
    kept = [(priority, field) for priority, field in fields(standing) if field]
    while kept and _width(kept) > width:
        if len(kept) == 1:
            return paint(cut(kept[0][1], width), styles.faint)
        kept.remove(max(kept, key=lambda field: field[0]))
    return paint(SEPARATOR.join(field for _, field in kept), styles.faint)


def _width(kept: Sequence[tuple[int, str]]) -> int:
    return sum(cells(field) for _, field in kept) + len(SEPARATOR) * (len(kept) - 1)
