"""What commands may ask of the terminal they were typed in."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec

from bareagent.agent import Agent
from bareagent.repl.styles import Styles

Level = Literal["info", "dim", "warning", "error"]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a picker: `text` is shown and searched, `detail` beside it, `preview` below the list.

    `sample`: rows of the program's own that are shown there as they are, colours and all.
    """

    key: str
    text: str
    detail: str = ""
    preview: str = ""
    sample: tuple[str, ...] = ()


class Picked(msgspec.Struct, frozen=True, kw_only=True):
    """What the user did with a row: chose, renamed (with `text`) or deleted it."""

    key: str
    action: Literal["choose", "rename", "delete"] = "choose"
    is_all: bool = False
    text: str = ""


class Face(Protocol):
    """A terminal with a conversation in it. Everything shown passes the sanitiser on its way."""

    agent: Agent
    styles: Styles

    @property
    def width(self) -> int:
        """Columns of the terminal."""

    @property
    def is_terminal(self) -> bool:
        """False for pipes and dumb terminals: no colours, no pickers."""

    @property
    def theme(self) -> str:
        """The theme in use, as `ui.theme` calls it."""

    def say(self, text: str, level: Level = "info") -> None:
        """Print lines of the program's own."""

    def show(self, lines: Sequence[str]) -> None:
        """Print finished lines, ANSI colours allowed, already clean and wrapped to the width."""

    async def pick(
        self,
        title: str,
        rows: Callable[[bool], Sequence[Row]],
        *,
        has_all: bool = False,
        can_edit: bool = False,
        is_all: bool = False,
    ) -> Picked | None:
        """Let the user choose a row, searching as they type; None if they leave.

        `rows(is_all)` gives the rows, newest first; with `has_all` Tab switches to all, `is_all` begins with
        them. `can_edit` allows Ctrl-R (rename) and Ctrl-D (delete, after asking). Without a terminal: None.
        """

    async def confirm(self, question: str) -> bool:
        """Ask yes or no; no is the default."""

    async def page(self, text: str, title: str = "") -> None:
        """Show a long text in a pager."""

    async def submit(self, line: str) -> None:
        """Send a line to the model as if it had been typed, commands not looked for."""

    async def retry(self) -> None:
        """Send the view again."""

    def set_draft(self, text: str) -> None:
        """Put a text into the input line."""

    def clear_screen(self) -> None:
        """Clear the screen."""

    def sample(self, theme: str, text: str) -> tuple[str, ...]:
        """Return Markdown of the program's own as it looks in a theme."""

    def use_theme(self, name: str) -> None:
        """Change the colours from here on."""

    def copy(self, text: str) -> bool:
        """Put a text on the clipboard (OSC 52); False where the terminal has none."""

    def leave(self) -> None:
        """End the program after this command."""
