"""The REPL on a real terminal: what is typed, heard, asked and shown comes together here."""

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bareagent import crash
from bareagent.agent import Agent
from bareagent.config import Ui
from bareagent.entries import AnyDelta, AnyEntry, JobsChanged, TurnEnd
from bareagent.errors import BareAgentError, ProviderError
from bareagent.provider import preload
from bareagent.provider.embedded import EmbeddedProvider
from bareagent.repl import hands, pager, start, terminal, toolbar
from bareagent.repl.ansi import paint
from bareagent.repl.asking import Asking
from bareagent.repl.completion import Completions
from bareagent.repl.face import Face, Level, Picked, Row
from bareagent.repl.first import Hands
from bareagent.repl.live import Live
from bareagent.repl.markdown import render
from bareagent.repl.recap import recap_rows
from bareagent.repl.screen import FRAME_S
from bareagent.repl.styles import Styles, themed
from bareagent.repl.talk import Talk
from bareagent.sanitize import one_line
from bareagent.seams import Answer, Question
from bareagent.store.places import branch
from bareagent.tools.process import kill_all

RING_AFTER_S = 20.0
MAX_FAULTS = 3
FAULTS_WITHIN_S = 5.0
"""More faults of ours than that in so short a time: nothing can go on."""


def _load_sdk() -> None:
    preload().join()


async def bordered(work: Awaitable[None], talk: Talk, *, is_debug: bool = False) -> bool:
    """Await a line's work; whatever it raises is told and the conversation goes on. False if it failed."""
    try:
        await work
    except BareAgentError as error:
        talk.say(str(error), "error")
        if error.hint:
            talk.say(error.hint, "dim")
        if isinstance(error, ProviderError) and talk.can_retry:
            talk.say("Enter on an empty line, or /retry, sends it again.", "dim")
        return False
    except Exception as error:
        talk.say(traceback.format_exc() if is_debug else crash.report(error), "error")
        return False
    return True


