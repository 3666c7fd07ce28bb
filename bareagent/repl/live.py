"""What happens now: hears entries and deltas, gives finished rows, and shows the rest while it lasts."""

import math
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from bareagent.cells import cells
from bareagent.config import Ui
from bareagent.entries import (
    AnyDelta,
    AnyEntry,
    CallEnded,
    CallOutput,
    CallStarted,
    Delta,
    Epoch,
    Grant,
    InputDelta,
    Interrupted,
    MessageEntry,
    ReplyDropped,
    ReplyStarted,
    Retrying,
    Said,
    SubagentProgress,
    TextDelta,
    ThinkingDelta,
    Todo,
)
from bareagent.messages import INTERRUPTED_TEXT, Block, text_of
from bareagent.repl import view
from bareagent.repl.markdown import MarkdownStream, plan_rows
from bareagent.repl.styles import Styles
from bareagent.repl.view import paint, seconds, tokens
from bareagent.sanitize import clean, one_line

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPIN_S = 0.1
TAIL_CHARS = 4_096
CALL_TAIL_ROWS = 3
MAX_CALL_ROWS = 8
MIN_DOING_CELLS = 20
COUNT_S = 0.5
"""The count of an answer's tokens stands for so long: it is to be read."""

TOKEN_CHARS = 4
"""Characters a token, to count an answer while it streams; the reply brings the true number."""

_OPEN_ITEM = re.compile(r"^- \S+ \[", re.MULTILINE)
_TOLD = {"notice": "Notice", "instructions": "Instructions", "other": "Note"}


class _Call:
    """A running call and the end of what it has printed."""

    def __init__(self, call: Block) -> None:
        self.call = call
        self.began = time.monotonic()
        self.tail = ""


