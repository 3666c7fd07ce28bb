"""Markdown for a terminal, rendered while it streams.

A block is given out for good as soon as it is complete; only the open one is drawn again, and it
is small: what is longer than a page is given out in parts. Cost is linear in the length.
"""

import re
from dataclasses import dataclass, replace

from bareagent.cells import cells
from bareagent.messages import Block
from bareagent.repl.blocks import (
    MIN_PIECE,
    Code,
    Fence,
    Leaf,
    Margin,
    Paragraph,
    Table,
    alignments,
    heading,
    max_piece,
    table_cells,
)
from bareagent.repl.flow import NO_PREFIX, Page, Prefix, Span, paint, row_text
from bareagent.repl.styles import Styles
from bareagent.sanitize import Cleaner

_MIN_WIDTH = 4
_MAX_DEPTH = 16

_FENCE = re.compile(r"( {0,3})(`{3,}(?=[^`]*\Z)|~{3,})\s*([^\s`{]*)")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ ]+(.*?))?(?:[ ]+#+)?[ ]*")
_RULE = re.compile(r" {0,3}([-*_])(?:[ ]*\1){2,}[ ]*")
_SETEXT = re.compile(r" {0,3}(?:(=+)|-+)[ ]*")
_QUOTE = re.compile(r" {0,3}> ?")
_ITEM = re.compile(r"( {0,3})([-*+]|(\d{1,9})[.)])(?:( {1,4})(?=[^ ])| {5,}| *\Z)")
_NESTED_ITEM = re.compile(r" {2,}(?:[-*+]|\d{1,9}[.)]) ")
_TASK = re.compile(r"\[([ xX])\] +(?=\S)")
# A last line that may still become the mark of some block is not shown as text.
_UNDECIDED = re.compile(
    r"[ >]*(?:[-=*_#+~|: ]*|`{1,2}|\d{1,9}(?:[.)] *)?|(?:[-*+]|\d{1,9}[.)]) \[(?:[ xX](?:\] *)?)?)"
)
_FENCE_MARK = re.compile(r"[ >]*(?:`+|~+)")


@dataclass(frozen=True, slots=True)
class _Quote:
    def match(self, text: str) -> int | None:
        found = _QUOTE.match(text)
        return found.end() if found else None


@dataclass(slots=True)
class _Item:
    kind: str
    number: int
    indent: int
    mark: str
    is_marked: bool = False

    def match(self, text: str) -> int | None:
        n_blanks = len(text) - len(text.lstrip(" "))
        if n_blanks == len(text):
            return min(n_blanks, self.indent)
        if n_blanks >= self.indent:
            return self.indent
        # Nested lists are often indented by two, whatever the outer mark's width.
        return n_blanks if _NESTED_ITEM.match(text) and n_blanks < self.indent else None


_Container = _Quote | _Item


class _Document:
    """The block structure: which containers and which leaf are open; lines in, rows out."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.containers: list[_Container] = []
        self.leaf: Leaf | None = None
        self._has_blank = False
        self._previous = ""
        self._depth = 0
        self._last_item: _Item | None = None
        self._rows: list[str] = []

    def copy(self, page: Page) -> "_Document":
        other = _Document(page)
        other.containers = [replace(c) if isinstance(c, _Item) else c for c in self.containers]
        other.leaf = self.leaf.copy(page) if self.leaf else None
        other._has_blank, other._previous = self._has_blank, self._previous
        return other

    def line(self, text: str, ended: bool = True) -> list[str]:
        """Take a line, or the first piece of a very long one."""
        text = text.expandtabs(4)
        self._last_item = None
        self._depth, rest = self._matched(text)
        if self._depth == len(self.containers) and isinstance(self.leaf, Code):
            if self._code_line(self.leaf, rest, ended):
                return self._take()
        elif self._depth < len(self.containers) and not self._is_lazy(rest):
            self._close_containers()
        if not rest.strip() and ended:
            self._blank()
        else:
            self._fresh(rest, ended)
        return self._take()

    def more(self, text: str, ended: bool) -> list[str]:
        """Take the next piece of a very long line."""
        return self.leaf.add(text.expandtabs(4), ended) if self.leaf else []

    def prove_table(self) -> list[str]:
        """Take an open paragraph's last line for a table's header, if it looks like one."""
        if isinstance(self.leaf, Paragraph) and self.leaf.lines:
            header = self.leaf.lines[-1]
            if header.startswith("|") and header.count("|") > 1:
                self._ends_paragraph(self.leaf, "|---" * len(table_cells(header)) + "|")
        return self._take()

    def finish(self) -> list[str]:
        """Close all that is open."""
        self._depth = 0
        self._close_containers()
        return self._take()

    def _take(self) -> list[str]:
        rows, self._rows = self._rows, []
        return rows

    def _matched(self, text: str) -> tuple[int, str]:
        for depth, container in enumerate(self.containers):
            end = container.match(text)
            if end is None:
                return depth, text
            text = text[end:]
        return len(self.containers), text

    # Closing

    def _close_leaf(self) -> None:
        if self.leaf:
            self._rows += self.leaf.finish()
            self.leaf = None

    def _close_containers(self) -> None:
        self._close_leaf()
        while len(self.containers) > self._depth:
            last = self.containers[-1]
            if isinstance(last, _Item) and not last.is_marked:
                self._rows.append(self._margin().next().text.rstrip())
            self.containers.pop()
            self._previous = "item" if isinstance(last, _Item) else "quote"
            self._last_item = last if isinstance(last, _Item) else None

    def _blank(self) -> None:
        if not isinstance(self.leaf, Code):
            self._close_leaf()
        self._has_blank = True

    # Lines

    def _is_lazy(self, rest: str) -> bool:
        return isinstance(self.leaf, Paragraph) and bool(rest.strip()) and not _begins_block(rest)

    def _code_line(self, leaf: Code, rest: str, ended: bool) -> bool:
        if leaf.fence.mark:
            if ended and leaf.fence.is_closed_by(rest):
                self._close_leaf()
            else:
                self._rows += leaf.add(rest, ended)
            return True
        if not rest.strip():
            leaf.n_blank += 1
            return True
        if not rest.startswith("    "):
            self._close_leaf()
            self._has_blank = self._has_blank or leaf.n_blank > 0
            return False
        for _ in range(leaf.n_blank):
            self._rows += leaf.add("", ended=True)
        leaf.n_blank = 0
        self._rows += leaf.add(rest, ended)
        return True

    def _fresh(self, rest: str, ended: bool) -> None:
        is_lazy = self._depth < len(self.containers)
        if not is_lazy:
            rest = self._open_containers(rest, ended)
        if isinstance(self.leaf, Paragraph) and ended and self._ends_paragraph(self.leaf, rest):
            return
        if isinstance(self.leaf, Table):
            if ended and "|" in rest and not _begins_block(rest):
                self._rows += self.leaf.add(rest, ended)
                return
            self._close_leaf()
        if rest.strip() or not ended:
            self._leaf_line(rest, ended)

    def _ends_paragraph(self, leaf: Paragraph, rest: str) -> bool:
        aligned = alignments(leaf.lines[-1], rest) if leaf.lines else None
        if aligned:
            header = leaf.lines.pop()
            if leaf.lines or leaf.is_partly_given:
                self._close_leaf()
                margin = self._margin_for("table")
            else:
                margin = leaf.margin
            self._previous = "table"
            self.leaf = Table(self.page, margin, header, aligned)
            return True
        setext = _SETEXT.fullmatch(rest)
        if setext is None or leaf.is_partly_given:
            return False
        level = 1 if setext[1] else 2
        self._rows += heading(" ".join(leaf.lines), level, leaf.margin, self.page)
        self.leaf, self._previous = None, "heading"
        return True

    def _leaf_line(self, rest: str, ended: bool) -> None:
        fence = _FENCE.match(rest)
        marks = _HEADING.fullmatch(rest)
        if fence and ended:
            self._begin_code(Fence(fence[2], len(fence[1]), fence[3]))
        elif marks and ended:
            self._close_leaf()
            self._rows += heading(marks[2] or "", len(marks[1]), self._margin_for("heading"), self.page)
        elif _RULE.fullmatch(rest) and ended:
            self._rule()
        elif rest.startswith("    ") and not self.leaf:
            self._begin_code(Fence())
            self._rows += self.leaf.add(rest, ended) if self.leaf else []
        else:
            if self.leaf is None:
                margin = self._margin_for("paragraph")
                self.leaf = Paragraph(self.page, margin, self._base())
            self._rows += self.leaf.add(rest, ended)

    def _begin_code(self, fence: Fence) -> None:
        self._close_leaf()
        self.leaf = Code(self.page, self._margin_for("code"), fence)

    def _rule(self) -> None:
        self._close_leaf()
        margin = self._margin_for("rule")
        line = Span("─" * max(self.page.width - margin.rest.cells, 1), self.page.styles.faint)
        self._rows.append(row_text(margin.next(), [line], self.page))

    # Containers

    def _open_containers(self, rest: str, ended: bool) -> str:
        while len(self.containers) < _MAX_DEPTH and not _RULE.fullmatch(rest):
            end = self._open_quote(rest) or self._open_item(rest, ended)
            if not end:
                break
            rest = rest[end:]
            self._task(rest)
            if isinstance(self.containers[-1], _Item):
                rest = _TASK.sub("", rest, count=1) if _TASK.match(rest) else rest
        return rest

    def _open_quote(self, rest: str) -> int:
        found = _QUOTE.match(rest)
        if not found:
            return 0
        self._close_leaf()
        self.containers.append(_Quote())
        return found.end()

    def _open_item(self, rest: str, ended: bool) -> int:
        found = _ITEM.match(rest)
        if not found or (self.leaf and not ended):
            return 0
        is_empty = found.end() == len(rest) and not found[4]
        if isinstance(self.leaf, Paragraph) and (is_empty or found[3] not in {None, "1"}):
            return 0
        self._close_leaf()
        kind = found[2][-1]
        number = int(found[3]) if found[3] else 0
        last = self._last_item
        if found[3] and last and last.kind == kind and self._depth == len(self.containers):
            number = last.number + 1
        self._last_item = None
        mark = f"{number}{kind}" if found[3] else "•"
        blanks = len(found[4]) if found[4] else 1
        indent = len(found[1]) + len(found[2]) + blanks
        self.containers.append(_Item(kind, number, indent, mark))
        return min(indent, len(rest))

    def _task(self, rest: str) -> None:
        found = _TASK.match(rest)
        last = self.containers[-1]
        if found and isinstance(last, _Item):
            last.mark = "☐" if found[1] == " " else "☑"

    # Margins

    def _base(self) -> str:
        is_quoted = any(isinstance(container, _Quote) for container in self.containers)
        return self.page.styles.quote if is_quoted else ""

    def _margin_for(self, kind: str) -> Margin:
        """Begin a block of this kind: the blank row before it, where one is due, and its margin."""
        spaced = {"heading", "code", "table", "rule"}
        if self._previous and (self._has_blank or kind in spaced or self._previous in spaced):
            is_on_mark = any(isinstance(c, _Item) and not c.is_marked for c in self.containers[: self._depth])
            if not is_on_mark:
                self._rows.append(self._prefix(self._depth, is_first=False).text.rstrip())
        self._has_blank = False
        self._previous = kind
        return self._margin()

    def _margin(self) -> Margin:
        depth = len(self.containers)
        margin = Margin(self._prefix(depth, is_first=True), self._prefix(depth, is_first=False))
        for container in self.containers:
            if isinstance(container, _Item):
                container.is_marked = True
        return margin

    def _prefix(self, depth: int, is_first: bool) -> Prefix:
        spans: list[Span] = []
        n_cells = 0
        for container in self.containers[:depth]:
            part, size = self._part(container, is_first)
            if n_cells + size > self.page.width // 2:
                break
            spans += part
            n_cells += size
        return Prefix(paint(spans), n_cells) if spans else NO_PREFIX

    def _part(self, container: _Container, is_first: bool) -> tuple[list[Span], int]:
        if isinstance(container, _Quote):
            return [Span("│", self.page.styles.faint), Span(" ")], 2
        size = cells(container.mark) + 1
        if is_first and not container.is_marked:
            return [Span(container.mark, self.page.styles.bullet), Span(" ")], size
        return [Span(" " * size)], size


def _begins_block(text: str) -> bool:
    patterns = (_FENCE, _QUOTE, _ITEM)
    return bool(any(p.match(text) for p in patterns) or _HEADING.fullmatch(text) or _RULE.fullmatch(text))


class MarkdownStream:
    """Renders Markdown that arrives in pieces; the rows are the same however it is cut."""

    def __init__(self, width: int, styles: Styles, hyperlinks: bool = False) -> None:
        self._page = Page(max(width, _MIN_WIDTH), styles, hyperlinks)
        self._document = _Document(self._page)
        self._cleaner = Cleaner()
        self._pieces: list[str] = []
        self._n_held = 0
        self._max_piece = MIN_PIECE
        self._is_inside_line = False

    def resize(self, width: int) -> None:
        """Set the width of what begins from now on."""
        self._page.width = max(width, _MIN_WIDTH)

    def feed(self, text: str) -> list[str]:
        """Take text; give the rows that are now final, each without its newline."""
        return self._feed(self._cleaner.feed(text))

    def finish(self) -> list[str]:
        """Give the rows of all that is still open; the stream is as new."""
        rows = self._feed(self._cleaner.finish())
        if self._n_held or self._is_inside_line:
            rows += self._line("", ended=True)
        rows += self._document.finish()
        self._document = _Document(self._page)
        return rows

    def tail(self, max_rows: int) -> list[str]:
        """Give the last rows of the open block as they would look if the text ended here.

        Costs no more than the open block, which is small; meant for a live region, so it holds SGR
        sequences only.
        """
        page = replace(self._page, is_tail=True)
        ghost = self._document.copy(page)
        text = "".join(self._pieces)
        rows = ghost.more(text, ended=True) if self._is_inside_line else self._ghost_line(ghost, text)
        rows += ghost.finish()
        return rows[max(len(rows) - max_rows, 0) :]

    def _ghost_line(self, ghost: _Document, text: str) -> list[str]:
        if isinstance(ghost.leaf, Code):
            is_mark = bool(_FENCE_MARK.fullmatch(text)) and bool(ghost.leaf.fence.mark)
            return ghost.line(text) if text.strip() and not is_mark else []
        rows = [] if _UNDECIDED.fullmatch(text) else ghost.line(text)
        # A row of bars is a table's head before the line that proves it.
        return rows + ghost.prove_table()

    def _feed(self, text: str) -> list[str]:
        first, *others = text.split("\n")
        rows = self._piece(first)
        for line in others:
            rows += self._line("", ended=True)
            rows += self._piece(line)
        return rows

    def _piece(self, text: str) -> list[str]:
        self._pieces.append(text)
        self._n_held += len(text)
        rows: list[str] = []
        while self._n_held >= self._max_piece:
            text = "".join(self._pieces)
            limit = max_piece(self._document.leaf, self._is_inside_line, text)
            self._pieces, self._max_piece = [text[:limit]], limit
            if len(text) < limit:
                break
            rows += self._line("", ended=False)
            self._pieces, self._n_held = [text[limit:]], len(text) - limit
        return rows

    def _line(self, text: str, ended: bool) -> list[str]:
        text = "".join(self._pieces) + text
        self._pieces, self._n_held, self._max_piece = [], 0, MIN_PIECE
        is_more, self._is_inside_line = self._is_inside_line, not ended
        return self._document.more(text, ended) if is_more else self._document.line(text, ended)


def plan_rows(call: Block, width: int, styles: Styles) -> list[str]:
    """Return the plan that a call presents, as rows; none for other calls."""
    given = call.get("input")
    plan = given.get("plan") if call.get("name") == "exit_plan" and isinstance(given, dict) else None
    return render(plan, width, styles).splitlines() if isinstance(plan, str) and plan.strip() else []


def render(text: str, width: int, styles: Styles, hyperlinks: bool = False) -> str:
    """Give the whole text rendered, each row ended by a newline."""
    stream = MarkdownStream(width, styles, hyperlinks)
    rows = stream.feed(text) + stream.finish()
    return "".join(f"{row}\n" for row in rows)
