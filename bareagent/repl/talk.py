"""A conversation driven by lines: what a line starts, what waits, what stops it. Knows no terminal."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from bareagent.agent import Agent
from bareagent.entries import CallEnded, CallOutput, CallStarted
from bareagent.errors import LineTooLong, ProviderError, UsageError
from bareagent.messages import Block, answer, user
from bareagent.provider import ClaudeProvider
from bareagent.repl import commands
from bareagent.repl.face import Face, Level
from bareagent.tools import process
from bareagent.tools.base import ToolContext
from bareagent.tools.capture import Capture
from bareagent.tools.shell import environment, kept_bytes, report
from bareagent.turn import Stop

Border = Callable[[Awaitable[None], "Talk"], Awaitable[bool]]
"""Awaits a line's work; whatever it raises is told. False if it failed."""


class Talk:
    """Takes lines one after another; what a face adds is how things look."""

    agent: Agent

    def __init__(self, border: Border) -> None:
        """Wait for the first line."""
        self.queued: list[str] = []
        self.held: list[str] = []
        """Lines that waited when a run was stopped; they go out when the user says so."""
        self._after_stop: list[str] = []
        """Lines entered once a run was told to stop: the user has gone on, so they are not held."""
        self.exit_code = 0
        self.is_leaving = False
        self.is_stopped = False
        self.is_ready = False
        self._border = border
        self._working: asyncio.Task[None] | None = None
        self._step: asyncio.Future[None] | None = None
        self._asides: set[asyncio.Task[bool]] = set()
        self._ready: asyncio.Future[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._failed_at: tuple[str, int] | None = None
        self._was_wrong = False
        """The last line was a command that cannot be done as it was typed: nothing behind it waits for it."""

    # What a face gives

    @property
    def face(self) -> Face:
        """This talk as commands see it."""
        raise NotImplementedError

    def say(self, text: str, level: Level = "info") -> None:
        """Print lines of the program's own."""
        raise NotImplementedError

    def echo(self, line: str) -> None:
        """Show a line of the user's in the conversation."""
        raise NotImplementedError

    def give_back(self, line: str) -> bool:
        """Give a line back that cannot be sent, to be changed; False where there is no room for it."""
        raise NotImplementedError

    def began(self) -> None:
        """Hear that work begins."""

    def ended(self) -> None:
        """Hear that no work is left."""

    def changed(self) -> None:
        """Hear that what waits has changed."""

    # Lines

    @property
    def is_working(self) -> bool:
        """A line is being worked on."""
        return self._working is not None

    @property
    def coming(self) -> list[str]:
        """The lines that go out by themselves once what is under way has ended."""
        return [*self._after_stop, *self.queued]

    async def idle(self) -> None:
        """Wait until no line is being worked on."""
        while self._working is not None:
            await asyncio.wait([self._working])

    def take(self, line: str) -> None:
        """Take a line that was entered: start it, answer it aside, or let it wait."""
        if self.is_leaving:
            return
        if not line.strip():
            self._go_on()
        elif not self.is_working:
            self._start(line)
        elif commands.is_safe(line) or commands.mistyped(self.face, line):
            self._answer_aside(line)
        elif self.is_stopped:
            self._after_stop.append(line)
        elif self.agent.config.ui.steer and self._can_steer(line):
            self.agent.box.steered.append(self.whole(line))
        else:
            self.queued.append(line)
        self.changed()

    def put(self, line: str) -> None:
        """Queue a line behind the work that goes on; one that can never be sent is answered at once."""
        if commands.mistyped(self.face, line):
            self._answer_aside(line)
        else:
            self.queued.append(line)

    def _answer_aside(self, line: str) -> None:
        task = asyncio.get_running_loop().create_task(self._aside(line))
        self._asides.add(task)
        task.add_done_callback(self._asides.discard)

    def _start(self, line: str) -> None:
        self._working = asyncio.get_running_loop().create_task(self._work(line))

    def _go_on(self) -> None:
        """Take an empty line: what failed is sent again, then what was held goes out in order."""
        if self.is_working:
            return
        lines = ["/retry"] * self.can_retry + self.held
        if lines:
            self.held.clear()
            self.queued[:0] = lines[1:]
            self._start(lines[0])

    def take_back(self) -> str | None:
        """Return the newest line that waits, no longer waiting; None where there is none."""
        waiting = self._after_stop or self.queued or self.held
        return waiting.pop() if waiting else None

    def _can_steer(self, line: str) -> bool:
        """Tell whether a line may go out within a run; one too long to send waits and comes back as the draft."""
        return not line.lstrip().startswith(("/", "!")) and not self.agent.too_long(self.whole(line))

    async def _aside(self, line: str) -> bool:
        self.echo_command(line)
        return await self._border(self._dispatched(line), self)

    async def _dispatched(self, line: str) -> None:
        await commands.dispatch(self.face, line)

    async def _work(self, line: str) -> None:
        try:
            await self._work_through(line)
        finally:
            self._working = None
        self.ended()
        self._go_on_after_stop()

    def _go_on_after_stop(self) -> None:
        lines, self._after_stop = self._after_stop, []
        for line in lines:
            self.take(line)

    async def _work_through(self, line: str) -> None:
        self.is_stopped = False
        coming: str | None = line
        while coming is not None:
            is_fine = await self._one(coming) or self._was_wrong
            coming = self._next_line() if is_fine else None
        self._hold()

    def _next_line(self) -> str | None:
        """Take the next line that waits; what was steered goes first where its run had no further step."""
        if self.is_leaving or self.is_stopped:
            return None
        self.queued[:0] = self.agent.box.take_steered()
        line = self.queued.pop(0) if self.queued else None
        self.changed()
        return line

    def wake(self) -> None:
        """Start a run on what has ended in the background, where that is wished and nothing else is done."""
        agent = self.agent
        if (
            agent.config.background.wake
            and agent.box.jobs.has_news
            and not (self.is_working or self.is_leaving)
        ):
            self._working = asyncio.get_running_loop().create_task(self._work_on_news())

    async def _work_on_news(self) -> None:
        try:
            self.is_stopped = False
            await self._stepped(self._woken())
            line = self._next_line()
            if line is not None:
                await self._work_through(line)
            self._hold()
        finally:
            self._working = None
        self.ended()
        self._go_on_after_stop()

    async def _woken(self) -> None:
        await self.ready()
        await self.agent.wake()

    def _hold(self) -> None:
        """After a stop what waited goes on waiting, each line for itself, until the user sends it."""
        self.held += [*self.agent.box.take_steered(), *self.queued]
        self.queued.clear()
        self.changed()

    async def _one(self, line: str) -> bool:
        """Work on a line to its end; False if it failed."""
        self._was_wrong = False
        return await self._stepped(self._done(line))

    async def _stepped(self, work: Awaitable[None]) -> bool:
        self.began()
        self._step = step = asyncio.ensure_future(self._border(work, self))  # type: ignore[assignment]  # its value is read where it ends
        try:
            await asyncio.wait([step])
        except asyncio.CancelledError:
            step.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await step
            raise
        finally:
            self._step = None
        if step.cancelled():
            self.say("Interrupted.", "warning")
            return False
        return bool(step.result())

    async def _done(self, line: str) -> None:
        text = line.strip()
        if text.startswith("!") and text.strip("! "):
            await self._shell(text)
        elif text == "!" or text.startswith("/"):
            if "/" not in text.split()[0][1:]:
                self.echo_command(line)
            await self._command(line)
        else:
            await self.submit(line)

    async def _command(self, line: str) -> None:
        try:
            is_command = await commands.dispatch(self.face, line)
        except UsageError:
            self._was_wrong = True
            raise
        if not is_command:
            await self.submit(line)

    def echo_command(self, line: str) -> None:
        """Show a command that was typed."""
        self.say(line.strip().split("\n")[0], "dim")

    async def submit(self, line: str) -> None:
        """Send a line to the model as if it had been typed, commands not looked for."""
        self.echo(line)
        await self.ready()
        try:
            await self._sent(self.agent.run(self.whole(line)))
        except LineTooLong:
            if not self.give_back(line):
                self.held.insert(0, line)
            raise

    async def retry(self) -> None:
        """Send the view again."""
        await self.ready()
        await self._sent(self.agent.retry())

    @property
    def can_retry(self) -> bool:
        """The last run failed at the provider, and the view stands as it was left."""
        return self._failed_at is not None and self._failed_at == self._standing_at()

    def _standing_at(self) -> tuple[str, int]:
        session = self.agent.session
        return session.full_id, len(session.messages)

    async def _sent(self, run: Awaitable[Stop]) -> None:
        self._failed_at = None
        try:
            await run
        except ProviderError:
            self._failed_at = self._standing_at()
            raise

    def whole(self, line: str) -> str:
        """Return a line with all that was folded in it."""
        return line

    async def ready(self) -> None:
        """Wait until the program can talk to a server."""
        if self._ready is not None:
            await asyncio.shield(self._ready)

    def refresh_models(self) -> None:
        """Ask the server of its models beside the conversation, once a day; failures are silent."""
        self._refreshing = asyncio.get_running_loop().create_task(self._refresh())

    async def _refresh(self) -> None:
        provider = self.agent.provider
        if isinstance(provider, ClaudeProvider):
            await self.ready()
            await provider.refresh()

    # Stopping

    def interrupt(self) -> bool:
        """Stop what is under way; False if nothing is."""
        if self._step is None:
            return False
        self.is_stopped = not self.agent.is_compacting  # behind a cancelled summary the queue goes on
        if not self.agent.interrupt():
            self._step.cancel()
        return True

    def steer(self) -> bool:
        """Let what waits go out after the present calls; False if there is nothing for it."""
        for_model = [line for line in self.queued if self._can_steer(line)]
        if not (self.agent.is_running and for_model):
            return False
        self.queued = [line for line in self.queued if line not in for_model]
        self.agent.box.steered += map(self.whole, for_model)
        self.changed()
        return True

    async def stop(self) -> None:
        """End what is under way, for good."""
        self.is_leaving = True
        if self._refreshing is not None:
            self._refreshing.cancel()
        self.interrupt()
        tasks = [task for task in (self._working, *self._asides) if task is not None]
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=3)
            for task in left:
                task.cancel()

    # The user's own commands

    async def _shell(self, text: str) -> None:
        """Run `!command`; the model hears of it, but for `!!command`."""
        is_private = text.startswith("!!")
        command = text.lstrip("!").strip()
        call: Block = {"type": "tool_use", "id": "shell", "name": "!!" if is_private else "!"}
        call["input"] = {"command": command}
        output = await self._run_shell(call, command)
        if not is_private:
            told = f"I ran this command myself:\n$ {command}\n{output}"
            self.agent.begin()
            self.agent.session.append(user(told), "shell")

    async def _run_shell(self, call: Block, command: str) -> str:
        agent, box = self.agent, self.agent.box
        ctx = ToolContext(
            session=agent.session,
            config=agent.config,
            cwd=box.cwd,
            root=box.root,
            emit=agent.emit,
            ask=agent.ask,
            jobs=box.jobs,
            call=call,
        )
        capture = Capture(kept_bytes(agent.config))
        started = await process.start(
            command,
            cwd=box.cwd,
            environment=environment(ctx),
            capture=capture,
            on_text=lambda heard: agent.emit(CallOutput(call_id="shell", text=heard)),
        )
        agent.emit(CallStarted(call=call))
        try:
            ended = await started.ended(None)
        except asyncio.CancelledError:
            agent.emit(CallEnded(call=call, result=answer(call, capture.text(), is_error=True)))
            raise
        output = report(capture, ended)
        text = output.text[: agent.config.tools.max_result_chars]
        result = answer(call, text, is_error=output.is_error)
        agent.emit(CallEnded(call=call, result=result, duration_s=ended.duration_s))
        return text
