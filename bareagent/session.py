"""A session: its id, its log, and the view that is the fold of the log."""

import contextlib
import gc
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from bareagent import __version__
from bareagent.entries import (
    AnyEntry,
    Cleared,
    Compaction,
    Epoch,
    Kind,
    MessageEntry,
    Rewound,
    Said,
    SessionStart,
    TurnEnd,
    Undone,
)
from bareagent.errors import SessionError, SessionLocked
from bareagent.fold import (
    MASKED_EPOCH,
    View,
    apply,
    apply_all,
    fold,
    fold_all,
    handle_of,
    parse_handle,
    placeholder,
    taken_back,
)
from bareagent.messages import Block, Message, answer, has_results, results, system, unanswered
from bareagent.sanitize import counted
from bareagent.seams import Emit, Reply
from bareagent.store import snapshots
from bareagent.store.lines import now
from bareagent.store.log import AnyLog, Log, MemoryLog
from bareagent.store.memory import remembered
from bareagent.store.places import LOCK_NAME, LOG_NAME, make_home, remember_home
from bareagent.store.redact import Redactor
from bareagent.store.transcripts import Found, TranscriptManager, holder, note_holder

__all__ = ["Session", "View", "apply", "fold", "handle_of", "load", "parse_handle", "placeholder"]

ENDED_TEXT = "interrupted: the program ended while this ran; it may have had effects"

_TURNS = frozenset({Undone, Rewound})

_MANY_MESSAGES = 10_000

E = TypeVar("E", bound=AnyEntry)


def load(log: Log) -> View:
    """Fold a log in one pass; only a log with undos or rewinds is read twice. Raises: SessionUnreadable."""
    was_on = gc.isenabled()
    gc.disable()  # millions of new objects and no garbage: collecting would take longer than reading
    try:
        view = View()
        has_turns = False
        for batch in log.load_batches():
            if has_turns or not _TURNS.isdisjoint(map(type, batch)):
                has_turns, view = True, View()
            else:
                apply_all(batch, view)
        view = _folded_again(log) if has_turns else view
        if len(view.messages) > _MANY_MESSAGES:
            gc.freeze()  # what was read lives as long as the session: no collection need look at it
        return view
    finally:
        if was_on:
            gc.enable()