class Repl(Talk):
    """The terminal's face: a live region below, finished rows above, one conversation."""

    is_terminal = True

    def __init__(self, ui: Ui, root: Path, before: Hands, *, has_colour: bool, is_debug: bool) -> None:
        """Take over the screen from the first hands; nothing can be sent before `begin`."""
        super().__init__(partial(bordered, is_debug=is_debug))
        self.ui = ui
        self.screen = before.screen
        self._root = root
        self._has_colour = has_colour
        self._is_debug = is_debug
        self._faults: list[float] = []
        self._is_light = False
        self.styles = themed(ui.theme, has_colour=has_colour)
        self._standing = toolbar.Standing()
        self._ticker: asyncio.Task[None] | None = None
        self.live = Live(self.styles, lambda: self.width, ui, hyperlinks=terminal.has_hyperlinks())
        self.asking = Asking(self.screen, self._asked)
        self._hands = hands.Hands(self, before)
        self.folds = self._hands.folds
        self.screen.hands = self._hands
        self.screen.draft.completer = Completions(self)
        self.screen.redraw()

    def on_background(self, is_light: bool) -> None:
        """Take colours that can be read on it, where none were chosen."""
        self._is_light = is_light
        if self.ui.theme == "auto" and is_light:
            self._restyle(themed("auto", has_colour=self._has_colour, is_light=True))

    def _restyle(self, look: Styles) -> None:
        self.styles = self.live.styles = look
        self.screen.redraw()

    # The life of the program

    def begin(self, agent: Agent, notes: Sequence[str], *, is_trusted: bool = True) -> None:
        """Go live: greet, and take the lines that were entered meanwhile."""
        self.agent = agent
        self.is_ready = True
        self.say(start.title(agent))
        for text, level in start.lines(agent, notes, is_trusted=is_trusted):
            self.say(text, level)
        self.show(start.past(agent, self.width, self.styles))
        if self.ui.theme == "auto" and self.styles.heading:
            self.screen.send(terminal.ask_background())
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._fault)
        self._ready = asyncio.ensure_future(asyncio.to_thread(_load_sdk))
        if isinstance(agent.provider, EmbeddedProvider):
            agent.provider.start()
        self.beside(self._settle_in())
        self.refresh_models()
        self._hands.begin()

    async def _settle_in(self) -> None:
        await asyncio.sleep(FRAME_S)  # the last exchanges are painted first
        self.show(await recap_rows(self.agent, self.width, self.styles))
        self._measure()
        self._standing.branch = await asyncio.to_thread(branch, self._root)
        hint = await asyncio.to_thread(start.resume_line, self.agent)
        if hint:
            self.say(hint, "dim")
        self.screen.redraw()

    def _fault(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A fault of ours outside of a line's work is told and the conversation goes on, if it can."""
        error = context.get("exception")
        now = time.monotonic()
        self._faults = [at for at in self._faults if now - at < FAULTS_WITHIN_S] + [now]
        if len(self._faults) > MAX_FAULTS:
            self.screen.leave(error if isinstance(error, BaseException) else RuntimeError(context["message"]))
        elif error is None:
            self.say(str(context.get("message")), "error")
        else:
            lines = traceback.format_exception(error)
            self.say("".join(lines) if self._is_debug else crash.report(error), "error")

    async def close(self) -> list[str]:
        """End all that runs and save; return the last lines to print."""
        try:
            await self.stop()
            if self.is_ready:
                await self.agent.close()
        finally:
            kill_all()
            self.screen.flush()
        return start.farewell(self.agent) if self.is_ready else []

    def leave(self) -> None:
        """End the program."""
        self.is_leaving = True
        self.screen.leave()

    # Hearing and asking

    def emit(self, heard: AnyEntry | AnyDelta, /) -> None:
        """Take one entry or delta."""
        match heard:
            case TurnEnd():
                self._standing.size = heard.tokens
            case JobsChanged():
                self._standing.n_jobs = len(heard.running)
                self.wake()
        self._print(self.live.hear(heard))

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
            self.screen.tick()

    def ended(self) -> None:
        """Give the prompt back."""
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
        took = self.live.elapsed_s
        self._print(self.live.end())
        if took > RING_AFTER_S:
            self._ring("The run has ended")
        self._measure()
        self.screen.redraw()
        self.wake()

    def changed(self) -> None:
        """Show what waits."""
        self.screen.redraw()

    def standing(self) -> toolbar.Standing:
        """Return where the conversation stands now."""
        now, agent = self._standing, self.agent
        now.model, now.mode = start.model_name(agent), agent.mode
        view = agent.session.view
        now.session = view.name if view.name and not view.is_name_automatic else agent.session.full_id
        now.n_queued = len(self.coming) + len(self.held)
        now.cost_usd = view.cost_usd
        return now

    def beside(self, work: Coroutine[Any, Any, None]) -> None:
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

    def give_back(self, line: str) -> bool:
        """Make a line that cannot be sent the draft, where none is begun."""
        if self.screen.draft.text:
            return False
        self.set_draft(line)
        return True

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
        self._print(self.live.said(text, level))

    def show(self, lines: Sequence[str]) -> None:
        """Print finished rows."""
        self._print(self.live.shown(lines))

    def _print(self, rows: Sequence[str]) -> None:
        self.screen.print(rows)

    def echo(self, line: str) -> None:
        """Show a line of the user's."""
        self._print(self.live.echo(line))

    def echo_command(self, line: str) -> None:
        """Show a command that was typed."""
        self._print(self.live.command(line))

    async def pick(
        self,
        title: str,
        rows: Callable[[bool], Sequence[Row]],
        *,
        has_all: bool = False,
        can_edit: bool = False,
        is_all: bool = False,
    ) -> Picked | None:
        """Let the user choose a row."""
        return await self.asking.pick(title, rows, has_all=has_all, can_edit=can_edit, is_all=is_all)

    async def confirm(self, question: str) -> bool:
        """Ask yes or no."""
        return await self.asking.confirm(question)

    async def page(self, text: str, title: str = "") -> None:
        """Show a long text in a pager, or as rows where there is none."""
        if pager.command():
            await self.screen.away(partial(pager.page, text, title, self.screen.outside.run))
        else:
            self.say(text)

    def set_draft(self, text: str) -> None:
        """Put a text into the input line; a draft that stands there goes to the history."""
        if self.screen.draft.text:
            self.screen.draft.append_to_history()
        self._hands.set_draft(text)

    def clear_screen(self) -> None:
        """Clear the screen."""
        self.screen.clear()

    def sample(self, theme: str, text: str) -> tuple[str, ...]:
        """Return Markdown of the program's own as it looks in a theme."""
        look = themed(theme, has_colour=self._has_colour, is_light=self._is_light)
        changes = [paint("+ added", look.inserted), paint("- taken away", look.deleted)]
        return (*(row for row in render(text, self.width - 2, look).splitlines() if row), *changes)

    @property
    def theme(self) -> str:
        """The theme in use."""
        return self.ui.theme

    def use_theme(self, name: str) -> None:
        """Change the colours from here on."""
        self.ui.theme = name  # type: ignore[assignment]  # the command has checked it
        self._restyle(themed(name, has_colour=self._has_colour, is_light=self._is_light))

    def copy(self, text: str) -> bool:
        """Put a text on the clipboard of the terminal."""
        sequence = terminal.copy_sequence(text)
        self.screen.send(sequence)
        return bool(sequence)
