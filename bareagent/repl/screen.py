"""The live region at the foot of the terminal, and how finished rows pass above it into the scrollback.

One prompt_toolkit application from start to exit. What is final is written once and never again.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TextIO, TypeVar

from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Point
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.history import History
from prompt_toolkit.input.defaults import create_input
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.screen import Screen as Drawn
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from bareagent.cells import cells
from bareagent.repl import keys
from bareagent.repl.ansi import cut
from bareagent.repl.edit import Apart
from bareagent.repl.outside import Outside
from bareagent.repl.reflow import has_reflow, rows_above_cursor, settle_s
from bareagent.repl.strip import Place, Strip
from bareagent.repl.terminal import Canvas, Typed

T = TypeVar("T")

FRAME_S = 0.1
"""So often at most finished rows are written and the moving ones drawn anew; keys are shown at once."""

KEY_TIMEOUT_S = 0.05
MAX_MENU_ROWS = 6
MAX_INPUT_SHARE = 3


class Shown(keys.Keyed, Protocol):
    """What the keys do and what the live region shows; asked at each drawing, all rows fit the width."""

    @property
    def has_panel(self) -> bool:
        """A question or list is in front."""

    @property
    def is_writing(self) -> bool:
        """What is typed in it is text, not a key of it."""

    def note_typing(self) -> None:
        """Hear that the draft has changed."""

    def note_aside(self, text: str) -> None:
        """Hear that the panel's text line has changed."""

    def on_background(self, is_light: bool) -> None:
        """Hear how the terminal's background is."""

    def prompt(self, width: int) -> str:
        """Return what stands before the input."""

    def moving(self, width: int, max_rows: int) -> list[str]:
        """Return what moves above the input."""

    def panel(self, width: int, max_rows: int) -> list[str] | None:
        """Return a question or a list that takes the input's place; None: there is none."""

    def panel_label(self) -> str:
        """Return what stands before the panel's text line; empty: it has none."""

    def foot(self, width: int) -> str:
        """Return the toolbar."""