class Session:
    """What was said and done, kept on disk or in memory.

    `notes` are lines the user should read at the start: what was repaired, what cannot be saved.
    `working` is a higher floor's own state, never logged, emptied by a rebind; `is_unused` says that it is
    new and no message was ever appended.
    """

    def __init__(
        self,
        log: AnyLog,
        id: str,
        folder: Path | None,
        view: View,
        cwd: Path,
        redactor: Redactor | None = None,
    ) -> None:
        """Hold an open log and its view; see `new`, `open` and `in_memory`."""
        self.log = log
        self.id = id
        self.folder = folder
        self.view = view
        self.cwd = cwd
        self.redactor = redactor or Redactor(is_on=False)
        self.notes: list[str] = []
        self.listeners: list[Emit] = []
        self.working: dict[str, object] = {}
        self.is_unused = False
        self._listen_to_log()

    @classmethod
    def in_memory(cls, cwd: Path | None = None, id: str = "memory") -> "Session":
        """Return a session that leaves nothing on disk."""
        cwd = cwd or Path.cwd()
        session = cls(MemoryLog(), id, None, View(), cwd)
        session._start()
        return session

    @classmethod
    def new(cls, manager: TranscriptManager, cwd: Path) -> "Session":
        """Return a new session on disk. Raises: SessionError where nothing can be written."""
        found = manager.create()
        redactor = manager.redactor()
        try:
            log = Log.create(found.folder / LOG_NAME, redactor.mask_body)
            note_holder(found.folder)
        except OSError as error:
            raise SessionError(f"Sessions cannot be saved in {found.folder}: {error.strerror}.") from error
        session = cls(log, found.id, found.folder, View(), cwd, redactor)
        session._start()
        session.is_unused = True
        return session

    @classmethod
    def open(
        cls,
        manager: TranscriptManager,
        text: str,
        *,
        rows: Sequence[str] = (),
        cwd: Path | None = None,
        is_read_only: bool = False,
        redactor: Redactor | None = None,
    ) -> "Session":
        """Return a saved session: an id, a prefix, a row of the last list, a name, `ID.N`, a folder.

        For an older generation a fork is made and opened. What was left unfinished is repaired, unless it
        is opened for reading only. A `redactor` that this process has used for the same words knows what
        their masks stand for. Raises: SessionNotFound, SessionUnreadable, SessionLocked.
        """
        wanted = manager.find(text, rows)
        found = manager.resolved(wanted)
        redactor = redactor or manager.redactor()
        log = _open_log(found, redactor, is_read_only=is_read_only)
        try:
            view = load(log)
        except BaseException:
            log.close()
            raise
        session = cls(log, found.id, found.folder, view, cwd or Path.cwd(), redactor)
        if found.id != wanted.id:
            session.notes.append(f"A fork of {wanted.id}.{wanted.generation} goes on as {session.full_id}.")
        session._begin_again(log)
        if not session.is_read_only:
            remember_home(manager.user_dir, found.folder.parent)
        return session

    def _start(self) -> None:
        start = SessionStart(id=self.id, cwd=str(self.cwd), created=now(), program=__version__)
        self.record(start)

    def _begin_again(self, log: Log) -> None:
        self.redactor.reserve(self.view.masks)
        self.notes += _told(log, self.view)
        if self.is_read_only:
            return
        if self.folder is not None:
            with contextlib.suppress(OSError):
                note_holder(self.folder)
        if self.view.session is None and not log.last_n:
            self._start()
        self._answer_open_calls()
        if self.view.n_unsafe and not self.view.masks <= self.secrets.keys():
            self.record(Epoch(reason=MASKED_EPOCH))

    def _answer_open_calls(self) -> None:
        open_calls = unanswered(self.messages)
        if open_calls:
            content = [answer(call, ENDED_TEXT, is_error=True) for call in open_calls]
            self.append({"role": "user", "content": content}, "results")
            names = ", ".join(str(call.get("name")) for call in open_calls)
            self.notes.append(f"The program ended while this ran: {names}. It may have had effects.")

    def _listen_to_log(self) -> None:
        if isinstance(self.log, Log):
            self.log.on_trouble = self._trouble
            self.log.remembered = lambda: remembered(self.view)

    def _trouble(self, text: str) -> None:
        self.notes.append(text)
        for listener in self.listeners:
            listener(Said(text=text, level="warning"))

    @property
    def messages(self) -> list[Message]:
        """The view's messages; always the same list object."""
        return self.view.messages

    @property
    def generation(self) -> int:
        """The newest number given to a full compaction; it never goes down."""
        return self.view.generation

    @property
    def full_id(self) -> str:
        """`ID`, from the first full compaction on `ID.N`."""
        return f"{self.id}.{self.generation}" if self.generation else self.id

    @property
    def is_read_only(self) -> bool:
        """Nothing can be appended."""
        return self.log.is_read_only

    @property
    def secrets(self) -> dict[str, str]:
        """What each mask stands for, as far as this process knows."""
        return self.redactor.originals

    def mask(self, text: str) -> str:
        """Return a text as it may reach the disk."""
        return self.redactor.mask(text)

    def unmask(self, value: Any) -> Any:
        """Return a JSON value as it may go to the model; without masks it is the same object."""
        return self.redactor.unmask(value)

    def record(self, entry: E) -> E:
        """Append an entry: to the system first, then to the view, then to all listeners.

        Returns it as the log will give it back, with number and time. Raises: SessionError.
        """
        kept = cast(E, self.log.append(entry))
        if isinstance(kept, Undone | Rewound):
            self.view.become(_folded_again(self.log))
        else:
            apply(kept, self.view)
        if isinstance(kept, MessageEntry):
            self.is_unused = False
        for listener in self.listeners:
            listener(kept)
        return kept

    def append(self, message: Message, kind: Kind = "other", reply: Reply | None = None) -> MessageEntry:
        """Append a message; `reply` adds what is known of the call that gave it."""
        entry = MessageEntry(message=message, kind=kind)
        if reply is not None:
            entry = MessageEntry(
                message=message,
                kind=kind,
                usage=reply.usage,
                model=reply.model,
                stop_reason=reply.stop_reason,
                stop_details=reply.stop_details,
                request_id=reply.request_id,
                request=reply.sent,
                cost_usd=reply.cost_usd,
                duration_s=reply.duration_s,
            )
        return self.record(entry)

    def clear(
        self,
        handles: list[str],
        reason: str = "",
        *,
        tokens: int = 0,
        cost_usd: float = 0.0,
        pays_after: int = 0,
    ) -> Cleared:
        """Let results show their placeholders from here on."""
        return self.record(
            Cleared(handles=handles, reason=reason, tokens=tokens, cost_usd=cost_usd, pays_after=pays_after)
        )

    def compact(self, compaction: Compaction) -> Compaction:
        """Apply a full compaction; it takes the next generation, whatever number it came with."""
        return self.record(msgspec.structs.replace(compaction, generation=self.generation + 1))

    def undo(self) -> Undone:
        """Take the newest live compaction back; its number stays used. Raises: SessionError for none."""
        if not self.view.compactions:
            raise SessionError("There is no compaction to undo.")
        return self.record(Undone(compaction=self.view.compactions[-1].n))

    def rewind(self, n: int) -> Rewound:
        """Go back to before entry `n`, a user's message of the view. Raises: SessionError."""
        try:
            message = self.messages[self.view.index(n)]
        except KeyError:
            raise SessionError(f"Entry {n} is no message of this conversation.") from None
        if message["role"] != "user" or has_results(message) or self.view.is_header(n):
            raise SessionError(f"Entry {n} is no line to go back to.")
        return self.record(Rewound(to=n))

    def handle(self, index: int, k: int = 1) -> str:
        """Return the handle of the k-th result (counted from 1) of message `index`."""
        return handle_of(self.view.ids[index], k)

    def find(self, handle: str) -> tuple[int, Block]:
        """Return message index and block of a result in the view. Raises: KeyError."""
        return self.view.find(handle)

    def original(self, handle: str) -> Block:
        """Return a result as it was before any clearing or capping. Raises: KeyError."""
        n, k = parse_handle(handle)
        blocks = results(self.original_message(n))
        if not 1 <= k <= len(blocks):
            raise KeyError(handle)
        return blocks[k - 1]

    def message_entry(self, n: int) -> MessageEntry:
        """Return entry `n` with its message as it was appended. Raises: KeyError."""
        entry = self.log.read(n)
        if not isinstance(entry, MessageEntry):
            raise KeyError(n)
        return entry

    def original_message(self, n: int) -> Message:
        """Return the message of entry `n` as it was appended. Raises: KeyError."""
        return self.message_entry(n).message

    def entries(self) -> Iterator[AnyEntry]:
        """Read the log again, from its first entry on."""
        return self.log.entries()

    def last_at(self) -> str:
        """Return when the last readable entry was appended (UTC, ISO 8601); empty for none."""
        for n in range(self.log.last_n, 0, -1):
            with contextlib.suppress(KeyError):
                return self.log.read(n).at
        return ""

    def conversation(self) -> Iterator[MessageEntry]:
        """Yield every message that was not taken back, those that were compacted too, as appended."""
        dead = taken_back(e for e in self.entries() if isinstance(e, Undone | Rewound))
        return (e for e in self.entries() if isinstance(e, MessageEntry) and not dead.has(e))

    def card(self, *, tokens: int = 0, branch: str = "") -> TurnEnd:
        """Return the entry for a run's end, so that lists read only head and tail of the log."""
        view = self.view
        return TurnEnd(
            name=view.name,
            first_line=view.first_line,
            turns=view.n_turns,
            tokens=tokens,
            cost_usd=view.cost_usd,
            generation=view.generation,
            model=view.model,
            branch=branch,
        )

    def whole_messages(self) -> Iterator[Message]:
        """Yield system prompt and view as a snapshot holds them: cleared and capped results in full."""
        if self.view.prompt is not None:
            yield system(self.view.prompt.system)
        changed = {parse_handle(handle)[0] for handle in (*self.view.cleared, *self.view.capped)}
        for n, message in zip(self.view.ids, self.view.messages, strict=True):
            yield self._restored(n, message) if n in changed else message

    def _restored(self, n: int, message: Message) -> Message:
        originals = iter(results(self.original_message(n)))
        content = [
            next(originals, block) if block.get("type") == "tool_result" else block
            for block in message["content"]
        ]
        return {**message, "content": content}

    def snapshot(self, suffix: str) -> Path | None:
        """Write the view whole into the folder's snapshots; None where nothing can be written."""
        return self._snapshot(suffix, only_if_new=False)

    def snapshot_if_new(self, suffix: str) -> Path | None:
        """Write a snapshot if the view holds anything that is not in the newest one."""
        return self._snapshot(suffix, only_if_new=True) if self.messages else None

    def _snapshot(self, suffix: str, *, only_if_new: bool) -> Path | None:
        if self.folder is None or self.is_read_only:
            return None
        messages: Iterable[Message] = self.whole_messages()
        try:
            make_home(self.folder.parent)  # the project may have been moved or deleted meanwhile
            return snapshots.write(self.folder / "snapshots", suffix, messages, only_if_new=only_if_new)
        except OSError as error:
            comfort = "; the log has all of it" if self.log.is_saved else ""
            self._trouble(f"No snapshot could be written ({error.strerror}){comfort}.")
            return None

    def sync(self) -> None:
        """Make what was appended durable."""
        self.log.sync()

    def close(self) -> None:
        """Let go of the log and its lock; a session in which nothing was said leaves no folder."""
        is_writer = self.folder is not None and not self.is_read_only
        if is_writer and self.is_unused and not self.view.name:
            shutil.rmtree(cast(Path, self.folder), ignore_errors=True)
        elif is_writer:
            with contextlib.suppress(OSError):
                (cast(Path, self.folder) / LOCK_NAME).unlink()
        self.log.close()

    def rebind(self, other: "Session") -> None:
        """Go on as another session: its id, log and view move here; the list of messages stays the same."""
        self.close()
        if self.folder is not None and not self.is_read_only and not self.log.is_saved:
            self._trouble(f"The end of session {self.full_id} could not be saved and is lost.")
        self.log, self.id, self.folder, self.cwd = other.log, other.id, other.folder, other.cwd
        self.redactor, self.notes, self.is_unused = other.redactor, other.notes, other.is_unused
        self.view.become(other.view)
        self.working.clear()
        self._listen_to_log()


def _folded_again(log: AnyLog) -> View:
    """Fold a log of any size in two passes, without holding its entries."""
    dead = taken_back(entry for entry in log.entries() if isinstance(entry, Undone | Rewound))
    return fold_all(log.entries(), dead)


def _open_log(found: Found, redactor: Redactor, *, is_read_only: bool) -> Log:
    try:
        return Log.open(found.folder / LOG_NAME, is_read_only=is_read_only, mask=redactor.mask_body)
    except SessionLocked as error:
        raise SessionLocked(str(error), holder(found.folder)) from None


def _told(log: Log, view: View) -> list[str]:
    """What a reader should know about the state of a log just read."""
    notes = list(log.repairs)
    faults = log.reading.faults
    if faults:
        lines = ", ".join(str(fault.line) for fault in faults[:5])
        more = ", …" if len(faults) > 5 else ""
        where = f"{counted(len(faults), 'fault')} (line {lines}{more})"
        notes.append(f"The log has {where}; all that is sound was read.")
    if view.n_mended:
        places = counted(view.n_mended, "place")
        notes.append(f"Messages are lost; mended in the conversation: {places}.")
    if log.is_newer:
        notes.append("A newer version wrote this session; it is open for reading only.")
    return notes
