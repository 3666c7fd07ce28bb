"""The first prompt: what can be typed before the program behind it has been loaded. Light on purpose."""

import asyncio
import time
from collections.abc import Callable

from prompt_toolkit.buffer import Buffer

from bareagent.cells import cells
from bareagent.repl import edit
from bareagent.repl.ansi import cut, paint
from bareagent.repl.keys import Keyed
from bareagent.repl.paste import Folds
from bareagent.repl.screen import Screen
from bareagent.repl.styles import Styles

LEAVE_AGAIN_S = 2.0
WIDE_CELLS = 36


class Hands:
    """Editing, history and leaving; lines entered wait for who comes behind."""

    def __init__(self, screen: Screen, styles: Styles, mode: str) -> None:
        """Serve this screen."""
        self.screen = screen
        self.styles = styles
        self.mode = mode
        self.folds = Folds()
        self.waiting: list[str] = []
        self.postponed: list[Callable[[Keyed], None]] = []
        self._last_control_c = 0.0
        self._tab_waits = ""
        screen.draft.on_completions_changed += self._completed

    def take(self, line: str) -> None:
        """Take a line that was entered."""
        if line.strip():
            self.waiting.append(line)
            self.screen.redraw()

    def leave(self) -> None:
        """End the program."""
        self.screen.leave()

    def note(self, text: str) -> None:
        """Say something in passing."""
        self.screen.print([paint(text, self.styles.faint)])

    @property
    def has_panel(self) -> bool:
        """No question is in front."""
        return False

    @property
    def is_writing(self) -> bool:
        """Keys are keys."""
        return False

    # Keys

    def enter(self) -> None:
        """Send the draft, or take the completion that is marked."""
        self._last_control_c = 0.0
        draft = self.screen.draft
        if draft.complete_state is not None and draft.complete_state.current_completion is not None:
            draft.complete_state = None
            return
        if draft.document.text_before_cursor.endswith("\\"):
            draft.delete_before_cursor()
            self.new_line()
            return
        line = draft.text
        draft.append_to_history()
        draft.reset()
        self.take(line)

    def new_line(self) -> None:
        """Begin a new line in the draft."""
        self.screen.draft.insert_text("\n")

    def up(self) -> None:
        """Go up: in the menu, in the draft, to a line that waits, to the history."""
        draft = self.screen.draft
        if draft.complete_state is not None:
            draft.complete_previous()
        elif draft.document.cursor_position_row > 0:
            draft.cursor_up()
        elif draft.text or not self.recall():
            self._back(draft)

    @staticmethod
    def _back(draft: Buffer) -> None:
        if draft.working_index:
            draft.history_backward()
            return
        # A fresh draft loads the history in the loop's next round.
        draft.load_history_if_not_yet_loaded()
        asyncio.get_running_loop().call_soon(draft.history_backward)

    def recall(self) -> bool:
        """Take the last line that waits back into the draft; False if none waits."""
        if not self.waiting:
            return False
        self.set_draft(self.waiting.pop())
        return True

    def set_draft(self, text: str) -> None:
        """Put a text into the input line."""
        self.screen.draft.text = text
        self.screen.draft.cursor_position = len(text)
        self.screen.redraw()

    def down(self) -> None:
        """Go down."""
        draft = self.screen.draft
        if draft.complete_state is not None:
            draft.complete_next()
        elif not draft.document.on_last_line:
            draft.cursor_down()
        else:
            draft.history_forward()

    def tab(self) -> None:
        """Complete."""
        draft = self.screen.draft
        state = draft.complete_state
        if state is not None and len(state.completions) == 1:
            # There is nothing to choose: the next Enter sends.
            draft.apply_completion(state.completions[0])
        elif state is not None and state.completions:
            draft.complete_next()
        elif draft.text.strip():
            self._tab_waits = draft.text
            draft.start_completion(insert_common_part=True)

    def _completed(self, draft: Buffer) -> None:
        """Hear that candidates have come: a Tab pressed before they were there takes a lone one."""
        if self._tab_waits:
            # Once prompt_toolkit has settled what it does with them.
            asyncio.get_running_loop().call_soon(self._take_lone, draft)

    def _take_lone(self, draft: Buffer) -> None:
        state = draft.complete_state
        if draft.text == self._tab_waits and state is not None and state.completions:
            self._tab_waits = ""
            if len(state.completions) == 1:
                draft.apply_completion(state.completions[0])

    def cycle_mode(self) -> None:
        """Do it once the mode is known."""
        self.postponed.append(lambda keyed: keyed.cycle_mode())

    def edit_draft(self) -> None:
        """Do it once the program stands."""
        self.postponed.append(lambda keyed: keyed.edit_draft())

    def redraw(self) -> None:
        """Draw the screen anew."""
        self.screen.clear()

    def expand(self) -> None:
        """Show what is folded."""
        draft = self.screen.draft
        if self.folds.has_fold(draft.text):
            self.set_draft(self.folds.unfold(draft.text))

    def escape(self) -> None:
        """Close the menu."""
        if self.screen.draft.complete_state is not None:
            self.screen.draft.cancel_completion()

    def stop(self) -> bool:
        """Stop what is under way; False if nothing is."""
        return False

    def control_c(self) -> None:
        """Stop the run, clear the draft, or leave."""
        draft = self.screen.draft
        if self.stop():
            return
        if draft.text:
            draft.append_to_history()
            draft.reset()
            return
        now = time.monotonic()
        if now - self._last_control_c < LEAVE_AGAIN_S:
            self.leave()
            return
        self._last_control_c = now
        self.note("Ctrl-C again, Ctrl-D or /exit leaves.")

    def control_d(self) -> None:
        """Leave where the draft is empty; else delete."""
        if self.screen.draft.text:
            edit.delete_after(self.screen.draft)
        else:
            self.leave()

    def suspend(self) -> None:
        """Do it once the program stands."""
        self.postponed.append(lambda keyed: keyed.suspend())

    def steer(self) -> None:
        """Wait: there is no run yet."""

    def paste(self, text: str) -> None:
        """Take a pasted text."""
        self.screen.draft.insert_text(self.folds.fold(text))

    def backspace(self) -> None:
        """Delete a character, or a fold whole."""
        draft = self.screen.draft
        if draft.selection_state is not None:
            draft.cut_selection()
            return
        n = self.folds.end_of_fold(draft.document.text_before_cursor)
        if n:
            draft.delete_before_cursor(n)
        else:
            edit.delete_before(draft)

    def panel_key(self, key: str) -> None:
        """Pass by: there is no question yet."""

    # What is heard

    def note_typing(self) -> None:
        """Pass by."""

    def note_aside(self, text: str) -> None:
        """Pass by."""

    def on_background(self, is_light: bool) -> None:
        """Pass by: colours are chosen later."""

    # What is shown

    def prompt(self, width: int) -> str:
        """Return what stands before the input, as long as the width lets it be."""
        texts = (f"[{self.mode.upper()}] bareagent> ", "bareagent> ", "> ")
        longest = width if width >= WIDE_CELLS else width // 2
        text = next((text for text in texts if cells(text) <= longest), "")
        return paint(text, self.styles.warning if self.mode == "bypass" else self.styles.accent)

    def moving(self, width: int, max_rows: int) -> list[str]:
        """Return what moves above the input: the lines that wait."""
        rows = [cut(f"  queued: {line}", width) for line in self.waiting]
        return [paint(row, self.styles.faint) for row in rows[-max_rows:]] if max_rows > 0 else []

    def panel(self, _width: int, _max_rows: int) -> list[str] | None:
        """Return no question."""
        return None

    def panel_label(self) -> str:
        """Return no text line."""
        return ""

    def foot(self, width: int) -> str:
        """Return the toolbar."""
        return paint(cut("starting …", width), self.styles.faint)
