"""What the keys do, and what the live region shows: the two sides a user touches."""

import os
import time
from typing import TYPE_CHECKING

from bareagent.cells import cells
from bareagent.messages import text_of
from bareagent.repl import toolbar, view
from bareagent.repl.questions import shown_input
from bareagent.repl.view import paint
from bareagent.sanitize import one_line

if TYPE_CHECKING:
    from bareagent.repl.app import Repl

CYCLE = ("default", "auto", "plan")
TYPING_S = 0.5
LEAVE_AGAIN_S = 2.0
MAX_QUEUED_ROWS = 3


class Hands:
    """Keys in, rows out, for one REPL."""

    def __init__(self, repl: "Repl") -> None:
        """Serve this REPL."""
        self._repl = repl
        self._last_typed = 0.0
        self._last_control_c = 0.0

    # Keys

    def enter(self) -> None:
        """Send the draft, or take the completion that is marked."""
        draft = self._repl.screen.draft
        if draft.complete_state is not None and draft.complete_state.current_completion is not None:
            draft.complete_state = None
            return
        if draft.document.text_before_cursor.endswith("\\") and not draft.document.text_after_cursor:
            draft.delete_before_cursor()
            self.new_line()
            return
        line = draft.text
        draft.append_to_history()
        draft.reset()
        self._repl.take(line)

    def new_line(self) -> None:
        """Begin a new line in the draft."""
        self._repl.screen.draft.insert_text("\n")

    def up(self) -> None:
        """Go up: in the menu, in the draft, to a queued line, to the history."""
        draft = self._repl.screen.draft
        if draft.complete_state is not None:
            draft.complete_previous()
        elif draft.document.cursor_position_row > 0:
            draft.cursor_up()
        elif self._repl.queued and not draft.text:
            self._repl.set_draft(self._repl.queued.pop())
        else:
            draft.history_backward()

    def down(self) -> None:
        """Go down."""
        draft = self._repl.screen.draft
        if draft.complete_state is not None:
            draft.complete_next()
        elif not draft.document.on_last_line:
            draft.cursor_down()
        else:
            draft.history_forward()

    def tab(self) -> None:
        """Complete."""
        draft = self._repl.screen.draft
        if draft.complete_state is not None:
            draft.complete_next()
        else:
            draft.start_completion(insert_common_part=True)

    def cycle_mode(self) -> None:
        """Take the next permission mode."""
        mode = self._repl.agent.mode
        at = CYCLE.index(mode) if mode in CYCLE else -1
        self._repl.agent.set_mode(CYCLE[(at + 1) % len(CYCLE)])
        self._repl.screen.redraw()

    def edit_draft(self) -> None:
        """Open the draft in an editor."""
        self._repl.start(self._repl.screen.edit_draft())

    def redraw(self) -> None:
        """Draw the screen anew."""
        self._repl.screen.clear()

    def expand(self) -> None:
        """Show what is folded, or the last result whole."""
        repl = self._repl
        draft = repl.screen.draft
        if repl.folds.has_fold(draft.text):
            repl.set_draft(repl.folds.unfold(draft.text))
            return
        panel, last = repl.asking.panel, repl.live.last_ended
        if panel is not None:
            repl.start(repl.page(panel.question.detail, panel.question.title))
        elif last is not None:
            title = f"{last.call.get('name')}  {one_line(view.telling(last.call), 200)}"
            text = last.shown or text_of(last.result.get("content"))
            repl.start(repl.page(text or shown_input(last.call), title))

    def escape(self) -> None:
        """Close a menu or stop the run."""
        repl = self._repl
        if repl.screen.draft.complete_state is not None:
            repl.screen.draft.cancel_completion()
        elif not repl.asking.back() and not self._stop():
            repl.screen.draft.exit_selection()

    def _stop(self) -> bool:
        """Stop what is under way: a list or question of a command, or the run."""
        repl = self._repl
        if repl.asking.is_open and not repl.agent.is_running:
            repl.asking.give_up()
            return True
        return repl.interrupt()

    def control_c(self) -> None:
        """Stop the run, clear the draft, or leave."""
        repl = self._repl
        draft = repl.screen.draft
        if self._stop():
            return
        if draft.text:
            draft.append_to_history()
            draft.reset()
            return
        now = time.monotonic()
        if now - self._last_control_c < LEAVE_AGAIN_S:
            repl.leave()
            return
        self._last_control_c = now
        repl.say("Ctrl-C again, Ctrl-D or /exit leaves.", "dim")

    def control_d(self) -> None:
        """Leave where the draft is empty; else delete."""
        draft = self._repl.screen.draft
        if draft.text:
            draft.delete()
        else:
            self._repl.leave()

    def suspend(self) -> None:
        """Stop the program until the shell wakes it."""
        self._repl.start(self._repl.screen.suspend())

    def steer(self) -> None:
        """Deliver what is queued after the present calls."""
        repl = self._repl
        line = repl.screen.draft.text
        if line.strip() and repl.is_working:
            repl.screen.draft.append_to_history()
            repl.screen.draft.reset()
            repl.queued.append(line)
        repl.steer()
        repl.screen.redraw()

    def paste(self, text: str) -> None:
        """Take a pasted text; a question is never answered by one."""
        repl = self._repl
        if repl.asking.is_open:
            if repl.asking.is_writing:
                repl.screen.aside.insert_text(" ".join(text.split()))
            return
        repl.screen.draft.insert_text(repl.folds.fold(text))

    def backspace(self) -> None:
        """Delete a character, or a fold whole."""
        draft = self._repl.screen.draft
        if draft.selection_state is not None:
            draft.cut_selection()
            return
        n = self._repl.folds.end_of_fold(draft.document.text_before_cursor)
        draft.delete_before_cursor(max(n, 1))

    def panel_key(self, key: str) -> None:
        """Answer a question, move in a list; what comes in one piece was not typed by a hand."""
        repl = self._repl
        typed = repl.screen.typed
        is_burst = typed is not None and typed.is_burst
        if not repl.asking.is_writing and (is_burst or self._was_typing()):
            self._last_typed = time.monotonic() if self._was_typing() else self._last_typed
            return
        if key == "enter" and is_burst:
            return
        repl.asking.key(key)

    def _was_typing(self) -> bool:
        """A question came up while the user was typing: these keys were meant for the draft."""
        return bool(self._repl.screen.draft.text) and time.monotonic() - self._last_typed < TYPING_S

    def note_typing(self) -> None:
        """Hear that the draft has changed."""
        self._last_typed = time.monotonic()

    # What is shown

    def prompt(self, width: int) -> str:
        """Return what stands before the input."""
        repl = self._repl
        mode = f"[{repl.agent.mode.upper()}] "
        text = next((text for text in (f"{mode}bareagent> ", "bareagent> ", "> ") if cells(text) < width // 2), "")
        if width >= 36:
            text = f"{mode}bareagent> "
        look = repl.styles.warning if repl.agent.mode == "bypass" else repl.styles.accent
        return paint(text, look)

    def moving(self, width: int, max_rows: int) -> list[str]:
        """Return what moves above the input: the tail, running calls, what waits, the status line."""
        repl = self._repl
        below = self._queued(width, min(MAX_QUEUED_ROWS, max(max_rows - 2, 0)))
        if repl.is_working and max_rows > 0:
            below = [repl.live.status(width), *below]
        room = max_rows - len(below)
        above = repl.live.rows(width, room)
        if above and len(above) < room:
            above = [*above, ""]
        return [*above, *below][-max_rows:] if max_rows > 0 else []

    def _queued(self, width: int, max_rows: int) -> list[str]:
        waiting = [("steers", line) for line in self._repl.agent.box.steered]
        waiting += [("queued", line) for line in self._repl.queued]
        rows = [view.cut(f"  {what}: {one_line(line, 4 * width)}", width) for what, line in waiting]
        more = len(rows) - max_rows
        if more > 0:
            rows = [*rows[: max(max_rows - 1, 0)], f"  … {more + 1} more"][:max_rows]
        return [paint(row, self._repl.styles.faint) for row in rows]

    def panel(self, width: int, max_rows: int) -> list[str] | None:
        """Return the question or list in front."""
        return self._repl.asking.rows(width, max_rows, self._repl.styles)

    def panel_label(self) -> str:
        """Return what stands before the panel's text line."""
        return self._repl.asking.label()

    def foot(self, width: int) -> str:
        """Return the toolbar."""
        return toolbar.text(self._repl.standing(), width, self._repl.styles)


def editor() -> str:
    """Return the editor the user has chosen."""
    return os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
