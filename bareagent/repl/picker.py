"""A small list in the live region: choose a row, searching as one types."""

from collections.abc import Callable, Sequence
from typing import Literal

from bareagent.cells import cells
from bareagent.repl import view
from bareagent.repl.face import Picked, Row
from bareagent.repl.strip import clipped
from bareagent.repl.styles import Styles
from bareagent.repl.view import paint
from bareagent.sanitize import one_line

MAX_PREVIEW_ROWS = 4

State = Literal["choose", "rename", "delete"]


class Picker:
    """The rows, what is searched for, and which row is meant; `outcome` once the user has decided."""

    def __init__(
        self,
        title: str,
        rows: Callable[[bool], Sequence[Row]],
        *,
        has_all: bool,
        can_edit: bool,
        is_all: bool = False,
    ) -> None:
        """Show the first rows."""
        self.title = title
        self.has_all = has_all
        self.can_edit = can_edit
        self.is_all = is_all
        self.index = 0
        self.state: State = "choose"
        self._rows = rows
        self._known = list(rows(is_all))
        self._search = ""

    def search(self, text: str) -> None:
        """Show only rows that hold every word."""
        if text != self._search:
            self._search = text
            self.index = 0

    def toggle_all(self) -> None:
        """Switch between the project's rows and all."""
        if self.has_all:
            self.is_all = not self.is_all
            self._known = list(self._rows(self.is_all))
            self.index = 0

    def found(self) -> list[Row]:
        """Return the rows that fit what is searched for."""
        words = self._search.lower().split()
        return [
            row for row in self._known if all(word in f"{row.text} {row.detail}".lower() for word in words)
        ]

    def move(self, by: int) -> None:
        """Go up or down, round the ends."""
        found = self.found()
        if found:
            self.index = (self.index + by) % len(found)

    @property
    def current(self) -> Row | None:
        """The row that is meant."""
        found = self.found()
        return found[min(self.index, len(found) - 1)] if found else None

    def chosen(self, action: Literal["choose", "rename", "delete"], text: str = "") -> Picked | None:
        """Return the outcome for the present row."""
        row = self.current
        return Picked(key=row.key, action=action, text=text, is_all=self.is_all) if row else None

    def label(self) -> str:
        """Return what stands before the text line."""
        return "new name> " if self.state == "rename" else "search> "

    def lines(self, width: int, max_rows: int, styles: Styles) -> list[str]:
        """Return the list in at most `max_rows` rows."""
        found = self.found()
        title = f"{self.title} (all)" if self.is_all else self.title
        head = [paint(view.cut(title, width), styles.strong)]
        foot = [paint(view.cut(self._keys(), width), styles.faint)]
        room = max_rows - 2
        preview = self._preview(width, min(MAX_PREVIEW_ROWS, room - 4), styles)
        body = self._window(found, max(room - len(preview), 1), width, styles)
        return [*head, *body, *preview, *foot][: max(max_rows, 1)]

    def _keys(self) -> str:
        if self.state == "delete":
            return "Delete it for good? y yes, any other key no"
        if self.state == "rename":
            return "Enter keep the name · Esc leave"
        keys = ["Enter choose", "Esc leave"]
        keys += ["Tab " + ("this project" if self.is_all else "all projects")] if self.has_all else []
        keys += ["Ctrl-R rename", "Ctrl-D delete"] if self.can_edit else []
        return " · ".join(keys)

    def _window(self, found: Sequence[Row], room: int, width: int, styles: Styles) -> list[str]:
        if not found:
            return [paint("  nothing found", styles.faint)]
        first = min(max(self.index - room // 2, 0), max(len(found) - room, 0))
        shown = found[first : first + room]
        column = max(cells(one_line(row.text, width)) for row in shown)
        return [
            self._row(row, at == self.index, width, column, styles) for at, row in enumerate(shown, first)
        ]

    @staticmethod
    def _row(row: Row, is_current: bool, width: int, column: int, styles: Styles) -> str:
        mark = "> " if is_current else "  "
        detail = one_line(row.detail, width // 2) if width >= 40 else ""
        column = min(column, width - 2 - (cells(detail) + 2 if detail else 0))
        text = one_line(row.text, column)
        gap = " " * (column - cells(text) + 2) if detail else ""
        look = styles.accent if is_current else ""
        return paint(mark + text, look) + gap + paint(detail, styles.faint)

    def _preview(self, width: int, room: int, styles: Styles) -> list[str]:
        row = self.current
        if row is None or room < 1:
            return []
        if row.sample:
            return [clipped(f"  {text}", width) for text in row.sample[:room]]
        if not row.preview:
            return []
        rows = [view.cut("  " + line, width) for line in row.preview.split("\n")[:room]]
        return [paint(text, styles.faint) for text in rows]
