"""A session: its id, its log, and the view that is the fold of the log."""

import gc
from collections.abc import Callable, Iterator
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
    Name,
    Rewound,
    SessionStart,
    TurnEnd,
    Undone,
)
from bareagent.errors import SessionError
from bareagent.fold import (
    MASKED_EPOCH,
    View,
    apply,
    fold,
    fold_all,
    handle_of,
    parse_handle,
    placeholder,
    taken_back,
)
from bareagent.messages import Block, Message, answer, has_results, results, unanswered
from bareagent.seams import Emit, Reply
from bareagent.store.log import AnyLog, Log, MemoryLog
from bareagent.store.places import LOG_NAME
from bareagent.store.transcripts import TranscriptManager

__all__ = ["Session", "View", "apply", "fold", "handle_of", "parse_handle", "placeholder"]

ENDED_TEXT = "interrupted: the program ended while this ran; it may have had effects"

E = TypeVar("E", bound=AnyEntry)


def load(log: Log) -> View:
    """Fold a log in one pass; only a log with undos or rewinds is read twice."""
    was_on = gc.isenabled()
    gc.disable()  # millions of new objects and no garbage: collecting would take longer than reading
    try:
        view = View()
        turns: list[Undone | Rewound] = []
        for entry in log.load():
            if isinstance(entry, Undone | Rewound):
                turns.append(entry)
            elif not turns:
                apply(entry, view)
        return fold_all(log.entries(), taken_back(turns)) if turns else view
    finally:
        if was_on:
            gc.enable()


class Session:
    """What was said and done, kept on disk or in memory."""

    def __init__(self, log: AnyLog, id: str, folder: Path | None, view: View, cwd: Path) -> None:
        """Hold an open log and its view; see `new`, `open` and `in_memory`."""
        self.log = log
        self.id = id
        self.folder = folder
        self.view = view
        self.cwd = cwd
        self.listeners: list[Emit] = []
        self.working: dict[str, object] = {}

    @classmethod
    def in_memory(cls, cwd: Path | None = None, id: str = "memory") -> "Session":
        """Return a session that leaves nothing on disk."""
        cwd = cwd or Path.cwd()
        session = cls(MemoryLog(), id, None, View(), cwd)
        session.record(SessionStart(id=id, cwd=str(cwd), program=__version__))
        return session

    @classmethod
    def new(cls, manager: TranscriptManager, cwd: Path) -> "Session":
        """Return a new session on disk. Raises: SessionError where nothing can be written."""
        id, folder, _ = manager.create()
        try:
            log = Log.create(folder / LOG_NAME)
        except OSError as error:
            raise SessionError(f"Sessions cannot be saved in {folder}: {error.strerror}.") from error
        session = cls(log, id, folder, View(), cwd)
        session.record(SessionStart(id=id, cwd=str(cwd), program=__version__))
        return session

    @classmethod
    def open(cls, manager: TranscriptManager, id: str, *, cwd: Path | None = None, is_read_only: bool = False) -> "Session":
        """Return a saved session. Raises: SessionNotFound, SessionUnreadable, SessionLocked."""
        log = Log.open(manager.log_path(id), is_read_only=is_read_only)
        view = load(log)
        session = cls(log, id, manager.folder / id, view, cwd or Path.cwd())
        if not session.is_read_only:
            session._repair()
        return session

    def _repair(self) -> None:
        open_calls = unanswered(self.messages)
        if open_calls:
            content = [answer(call, ENDED_TEXT, is_error=True) for call in open_calls]
            self.append({"role": "user", "content": content}, "results")
        if self.view.n_unsafe:
            self.record(Epoch(reason=MASKED_EPOCH))

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

    def record(self, entry: E) -> E:
        """Append an entry: to the system first, then to the view, then to all listeners.

        Returns it as the log will give it back, with number and time. Raises: SessionError.
        """
        kept = cast(E, self.log.append(entry))
        if isinstance(kept, Undone | Rewound):
            self.view.become(fold(self.log.entries()))
        else:
            apply(kept, self.view)
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
        self, handles: list[str], reason: str = "", *, tokens: int = 0, cost_usd: float = 0.0, pays_after: int = 0
    ) -> Cleared:
        """Let results show their placeholders from here on."""
        return self.record(
            Cleared(handles=handles, reason=reason, tokens=tokens, cost_usd=cost_usd, pays_after=pays_after)
        )

    def compact(self, compaction: Compaction) -> Compaction:
        """Apply a full compaction; it takes the next generation, whatever number it came with."""
        return self.record(msgspec.structs.replace(compaction, generation=self.generation + 1))

    def undo(self) -> Undone:
        """Take the newest live compaction back. Raises: SessionError if there is none."""
        if not self.view.compactions:
            raise SessionError("There is no compaction to undo.")
        return self.record(Undone(compaction=self.view.compactions[-1].n))

    def rewind(self, n: int) -> Rewound:
        """Go back to before entry `n`, a user's message of the view. Raises: SessionError."""
        try:
            message = self.messages[self.view.index(n)]
        except KeyError:
            raise SessionError(f"Entry {n} is no message of this conversation.") from None
        if message["role"] != "user" or has_results(message):
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

    def original_message(self, n: int) -> Message:
        """Return the message of entry `n` as it was appended. Raises: KeyError."""
        entry = self.log.read(n)
        if not isinstance(entry, MessageEntry):
            raise KeyError(n)
        return entry.message

    def entries(self) -> Iterator[AnyEntry]:
        """Read the log again, from its first entry on."""
        return self.log.entries()

    def sync(self) -> None:
        """Make what was appended durable."""
        self.log.sync()

    def close(self) -> None:
        """Let go of the log."""
        self.log.close()

    def snapshot(self, suffix: str) -> Path | None:
        """Write the view whole; None in memory."""
        return None

    def rebind(self, other: "Session") -> None:
        """Go on as another session: its id, log and view move here; the list of messages stays the same."""
        self.log.close()
        self.log, self.id, self.folder, self.cwd = other.log, other.id, other.folder, other.cwd
        self.view.become(other.view)
        self.working.clear()
