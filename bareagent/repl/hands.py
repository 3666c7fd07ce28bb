"""What the keys do, and what the live region shows, once the program stands; `first.py` has the rest."""

import time
from typing import TYPE_CHECKING

from bareagent.cells import cells, fit_right
from bareagent.messages import text_of
from bareagent.repl import first, toolbar, view
from bareagent.repl.ansi import paint
from bareagent.repl.questions import Panel, shown_input
from bareagent.sanitize import clean, one_line

if TYPE_CHECKING:
    from bareagent.repl.app import Repl

CYCLE = ("default", "auto", "plan")
TYPING_S = 0.5
"""Who typed within that time still types: what comes is meant for the draft, not for a question."""
MAX_QUEUED_ROWS = 3
STRAYED, DRAFT = "No answer, so kept as your draft: ", "Your draft: "
HELD = "Not sent: Enter sends them in order, Up takes one back."


class Hands(first.Hands):
    """Keys in, rows out, for one REPL."""

    def __init__(self, repl: "Repl", before: first.Hands) -> None:
        """Take over from the first hands, with what they hold."""
        super().__init__(before.screen, before.styles, before.mode)
        self.folds, self.waiting, self.postponed = before.folds, before.waiting, before.postponed
        self._repl = repl
        self._last_typed = 0.0
        self._strayed: Panel | None = None

    @property
    def has_panel(self) -> bool:
        """A question or list is in front."""
        return self._repl.asking.is_open

    @property
    def is_writing(self) -> bool:
        """What is typed in it is text."""
        return self._repl.asking.is_writing

    def begin(self) -> None:
        """Do what was pressed and entered before the program stood."""
        keys, self.postponed = self.postponed, []
        for press in keys:
            press(self)
        lines, self.waiting = self.waiting, []
        for line in lines:
            self._repl.take(line)

    # Keys

    def take(self, line: str) -> None:
        """Take a line that was entered."""
        if self._repl.is_ready:
            self._repl.take(line)
        else:
            super().take(line)

    def leave(self) -> None:
        """End the program."""
        self._repl.leave()

    def note(self, text: str) -> None:
        """Say something in passing."""
        self._repl.say(text, "dim")

    def recall(self) -> bool:
        """Take the last line that waits back into the draft."""
        line = self._repl.take_back()
        if line is None:
            return super().recall()
        self.set_draft(line)
        return True

    def cycle_mode(self) -> None:
        """Take the next permission mode."""
        if not self._repl.is_ready:
            super().cycle_mode()
            return
        agent = self._repl.agent
        at = CYCLE.index(agent.mode) if agent.mode in CYCLE else -1
        agent.set_mode(CYCLE[(at + 1) % len(CYCLE)])
        self.screen.redraw()

    def edit_draft(self) -> None:
        """Open the draft in an editor."""
        self._repl.beside(self.screen.edit_draft())

    def expand(self) -> None:
        """Show what is folded, or the question or the last result whole."""
        repl = self._repl
        panel, last = repl.asking.panel, repl.live.last_ended
        if panel is not None:
            repl.beside(repl.page(panel.question.detail, panel.question.title))
        elif self.folds.has_fold(self.screen.draft.text):
            super().expand()
        elif last is not None:
            title = f"{last.call.get('name')}  {one_line(view.telling(last.call), 200)}"
            text = last.shown or text_of(last.result.get("content"))
            repl.beside(repl.page(text or shown_input(last.call), title))

    def escape(self) -> None:
        """Close a menu or stop the run."""
        draft = self.screen.draft
        if draft.complete_state is not None:
            draft.cancel_completion()
        elif not self._repl.asking.back() and not self.stop():
            draft.exit_selection()

    def stop(self) -> bool:
        """Stop what is under way: a list or question of a command, or the run."""
        repl = self._repl
        if repl.asking.is_open and not (repl.is_ready and repl.agent.is_running):
            repl.asking.give_up()
            return True
        return repl.interrupt()

    def suspend(self) -> None:
        """Stop the program until the shell wakes it."""
        self._repl.beside(self.screen.suspend())

    def steer(self) -> None:
        """Deliver what is queued after the present calls."""
        draft = self.screen.draft
        if draft.text.strip() and self._repl.is_working:
            self._repl.put(draft.text)
            draft.append_to_history()
            draft.reset()
        self._repl.steer()
        self.screen.redraw()

    def paste(self, text: str) -> None:
        """Take a pasted text; a question is never answered by one."""
        if self.is_writing:
            self.screen.aside.insert_text(" ".join(text.split()))
        elif self._repl.asking.picker is None:
            self._strayed = self._repl.asking.panel
            super().paste(text)

    def panel_key(self, key: str) -> None:
        """Answer a question, move in a list; what comes in one piece was not typed by a hand."""
        asking = self._repl.asking
        typed = self.screen.typed
        is_burst = typed is not None and typed.is_burst
        if asking.is_writing or asking.panel is None:
            if not is_burst or (asking.is_writing and key != "enter"):
                asking.key(key)
        elif is_burst or asking.is_fresh or self._is_typing() or not self._is_answer(asking.panel, key):
            self._stray(key)
        else:
            asking.key(key)

    def _is_answer(self, panel: Panel, key: str) -> bool:
        if key == "enter":
            return panel.knows("\r") and self._strayed is not panel
        return panel.knows(key)

    def _is_typing(self) -> bool:
        """The user is in the middle of a line: these keys are meant for the draft."""
        return bool(self.screen.draft.text) and time.monotonic() - self._last_typed < TYPING_S

    def _stray(self, key: str) -> None:
        """Keep what a question cannot take: it is the draft's."""
        if key == "backspace":
            super().backspace()
        elif len(key) == 1 and (key.isprintable() or key == "\n"):
            self._strayed = self._repl.asking.panel
            self.screen.draft.insert_text(key)
        self.screen.redraw()

    def note_typing(self) -> None:
        """Hear that the draft has changed."""
        self._last_typed = time.monotonic()

    def note_aside(self, text: str) -> None:
        """Hear that the panel's text line has changed."""
        self._repl.asking.typed(text)

    def on_background(self, is_light: bool) -> None:
        """Take colours that can be read on it."""
        self._repl.on_background(is_light)

    # What is shown

    def prompt(self, width: int) -> str:
        """Return what stands before the input."""
        if self._repl.is_ready:
            self.mode = self._repl.agent.mode
        self.styles = self._repl.styles
        return super().prompt(width)

    def moving(self, width: int, max_rows: int) -> list[str]:
        """Return what moves above the input: the tail, running calls, what waits, the status line."""
        repl = self._repl
        below = self._waiting(width, min(MAX_QUEUED_ROWS, max(max_rows - 2, 0)))
        is_choosing = repl.asking.is_open and not (repl.is_ready and repl.agent.is_running)
        if repl.is_working and not is_choosing and max_rows > 0:
            below = [repl.live.status(width), *below]
        room = max_rows - len(below)
        above = repl.live.rows(width, room)
        if (above or repl.live.has_shown) and len(above) < room:
            above = [*above, ""]
        return [*above, *below][-max_rows:] if max_rows > 0 else []

    def _waiting(self, width: int, max_rows: int) -> list[str]:
        if not self._repl.is_ready:
            return super().moving(width, max_rows)
        repl = self._repl
        waiting = [("goes out after this step", line) for line in repl.agent.box.steered]
        waiting += [("queued", line) for line in repl.coming]
        waiting += [("held", line) for line in repl.held]
        rows = [view.cut(f"  {what}: {one_line(line, 4 * width)}", width) for what, line in waiting]
        more = len(rows) - max_rows
        if more > 0:
            rows = [*rows[: max(max_rows - 1, 0)], f"  … {more + 1} more"][:max_rows]
        if repl.held and not repl.is_working:
            rows = [view.cut(HELD, width), *rows][: max_rows + 1]
        return [paint(row, repl.styles.faint) for row in rows]

    def panel(self, width: int, max_rows: int) -> list[str] | None:
        """Return the question or list in front, and what was typed into the draft meanwhile."""
        asking = self._repl.asking
        draft = " ".join(clean(self.screen.draft.text).split())
        has_note = bool(draft) and asking.panel is not None and max_rows > 2
        rows = asking.rows(width, max_rows - has_note, self._repl.styles)
        if rows is None or not has_note:
            return rows
        label = STRAYED if self._strayed is asking.panel else DRAFT
        room = max(width - len(label) - 1, 1)
        end = draft if cells(draft) <= room else "…" + draft[fit_right(draft, room) :]
        return [*rows, paint(view.cut(f"{label}{end}", width), self._repl.styles.faint)]

    def panel_label(self) -> str:
        """Return what stands before the panel's text line."""
        return self._repl.asking.label()

    def foot(self, width: int) -> str:
        """Return the toolbar."""
        if not self._repl.is_ready:
            return super().foot(width)
        return toolbar.text(self._repl.standing(), width, self._repl.styles)
