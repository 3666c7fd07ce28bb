"""Lists of sessions as rows of text. Light: `bareagent sessions list` loads this and little else."""

import time
from collections.abc import Sequence
from datetime import datetime

from bareagent.cells import cells, fit_right
from bareagent.repl.ansi import cut
from bareagent.sanitize import clean, one_line
from bareagent.store.cards import Card

_TITLE_CELLS = 200
_NARROW = 72


def age(changed_ns: int, now_s: float | None = None) -> str:
    """Return how long ago something changed, in few words; a date from a month on."""
    passed = max((time.time() if now_s is None else now_s) - changed_ns / 1e9, 0)
    for size_s, limit_s, unit in ((60, 3600, "min"), (3600, 86_400, "h"), (86_400, 30 * 86_400, "d")):
        if passed < size_s:
            return "now"
        if passed < limit_s:
            return f"{passed // size_s:.0f} {unit}"
    return datetime.fromtimestamp(changed_ns / 1e9).astimezone().strftime("%Y-%m-%d")


def money(dollars: float) -> str:
    """Return a sum rounded as an estimate is: `$0.42`, below a cent with four digits."""
    return f"${dollars:.2f}" if dollars >= 0.01 or dollars == 0 else f"${dollars:.4f}"


def tokens(count: int) -> str:
    """Return a number of tokens shortly: `950`, `12.3k`, `1.2M`."""
    if count < 1_000:
        return str(count)
    if count < 999_950:
        return f"{count / 1_000:.1f}k"
    return f"{count / 1_000_000:.1f}M"


def title_of(card: Card) -> str:
    """Return a session's name or first line, clean and on one line."""
    return one_line(card.title, _TITLE_CELLS) or "(no line yet)"


def place_of(card: Card, width_cells: int) -> str:
    """Return where a session was held, cut at its left: the end of a path tells more than its beginning."""
    path = clean(card.place).replace("\n", " ")
    return path if cells(path) <= width_cells else "…" + path[fit_right(path, width_cells - 1) :]


def facts_of(card: Card) -> list[str]:
    """Return turns, tokens, cost and branch of a session, and whether it is a fork, each as a few words."""
    facts = [f"{card.turns} turn{'s' if card.turns != 1 else ''}", f"{tokens(card.tokens)} tokens"]
    facts += [money(card.cost_usd)] if card.cost_usd else []
    facts += [one_line(card.branch, 24)] if card.branch else []
    return facts + (["fork"] if card.parent else [])


def session_lines(
    cards: Sequence[Card], width: int, current: str = "", *, has_folder: bool = False
) -> list[str]:
    """Return the list of sessions, a row each, numbered from 1; narrow ones leave out ids and numbers.

    The session that is open has a `*`; `has_folder` adds where each was held.
    """
    columns = [
        [f"{n}{'*' if card.id == current else ''}" for n, card in enumerate(cards, 1)],
        [card.full_id for card in cards],
        [age(card.changed_ns) for card in cards],
        [", ".join(facts_of(card)) for card in cards],
    ]
    if has_folder:
        columns.append([place_of(card, 60) for card in cards])
    if width < _NARROW:
        del columns[3], columns[1]
    columns = [_padded(column) for column in columns]
    columns.append([title_of(card) for card in cards])
    rows = map("  ".join, zip(*columns, strict=True))
    # A row that fits as it stands, the usual one, need not be looked at closely.
    return [
        row if len(row) <= width and row.isascii() and row.isprintable() else cut(row, width) for row in rows
    ]


def _padded(column: Sequence[str]) -> list[str]:
    sizes = [len(value) if value.isascii() and value.isprintable() else cells(value) for value in column]
    widest = max(sizes, default=0)
    return [value + " " * (widest - size) for value, size in zip(column, sizes, strict=True)]
