"""The program in a pseudo-terminal, its screen read as a terminal would show it, scrollback included."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pexpect
import pyte

from tests.program import PROGRAM, environment
from tests.server.server import Server

KEYS = {
    "enter": "\r",
    "alt-enter": "\x1b\r",
    "escape": "\x1b",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "tab": "\t",
    "shift-tab": "\x1b[Z",
    "backspace": "\x7f",
}
PROMPT = "bareagent> "
WAIT_S = 20.0
LOOK_EACH_S = 0.2
ANSWER_S = 0.35
QUIET_S = 0.06
TAKEN_S = 1.0


def key(name: str) -> str:
    """The bytes of a key: a name of KEYS, `c-x`, or a character."""
    if len(name) == 3 and name.startswith("c-"):
        return chr(ord(name[2]) & 0x1F)
    return KEYS.get(name, name)


class Terminal:
    """A pexpect child behind a pyte screen; `wait` polls the screen instead of sleeping."""

    def __init__(
        self,
        command: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        *,
        rows: int = 30,
        columns: int = 100,
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=100_000, ratio=0.5)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = bytearray()
        self._shown: list[str] = []
        self._shown_at = (-1, 0, 0)
        self.child: Any = pexpect.spawn(
            command[0],
            list(command[1:]),
            cwd=str(cwd),
            env=dict(env),
            dimensions=(rows, columns),
            timeout=WAIT_S,
        )
        self.child.delaybeforesend = None

    # Reading

    def pump(self, seconds: float = 0.02) -> bool:
        """Read what has come; False once the child has closed its side."""
        try:
            data = self.child.read_nonblocking(1 << 16, seconds)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.raw += data
        self._stream.feed(data)
        return True

    @property
    def shown(self) -> list[str]:
        """The rows of the screen, without blanks at their ends."""
        if self._shown_at != (len(self.raw), self.screen.columns, self.screen.lines):
            self._shown_at = (len(self.raw), self.screen.columns, self.screen.lines)
            self._shown = [row.rstrip() for row in self.screen.display]
        return self._shown

    @property
    def shown_text(self) -> str:
        """The screen as one text."""
        return "\n".join(self.shown)

    @property
    def scrolled(self) -> list[str]:
        """The rows above the screen."""
        width = self.screen.columns
        return ["".join(row[x].data for x in range(width)).rstrip() for row in self.screen.history.top]

    @property
    def rows(self) -> list[str]:
        """All rows, oldest first, empty ones at the end left out."""
        rows = [*self.scrolled, *self.shown]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    @property
    def text(self) -> str:
        """All rows as one text."""
        return "\n".join(self.rows)

    def wait(self, wanted: str | Callable[["Terminal"], bool], seconds: float = WAIT_S) -> None:
        """Wait until a text stands somewhere, or a condition holds.

        It is looked for when something new has come, and now and then: reading a screen is dear, and
        what the program waits for may need the processor.
        """
        deadline = time.monotonic() + seconds
        n_seen, looked_at, is_open = -1, 0.0, True
        while True:
            now = time.monotonic()
            if len(self.raw) != n_seen or now - looked_at > LOOK_EACH_S:
                n_seen, looked_at = len(self.raw), now
                if wanted in self.text if isinstance(wanted, str) else wanted(self):
                    return
            if now > deadline or not is_open:
                what = repr(wanted) if isinstance(wanted, str) else "the condition"
                raise AssertionError(f"{what} did not come. The screen:\n" + "\n".join(self.shown))
            is_open = self.pump()

    def wait_prompt(self, seconds: float = WAIT_S) -> None:
        """Wait until the program is idle: the prompt stands, no run is shown, and nothing more comes."""
        deadline = time.monotonic() + seconds
        self.wait(lambda t: t.has_prompt and not t.is_busy, seconds)
        while not self.is_quiet(QUIET_S):
            self.wait(lambda t: t.has_prompt and not t.is_busy, deadline - time.monotonic())

    def settle(self, seconds: float = 0.15) -> None:
        """Read until nothing has come for a while; at most ten times as long, a spinner never rests."""
        last = time.monotonic() + 10 * seconds
        while not self.is_quiet(seconds) and time.monotonic() < last:
            pass

    def is_quiet(self, seconds: float) -> bool:
        """Read for a while, once at least; True if nothing came."""
        n_before, until = len(self.raw), time.monotonic() + seconds
        while self.pump() and time.monotonic() < until:
            pass
        return len(self.raw) == n_before

    @property
    def has_prompt(self) -> bool:
        """The input line stands on the screen."""
        return any(PROMPT.strip() in row for row in self.shown)

    @property
    def is_busy(self) -> bool:
        """The status line of a run stands on the screen."""
        return any("to interrupt" in row for row in self.shown)

    @property
    def draft(self) -> str:
        """What stands in the input line (its first row)."""
        rows = [row for row in self.shown if PROMPT.strip() in row]
        return rows[-1].partition(PROMPT.strip())[2].strip() if rows else ""

    # Writing

    def send(self, text: str) -> None:
        """Type a text in one piece."""
        self.child.send(text)

    def type(self, text: str) -> None:
        """Type as a hand does, character by character."""
        for char in text:
            self.child.send(char)
            self.pump(0.002)

    def press(self, *names: str) -> None:
        """Press keys, one after another."""
        for name in names:
            self.child.send(key(name))
            self.pump(0.01)

    def answer(self, *names: str) -> None:
        """Press keys at a question that stands there: what comes too soon after it answers nothing."""
        until = time.monotonic() + ANSWER_S
        while time.monotonic() < until:
            self.pump()
        self.press(*names)

    def enter(self, line: str) -> None:
        """Type a line and send it; what is typed behind must not come in one piece with its Enter."""
        last = line.rsplit("\n", maxsplit=1)[-1][-20:]
        self.send(line)
        self.wait(lambda t: last in t.text)
        self.press("enter")
        until = time.monotonic() + TAKEN_S
        while self.draft.endswith(last) and time.monotonic() < until:
            self.pump()

    def paste(self, text: str) -> None:
        """Paste as a terminal with bracketed paste does."""
        self.child.send("\x1b[200~" + text.replace("\n", "\r") + "\x1b[201~")

    def resize(self, rows: int, columns: int) -> None:
        """Change the size; pyte cuts its rows, as terminals without reflow do."""
        self.screen.resize(rows, columns)
        self.child.setwinsize(rows, columns)

    # The end

    def leave(self) -> int:
        """Leave by Ctrl-D and return the exit code."""
        self.press("c-d")
        return self.ended()

    def ended(self, seconds: float = WAIT_S) -> int:
        """Wait for the end; the exit code, negative for a signal."""
        deadline = time.monotonic() + seconds
        while self.pump():
            assert time.monotonic() < deadline, "it did not end:\n" + "\n".join(self.shown)
        self.child.close()
        return -int(self.child.signalstatus) if self.child.signalstatus else int(self.child.exitstatus)

    def kill(self) -> None:
        """End the child, whatever it does."""
        if self.child.isalive():
            self.child.kill(signal.SIGKILL)
        with contextlib.suppress(OSError, pexpect.ExceptionPexpect):
            self.child.close(force=True)


@contextlib.contextmanager
def repl(
    project: Path,
    *,
    home: Path,
    server: Server | None = None,
    arguments: Sequence[str] = (),
    rows: int = 30,
    columns: int = 100,
    env: Mapping[str, str] | None = None,
    is_awaited: bool = True,
    command: Sequence[str] = PROGRAM,
) -> Iterator[Terminal]:
    """The REPL in a terminal of this size, its prompt awaited."""
    terminal = Terminal(
        [*command, *arguments],
        project,
        environment(home, server, **(env or {})),
        rows=rows,
        columns=columns,
    )
    try:
        if is_awaited:
            terminal.wait("BareAgent REPL", 60)
            terminal.wait_prompt()
        yield terminal
    finally:
        terminal.kill()
