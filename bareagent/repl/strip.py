"""Rows above the input line that still move, drawn by what changed in them; finished ones stay standing.

A finished row that already stands there, as the end of a streamed answer does, costs nothing: the
boundary between what moves and what is scrollback passes below it. Knows nothing of prompt_toolkit,
whose drawing begins right below and keeps its cursor.
"""

import re
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import NamedTuple

from bareagent.cells import cells, fit

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m|\x1b\]8;;[^\x1b]*\x1b\\")
_SGR = re.compile(r"\x1b\[([0-9;]*)m")
# Characters whose width all terminals agree on; behind others a row is never joined in its middle.
_SURE = re.compile(r"[ -~¡-ʯΑ-ҁ‐-‧─-╿▀-▟⠀-⣿ぁ-ヿ一-鿿가-힣！-｠]*")
_MAX_PINNED = 6

ERASE_DOWN = "\x1b[K\x1b[C\x1b[J\x1b[D"
"""Erases from the first column on. In two steps: of a screen erased from its corner tmux keeps a copy."""


class Place(NamedTuple):
    """Where the terminal's cursor is below the strip, the rows that belong to it there, and the screen."""

    x: int = 0
    y: int = 0
    n_below: int = 1
    columns: int = 80
    rows: int = 24


class Strip:
    """The moving rows as they stand on the terminal."""

    def __init__(self, write: Callable[[str], None]) -> None:
        """Nothing stands yet."""
        self.rows: list[str] = []
        self._write = write

    def draw(self, final: Sequence[str], moving: Sequence[str], at: Place) -> bool:
        """Show `moving`, with `final` above it for good; False, and nothing done, where that needs more room."""
        new = [*final, *(clipped(row, at.columns) for row in moving)]
        if len(new) + at.n_below > at.rows or any(map(_is_odd, final, [at.columns] * len(final))):
            return False
        if final or new != self.rows:
            pen = _Pen(len(self.rows) + at.y)
            old = _moved(pen, self.rows, new, at.n_below)
            for n, (row, before) in enumerate(zip(new, old, strict=True)):
                if row != before:
                    pen.go(n)
                    pen.add(change(before, row))
            pen.go(len(new) + at.y)
            pen.add(f"\x1b[{at.x + 1}G")
            self._write("".join(pen.parts))
            self.rows = new[len(final) :]
        return True

    def drop(self, n_above: int) -> None:
        """Take the strip and all below away; the cursor is `n_above` rows below the strip's end."""
        n_up = n_above + len(self.rows)
        self.rows = []
        self._write((f"\x1b[{n_up}A" if n_up else "") + f"\r{ERASE_DOWN}")

    def n_wrapped(self, width: int) -> int:
        """Return how many rows the strip takes where a terminal has laid it out anew at this width."""
        return sum(max(-(-cells(plain(row)) // max(width, 1)), 1) for row in self.rows)


class _Pen:
    """Collects what is written; `row` counts from the strip's first row."""

    def __init__(self, row: int) -> None:
        self.parts: list[str] = []
        self._row = row

    def go(self, row: int) -> None:
        if row < self._row:
            self.parts.append(f"\x1b[{self._row - row}A")
        # New lines, for a screen that has shrunk may end above the row that is wanted.
        self.parts.append("\n" * (row - self._row))
        self._row = row

    def add(self, text: str) -> None:
        self.parts.append(text)

    def down(self, n: int) -> None:
        self.parts.append("\r" + "\n" * n)
        self._row += n


def _moved(pen: _Pen, old: list[str], new: list[str], n_below: int) -> list[str]:
    """Make room for more rows, or close up; return what then stands where `new` will."""
    n_more = len(new) - len(old)
    if not n_more:
        return old
    n_pinned = _pinned(old, new)
    end = min(len(old), len(new)) - n_pinned
    if n_more > 0:
        # The bottom first, so that a full screen scrolls up by what is needed.
        pen.go(len(old) + n_below - 1)
        pen.down(n_more)
        pen.go(end)
        pen.add(f"\x1b[{n_more}L")
        return old[:end] + [""] * n_more + old[end:]
    pen.go(end)
    pen.add(f"\x1b[{-n_more}M")
    return old[:end] + old[end - n_more :]


def _pinned(old: list[str], new: list[str]) -> int:
    """Return how many rows at the end (the status line) belong together whatever grows above them."""
    sizes = [_below_blank(old), _below_blank(new)]
    return sizes[0] if sizes[0] == sizes[1] else 0


def _below_blank(rows: list[str]) -> int:
    return next((n for n, row in enumerate(reversed(rows[-_MAX_PINNED:]), 1) if not row), 0)


def _is_odd(row: str, columns: int) -> bool:
    return "\n" in row or "\t" in row or cells(plain(row)) > columns


def plain(row: str) -> str:
    """Return a row's text without its colours and links."""
    return _ESCAPE.sub("", row) if "\x1b" in row else row


def clipped(row: str, columns: int) -> str:
    """Return a row of at most so many cells; what was laid out for a wider screen is cut."""
    if cells(plain(row)) <= columns:
        return row
    parts, room, end = [], columns, 0
    for found in [*_ESCAPE.finditer(row), None]:
        text = row[end : found.start() if found else None]
        kept = text[: fit(text, room)]
        room = room - cells(kept) if kept == text else 0
        parts += [kept, found[0] if found else ""]
        end = found.end() if found else end
    return "".join(parts)


def change(before: str, row: str) -> str:
    """Return what turns one row on the screen into another; the cursor may be anywhere in it."""
    at = _join(before, row)
    head = row[:at]
    if not before or not at or "\x1b]" in row or not _SURE.fullmatch(plain(head)):
        return ("\r\x1b[K" if before else "\r") + row
    begin = f"\x1b[{cells(plain(head)) + 1}G" if plain(head) else "\r"
    middle = _middle(before[at:], row[at:])
    if middle:
        return f"{begin}{_look(head)}{middle}\x1b[0m"
    return f"{begin}\x1b[K{_look(head)}{row[at:]}"


def _join(before: str, row: str) -> int:
    """Return the last place in what both have where a row may be taken up: a blank, or behind a colour."""
    same = row[: _n_same(before, row)]
    colours = [found.end() for found in _SGR.finditer(same)]
    at = max(same.rfind(" "), *colours, 0)
    following = row[at : at + 1]
    return at if not following or following.isascii() or cells(following) else 0


def _n_same(one: str, other: str) -> int:
    if one.startswith(other) or other.startswith(one):
        return min(len(one), len(other))
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _look(head: str) -> str:
    """Return the colours that hold at the end of a row's beginning."""
    looks = [found[0] for found in _SGR.finditer(head)]
    last = max((n for n, look in enumerate(looks, 1) if look == "\x1b[0m"), default=0)
    return "".join(looks[last:])


def _middle(before: str, row: str) -> str:
    """Return what alone differs, where what follows is the same and stands at the same place."""
    n_same = _n_same(before[::-1], row[::-1])
    old, new = before[: len(before) - n_same], row[: len(row) - n_same]
    follows = row[len(row) - n_same :][:1]
    is_sure = "\x1b" not in old + new and follows.isascii() and bool(_SURE.fullmatch(old + new))
    return new if is_sure and cells(old) == cells(new) else ""
