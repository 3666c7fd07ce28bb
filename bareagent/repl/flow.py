"""Rows of the screen: styled text wrapped by terminal cells and written as SGR strings."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from bareagent.cells import cells, fit, graphemes
from bareagent.repl.styles import Styles


class Span(NamedTuple):
    """A piece of clean text of one look; `style` holds SGR parameters, `href` where it leads."""

    text: str
    style: str = ""
    href: str = ""
    keeps_blanks: bool = False


class Row(NamedTuple):
    """One row of the screen, unpainted."""

    spans: list[Span]
    cells: int


class Prefix(NamedTuple):
    """What stands before a row, painted, and its width."""

    text: str = ""
    cells: int = 0


NO_PREFIX = Prefix()


@dataclass(slots=True)
class Page:
    """What every block needs to know of the screen."""

    width: int
    styles: Styles
    hyperlinks: bool = False
    is_tail: bool = False


def paint(spans: Iterable[Span], links: bool = False) -> str:
    """Give the spans as one string with SGR and, where asked, OSC 8 sequences."""
    painted = []
    for (style, href), group in groupby(spans, key=lambda span: span[1:3]):
        text = "".join(span.text for span in group)
        if style:
            text = f"\x1b[{style}m{text}\x1b[0m"
        if links and href:
            text = f"\x1b]8;;{href}\x1b\\{text}\x1b]8;;\x1b\\"
        painted.append(text)
    return "".join(painted)


def row_text(prefix: Prefix, row: Iterable[Span], page: Page) -> str:
    """Give a whole row as it is printed; an empty one has no blanks at its end."""
    text = paint(row, page.hyperlinks and not page.is_tail)
    return prefix.text + text if text else prefix.text.rstrip()


def hard_rows(spans: Iterable[Span], width: int) -> Iterator[list[Span]]:
    """Give the spans cut into rows of at most `width` cells, blanks kept; at least one row."""
    row: list[Span] = []
    room = width
    for span in _pieces(spans, width):
        rest = span.text
        while rest:
            end = fit(rest, room)
            if end:
                row.append(span._replace(text=rest[:end]))
                room -= cells(rest[:end])
                rest = rest[end:]
            if rest:
                yield row
                row, room = [], width
    yield row


def _pieces(spans: Iterable[Span], width: int) -> Iterator[Span]:
    # A grapheme wider than a whole row (many joined emoji) comes apart into its characters.
    for span in spans:
        text = span.text
        if text.isascii() or all(cells(grapheme) <= width for grapheme in graphemes(text)):
            yield span
        else:
            yield from (span._replace(text=char) for char in text)


_MANY_ROWS = 4
_TOKEN = re.compile(r"\n|[ \t]+|[^ \t\n]+")
_NO_BREAK_BEFORE = frozenset("，。、；：？！）》」』】〕〉”’…～ー々！？")
_NO_BREAK_AFTER = frozenset("（《「『【〔〈“‘")


def atoms(word: str) -> Iterator[tuple[str, bool]]:
    """Give the parts of a word between which no row may end, and whether one may end behind each."""
    # Text of wide characters may be broken between any two, but for punctuation that clings.
    atom = ""
    for grapheme in graphemes(word):
        is_wide = not grapheme.isascii() and cells(grapheme) > 1
        clings = grapheme in _NO_BREAK_BEFORE or atom[-1:] in _NO_BREAK_AFTER
        if atom and not clings and (is_wide or (not atom.isascii() and cells(atom[-1]) > 1)):
            yield atom, True
            atom = ""
        atom += grapheme
    yield atom, False


@dataclass(slots=True)
class Flow:
    """Fills rows with words; what is full is given out, the last row stays open."""

    width: int
    _rows: list[Row] = field(default_factory=list)
    _row: list[Span] = field(default_factory=list)
    _used: int = 0
    _word: list[Span] = field(default_factory=list)
    _word_cells: int = 0
    _gap: Span | None = None

    def add(self, span: Span) -> None:
        """Add text: blanks part words and count as one unless kept, a newline ends the row."""
        for text in _TOKEN.findall(span.text):
            if text == "\n":
                self._commit()
                self._break()
            elif text[0] in " \t":
                self._commit()
                self._gap = Span(text if span.keeps_blanks else " ", *span[1:])
            else:
                self._add_word(text, span)

    def _add_word(self, text: str, span: Span) -> None:
        if text.isascii():
            self._word.append(Span(text, *span[1:]))
            self._word_cells += len(text)
            if self._word_cells > _MANY_ROWS * self.width:
                self._shed()
            return
        for atom, may_break in atoms(text):
            self._word.append(Span(atom, *span[1:]))
            self._word_cells += cells(atom)
            if may_break:
                self._commit()

    def _shed(self) -> None:
        # The full rows of a word that is wider than many; its end goes on growing.
        if self._row:
            self._break()
        *full, self._word = hard_rows(self._word, self.width)
        sizes = [sum(cells(span.text) for span in row) for row in [*full, self._word]]
        self._rows += map(Row, full, sizes)
        self._word_cells, self._gap = sizes[-1], None

    def _commit(self) -> None:
        if not self._word:
            return
        gap = len(self._gap.text) if self._gap and self._row else 0
        if self._row and self._used + gap + self._word_cells > self.width:
            self._break()
            gap = 0
        if gap and self._gap:
            self._row.append(self._gap)
        self._used += gap
        if self._word_cells <= self.width:
            self._row += self._word
            self._used += self._word_cells
        else:
            self._split()
        self._word, self._word_cells, self._gap = [], 0, None

    def _split(self) -> None:
        # A word wider than a row; the row before it is already closed or has not begun.
        for row in hard_rows(self._word, self.width):
            if self._row:
                self._break()
            self._row = row
            self._used = sum(cells(span.text) for span in row)

    def _break(self) -> None:
        self._rows.append(Row(self._row, self._used))
        self._row, self._used, self._gap = [], 0, None

    def take(self) -> list[Row]:
        """Give the rows that are full."""
        rows, self._rows = self._rows, []
        return rows

    def finish(self) -> list[Row]:
        """Give all rows, the open one too."""
        self._commit()
        if self._row:
            self._break()
        return self.take()

    def copy(self) -> "Flow":
        """Give a flow of its own that stands where this one does."""
        return Flow(
            self.width,
            list(self._rows),
            list(self._row),
            self._used,
            list(self._word),
            self._word_cells,
            self._gap,
        )
