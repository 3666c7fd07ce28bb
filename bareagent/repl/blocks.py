"""Leaf blocks that are still open: a paragraph, a code block, a table, each giving rows when it can."""

import re
from dataclasses import dataclass
from typing import Protocol

from bareagent.cells import cells, fit
from bareagent.repl import inline
from bareagent.repl.flow import Flow, Page, Prefix, Row, Span, atoms, hard_rows, row_text
from bareagent.repl.highlight import Highlighter

# A paragraph longer than this is given out in parts, cut where no emphasis, code or link is open …
_PART_CHARS = 64
# … or anywhere, once it holds back this much.
_MAX_HELD_CHARS = 2048
# A table's column widths are fixed by its first rows; later ones wrap within them.
_MAX_HELD_ROWS = 20

# HTML is shown as it is written, each line by itself.
_TAG_LINE = re.compile(r"</?[A-Za-z][\w-]*(?:[ />]|\Z)|<!--")

# The longest piece of an unfinished line that is held back, by what it belongs to.
_LINE_CHARS = 160
MIN_PIECE = 32
_CODE_LINE_CHARS = 1000
_BAR_LINE_CHARS = 4096


def max_piece(leaf: "Leaf | None", is_inside_line: bool, text: str) -> int:
    """Give how many characters of a line that begins with `text` wait for its end."""
    if isinstance(leaf, Code):
        return _CODE_LINE_CHARS
    if is_inside_line:
        return MIN_PIECE
    return _BAR_LINE_CHARS if "|" in text[:_LINE_CHARS] else _LINE_CHARS


class Margin:
    """What stands left of a block: once its first form (a bullet), then the other (blanks)."""

    def __init__(self, first: Prefix, rest: Prefix) -> None:
        self.first, self.rest = first, rest

    def next(self) -> Prefix:
        """Give the prefix of the next row."""
        prefix, self.first = self.first, self.rest
        return prefix

    def copy(self) -> "Margin":
        """Give a margin of its own that stands where this one does."""
        return Margin(self.first, self.rest)


class Leaf(Protocol):
    """An open block; rows it gives are final."""

    margin: Margin

    def add(self, text: str, ended: bool) -> list[str]:
        """Take a line, or a piece of one that has not `ended`."""

    def finish(self) -> list[str]:
        """Give the rest."""

    def copy(self, page: Page) -> "Leaf":
        """Give a block of its own that stands where this one does, for another page."""


def laid(rows: list[Row], margin: Margin, page: Page) -> list[str]:
    """Give the rows painted, each behind its prefix."""
    return [row_text(margin.next(), row.spans, page) for row in rows]


class Paragraph:
    """Running text; a long one is given out while it grows."""

    def __init__(self, page: Page, margin: Margin, base: str = "") -> None:
        self.page, self.margin, self.base = page, margin, base
        self.lines: list[str] = []
        self._n_held = 0
        self._next_cut = _PART_CHARS
        self._flow: Flow | None = None
        self._is_inside_line = False
        self._keeps_lines = False

    def add(self, text: str, ended: bool) -> list[str]:
        """Take a line, or a piece of one that has not `ended`."""
        if self._is_inside_line:
            self.lines[-1] += text
        else:
            self._begin_line(text.lstrip())
        self._n_held += len(text) + 1
        self._is_inside_line = not ended
        rows: list[str] = []
        while self._n_held >= self._next_cut and not self._waits():
            rows += self._give_part()
        return rows

    def _begin_line(self, text: str) -> None:
        if not self.lines:
            self._keeps_lines = bool(_TAG_LINE.match(text))
        elif self._keeps_lines:
            self.lines[-1] += "  "  # a hard break
            self._n_held += 2
        self.lines.append(text)

    def _waits(self) -> bool:
        if self.page.is_tail:
            return True  # it ends at once, and is read in one go
        # The line after a row of bars tells whether a table begins.
        return self.lines[-1].startswith("|") and self._n_held < _BAR_LINE_CHARS

    def _give_part(self) -> list[str]:
        text = "\n".join(self.lines)
        end = inline.cut(text[:_MAX_HELD_CHARS], must=self._n_held >= _MAX_HELD_CHARS)
        if not end:
            self._next_cut = self._n_held + _PART_CHARS
            return []
        self._next_cut = _PART_CHARS
        self.lines = text[end:].split("\n")
        self._n_held -= end
        parse = inline.parse_part if text[end - 1].isspace() else inline.parse
        self._pour(parse(text[:end], self.page, self.base))
        return laid(self._flow.take(), self.margin, self.page) if self._flow else []

    def _pour(self, spans: list[Span]) -> None:
        self._flow = self._flow or Flow(self.page.width - self.margin.rest.cells)
        for span in spans:
            self._flow.add(span)

    @property
    def is_partly_given(self) -> bool:
        """Whether some of the text is already out."""
        return self._flow is not None

    def finish(self) -> list[str]:
        """Give the rest."""
        text = "\n".join(self.lines).rstrip()
        self.lines, self._n_held = [], 0
        text = inline.closed(text) if self.page.is_tail else text
        self._pour(inline.parse(text, self.page, self.base))
        return laid(self._flow.finish(), self.margin, self.page) if self._flow else []

    def copy(self, page: Page) -> "Paragraph":
        """Give a block of its own that stands where this one does, for another page."""
        other = Paragraph(page, self.margin.copy(), self.base)
        other.lines = list(self.lines)
        other._n_held, other._next_cut = self._n_held, self._next_cut
        other._flow = self._flow.copy() if self._flow else None
        other._is_inside_line, other._keeps_lines = self._is_inside_line, self._keeps_lines
        return other


