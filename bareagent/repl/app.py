"""The REPL on a real terminal: what is typed, heard, asked and shown comes together here."""

import asyncio
import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from prompt_toolkit.filters import Condition

from bareagent import crash
from bareagent.agent import Agent
from bareagent.config import Ui
from bareagent.entries import AnyDelta, AnyEntry, JobsChanged, TurnEnd
from bareagent.errors import BareAgentError
from bareagent.provider import preload
from bareagent.provider.embedded import EmbeddedProvider
from bareagent.repl import keys, pager, start, terminal, toolbar
from bareagent.repl.asking import Asking
from bareagent.repl.completion import Completions
from bareagent.repl.face import Face, Level, Picked, Row
from bareagent.repl.hands import Hands
from bareagent.repl.history import SharedHistory, history_path
from bareagent.repl.live import FRAME_S, Live
from bareagent.repl.paste import Folds
from bareagent.repl.plain import PlainRepl
from bareagent.repl.screen import Screen
from bareagent.repl.styles import Styles, styles
from bareagent.repl.talk import Talk
from bareagent.sanitize import one_line
from bareagent.seams import Answer, Question
from bareagent.tools.process import kill_all

RING_AFTER_S = 20.0
EXITS = {"SIGTERM": 143, "SIGHUP": 129}


async def bordered(work: Awaitable[None], talk: Talk, *, is_debug: bool = False) -> bool:
    """Await a line's work; whatever it raises is told and the conversation goes on. False if it failed."""
    try:
        await work
    except BareAgentError as error:
        talk.say(str(error), "error")
        if error.hint:
            talk.say(error.hint, "dim")
        return False
    except Exception as error:
        talk.say(traceback.format_exc() if is_debug else crash.report(error), "error")
        return False
    return True


def make_face(ui: Ui, root: Path, *, has_colour: bool = True, is_debug: bool = False) -> "Repl | PlainRepl":
    """Return the face this terminal can show: the live screen, or plain lines."""
    if ui.plain or not terminal.is_usable(sys.stdin, sys.stdout):
        return PlainRepl(ui, partial(bordered, is_debug=is_debug))
    return Repl(ui, root, has_colour=has_colour, is_debug=is_debug)


