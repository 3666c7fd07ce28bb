"""The conversation in plain lines: for pipes, dumb terminals and screen readers. No redraw, no colours."""

import asyncio
import contextlib
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TextIO

from bareagent import platform
from bareagent.agent import Agent
from bareagent.config import Ui
from bareagent.entries import AnyDelta, AnyEntry, JobsChanged, Retrying
from bareagent.provider import preload
from bareagent.provider.embedded import EmbeddedProvider
from bareagent.repl import start, view
from bareagent.repl.face import Face, Level, Picked, Row
from bareagent.repl.live import Live
from bareagent.repl.questions import Panel
from bareagent.repl.recap import recap_rows
from bareagent.repl.styles import THEMES
from bareagent.repl.talk import Border, Talk
from bareagent.sanitize import valid_unicode
from bareagent.seams import Answer, Question
from bareagent.tools.process import kill_all

WORDS = {"": "n", "yes": "y", "no": "n", "always": "a", "edit": "e", "comment": "c"}
"""What a question takes beside its keys; an empty line is no."""

EXITS = {"SIGTERM": 143, "SIGHUP": 129}


class PlainRepl(Talk):
    """Reads lines, prints lines."""

    is_terminal = False

    def __init__(self, ui: Ui, border: Border, *, stdin: TextIO | None = None) -> None:
        """Nothing is read yet."""
        super().__init__(border)
        self.styles = THEMES["plain"]
        self.live = Live(self.styles, lambda: self.width, ui)
        self._stdin = stdin or sys.stdin
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._answers: asyncio.Future[str] | None = None
        self._gone = asyncio.Event()
        self._was_told = False

    async def run(
        self, agent: Agent, notes: Sequence[str], *, is_trusted: bool = True, first: str = ""
    ) -> int:
        """Talk until the input ends or the user leaves, `first` before all lines; return the exit code."""
        self.agent = agent
        self.is_ready = True
        loop = asyncio.get_running_loop()
        for name, code in EXITS.items():
            if hasattr(signal, name):
                loop.add_signal_handler(getattr(signal, name), self._told_to_go, code)
        loop.add_signal_handler(signal.SIGINT, self._control_c)
        self.say(start.title(agent))
        for text, level in start.lines(agent, notes, is_trusted=is_trusted):
            self.say(text, level)
        self.show(start.past(agent, self.width, self.styles))
        self._ready = asyncio.ensure_future(asyncio.to_thread(lambda: preload().join()))
        if isinstance(agent.provider, EmbeddedProvider):
            agent.provider.start()
        self.refresh_models()
        try:
            self.show(await recap_rows(agent, self.width, self.styles))
            hint = await asyncio.to_thread(start.resume_line, agent)
            if hint:
                self.say(hint, "dim")
            threading.Thread(target=self._read, args=(loop,), daemon=True).start()
            if first:
                self.take(first)
                await self.idle()
            await self._talk()
        finally:
            await self._close()
        return self.exit_code

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            while line := self._stdin.readline():
                loop.call_soon_threadsafe(self._heard, valid_unicode(line).rstrip("\r\n"))
            loop.call_soon_threadsafe(self._heard, None)

    def _heard(self, line: str | None) -> None:
        if self._answers is not None and not self._answers.done():
            self._answers.set_result(line or "")
        else:
            self._lines.put_nowait(line)

    async def _talk(self) -> None:
        while not self.is_leaving:
            self._prompt()
            line = await self._next()
            self._was_told = False
            if line is None:
                break
            self.take(line)
            await self.idle()

    async def _next(self) -> str | None:
        getter = asyncio.ensure_future(self._lines.get())
        gone = asyncio.ensure_future(self._gone.wait())
        await asyncio.wait([getter, gone], return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if getter.done():
            return getter.result()
        getter.cancel()
        return None

    def _prompt(self) -> None:
        if self._is_tty():
            self._write(f"[{self.agent.mode.upper()}] bareagent> ")

    def _is_tty(self) -> bool:
        with contextlib.suppress(ValueError):
            return self._stdin.isatty()
        return False

    def _told_to_go(self, code: int) -> None:
        self.exit_code = code
        kill_all()
        self.leave()

    def _control_c(self) -> None:
        if self.interrupt():
            return
        if self._was_told:
            self.leave()
        self._was_told = True
        self.say("Ctrl-C again, Ctrl-D or /exit leaves.", "dim")

    async def _close(self) -> None:
        await self.stop()
        await self.agent.close()
        for line in ("Exiting BareAgent.", *start.farewell(self.agent)):
            self._write(f"{line}\n")
        if self._is_tty():
            platform.discard_input(self._stdin.fileno())

    def _write(self, text: str) -> None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except UnicodeEncodeError:
            sys.stdout.write(text.encode("ascii", "backslashreplace").decode())
        except (OSError, ValueError):
            self.is_leaving = True

    # Hearing and asking

    def emit(self, heard: AnyEntry | AnyDelta, /) -> None:
        """Take one entry or delta."""
        self._print(self.live.hear(heard))
        if isinstance(heard, Retrying) and not heard.agent:
            self.say(f"{view.retrying(heard)} in {heard.delay_s:.0f} s", "dim")
        elif isinstance(heard, JobsChanged):
            self.wake()

    async def ask(self, question: Question, /) -> Answer:
        """Ask in lines; without a terminal the answer is no."""
        if not self._is_tty():
            return Answer(verdict="no", text="nobody can be asked: the input is no terminal")
        panel = Panel(question)
        self.say(panel.plain())
        self.live.has_told_plan = question.kind == "plan"
        while True:
            text = await self._line("answer> ")
            if panel.writing:
                return panel.written(text)
            word = text.strip().lower()
            key = WORDS.get(word, word)
            if not panel.knows(key):
                self._lines.put_nowait(text)
                self.say("This is no answer; the line waits until the run has ended.", "warning")
            elif (answer := panel.key(key)) is not None:
                return answer

    async def _line(self, label: str) -> str:
        self._write(label)
        self._answers = asyncio.get_running_loop().create_future()
        try:
            return await self._answers
        finally:
            self._answers = None

    # Talk and Face

    @property
    def face(self) -> Face:
        """This conversation as commands see it."""
        return self

    @property
    def width(self) -> int:
        """Columns of the terminal."""
        return shutil.get_terminal_size((100, 24)).columns

    def say(self, text: str, level: Level = "info") -> None:
        """Print lines of the program's own."""
        self._print(self.live.said(text, level))

    def show(self, lines: Sequence[str]) -> None:
        """Print finished rows."""
        self._print(self.live.shown(lines))

    def _print(self, lines: Sequence[str]) -> None:
        if lines:
            self._write("".join(f"{line}\n" for line in lines))

    def echo(self, line: str) -> None:
        """Show a line of the user's where it was not typed on this screen."""
        rows = self.live.echo(line)
        if not self._is_tty():
            self.show(rows)

    def echo_command(self, line: str) -> None:
        """Show a command where it was not typed on this screen."""
        if not self._is_tty():
            self._print(self.live.command(line))

    def began(self) -> None:
        """Start the clock."""
        self.live.begin()

    def ended(self) -> None:
        """Print what was left open, and what was typed ahead of a stop."""
        self._print(self.live.end())
        if self.is_stopped and self._is_tty():
            self._hold_typed()
        self.wake()

    def _hold_typed(self) -> None:
        """After a stop lines that were typed ahead wait for an empty line."""
        n_lines = self._lines.qsize()
        for line in [self._lines.get_nowait() for _ in range(n_lines)]:
            if line is None:
                self._lines.put_nowait(line)
            elif line.strip():
                self.held.append(line)
        for line in self.held:
            self.say(f"held: {line}", "dim")
        if self.held:
            self.say("Not sent yet: Enter on an empty line sends them in order.", "dim")

    def give_back(self, line: str) -> bool:
        """Say which line was not sent."""
        self.say(f"Not sent: {line}", "warning")
        return True

    async def pick(
        self,
        title: str,
        rows: Callable[[bool], Sequence[Row]],
        *,
        has_all: bool = False,
        can_edit: bool = False,
        is_all: bool = False,
    ) -> Picked | None:
        """Choose nothing: lists need a terminal."""
        del title, rows, has_all, can_edit, is_all
        return None

    async def confirm(self, question: str) -> bool:
        """Ask yes or no; no is the default."""
        if not self._is_tty():
            return False
        self.say(f"{question} (y/n)")
        return (await self._line("answer> ")).strip().lower() in {"y", "yes"}

    async def page(self, text: str, title: str = "") -> None:
        """Print a long text."""
        self.say(f"{title}\n{text}" if title else text)

    def set_draft(self, text: str) -> None:
        """Show a text that could be typed again."""
        self.say(f"Not sent: {text}", "warning")

    def clear_screen(self) -> None:
        """Leave the lines as they are."""

    def sample(self, theme: str, text: str) -> tuple[str, ...]:
        """There are no colours to look at."""
        del theme, text
        return ()

    @property
    def theme(self) -> str:
        """Lines have no colours."""
        return "mono"

    def use_theme(self, name: str) -> None:
        """Stay without colours."""

    def copy(self, text: str) -> bool:
        """There is no clipboard to reach."""
        del text
        return False

    def leave(self) -> None:
        """End the program."""
        self.is_leaving = True
        self._gone.set()