@dataclass(frozen=True, slots=True)
class Fence:
    """How a code block was opened; one by indentation has no mark."""

    mark: str = ""
    indent: int = 4
    language: str = ""

    def is_closed_by(self, line: str) -> bool:
        """Whether the line ends the block."""
        text = line.strip()
        return bool(self.mark) and len(text) >= len(self.mark) and not text.strip(self.mark[0])


_CODE_INDENT = "  "


class Code:
    """A code block: each line is given out as soon as it ends."""

    def __init__(self, page: Page, margin: Margin, fence: Fence) -> None:
        self.page, self.margin, self.fence = page, margin, fence
        self._highlighter: Highlighter | None = None
        self._long = ""
        self._is_inside_line = False
        self.n_blank = 0

    def add(self, text: str, ended: bool) -> list[str]:
        """Take a line, or a piece of one that has not `ended`."""
        if ended and not self._is_inside_line:
            return self._rows(self._coloured(self._unindented(text)))
        self._long += text if self._is_inside_line else self._unindented(text)
        self._is_inside_line = not ended
        rows = []
        while not ended and cells(self._long) >= 2 * self._width:
            end = fit(self._long, self._width) or 1
            rows += self._rows([Span(self._long[:end])])
            self._long = self._long[end:]
        if ended:
            rows += self._rows([Span(self._long)])
            self._long = ""
        return rows

    def _unindented(self, text: str) -> str:
        n_blanks = len(text) - len(text.lstrip(" "))
        return text[min(n_blanks, self.fence.indent) :]

    @property
    def _width(self) -> int:
        room = self.page.width - self.margin.rest.cells
        return room - len(_CODE_INDENT) if room > 8 else room

    def _coloured(self, text: str) -> list[Span]:
        if not self.fence.language:
            return [Span(text)]
        self._highlighter = self._highlighter or Highlighter(self.fence.language, self.page.styles)
        return self._highlighter.line(text)

    def _rows(self, spans: list[Span]) -> list[str]:
        width = self._width
        indent = [Span(_CODE_INDENT)] if self.page.width - self.margin.rest.cells > width else []
        return [
            row_text(self.margin.next(), indent + row if row else [], self.page)
            for row in hard_rows(spans, width)
        ]

    def finish(self) -> list[str]:
        """Give the rest."""
        if not self._is_inside_line:
            return []
        self._is_inside_line = False
        return self._rows([Span(self._long)])

    def copy(self, page: Page) -> "Code":
        """Give a block of its own that stands where this one does, for another page."""
        other = Code(page, self.margin.copy(), self.fence)
        other._highlighter = self._highlighter.copy() if self._highlighter else None
        other._long, other._is_inside_line = self._long, self._is_inside_line
        other.n_blank = self.n_blank
        return other


_DELIMITER_CELL = re.compile(r"\s*:?-+:?\s*")


def table_cells(line: str) -> list[str]:
    """Give the texts between the unescaped bars of a table's line."""
    line = line.strip()
    parts = re.split(r"(?<!\\)\|", line.removeprefix("|"))
    if len(parts) > 1 and not parts[-1].strip():
        parts.pop()
    return [part.strip().replace("\\|", "|") for part in parts]


def alignments(header: str, delimiter: str) -> str | None:
    """Give a letter for each column (l, c, r), or None if these two lines begin no table."""
    if "-" not in delimiter or "|" not in header or ("|" not in delimiter and ":" not in delimiter):
        return None
    marks = table_cells(delimiter)
    if len(marks) != len(table_cells(header)) or not all(map(_DELIMITER_CELL.fullmatch, marks)):
        return None
    return "".join("c" if m[0] + m[-1] == "::" else "r" if m[-1] == ":" else "l" for m in marks)


TableRow = list[list[Span]]