class Live:
    """The moving part of a conversation. `hear` gives rows that are final; `rows` what still moves."""

    def __init__(
        self,
        styles: Styles,
        width: Callable[[], int],
        ui: Ui,
        *,
        hyperlinks: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start quiet."""
        self._clock = clock
        self.styles = styles
        self.last_ended: CallEnded | None = None
        self.has_told_plan = False
        """The plan that is asked about was printed with its question."""
        self._width = width
        self._ui = ui
        self._hyperlinks = hyperlinks
        self._stream: MarkdownStream | None = None
        self._thinking = ""
        self._thinking_since = 0.0
        self._calls: dict[str, _Call] = {}
        self._helpers: dict[str, str] = {}
        self._doing = ""
        self._began = 0.0
        self._n_in = 0
        self._n_out = 0
        self._n_chars = 0
        self._n_counted = 0
        self._counted_at = 0.0
        self._n_echoed = 0
        self._has_streamed = False
        self._has_shown = False
        self._resumes_at = 0.0
        self._reason = ""
        self._last_kind = ""

    @property
    def has_shown(self) -> bool:
        """Something stands above."""
        return bool(self._last_kind)

    # A run

    def begin(self, doing: str = "starting") -> None:
        """Start the clock of a run."""
        self._began = self._clock()
        self._doing = doing
        self._n_in = self._n_out = self._n_chars = 0

    def end(self) -> list[str]:
        """Stop; give the rows of what was left open."""
        rows = self._finished()
        self._calls.clear()
        self._helpers.clear()
        self._doing, self._resumes_at = "", 0.0
        self._n_echoed = 0
        return rows

    @property
    def elapsed_s(self) -> float:
        """How long the run has taken so far."""
        return self._clock() - self._began

    def doing(self, what: str) -> str:
        """Say what is done now; give what was said before."""
        before, self._doing = self._doing, what
        return before

    # Hearing

    def hear(self, heard: AnyEntry | AnyDelta) -> list[str]:
        """Take an entry or delta; give the rows that are final by it."""
        if isinstance(heard, Delta):
            return self._delta(heard) if not heard.agent else self._helper(heard)
        return self._entry(heard)

    def _delta(self, heard: Any) -> list[str]:
        match heard:
            case TextDelta() | ThinkingDelta() | InputDelta():
                return self._streamed(heard)
            case ReplyStarted():
                self._doing = "compacting" if heard.purpose == "summary" else "waiting for the model"
                self._has_shown, self._resumes_at = False, 0.0
            case ReplyDropped():
                return self._dropped(heard.reason)
            case Retrying():
                # The countdown stands first: a narrow status line cuts the reason behind it.
                self._doing = f"attempt {heard.attempt} of {heard.max_attempts}"
                self._reason = one_line(heard.reason, 60)
                self._resumes_at = self._clock() + heard.delay_s
            case CallStarted() | CallOutput() | CallEnded():
                return self._call(heard)
            case Said():
                return self.said(heard.text, heard.level)
        return []

    def _streamed(self, heard: TextDelta | ThinkingDelta | InputDelta) -> list[str]:
        match heard:
            case TextDelta():
                rows = self._text(heard.text)
            case ThinkingDelta():
                rows = self._think(heard.text)
            case _:
                rows = self._input(heard)
        self._has_shown = self._has_shown or bool(rows)
        return rows

    def _helper(self, heard: Any) -> list[str]:
        if isinstance(heard, SubagentProgress):
            if heard.text:
                self._helpers[heard.agent] = heard.text
            else:
                self._helpers.pop(heard.agent, None)
        return []

    def _entry(self, heard: Any) -> list[str]:
        match heard:
            case MessageEntry():
                return self._message(heard)
            case Todo():
                return self._spaced("todo", view.todo_rows(heard.items, self._width(), self.styles))
            case Interrupted():
                return [] if self._last_kind == "interrupted" else self._interrupted()
            case Grant(is_removed=False):
                return self.said(f"Allowed for this session: {heard.rule}", "dim")
            case Epoch():
                return self.said(f"The cached prefix ends here: {heard.reason}", "dim")
        return []

    def _interrupted(self) -> list[str]:
        rows = self._finished() + self.said("Interrupted.", "warning")
        self._last_kind = "interrupted"
        return rows

    def _message(self, entry: MessageEntry) -> list[str]:
        if entry.kind == "reply":
            return self._reply(entry)
        if entry.kind == "line" and self._n_echoed:
            self._n_echoed -= 1
            return []
        if entry.kind == "line":
            return self._finished() + self._line(text_of(entry.message))
        if entry.kind == "continue":
            return self._finished()  # nobody typed it; a dim line says why it went out
        if entry.kind == "reminder":
            n_open = len(_OPEN_ITEM.findall(text_of(entry.message)))
            return self.said(f"Reminded the model of its todo list ({n_open} open).", "dim")
        if entry.kind in _TOLD:
            text = one_line(text_of(entry.message), 300)
            return self.said(f"{_TOLD[entry.kind]} to the model: {text}", "dim")
        return []

    def _reply(self, entry: MessageEntry) -> list[str]:
        rows = []
        if not self._has_streamed:
            text = "".join(
                str(b.get("text", "")) for b in entry.message["content"] if b.get("type") == "text"
            )
            rows = self._text(text) if text.strip() and text.strip() != INTERRUPTED_TEXT else []
        rows += self._finished()
        if entry.usage is not None:
            self._n_in += entry.usage.prompt
            self._n_out += entry.usage.output
        self._n_chars = 0
        self._has_streamed = False
        self._doing = "working"
        return rows

    def echo(self, text: str) -> list[str]:
        """Show the user's line before it is in the log."""
        self._n_echoed += 1
        return self._line(text)

    def command(self, text: str) -> list[str]:
        """Show a command that was typed."""
        return self._line(text.strip())

    def _line(self, text: str) -> list[str]:
        return self._spaced("line", view.line_rows(text, self._width(), self.styles), always=True)

    def said(self, text: str, level: str = "info") -> list[str]:
        """Give a line of the program's own; what streams goes on behind it."""
        looks = {"dim": self.styles.faint, "warning": self.styles.warning, "error": self.styles.error}
        rows = view.said_rows(text, looks.get(level, ""), self._width())
        return self._spaced("said", rows)

    def shown(self, rows: Sequence[str]) -> list[str]:
        """Give finished rows of a command's."""
        return self._spaced("said", list(rows))

    def _spaced(self, kind: str, rows: list[str], *, always: bool = False) -> list[str]:
        """Put a blank row between things of different kinds."""
        if not rows:
            return []
        is_apart = bool(self._last_kind) and (always or kind != self._last_kind)
        self._last_kind = kind
        return ["", *rows] if is_apart else rows

    # Text and thinking

    def _text(self, text: str) -> list[str]:
        rows = self._thought()
        if self._stream is None:
            self._stream = MarkdownStream(self._width(), self.styles, self._hyperlinks)
        self._stream.resize(self._width())
        self._doing = "writing"
        self._has_streamed = True
        self._n_chars += len(text)
        fresh = self._stream.feed(text)
        return rows + (self._spaced_text(fresh) if fresh else [])

    def _spaced_text(self, rows: list[str]) -> list[str]:
        if self._last_kind == "text":
            return rows
        return self._spaced("text", rows)

    def _finished(self) -> list[str]:
        rows = self._thought()
        if self._stream is not None:
            stream, self._stream = self._stream, None
            rows += self._spaced_text(stream.finish())
            if self._last_kind == "text":
                self._last_kind = "text ended"
        return rows

    def _think(self, text: str) -> list[str]:
        self._doing = "thinking"
        self._n_chars += len(text)
        if not self._thinking_since:
            self._thinking_since = self._clock()
        self._thinking += text
        if self._ui.thinking != "show":
            self._thinking = self._thinking[-TAIL_CHARS:]
            return []
        *whole, self._thinking = self._thinking.split("\n")
        rows = [row for line in whole for row in view.wrapped(clean(line), self._width() - 2)]
        return self._spaced("thinking", [paint("  " + row, self.styles.faint) for row in rows])

    def _thought(self) -> list[str]:
        if not self._thinking_since:
            return []
        took, text = self._clock() - self._thinking_since, self._thinking
        self._thinking, self._thinking_since = "", 0.0
        if self._ui.thinking == "show":
            rows = view.wrapped(clean(text), self._width() - 2) if text.strip() else []
            return self._spaced("thinking", [paint("  " + row, self.styles.faint) for row in rows])
        if self._ui.thinking == "hide" or took < 1:
            return []
        return self._spaced("thinking", [paint(f"Thought for {seconds(took)}.", self.styles.faint)])

    def _dropped(self, reason: str) -> list[str]:
        """Mark what a failed attempt has left on the screen, where it has left anything."""
        rows = self._finished()
        self._n_chars, self._has_streamed = 0, False
        if rows or self._has_shown:
            rows += self.said(f"This attempt broke off ({reason}); what follows begins anew.", "warning")
        return rows

    # Calls

    def _input(self, heard: InputDelta) -> list[str]:
        self._n_chars += len(heard.partial_json)
        if heard.name:
            self._doing = f"writing a call of {one_line(heard.name, 30)}"
            return self._finished()
        return []

    def _call(self, heard: CallStarted | CallOutput | CallEnded) -> list[str]:
        match heard:
            case CallStarted():
                call_id = str(heard.call.get("id"))
                self._calls[call_id] = _Call(heard.call)
                self._doing = f"running {one_line(str(heard.call.get('name')), 30)}"
            case CallOutput():
                running = self._calls.get(heard.call_id)
                if running is not None:
                    running.tail = (running.tail + heard.text[-TAIL_CHARS:])[-TAIL_CHARS:]
            case CallEnded():
                return self._ended(heard)
        return []

    def _ended(self, heard: CallEnded) -> list[str]:
        self._calls.pop(str(heard.call.get("id")), None)
        self.last_ended = heard
        rows = view.ended_rows(heard, self._width(), self.styles, self._ui.result_lines)
        return self._finished() + self._plan(heard.call) + self._spaced("call", rows)

    def _plan(self, call: Block) -> list[str]:
        """Give the plan that was asked about: with the question it goes from the screen."""
        plan = [] if self.has_told_plan else plan_rows(call, self._width(), self.styles)
        self.has_told_plan = False
        return self._spaced("plan", plan)

    # What moves

    def rows(self, width: int, max_rows: int) -> list[str]:
        """Give what still moves, at most `max_rows` rows: the unfinished tail, the running calls."""
        if max_rows <= 0:
            return []
        below = [*self._call_rows(width, max_rows), *self._helper_rows(width)][-max_rows:]
        room = max_rows - len(below)
        above = self._stream.tail(room) if self._stream is not None and room > 0 else []
        if not above and self._ui.thinking != "hide" and self._thinking_since and room > 0:
            text = view.wrapped(clean(self._thinking), max(width - 2, 2))[-min(room, CALL_TAIL_ROWS) :]
            above = [paint("  " + row, self.styles.faint) for row in text]
        if above and len(above) < room and self._last_kind not in {"", "text"}:
            above = ["", *above]
        return [*above, *below]

    def _call_rows(self, width: int, max_rows: int) -> list[str]:
        rows: list[str] = []
        for running in list(self._calls.values())[-MAX_CALL_ROWS:]:
            took = time.monotonic() - running.began
            state = seconds(took) if took >= 1 else ""
            rows.append(view.call_row(running.call, width, self.styles, mark=self._spin(), state=state))
            if max_rows > 4 and len(self._calls) == 1:
                lines = clean(running.tail).rstrip("\n").split("\n")[-CALL_TAIL_ROWS:]
                rows += [paint("  " + view.cut(line, width - 2), self.styles.faint) for line in lines if line]
        return rows

    def _helper_rows(self, width: int) -> list[str]:
        texts = [f"  {agent}: {text}" for agent, text in self._helpers.items()]
        return [paint(view.cut(text, width), self.styles.faint) for text in texts[-CALL_TAIL_ROWS:]]

    def _spin(self) -> str:
        return SPINNER[int(self._clock() / SPIN_S) % len(SPINNER)]

    def _countdown(self) -> str:
        if not self._resumes_at:
            return ""
        return f" in {math.ceil(max(self._resumes_at - self._clock(), 0))} s: {self._reason}"

    def _counted(self) -> int:
        now = self._clock()
        if now - self._counted_at >= COUNT_S or not self._n_chars:
            self._n_counted, self._counted_at = self._n_out + self._n_chars // TOKEN_CHARS, now
        return self._n_counted

    def status(self, width: int, hint: str = "Esc to interrupt") -> str:
        """Give the status line: spinner, what is done, time, tokens, how to stop; fields drop by need."""
        n_out = self._counted()
        flow = f"↑ {tokens(self._n_in)} " if self._n_in else ""
        flow = f"{flow}↓ {tokens(n_out)} tokens" if self._n_in or n_out else ""
        what = f"{self._spin()} {self._doing or 'working'}{self._countdown()}"
        fields = [seconds(int(self.elapsed_s) if self.elapsed_s < 10 else self.elapsed_s), flow, hint]
        short = view.cut(what, max(width - cells(f" · {hint}"), MIN_DOING_CELLS))
        orders = (
            [what, *fields],
            [what, fields[0], hint],
            [what, hint],
            [short, hint],
            [what, fields[0]],
            [what],
        )
        for parts in orders:
            text = " · ".join(filter(None, parts))
            if cells(text) <= width:
                return paint(text, self.styles.accent)
        return paint(view.cut(what, width), self.styles.accent)
