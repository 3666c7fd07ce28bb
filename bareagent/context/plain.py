"""`Compactor`: the same micro and full compaction for a plain list of messages, without a session."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from bareagent import platform
from bareagent.config import Config
from bareagent.context.full import ACKNOWLEDGEMENTS, Job, compact
from bareagent.context.plan import Plan, Wishes, plan
from bareagent.context.reminder import Todos, is_reminder
from bareagent.context.room import room_of
from bareagent.context.working import Working, state_of
from bareagent.entries import Cleared, Compaction, Kind, MessageEntry, Said, ToolSpec, UsageEntry
from bareagent.fold import apply, header_text
from bareagent.messages import COMPRESSED_HEADER, Message, has_results, text_of
from bareagent.seams import Emit, Heard, Provider
from bareagent.store import snapshots
from bareagent.store.transcripts import TranscriptManager
from bareagent.view import View, handle_of

_log = logging.getLogger(__name__)
Applied = TypeVar("Applied", MessageEntry, Cleared, Compaction)


class PlainBook:
    """A list of messages that takes clears and compactions as a session does, in memory."""

    def __init__(self, manager: TranscriptManager | None, session_id: str) -> None:
        """Hold no messages yet."""
        self.manager = manager
        self.id = session_id
        self.view = View()
        self.listeners: list[Emit] = []
        self.working: dict[str, object] = {}
        self._originals: dict[int, Message] = {}
        """Messages before their results were cleared, by index in the list."""
        self._last: Compaction | None = None

    @property
    def full_id(self) -> str:
        """The session's id, the generation behind it."""
        return f"{self.id}.{self.view.generation}"

    def take(self, messages: list[Message]) -> None:
        """Work on this list from here on; it is changed in place."""
        generation = self.view.generation
        self.view = View(messages=messages, generation=generation)
        view = self.view
        view.ids = list(range(1, len(messages) + 1))
        view.kinds = [_kind_of(message) for message in messages]
        view.n = len(messages)
        view.cleared = {handle_of(index + 1) for index in self._originals if index < len(messages)}
        head = self._header_index(messages)
        if head is not None and self._last is not None:
            count = 2 if self._last.acknowledgement else 1
            self._last = msgspec.structs.replace(self._last, n=head + 1)
            view.ids[head : head + count] = [head + 1] * count
            view.compactions = [self._last]
            view.tail_start = head + count

    def _header_index(self, messages: Sequence[Message]) -> int | None:
        if self._last is None:
            return None
        text = header_text(self._last)
        return next((i for i, m in enumerate(messages) if m["role"] == "user" and text_of(m) == text), None)

    def append(self, message: Message, kind: Kind = "other") -> MessageEntry:
        """Append a message to the list."""
        return self._apply(MessageEntry(message=message, kind=kind))

    def clear(
        self,
        handles: list[str],
        reason: str = "",
        *,
        tokens: int = 0,
        cost_usd: float = 0.0,
        pays_after: int = 0,
    ) -> Cleared:
        """Let results show their placeholders; their originals are remembered for a summary."""
        places = {self.view.find(handle)[0] for handle in handles}
        before = {index: self.view.messages[index] for index in places}
        entry = self._apply(
            Cleared(handles=handles, reason=reason, tokens=tokens, cost_usd=cost_usd, pays_after=pays_after)
        )
        for index, message in before.items():
            self._originals[index] = self._originals.get(index, message)
        return entry

    def compact(self, compaction: Compaction) -> Compaction:
        """Apply a compaction."""
        entry = msgspec.structs.replace(compaction, generation=self.view.generation + 1)
        self._originals.clear()
        self._last = self._apply(entry)
        return self._last

    def record(self, entry: UsageEntry) -> UsageEntry:
        """Nobody keeps what a failed summary cost."""
        return entry

    def _apply(self, entry: Applied) -> Applied:
        entry.n = self.view.n + 1
        apply(entry, self.view)
        for listener in self.listeners:
            listener(entry)
        return entry

    def message_entry(self, n: int) -> MessageEntry:
        """Return a message as it was before its results were cleared."""
        index = self.view.index(n)
        return MessageEntry(n=n, message=self._whole(index), kind=self.view.kinds[index])

    def snapshot(self, suffix: str) -> Path | None:
        """Write the list as a snapshot, where there is someone to write it; the rebuilt one is the caller's."""
        if self.manager is None or not self.id or suffix == "compacted":
            return None
        folder = self.manager.folder / self.id
        platform.make_private_folder(folder)
        whole = (self._whole(index) for index in range(len(self.view.messages)))
        return snapshots.write(folder / "snapshots", suffix, whole)

    def _whole(self, index: int) -> Message:
        message, whole = self.view.messages[index], self._originals.get(index)
        if whole is None or len(whole["content"]) != len(message["content"]):
            return message
        return whole


def _kind_of(message: Message) -> Kind:
    if message["role"] == "assistant":
        return "reply"
    if is_reminder(message):
        return "reminder"
    if message["role"] == "system":
        return "other"
    if has_results(message):
        return "results"
    text = text_of(message)
    return "other" if text.startswith(COMPRESSED_HEADER) or text in ACKNOWLEDGEMENTS.values() else "line"


class Compactor:
    """Compacts a list of messages in place: first micro, then full where it is due or forced.

    `threshold` is in tokens by `estimate_tokens`. Snapshots go to `transcript_mgr` under the session id,
    where there is one. `config` chooses everything else; `emit` hears what a user should read.
    """

    def __init__(
        self,
        provider: Provider,
        transcript_mgr: TranscriptManager | None = None,
        threshold: int = 50_000,
        session_id: str = "",
        *,
        config: Config | None = None,
        emit: Emit | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Begin with no list."""
        self.provider = provider
        self.config = msgspec.convert(msgspec.to_builtins(config or Config()), Config)
        self.config.compaction.threshold = threshold
        self.tools: Sequence[ToolSpec] = ()
        self._emit = emit or _to_log
        self._book = PlainBook(transcript_mgr, session_id)
        self._clock = clock

    def get_session_id(self) -> str:
        """Return the id that snapshots go to."""
        return self._book.id

    def set_session_id(self, id: str) -> None:
        """Let later snapshots go to another id."""
        self._book.id = id

    async def __call__(self, messages: list[Message], force: bool = False) -> None:
        """Compact the list in place where it is due; on failure it stays as it was."""
        book = self._book
        book.take(messages)
        state = state_of(book, self.provider, self._clock)
        state.measurer.forget()
        wishes = Wishes(forced="manual" if force else None, is_resting=state.guard.is_resting)
        now = self._plan(state, wishes)
        if now.micro.reason:
            book.clear([slot.result.handle for slot in now.micro.batch.slots], now.micro.reason)
            now = self._plan(state, wishes)
        state.rent = now.micro.rent
        if now.full is not None:
            await compact(
                Job(
                    book=book,
                    state=state,
                    provider=self.provider,
                    tools=self.tools,
                    config=self.config,
                    emit=self._emit,
                    full=now.full,
                )
            )
        state.n_cached = len(messages)
        state.last_call_at = state.clock()

    def _plan(self, state: Working, wishes: Wishes) -> Plan:
        model = self.provider.model
        room = room_of(model, self.config.compaction)
        view = state.measured(self.tools)
        return plan(view, state.meter, Todos(), state.cache(model), model.price, self.config, room, wishes)


def _to_log(heard: Heard) -> None:
    if isinstance(heard, Said) and heard.level == "warning":
        _log.warning("%s", heard.text)