class Table:
    """A table: its first rows wait for the column widths, later ones are given out at once."""

    def __init__(self, page: Page, margin: Margin, header: str, aligned: str) -> None:
        self.page, self.margin, self._aligned = page, margin, aligned
        self._head = self._parsed(header, page.styles.strong)
        self._held: list[TableRow] = []
        self._widths: list[int] | None = None
        self._is_first = True

    def _parsed(self, line: str, base: str = "") -> TableRow:
        texts = table_cells(line)
        n_columns = len(self._aligned)
        if len(texts) > n_columns:
            texts[n_columns - 1 :] = [" | ".join(texts[n_columns - 1 :])]
        if self.page.is_tail:
            texts[-1] = inline.closed(texts[-1])
        texts += [""] * (n_columns - len(texts))
        return [inline.parse(text, self.page, base) for text in texts]

    def add(self, text: str, ended: bool) -> list[str]:
        """Take a row's line; it is always a whole one."""
        del ended
        row = self._parsed(text)
        if self._widths is not None:
            return self._row(row)
        self._held.append(row)
        return self._give() if len(self._held) >= _MAX_HELD_ROWS else []

    def finish(self) -> list[str]:
        """Give the rest."""
        return self._give() if self._widths is None else []

    def _give(self) -> list[str]:
        room = self.page.width - self.margin.rest.cells
        self._widths = column_widths([self._head, *self._held], room)
        rows = self._header() if self._widths else []
        for row in self._held:
            rows += self._row(row)
        self._held = []
        return rows or self._record(self._head)

    def _header(self) -> list[str]:
        line = "─┼─".join("─" * width for width in self._widths or [])
        return [*self._row(self._head), *self._painted([Row([Span(line, self.page.styles.faint)], 0)])]

    def _painted(self, rows: list[Row]) -> list[str]:
        return laid(rows, self.margin, self.page)

    def _row(self, row: TableRow) -> list[str]:
        if not self._widths:
            return self._record(row)
        columns = [_wrapped(cell, width) for cell, width in zip(row, self._widths, strict=True)]
        height = max(map(len, columns))
        return self._painted([self._joined(columns, at) for at in range(height)])

    def _joined(self, columns: list[list[Row]], at: int) -> Row:
        spans: list[Span] = []
        for n, (rows, width) in enumerate(zip(columns, self._widths or [], strict=True)):
            if n:
                spans.append(Span(" │ ", self.page.styles.faint))
            row = rows[at] if at < len(rows) else Row([], 0)
            spans += _aligned_cell(row, width, self._aligned[n], is_last=n == len(columns) - 1)
        return Row(spans, 0)

    def _record(self, row: TableRow) -> list[str]:
        # Too narrow for columns: each row as lines of "header: value".
        flow = Flow(self.page.width - self.margin.rest.cells)
        for name, cell in zip(self._head, row, strict=True):
            is_head = row is self._head
            for span in name if is_head else [*name, Span(": "), *cell]:
                flow.add(span)
            flow.add(Span("\n"))
        rule = Row([Span("─" * min(8, flow.width), self.page.styles.faint)], 0)
        return self._painted([row for row in flow.finish() if row.spans] + [rule])

    def copy(self, page: Page) -> "Table":
        """Give a block of its own that stands where this one does, for another page."""
        other = object.__new__(Table)
        other.__dict__.update(self.__dict__, page=page, margin=self.margin.copy(), _held=list(self._held))
        return other


def _wrapped(cell: list[Span], width: int) -> list[Row]:
    flow = Flow(width)
    for span in cell:
        flow.add(span)
    return flow.finish()


def _aligned_cell(row: Row, width: int, aligned: str, is_last: bool) -> list[Span]:
    room = width - row.cells if row.spans or not is_last else 0
    left = {"l": 0, "c": room // 2, "r": room}[aligned]
    right = 0 if is_last else room - left
    return [Span(" " * left), *row.spans, Span(" " * right)]


_MIN_COLUMN_CELLS = 4
_BAR_CELLS = 3


def column_widths(rows: list[TableRow], room: int) -> list[int]:
    """Give the cells of each column, the widest shrunk to fit; empty if there is no room for columns.

    Words stay whole where they can.
    """
    columns = list(zip(*rows, strict=True))
    natural = [max(map(_natural, column)) for column in columns]
    room -= _BAR_CELLS * (len(natural) - 1)
    if sum(min(width, _MIN_COLUMN_CELLS) for width in natural) > room:
        return []
    words = [max(map(_widest_word, column)) for column in columns]
    least = words if sum(words) <= room else [1] * len(words)
    cap = min(max(natural), room)
    while cap > 1 and sum(_shrunk(natural, least, cap)) > room:
        cap -= 1
    return _shrunk(natural, least, cap)


def _shrunk(natural: list[int], least: list[int], cap: int) -> list[int]:
    return [min(width, max(cap, word)) for width, word in zip(natural, least, strict=True)]


def _natural(cell: list[Span]) -> int:
    lines = "".join(span.text for span in cell).split("\n")
    return max(2, *(cells(" ".join(line.split())) for line in lines))


def _widest_word(cell: list[Span]) -> int:
    text = "".join(span.text for span in cell)
    return max((cells(atom) for word in text.split() for atom, _ in atoms(word)), default=1)


def heading(text: str, level: int, margin: Margin, page: Page) -> list[str]:
    """Give a heading's rows; without looks of its own it keeps its marks."""
    looks = page.styles
    base = {1: looks.heading, 2: looks.subheading}.get(level, looks.minor_heading)
    flow = Flow(page.width - margin.rest.cells)
    if not base:
        flow.add(Span("#" * level + " "))
    for span in inline.parse(inline.closed(text) if page.is_tail else text, page, base):
        flow.add(span)
    return laid(flow.finish(), margin, page)
