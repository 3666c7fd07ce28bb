"""One question at a time: who asked waits, what is typed goes to the panel or list in front."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from bareagent.repl.face import Picked, Row
from bareagent.repl.picker import Picker
from bareagent.repl.questions import Panel
from bareagent.repl.styles import Styles
from bareagent.seams import Answer, Question

GRACE_S = 0.3
"""What is pressed so soon after a question has come up was not meant for it."""


class Front(Protocol):
    """The screen, as far as a question needs it."""

    def open_aside(self, text: str = "") -> None:
        """Take the keys away from the draft; the text line of the panel begins with `text`."""

    def close_aside(self) -> None:
        """Give the keys back to the draft."""

    def aside_text(self) -> str:
        """Return what stands on the panel's text line."""

    def redraw(self) -> None:
        """Draw the live region soon."""


class Asking:
    """The panel or list in front, if there is one."""

    def __init__(self, front: Front, on_question: Callable[[Question], None]) -> None:
        """Nothing is asked yet; `on_question` hears each question as it comes up."""
        self.panel: Panel | None = None
        self.picker: Picker | None = None
        self._front = front
        self._on_question = on_question
        self._turn = asyncio.Lock()
        self._outcome: asyncio.Future[Any] | None = None
        self._seen_at: float | None = None

    @property
    def is_fresh(self) -> bool:
        """The question has not stood there long enough to have been read: no key can be meant for it."""
        return self._seen_at is None or time.monotonic() - self._seen_at < GRACE_S

    @property
    def is_open(self) -> bool:
        """Something is asked."""
        return self._outcome is not None

    @property
    def is_writing(self) -> bool:
        """What is typed is text, not a key of the panel."""
        if self.picker is not None:
            return self.picker.state != "delete"
        return self.panel is not None and bool(self.panel.writing)

    # Asking

    async def ask(self, question: Question) -> Answer:
        """Ask and wait; a cancelled question disappears."""
        answer: Answer = await self._asked(Panel(question))
        return answer

    async def confirm(self, text: str) -> bool:
        """Ask yes or no; no is the default."""
        question = Question(kind="permission", title=text)
        answer: Answer = await self._asked(Panel(question, is_confirm=True))
        return answer.verdict == "yes"

    async def _asked(self, panel: Panel) -> Any:
        async with self._turn:
            self.panel, self._seen_at = panel, None
            self._on_question(panel.question)
            try:
                return await self._decided()
            finally:
                self.panel = None
                self._close()

    async def pick(
        self,
        title: str,
        rows: Callable[[bool], Sequence[Row]],
        *,
        has_all: bool,
        can_edit: bool,
        is_all: bool = False,
    ) -> Picked | None:
        """Let the user choose from a list."""
        async with self._turn:
            self.picker = Picker(title, rows, has_all=has_all, can_edit=can_edit, is_all=is_all)
            try:
                picked: Picked | None = await self._decided()
                return picked
            finally:
                self.picker = None
                self._close()

    async def _decided(self) -> Any:
        self._outcome = asyncio.get_running_loop().create_future()
        self._front.open_aside()
        return await self._outcome

    def _close(self) -> None:
        self._outcome = None
        self._front.close_aside()

    def _decide(self, outcome: Any) -> None:
        if self._outcome is not None and not self._outcome.done():
            self._outcome.set_result(outcome)

    def give_up(self) -> None:
        """Take the default: no, or no choice."""
        self._decide(Answer(verdict="no") if self.panel is not None else None)

    # Keys

    def key(self, key: str) -> None:
        """Take a key: a character, or the name of a special one."""
        if self.picker is not None:
            self._picker_key(self.picker, key)
        elif self.panel is not None:
            self._panel_key(self.panel, key)
        self._front.redraw()

    def _panel_key(self, panel: Panel, key: str) -> None:
        if panel.writing:
            if key == "enter":
                self._decide(panel.written(self._front.aside_text()))
            return
        answer = panel.key("\r" if key == "enter" else key)
        if answer is not None:
            self._decide(answer)
        elif panel.writing:
            self._front.open_aside(panel.start_text())

    def back(self) -> bool:
        """Leave a text line that a key of the panel has opened; False if none is open."""
        if self.panel is None or not self.panel.writing or self.panel.writing == "free":
            return False
        self.panel.writing = ""
        self._front.open_aside()
        return True

    def _picker_key(self, picker: Picker, key: str) -> None:
        if picker.state == "delete":
            picker.state = "choose"
            if key == "y":
                self._decide(picker.chosen("delete"))
            return
        if picker.state == "rename":
            if key == "enter":
                self._decide(picker.chosen("rename", self._front.aside_text()))
            return
        match key:
            case "up" | "down":
                picker.move(-1 if key == "up" else 1)
            case "tab":
                picker.toggle_all()
            case "enter" if picker.current is not None:
                self._decide(picker.chosen("choose"))
            case "c-d" if picker.can_edit and picker.current is not None:
                picker.state = "delete"
            case "c-r" if picker.can_edit and picker.current is not None:
                text = picker.current.text
                picker.state = "rename"
                self._front.open_aside(text)

    def typed(self, text: str) -> None:
        """Hear the text line change: a list is searched as one types."""
        if self.picker is not None and self.picker.state == "choose":
            self.picker.search(text)

    # Looks

    def label(self) -> str:
        """Return what stands before the text line; empty: there is none."""
        if self.picker is not None:
            return self.picker.label()
        return self.panel.label() if self.panel is not None else ""

    def rows(self, width: int, max_rows: int, look: Styles) -> list[str] | None:
        """Return the panel or list; None where nothing is asked."""
        if self.picker is not None:
            return self.picker.lines(width, max_rows - 1, look)
        if self.panel is None:
            return None
        self._seen_at = self._seen_at or time.monotonic()
        return self.panel.rows(width, max_rows - bool(self.panel.writing), look)
