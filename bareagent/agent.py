"""What a face drives: a session, a provider and tools, with the runs and commands of a conversation."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from bareagent import context
from bareagent.calls import Toolbox
from bareagent.config import MODES, Config
from bareagent.context.tokens import fast_tokens
from bareagent.entries import Epoch, Mode, Model, Name, Pin, Prompt, Said, TurnEnd
from bareagent.errors import (
    LineTooLong,
    ProviderError,
    SessionError,
    SessionLocked,
    SessionNotFound,
    UsageError,
)
from bareagent.loop import agent_loop
from bareagent.messages import Block, system, text_block, text_of
from bareagent.sanitize import clean
from bareagent.seams import Ask, Emit, ModelInfo, Provider
from bareagent.session import Session
from bareagent.store.log import Log
from bareagent.store.places import LOG_NAME, branch
from bareagent.store.transcripts import Found, TranscriptManager
from bareagent.turn import Stop, ask_on

AUTOMATIC_NAME_CHARS = 60
NAME_CHARS = 200
LOCK_PAUSE_S = 0.2
READ_ANEW = "Project instructions were read anew: the system prompt goes before earlier notes of changes."
T = TypeVar("T")


class Head(Protocol):
    """Makes what stands before a conversation."""

    def text(self) -> str:
        """Return the system prompt; the same bytes for the same folder, instructions and skills."""

    def changed(self) -> str | None:
        """Return what to tell the model of instructions that changed on disk, once; else None."""


class Agent:
    """A conversation. One run at a time; `interrupt` stops it from outside.

    `listed` are the ids of the last list of sessions shown, so that a row's number means one.
    """

    def __init__(
        self,
        session: Session,
        provider: Provider,
        box: Toolbox,
        config: Config,
        emit: Emit,
        ask: Ask,
        *,
        head: Head,
        manager: TranscriptManager | None = None,
    ) -> None:
        """Hold the parts; nothing starts yet."""
        self.session = session
        self.provider = provider
        self.box = box
        self.config = config
        self.emit = emit
        self.ask = ask
        self.manager = manager
        self.listed: list[str] = []
        self._head = head
        self._task: asyncio.Future[Any] | None = None
        self.is_compacting = False
        """A `compact` is under way, not a run."""

    @property
    def is_running(self) -> bool:
        """A run or a compaction is under way."""
        return self._task is not None

    @property
    def mode(self) -> str:
        """The permission mode in force."""
        return self.session.view.mode or self.config.permissions.mode

    def interrupt(self) -> bool:
        """Stop what is under way; False if nothing is."""
        if self._task is None:
            return False
        self._task.cancel()
        return True

    async def run(self, line: str, blocks: list[Block] | None = None) -> Stop:
        """Take a line of the user's and run until the model is done.

        `blocks` (images) follow the text. The line is on disk before anything is sent.
        Raises: LineTooLong, with nothing kept; else BareAgentError, with the line kept in the session.
        """
        self.begin()
        await self._check_size(line, blocks or [])
        self.session.append({"role": "user", "content": [text_block(line), *(blocks or [])]}, "line")
        self._name_by(line)
        return await self._run()

    async def _check_size(self, line: str, blocks: Sequence[Block]) -> None:
        model = self.provider.model
        if not model.is_known:
            with contextlib.suppress(ProviderError):  # the call itself will tell, the line in the log
                await self.provider.facts(model.name)
        why = self.too_long(line, blocks)
        if why:
            raise LineTooLong(why, "send a part of it, or put it into a file")

    def too_long(self, line: str, blocks: Sequence[Block] = ()) -> str:
        """Return why a line cannot be sent whatever is compacted; empty if it can."""
        return context.line_too_long(self.session, self.provider, self.box.tools, self.config, line, blocks)

    async def retry(self) -> Stop:
        """Send the view again after a failure, or let a finished or cut answer go on.

        Raises: UsageError if there is nothing to send.
        """
        if not self.session.messages:
            raise UsageError("There is nothing to send again.")
        self.begin()
        if self.session.messages[-1]["role"] == "assistant":
            ask_on(self.session, self.emit, "The answer ended")
        return await self._run()

    async def wake(self) -> Stop | None:
        """Start a run on what has ended in the background; None where there is nothing to tell or to tell it to.

        Whether to is the face's (`background.wake`). Raises: BareAgentError.
        """
        if self.is_running or not (self.session.messages and self.box.jobs.has_news):
            return None
        self.begin()
        return await self._run()

    def begin(self) -> None:
        """Log what stands before the first message of a run: system prompt, tools, changed instructions."""
        self._log_prompt()
        changed = self._head.changed()
        if changed:
            self.session.append(system(changed), "instructions")

    def _log_prompt(self) -> None:
        """Log system prompt and tools where they differ from the logged ones.

        Within a process the system prompt of a session stays as it was first made.
        """
        logged = self.session.view.prompt
        is_settled = logged is not None and "prompt" in self.session.working
        text = logged.system if logged is not None and is_settled else self._head.text()
        tools = self.box.specs()
        if logged is None or (logged.system, logged.tools) != (text, tools):
            self.session.record(Prompt(system=text, tools=tools))
        if logged is not None and logged.system != text and "instructions" in self.session.view.kinds:
            self.session.append(system(READ_ANEW), "instructions")
        self.session.working["prompt"] = True

    def _name_by(self, line: str) -> None:
        view = self.session.view
        if not view.name:
            words = " ".join((view.first_line or line).split())[:AUTOMATIC_NAME_CHARS]
            self.session.record(Name(name=words, is_automatic=True))

    async def _run(self) -> Stop:
        try:
            return await self._cancellable(
                agent_loop(self.session, self.provider, self.box, self.config, self.emit, self.ask)
            )
        except Interrupted:
            return Stop(reason="interrupted")
        finally:
            self.card()

    async def _cancellable(self, work: Awaitable[T]) -> T:
        """Await work that `interrupt` may cancel. Raises: Interrupted then."""
        task = asyncio.ensure_future(work)
        self._task = task
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise Interrupted from None
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            raise
        finally:
            self._task = None

    def card(self) -> None:
        """Log the card that lists read, and make the turn durable."""
        view = self.session.view
        self.session.record(
            TurnEnd(
                name=view.name,
                first_line=view.first_line,
                turns=view.n_turns,
                tokens=self.context_tokens(),
                cost_usd=view.cost_usd,
                generation=view.generation,
                model=view.model or self.provider.model.name,
                branch=branch(self.box.root),
            )
        )
        self.session.sync()

    def context_tokens(self) -> int:
        """Return the size of the next request in tokens."""
        plan = context.planned(self.session, self.provider, self.box.tools, self.config)
        return round(plan.load.size)

    async def compact(self, focus: str = "", *, facts_only: bool = False) -> bool:
        """Compact now, whatever the size; False if nothing changed. Ctrl-C leaves all as it was."""
        self._log_prompt()
        work = context.compact_now(
            self.session,
            self.provider,
            self.box.tools,
            self.config,
            self.emit,
            "manual",
            focus,
            facts_only,
        )
        self.is_compacting = True
        try:
            outcome = await self._cancellable(work)
        except Interrupted:
            self.emit(Said(text="Context compaction cancelled. Nothing changed."))
            return False
        finally:
            self.is_compacting = False
        self.card()
        return outcome.is_done

    def preview(self) -> context.Preview:
        """Return what `compact` would do now; changes nothing."""
        return context.preview(self.session, self.provider, self.box.tools, self.config)

    def picture(self) -> context.Picture:
        """Return what fills the window."""
        return context.picture(self.session, self.provider, self.box.tools, self.config)

    def undo(self) -> None:
        """Take the newest compaction back. Raises: SessionError if there is none."""
        before = self.session.full_id
        self.session.undo()
        self.emit(Said(text=f"Compaction undone: {before}, {self.context_tokens():,} tokens."))

    def new(self, name: str = "") -> None:
        """Go on in a new session, in the same mode; what the old one held is in a snapshot of its own."""
        self.session.snapshot_if_new("new")
        mode = self.mode
        self._leave(self._fresh_session())
        if name:
            self.name(name)
        self.set_mode(mode)
        self.note_model()
        self.emit(Said(text="New conversation started."))

    def _fresh_session(self) -> Session:
        if self.manager is None or self.session.folder is None:
            return Session.in_memory(self.session.cwd)
        return Session.new(self.manager, self.session.cwd)

    def resume(self, text: str, rows: Sequence[str] = (), *, is_read_only: bool = False) -> None:
        """Go on with a saved session: an id, a prefix, a row of the last list, a name, `ID.N`, a folder.

        It is loaded first; only then is the present one left. Raises: SessionError, with the present
        session as it was; UsageError for the present one.
        """
        found = self._saved().find(text, rows)
        if found.id == self.session.id and found.generation in {None, self.session.generation}:
            raise UsageError(f"Session {self.session.full_id} is open already.")
        self._switch(Session.open(self._saved(), text, rows=rows, is_read_only=is_read_only))

    async def resume_when_free(self, text: str, rows: Sequence[str] = ()) -> bool:
        """Wait until no other program writes a session, then go on with it; False if interrupted."""
        with contextlib.suppress(Interrupted):
            self._switch(await self._cancellable(self._opened(text, rows)))
            return True
        return False

    async def _opened(self, text: str, rows: Sequence[str]) -> Session:
        while True:
            with contextlib.suppress(SessionLocked):
                return Session.open(self._saved(), text, rows=rows)
            await asyncio.sleep(LOCK_PAUSE_S)

    def fork_saved(self, text: str, rows: Sequence[str] = ()) -> None:
        """Go on in a copy of a saved session, which another program may be writing. Raises: SessionError."""
        copy = self._saved().fork(self._saved().find(text, rows))
        self._switch(Session.open(self._saved(), copy.id))

    def _switch(self, other: Session) -> None:
        self.session.snapshot_if_new("resume")
        self._leave(other)
        self.restore()
        self.emit(Said(text=f"Resumed session: {self.session.full_id}"))

    def name(self, text: str) -> str:
        """Name the session, kept over compaction and resume; return the name as it is kept."""
        words = _as_name(text)
        self.session.record(Name(name=words))
        return words

    def rename(self, which: str, text: str) -> None:
        """Name a saved session. Raises: SessionError, UsageError."""
        found = self._saved().find(which)
        if found.id == self.session.id:
            self.name(text)
            return
        name = Name(name=_as_name(text))
        log = Log.open(found.folder / LOG_NAME, mask=self._saved().redactor().mask_body)
        with contextlib.closing(log):
            for _ in log.load():
                continue
            log.append(name)

    def remove(self, which: str) -> None:
        """Delete a saved session for good. Raises: SessionError, for the present one too."""
        found = self._saved().find(which)
        if found.id == self.session.id:
            raise SessionError("This session is open here; /new first.")
        self._saved().remove(found)

    def _saved(self) -> TranscriptManager:
        if self.manager is None:
            raise SessionNotFound("No saved sessions.")
        return self.manager

    def rewind(self, n: int) -> str:
        """Go back to before the line that is entry `n` and return it; files are not touched.

        Raises: SessionError if it is no line of this conversation.
        """
        try:
            message = self.session.original_message(n)
        except KeyError:
            raise SessionError("This line stands no longer in the session's log.") from None
        self.session.rewind(n)
        self.box.seen.clear()
        self.card()
        return text_of(message)

    def fork(self, n: int | None = None) -> None:
        """Go on in a copy of the session up to before entry `n` (None: all); this one stays as it is.

        Raises: SessionError, with the present session as it was.
        """
        old = self.session
        if old.folder is None:
            raise SessionError("This conversation is not saved; it cannot be forked.")
        old.sync()
        fork = self._saved().fork(Found(old.id, old.folder), None if n is None else n - 1, old.generation)
        parent, view = old.full_id, old.view
        name = Name(name=f"{view.name} (fork)", is_automatic=view.is_name_automatic)
        other = Session.open(self._saved(), fork.id, cwd=old.cwd, redactor=old.redactor)
        self._leave(other)
        self.restore()
        if view.name:
            self.session.record(name)
        self.card()
        self.emit(Said(text=f"Forked {parent}: this is {self.session.full_id}"))

    def pin(self, text: str) -> None:
        """Keep a text word for word over all compactions. Raises: UsageError if pins take too much."""
        text = text.strip()
        if not text:
            raise UsageError("There is nothing to pin.")
        pins = [*self.session.view.pins, text]
        size, most = sum(fast_tokens(pin) for pin in pins), self.config.compaction.pin_tokens
        if size > most:
            raise UsageError(
                f"All pins together would take {round(size):,} tokens; {most:,} are allowed.",
                "/unpin N takes one away; compaction.pin_tokens is the limit",
            )
        self.session.record(Pin(pins=pins))

    def unpin(self, row: int) -> str:
        """Take a pin away by its number from 1 and return it. Raises: UsageError."""
        pins = list(self.session.view.pins)
        if not 1 <= row <= len(pins):
            raise UsageError(f"There is no pin {row}.", "/pins lists them")
        text = pins.pop(row - 1)
        self.session.record(Pin(pins=pins))
        return text

    def _leave(self, other: Session) -> None:
        self.box.seen.clear()
        self.session.rebind(other)

    def restore(self) -> None:
        """Note what a resumed session must not bring back, and that its cached prefix is gone."""
        if self.session.is_read_only:
            return
        if self.session.view.mode == "bypass":
            self.set_mode(self.config.permissions.mode)
        life = self.provider.model.cache_life.seconds
        if self.session.messages and life and self._idle_s() > life:
            self.session.record(Epoch(reason="resumed after the cache's life"))

    def _idle_s(self) -> float:
        return time.time() - datetime.fromisoformat(self.session.last_at()).timestamp()

    def set_mode(self, mode: str) -> None:
        """Use another permission mode. Raises: UsageError for an unknown one."""
        if mode not in MODES:
            raise UsageError(f"There is no mode {mode!r}.", f"Modes: {', '.join(MODES)}")
        if mode != self.mode:
            self.session.record(Mode(mode=mode))

    async def select_model(self, name: str) -> ModelInfo:
        """Use another model from here on. Raises: UnknownModel."""
        info = await self.provider.select(name)
        self.note_model()
        return info

    async def follow_model(self) -> None:
        """Use the model a resumed session had, where this provider has it; else note which one answers."""
        view = self.session.view
        if self.session.is_read_only:
            return
        if view.model and view.provider == self.provider.name and view.model != self.provider.model.name:
            with contextlib.suppress(ProviderError):
                await self.provider.select(view.model)
        self.note_model()

    def note_model(self) -> None:
        """Log which model answers from here on, where it differs from what the log says."""
        view, name = self.session.view, self.provider.model.name
        if (view.model, view.provider) != (name, self.provider.name):
            self.session.record(Model(model=name, provider=self.provider.name))

    async def close(self) -> None:
        """End jobs, provider and log."""
        self.interrupt()
        await self.box.jobs.end_all()
        await self.provider.aclose()
        self.session.close()


def _as_name(text: str) -> str:
    words = " ".join(clean(text).split())[:NAME_CHARS]
    if not words:
        raise UsageError("A name needs at least one letter.")
    return words


class Interrupted(Exception):
    """The user stopped what was under way."""