class Repl(Talk):
    """The terminal's face: a live region below, finished rows above, one conversation."""

    is_terminal = True

    def __init__(self, ui: Ui, root: Path, *, has_colour: bool = True, is_debug: bool = False) -> None:
        """Build the screen; nothing is drawn yet."""
        super().__init__(partial(bordered, is_debug=is_debug))
        self.ui = ui
        self._root = root
        self._has_colour = has_colour
        self.styles = self._themed(ui.theme)
        self.folds = Folds()
        self._standing = toolbar.Standing()
        self._guard = terminal.Guard(sys.stdin, sys.stdout)
        self._ticker: asyncio.Task[None] | None = None
        hands = Hands(self)
        bindings = keys.bindings(
            hands, Condition(lambda: self.asking.is_open), Condition(lambda: self.asking.is_writing)
        )
        self.screen = Screen(
            hands,
            SharedHistory(history_path(root)),
            Completions(self),
            bindings,
            is_vi=ui.vi,
            on_background=self._background,
        )
        self.asking = Asking(self.screen, self._asked)
        self.screen.draft.on_text_changed += lambda _: hands.note_typing()
        self.screen.aside.on_text_changed += lambda buffer: self.asking.typed(buffer.text)
        self.live = Live(self.styles, lambda: self.width, ui, hyperlinks=terminal.has_hyperlinks())

    def _themed(self, name: str, *, is_light: bool = False) -> Styles:
        if name == "auto":
            has_many = "256color" in os.environ.get("TERM", "") or bool(os.environ.get("COLORTERM"))
            name = ("light" if is_light else "dark") if has_many else "ansi"
        return styles(name, os.environ if self._has_colour else {"NO_COLOR": "1"})

    def _background(self, is_light: bool) -> None:
        if self.ui.theme == "auto" and is_light:
            self._restyle(self._themed("auto", is_light=True))

    def _restyle(self, look: Styles) -> None:
        self.styles = self.live.styles = look
        self.screen.redraw()

    # The life of the program

    async def run(self, agent: Agent, notes: Sequence[str]) -> int:
        """Talk until the user leaves; return the exit code."""
        self.agent = agent
        self._greet(notes)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._fault)
        self._on_signals(loop)
        try:
            self.screen.flush()
            await self.screen.app.run_async(
                pre_run=self._drawn, set_exception_handler=False, handle_sigint=True
            )
        except EOFError:
            self.exit_code = self.exit_code or EXITS["SIGHUP"]
        finally:
            await self._close()
        return self.exit_code

    def _greet(self, notes: Sequence[str]) -> None:
        self.say(start.title(self.agent))
        for text, level in start.lines(self.agent, notes):
            self.say(text, level)
        self.show(start.past(self.agent, self.width, self.styles))

    def _drawn(self) -> None:
        """Do behind the prompt what needs not stand before it."""
        loop = asyncio.get_running_loop()
        self.screen.watch_size()
        if self.ui.theme == "auto" and self.styles.heading:
            self.screen.send(terminal.ASK_BACKGROUND)
        self._ready = loop.create_future()
        self.screen.app.create_background_task(self._settle_in())

    async def _settle_in(self) -> None:
        await asyncio.sleep(0)
        provider = self.agent.provider
        if isinstance(provider, EmbeddedProvider):
            provider.start()
        threading.Thread(target=self._load, args=(asyncio.get_running_loop(),), daemon=True).start()
        self._standing.branch = await asyncio.to_thread(toolbar.branch, self._root)
        hint = await asyncio.to_thread(start.resume_line, self.agent)
        if hint:
            self.say(hint, "dim")
        self._measure()

    def _load(self, loop: asyncio.AbstractEventLoop) -> None:
        preload().join()
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._loaded)

    def _loaded(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def _on_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        for name, code in EXITS.items():
            if hasattr(signal, name):
                loop.add_signal_handler(getattr(signal, name), self._told_to_go, code)

    def _told_to_go(self, code: int) -> None:
        self.exit_code = code
        kill_all()
        self.leave()

    def _fault(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A fault of ours outside of a line's work is told; the conversation goes on."""
        error = context.get("exception")
        text = crash.report(error) if error is not None else str(context.get("message"))
        self.say(text, "error")

    async def _close(self) -> None:
        try:
            await self.stop()
            await self.agent.close()
        finally:
            kill_all()
            self.screen.flush()
            self._guard.restore()
        self._farewell()

    def _farewell(self) -> None:
        lines = ["Exiting BareAgent."]
        session = self.agent.session
        if session.folder is not None and session.messages:
            lines.append(f"Go on with: bareagent --resume {session.full_id}")
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.write("".join(f"{line}\n" for line in lines))
            sys.stdout.flush()

    def leave(self) -> None:
        """End the program."""
        self.is_leaving = True
        app = self.screen.app
        if app.is_running and app.future is not None and not app.future.done():
            app.exit(result=self.exit_code)

    # Hearing and asking

    def emit(self, heard: AnyEntry | AnyDelta, /) -> None:
        """Take one entry or delta."""
        match heard:
            case TurnEnd():
                self._standing.size = heard.tokens
            case JobsChanged():
                self._standing.n_jobs = len(heard.running)
        self.show(self.live.hear(heard))

    async def ask(self, question: Question, /) -> Answer:
        """Ask the user, in place."""
        before = self.live.doing("waiting for your answer")
        try:
            return await self.asking.ask(question)
        finally:
            self.live.doing(before)

    def _asked(self, question: Question) -> None:
        if self.ui.notify and self.live.elapsed_s > RING_AFTER_S:
            self._ring(f"{question.title}: a question")

    def _ring(self, text: str) -> None:
        if self.ui.notify:
            self.screen.send(terminal.notify_sequence("bareagent", one_line(text, 100)))

    # A line's work

    @property
    def face(self) -> Face:
        """This terminal as commands see it."""
        return self

    def began(self) -> None:
        """Start clock and spinner."""
        self.live.begin()
        if self._ticker is None:
            self._ticker = self.screen.app.create_background_task(self._tick())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(FRAME_S)
            self.screen.redraw()

    def ended(self) -> None:
        """Give the prompt back."""
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
        took = self.live.elapsed_s
        self.show(self.live.end())
        if took > RING_AFTER_S:
            self._ring("The run has ended")
        self._measure()
        self.screen.redraw()

    def changed(self) -> None:
        """Show what waits."""
        self.screen.redraw()

    def standing(self) -> toolbar.Standing:
        """Return where the conversation stands now."""
        now, agent = self._standing, self.agent
        now.model, now.mode = start.model_name(agent), agent.mode
        view = agent.session.view
        now.session = view.name if view.name and not view.is_name_automatic else agent.session.full_id
        now.n_queued = len(self.queued)
        now.cost_usd = view.cost_usd
        return now

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the conversation; what it raises is told."""
        task = asyncio.get_running_loop().create_task(bordered(work, self))
        self._asides.add(task)
        task.add_done_callback(self._asides.discard)

    def _measure(self) -> None:
        """Note where the conversation stands, for the toolbar."""
        agent, now = self.agent, self._standing
        model, compaction = agent.provider.model, agent.config.compaction
        now.window = model.window
        is_set = compaction.automatic and isinstance(compaction.threshold, int)
        now.threshold = int(compaction.threshold) if is_set else 0
        if not self.is_working:
            now.size = agent.context_tokens() if agent.session.messages else 0

    def give_back(self, lines: list[str]) -> None:
        """Put lines that were not sent before the draft."""
        kept = [text for text in (*lines, self.screen.draft.text) if text]
        self.set_draft("\n".join(kept))

    def whole(self, line: str) -> str:
        """Return a line with its folded pastes."""
        return self.folds.unfold(line)

    # Face

    @property
    def width(self) -> int:
        """Columns of the terminal."""
        return self.screen.width

    def say(self, text: str, level: Level = "info") -> None:
        """Print lines of the program's own."""
        self.show(self.live.said(text, level))

    def show(self, lines: Sequence[str]) -> None:
        """Print finished rows."""
        self.screen.print(lines)

    def echo(self, line: str) -> None:
        """Show a line of the user's."""
        self.show(self.live.echo(line))

    def echo_command(self, line: str) -> None:
        """Show a command that was typed."""
        self.show(self.live.command(line))

    async def pick(
        self,
        title: str,
        rows: Callable[[bool], Sequence[Row]],
        *,
        has_all: bool = False,
        can_edit: bool = False,
    ) -> Picked | None:
        """Let the user choose a row."""
        return await self.asking.pick(title, rows, has_all=has_all, can_edit=can_edit)

    async def confirm(self, question: str) -> bool:
        """Ask yes or no."""
        return await self.asking.confirm(question)

    async def page(self, text: str, title: str = "") -> None:
        """Show a long text in a pager, or as rows where there is none."""
        if pager.command():
            await self.screen.away(partial(pager.page, text, title))
        else:
            self.say(text)

    def set_draft(self, text: str) -> None:
        """Put a text into the input line."""
        self.screen.draft.text = text
        self.screen.draft.cursor_position = len(text)
        self.screen.redraw()

    def clear_screen(self) -> None:
        """Clear the screen."""
        self.screen.clear()

    def use_theme(self, name: str) -> None:
        """Change the colours from here on."""
        self._restyle(self._themed(name))

    def copy(self, text: str) -> bool:
        """Put a text on the clipboard of the terminal."""
        sequence = terminal.copy_sequence(text)
        self.screen.send(sequence)
        return bool(sequence)