class Screen:
    """The application: input line, panel, moving rows, toolbar, and printing above them.

    `hands` are set before it runs and may be exchanged at any time.
    """

    hands: Shown

    def __init__(
        self,
        history: History,
        stdin: TextIO,
        stdout: TextIO,
        *,
        is_vi: bool = False,
    ) -> None:
        """Build it; nothing is drawn yet."""
        self._pending: list[str] = []
        self._last_frame = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._resize: asyncio.TimerHandle | None = None
        self._n_away = 0
        self.outside = Outside()
        self._rows: dict[str, list[str]] = {}
        self._cursor = Point(0, 0)
        self.canvas = _canvas(stdout)
        self._strip = Strip(self.canvas.write_raw)
        self.draft = Buffer(
            history=history,
            complete_while_typing=Condition(self._completes_while_typing),
            multiline=True,
            name="draft",
        )
        self.aside = Buffer(multiline=False, name="aside")
        self.draft.on_text_changed += lambda _: self.hands.note_typing()
        self.aside.on_text_changed += lambda buffer: self.hands.note_aside(buffer.text)
        self.typed: Typed | None = None
        self._before: tuple[Drawn | None, Point | None] = (None, None)
        self._search = SearchToolbar(forward_search_prompt="search: ", backward_search_prompt="search back: ")
        self.app: Application[int] = Application(
            layout=self._layout(),
            key_bindings=keys.bindings(lambda: self.hands, self._has_panel, self._is_writing),
            input=self._keyboard(stdin),
            output=self.canvas,
            editing_mode=EditingMode.VI if is_vi else EditingMode.EMACS,
            style=Style([("search-toolbar", ""), ("search-toolbar.text", "")]),
            erase_when_done=True,
            mouse_support=False,
            enable_page_navigation_bindings=False,
            terminal_size_polling_interval=None,
            before_render=lambda _: self._measure(),
            after_render=lambda _: self._drawn(),
        )
        self.app.timeoutlen = self.app.ttimeoutlen = KEY_TIMEOUT_S

    def _keyboard(self, stdin: TextIO) -> Any:
        keyboard: Any = create_input(stdin)
        self.typed = Typed(keyboard.stdin_reader, stdin.fileno(), self._background)
        keyboard.stdin_reader = self.typed
        return keyboard

    def _background(self, is_light: bool) -> None:
        self.hands.on_background(is_light)

    def _completes_while_typing(self) -> bool:
        before = self.draft.document.current_line_before_cursor
        return self.draft.text.startswith("/") or "@" in before

    # Layout

    def _layout(self) -> Layout:
        search = self._search.control
        self._draft_control = BufferControl(
            self.draft, [Apart()], search_buffer_control=search, preview_search=True
        )
        self._has_panel = has_panel = Condition(lambda: self.hands.has_panel)
        self._is_writing = Condition(lambda: self.hands.is_writing)
        has_label = Condition(lambda: bool(self.hands.panel_label()))
        draft = Window(
            self._draft_control,
            height=lambda: Dimension(min=1, max=self._max_input()),
            wrap_lines=True,
            dont_extend_height=True,
            get_line_prefix=self._prefix,
        )
        aside = Window(
            BufferControl(self.aside, [Apart()]),
            height=1,
            dont_extend_height=True,
            get_line_prefix=lambda *_: self.hands.panel_label(),
        )
        return Layout(
            HSplit(
                [
                    ConditionalContainer(self._rows_of("panel"), has_panel),
                    ConditionalContainer(aside, has_panel & has_label),
                    ConditionalContainer(draft, ~has_panel),
                    ConditionalContainer(self._search, Condition(lambda: self.app.layout.is_searching)),
                    self._rows_of("menu"),
                    self._rows_of("foot"),
                ]
            ),
            focused_element=draft,
        )

    def _rows_of(self, name: str) -> ConditionalContainer:
        control = FormattedTextControl(lambda: self._painted(name), show_cursor=False)
        window = Window(control, dont_extend_height=True, wrap_lines=False)
        return ConditionalContainer(window, Condition(lambda: bool(self._rows.get(name))))

    def _painted(self, name: str) -> StyleAndTextTuples:
        return to_formatted_text(ANSI("\n".join(self._rows.get(name) or [])))

    def _prefix(self, line: int, wrap: int) -> StyleAndTextTuples:
        if line == 0 and wrap == 0:
            return to_formatted_text(ANSI(self.hands.prompt(self.width)))
        return [("", "  ")] if self.width > 20 else []

    @property
    def width(self) -> int:
        """Columns of the terminal."""
        return self.canvas.get_size().columns

    def _max_input(self) -> int:
        return max(self.canvas.get_size().rows // MAX_INPUT_SHARE, 1)

    def _measure(self) -> None:
        """Lay out what the next drawing shows, so that it never is higher than the screen."""
        size = self.canvas.get_size()
        width = size.columns
        foot = [self.hands.foot(width)] if size.rows >= 4 else []
        room = size.rows - 1 - len(foot)
        panel = self.hands.panel(width, max(room - 1, 1))
        self._rows = {"foot": foot} if panel is None else {"foot": foot, "panel": panel}
        if panel is None:
            room = size.rows - 1 - self._height()
            self._rows["menu"] = self._menu(width, min(MAX_MENU_ROWS, room))
        wanted = self._height()
        last = self.app.renderer.last_rendered_screen
        if last is not None and wanted < last.height and self.app.is_running:
            # prompt_toolkit alone would keep its old height.
            self.canvas.hold()
            self.app.renderer.erase(leave_alternate_screen=False)
        self._draw_moving(wanted)

    def _height(self) -> int:
        """Return how many rows prompt_toolkit's own part wants."""
        size = self.canvas.get_size()
        return self.app.layout.container.preferred_height(size.columns, size.rows).preferred

    def _drawn(self) -> None:
        """Note where prompt_toolkit has left the cursor."""
        last = self.app.renderer.last_rendered_screen
        if last is not None:
            self._cursor = last.get_cursor_position(self.app.layout.current_window)
        self.canvas.release()

    def _place(self) -> Place:
        size = self.canvas.get_size()
        last = self.app.renderer.last_rendered_screen
        if last is None:
            return Place(columns=size.columns, rows=size.rows)
        return Place(self._cursor.x, self._cursor.y, max(last.height, 1), size.columns, size.rows)

    def _draw_moving(self, n_below: int) -> None:
        """Draw what moves and what has become final, above `n_below` rows of prompt_toolkit's."""
        if self._resize is not None or not self.app.is_running:
            return
        self._last_frame = time.monotonic()
        size = self.canvas.get_size()
        room = max(size.rows - 1 - n_below, 0)
        moving = [] if self._n_away else self.hands.moving(size.columns, room)
        if self._strip.draw(self._pending, moving, self._place()):
            self._pending.clear()
            return
        self.canvas.hold()
        self.app.renderer.erase(leave_alternate_screen=False)
        self._strip.drop(0)
        self.canvas.write_raw(self._taken())
        self._strip.draw([], moving, self._place())
        self.app.invalidate()

    def _menu(self, width: int, max_rows: int) -> list[str]:
        state = self.draft.complete_state
        if state is None or max_rows < 1 or not has_focus(self.draft)():
            return []
        index = state.complete_index or 0
        first = min(max(index - max_rows // 2, 0), max(len(state.completions) - max_rows, 0))
        shown = state.completions[first : first + max_rows]
        names = [completion.display_text for completion in shown]
        column = min(max(map(cells, names), default=0), max(width // 2, 4))
        return [
            self._menu_row(name, each.display_meta_text, column, width, at == state.complete_index)
            for at, (name, each) in enumerate(zip(names, shown, strict=True), first)
        ]

    def _menu_row(self, name: str, meta: str, column: int, width: int, is_current: bool) -> str:
        from_left = cut(name, column)
        text = f"  {from_left}{' ' * (column - cells(from_left))}  {meta}"
        row = cut(text, width)
        return f"\x1b[7m{row}\x1b[0m" if is_current else row

    # Printing above

    def print(self, rows: Sequence[str]) -> None:
        """Write rows above the live region, soon."""
        if not rows:
            return
        self._pending += rows
        self._schedule()

    def _schedule(self) -> None:
        if self._timer is None and self.app.is_running:
            wait = max(self._last_frame + FRAME_S - time.monotonic(), 0)
            self._timer = asyncio.get_running_loop().call_later(wait, self.frame)

    def frame(self) -> None:
        """Draw what moves, and write what has become final above it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._n_away or self._resize is not None or not self.app.is_running:
            return
        last = self.app.renderer.last_rendered_screen
        size = self.canvas.get_size()
        foot = [self.hands.foot(size.columns)] if size.rows >= 4 else []
        if last is None or foot != self._rows.get("foot"):
            self.app.invalidate()
            return
        self._draw_moving(last.height)
        self.canvas.flush()

    def _taken(self) -> str:
        text = "".join(f"{row}\r\n" for row in self._pending)
        self._pending.clear()
        return text

    def flush(self) -> None:
        """Write at once what waits, when no application draws."""
        if self._strip.rows:
            self._strip.drop(0)
        if self._pending:
            self.canvas.write_raw(self._taken())
        self.canvas.release()
        self.canvas.flush()

    def redraw(self) -> None:
        """Draw all that is live soon."""
        self.app.invalidate()

    def tick(self) -> None:
        """Draw what moves soon; the input line stays as it is."""
        self._schedule()

    def send(self, sequence: str) -> None:
        """Send a sequence of ours that draws nothing: a bell, a clipboard."""
        if sequence:
            self.canvas.write_raw(sequence)
            self.canvas.flush()

    def clear(self) -> None:
        """Clear the screen."""
        self.app.renderer.clear()
        self._strip.rows = []
        self.app.invalidate()

    # Away

    def _leave_for(self) -> None:
        """Take what moves off the screen; it comes back with the next drawing."""
        self._n_away += 1
        self._draw_moving(self._place().n_below)
        self.canvas.flush()

    async def away(self, act: Callable[[], T], *, in_thread: bool = True) -> T:
        """Do something that owns the terminal, and Ctrl-C: a pager, an editor. The rest goes on, unseen."""
        self._leave_for()
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupted)
        try:
            return await run_in_terminal(act, in_executor=in_thread)
        finally:
            self._n_away -= 1
            self._schedule()

    def _interrupted(self) -> None:
        if not self._n_away and self.app.is_running:
            self.app.key_processor.send_sigint()

    def leave(self, outcome: BaseException | None = None) -> None:
        """End the application; `outcome` is what its end raises."""
        app = self.app
        if not app.is_running or app.future is None or app.future.done():
            return
        if outcome is not None:
            app.exit(exception=outcome)
        else:
            app.exit(result=0)

    async def edit_draft(self) -> None:
        """Open the draft in the user's editor."""
        edited = await self.away(lambda: self.outside.edit(self.draft.text))
        if edited is not None:
            self.draft.document = Document(edited, len(edited))

    async def suspend(self) -> None:
        """Stop the program; the shell wakes it."""
        if hasattr(signal, "SIGTSTP"):
            await self.away(lambda: os.kill(os.getpid(), signal.SIGTSTP), in_thread=False)

    # The panel's text line

    def open_aside(self, text: str = "") -> None:
        """Take the keys away from the draft; the panel's text line begins with `text`."""
        self.aside.text = text
        self.aside.cursor_position = len(text)
        self.app.layout.focus(self.aside)
        self.redraw()

    def close_aside(self) -> None:
        """Give the keys back to the draft."""
        self.app.layout.focus(self.draft)
        self.redraw()

    def aside_text(self) -> str:
        """Return what stands on the panel's text line."""
        return self.aside.text

    # Size

    def watch_size(self) -> None:
        """Take up resizes ourselves, once the application has set its own handler."""
        loop = asyncio.get_running_loop()
        if hasattr(signal, "SIGWINCH"):
            loop.call_soon(loop.add_signal_handler, signal.SIGWINCH, self._resized)

    def _resized(self) -> None:
        if self._n_away:
            return
        if self._resize is None:
            last = self.app.renderer.last_rendered_screen
            self.canvas.release()
            self.canvas.freeze()
            self._before = (last, last.get_cursor_position(self.app.layout.current_window) if last else None)
        else:
            self._resize.cancel()
        self._resize = asyncio.get_running_loop().call_later(settle_s(os.environ), self._settled)

    def _settled(self) -> None:
        self._resize = None
        self.canvas.thaw()
        last, cursor = self._before
        n_above = 0
        if last is not None and cursor is not None:
            n_above = rows_above_cursor(last, cursor, self.width if has_reflow(os.environ) else 0)
        if has_reflow(os.environ):
            n_above += self._strip.n_wrapped(self.width) - len(self._strip.rows)
        self._strip.drop(n_above)
        self.canvas.hold()
        self.app.renderer.reset(leave_alternate_screen=False)
        self.app.invalidate()
        self._schedule()


def _canvas(stdout: TextIO) -> Canvas:
    canvas = Canvas.from_pty(stdout, term=os.environ.get("TERM"), default_color_depth=ColorDepth.DEPTH_8_BIT)
    if not isinstance(canvas, Canvas):
        raise TypeError("from_pty gives its own class")
    return canvas


def to_plain(row: str) -> str:
    """Return a row's text without its colours."""
    return "".join(text for _, text, *_ in to_formatted_text(ANSI(row)))
