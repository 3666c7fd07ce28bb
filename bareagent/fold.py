"""The reducer: a log's entries, folded into the view the model sees. Pure; the same live and on load."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from bareagent.entries import (
    AnyEntry,
    Cleared,
    Compaction,
    Epoch,
    Grant,
    Kind,
    MessageEntry,
    Mode,
    Model,
    Name,
    Pin,
    Prompt,
    Rewound,
    SessionStart,
    Todo,
    Undone,
    Usage,
    UsageEntry,
)
from bareagent.messages import (
    COMPRESSED_HEADER,
    Block,
    Message,
    calls,
    lost_call,
    lost_result,
    n_images,
    results,
    text_block,
    text_of,
    user,
)
from bareagent.store.redact import MASK
from bareagent.view import View, copied, handle_of, parse_handle, placeholder, strings

__all__ = [
    "TakenBack",
    "View",
    "apply",
    "apply_all",
    "fold",
    "fold_all",
    "handle_of",
    "parse_handle",
    "placeholder",
]

MASKED_EPOCH = "secrets masked on resume"
"""The reason of the epoch from which on thinking blocks that hold a mask are left out."""

LOST_MESSAGE = "[a message was lost: the log is damaged here]"


def fold(entries: Iterable[AnyEntry]) -> View:
    """Return what entries come to, those taken back by undo and rewind left out."""
    known = list(entries)
    return fold_all(known, taken_back(e for e in known if isinstance(e, Undone | Rewound)))


def fold_all(entries: Iterable[AnyEntry], dead: "TakenBack") -> View:
    """Return what a stream of entries comes to; `dead` is known beforehand."""
    view = View()
    if dead.is_empty:
        apply_all(entries, view)
        return view
    for entry in entries:
        if dead.has(entry):
            _count_only(entry, view)
        else:
            apply(entry, view)
    return view


@dataclass(slots=True)
class TakenBack:
    """Which entries do not count: ranges of numbers (ascending, both ends in), and undone compactions."""

    ranges: list[tuple[int, int]]
    compactions: set[int]

    @property
    def is_empty(self) -> bool:
        """Nothing is taken back."""
        return not self.ranges and not self.compactions

    def has(self, entry: AnyEntry) -> bool:
        """Tell whether an entry is taken back."""
        if not isinstance(entry, MessageEntry | Cleared | Compaction | Pin | Todo):
            return False
        if entry.n in self.compactions:
            return True
        place = bisect_left(self.ranges, (entry.n + 1,)) - 1
        return place >= 0 and entry.n <= self.ranges[place][1]


def taken_back(turns: Iterable[Undone | Rewound]) -> TakenBack:
    """Return what undos and rewinds, given in the log's order, take back.

    From the end backwards: a rewind to `n` takes back all from `n` up to itself, undos and rewinds among
    it; so the view is again what it was before entry `n`.
    """
    ranges: list[tuple[int, int]] = []
    compactions: set[int] = set()
    end = None
    for entry in reversed(list(turns)):
        if end is not None and entry.n >= end:
            continue
        if isinstance(entry, Undone):
            compactions.add(entry.compaction)
        elif entry.to <= entry.n:
            ranges.append((entry.to, entry.n))
            end = entry.to
    return TakenBack(ranges[::-1], compactions)


def apply(entry: AnyEntry, view: View) -> None:
    """Let one entry change the view, in place. Undo and rewind change nothing here: fold again."""
    apply_all((entry,), view)


def apply_all(entries: Iterable[AnyEntry], view: View) -> None:
    """Let entries change the view one after the other."""
    reducers = _REDUCERS
    for entry in entries:
        n = entry.n
        if n != view.n + 1:
            _step(n, view)
        else:
            view.n = n
        reducer = reducers.get(type(entry))
        if reducer:
            reducer(entry, view)


def _step(n: int, view: View) -> None:
    if n > view.n + 1:
        view.has_gap = True
    view.n = n or view.n


def _count_only(entry: AnyEntry, view: View) -> None:
    _step(entry.n, view)
    if isinstance(entry, MessageEntry):
        if entry.message["role"] == "assistant":
            _count_reply(entry, view)
    elif isinstance(entry, Compaction):
        view.generation = max(view.generation, entry.generation)
        _spend(entry.model, entry.usage, entry.cost_usd, view)


def _message(entry: MessageEntry, view: View) -> None:
    message, kind = entry.message, entry.kind
    if entry.masked:
        _remember_masks(entry, view)
    if message["role"] == "assistant":
        message = _reply(message, entry, view)
    elif kind == "line":
        if not view.first_line:
            view.first_line = text_of(message).strip()[:400]
    elif kind == "reminder":
        view.rounds_since_todo = 0
    if view.has_gap:
        message = _mended(message, entry.n, view)
    if message["content"]:  # _push, without the call: millions of messages come this way
        view.messages.append(message)
        view.ids.append(entry.n)
        view.kinds.append(kind)


def _push(view: View, message: Message, n: int, kind: Kind) -> None:
    view.messages.append(message)
    view.ids.append(n)
    view.kinds.append(kind)


def _remember_masks(entry: MessageEntry, view: View) -> None:
    view.n_masked += entry.masked
    view.n_unsafe += entry.masked
    view.masks.update(MASK.findall("\n".join(strings(entry.message))))


def _reply(message: Message, entry: MessageEntry, view: View) -> Message:
    """Count a reply; a thinking block without its signature was cut off, no server takes it back."""
    view.n_turns += 1
    if entry.usage is not None:
        _spend(entry.model, entry.usage, entry.cost_usd, view)
    is_round = has_cut = False
    for block in message["content"]:
        kind = block.get("type")
        if kind == "tool_use":
            is_round = True
        elif kind == "thinking" and not block.get("signature"):
            has_cut = True
    if is_round:
        view.rounds_since_todo += 1
    return _without_cut_thinking(message) if has_cut else message


def _count_reply(entry: MessageEntry, view: View) -> None:
    view.n_turns += 1
    if entry.usage is not None:
        _spend(entry.model, entry.usage, entry.cost_usd, view)


def _spend(model: str, usage: Usage | None, cost_usd: float, view: View) -> None:
    view.cost_usd += cost_usd
    if usage is None:
        return
    total = view.usage.get(model)
    if total is None:
        total = view.usage[model] = Usage()
    total.uncached += usage.uncached
    total.cache_read += usage.cache_read
    total.output += usage.output
    if usage.cache_write:
        total.cache_write += usage.cache_write
        total.cache_write_1h += usage.cache_write_1h
    if usage.thinking:
        total.thinking += usage.thinking


def _without_cut_thinking(message: Message) -> Message:
    return {**message, "content": [b for b in message["content"] if not _is_cut_thinking(b)]}


def _is_cut_thinking(block: Block) -> bool:
    return block.get("type") == "thinking" and not block.get("signature")


def _mended(message: Message, n: int, view: View) -> Message:
    """Behind a gap in the log: keep the order of calls, results and roles valid, and say what was lost."""
    if message["role"] == "system":
        return message
    view.has_gap = False
    before = next((m for m in reversed(view.messages) if m["role"] != "system"), None)
    role = before["role"] if before else ""
    open_calls = calls(before) if before and role == "assistant" else []
    known = {call.get("id") for call in open_calls}
    answered = {block.get("tool_use_id") for block in results(message)}
    lost = [call for call in open_calls if call.get("id") not in answered]
    if lost and message["role"] == "user" and answered & known:
        message = {**message, "content": [*map(lost_result, lost), *message["content"]]}
    elif lost:
        _insert(view, {"role": "user", "content": [lost_result(call) for call in lost]}, n - 1, "results")
    elif message["role"] == "assistant" and role != "user":
        _insert(view, user(LOST_MESSAGE), n - 1, "other")
    orphans = answered - known
    if orphans:
        view.n_mended += len(orphans)
        message = {**message, "content": [_parted(b, orphans) for b in message["content"]]}
    return message


def _insert(view: View, message: Message, n: int, kind: Kind) -> None:
    view.n_mended += 1
    _push(view, message, n, kind)


def _parted(block: Block, orphans: set[Any]) -> Block:
    if block.get("type") != "tool_result" or block.get("tool_use_id") not in orphans:
        return block
    return lost_call(block)


def _cleared(entry: Cleared, view: View) -> None:
    first = len(view.messages)
    for handle in entry.handles:
        try:
            index, block = view.find(handle)
        except KeyError:
            continue
        first = min(first, index)
        if handle not in view.cleared:
            view.cleared.add(handle)
            _replace(view, index, block, _cleared_block(view, index, handle, block))
    _drop(view, _old_reminders(view, first))


def _cleared_block(view: View, index: int, handle: str, block: Block) -> Block:
    n_chars = view.capped.get(handle)
    if n_chars is None:
        n_chars = len(text_of(block))
    text = placeholder(view.tool_name(index, block), n_chars, n_images(block))
    return {**block, "content": [text_block(text)]}


def _replace(view: View, index: int, old: Block, new: Block) -> None:
    message = view.messages[index]
    content = [new if block is old else block for block in message["content"]]
    view.messages[index] = {**message, "content": content}


def _old_reminders(view: View, first: int) -> set[int]:
    """All reminders behind the first changed message but the newest; one that is a user message stays."""
    places = [i for i in range(first, len(view.kinds)) if view.kinds[i] == "reminder"]
    return {i for i in places[:-1] if view.messages[i]["role"] == "system"}


def _drop(view: View, places: set[int]) -> None:
    if not places:
        return
    _keep(view, [i for i in range(len(view.messages)) if i not in places])
    view.tail_start -= sum(1 for place in places if place < view.tail_start)


def _keep(view: View, places: Sequence[int]) -> None:
    view.messages[:] = [view.messages[i] for i in places]
    view.ids = [view.ids[i] for i in places]
    view.kinds = [view.kinds[i] for i in places]


def _compaction(entry: Compaction, view: View) -> None:
    view.compactions.append(entry)
    view.generation = max(view.generation, entry.generation)
    view.rounds_since_todo = 0
    _spend(entry.model, entry.usage, entry.cost_usd, view)
    for handle, limit in entry.capped.items():
        _cap(view, handle, limit)
    kept = set(entry.system_items)
    dropped = set(entry.dropped)
    ids = view.ids
    items = [i for i, n in enumerate(ids) if n in kept and view.messages[i]["role"] == "system"]
    first = entry.first_kept_entry_id
    tail = [i for i in range(len(ids)) if _is_tail(view, i, first) and ids[i] not in dropped | kept]
    _keep(view, items + tail)
    view.messages[:] = copied(view.messages)
    _put_header(entry, view, len(items))
    _forget_handles(view)


def _is_tail(view: View, index: int, first: int) -> bool:
    # Headers of older compactions have high numbers and never stand in a tail.
    return bool(first) and index >= view.tail_start and view.ids[index] >= first


def _put_header(entry: Compaction, view: View, place: int) -> None:
    head: list[Message] = [user(header_text(entry))]
    if entry.acknowledgement:
        head.append({"role": "assistant", "content": [text_block(entry.acknowledgement)]})
    view.messages[place:place] = head
    view.ids[place:place] = [entry.n] * len(head)
    view.kinds[place:place] = ["other"] * len(head)
    view.tail_start = place + len(head)


def header_text(entry: Compaction) -> str:
    """Return the text of the message that stands for what a compaction took away.

    The snapshot's path is named where there are facts (the classic profile has neither).
    """
    text = COMPRESSED_HEADER + entry.summary
    if entry.facts:
        text += "\n\n" + entry.facts
        if entry.snapshot:
            text += f"\n\nThe whole conversation before this point: {entry.snapshot}"
    return text


def _cap(view: View, handle: str, limit: int) -> None:
    try:
        index, block = view.find(handle)
    except KeyError:
        return
    text = text_of(block)
    if handle in view.cleared or (limit and len(text) <= limit):
        return
    n_chars = view.capped.setdefault(handle, len(text))
    if not limit:  # images go too: a request that holds them would be too large
        gone = text_block(f"[left out here with its images; the whole result is {handle}]")
        _replace(view, index, block, {**block, "content": [gone]})
        return
    half = limit // 2
    note = f"\n[{n_chars - limit} characters left out here; the whole text is {handle}]\n"
    capped = text[: limit - half] + note + (text[-half:] if half else "")
    content = block.get("content")
    parts = content if isinstance(content, list) else []
    others = [part for part in parts if isinstance(part, dict) and part.get("type") != "text"]
    _replace(view, index, block, {**block, "content": [text_block(capped), *others]})


def _forget_handles(view: View) -> None:
    """Only handles of messages that still stand are of use."""
    ids = set(view.ids)
    view.cleared = {handle for handle in view.cleared if parse_handle(handle)[0] in ids}
    view.capped = {h: n for h, n in view.capped.items() if parse_handle(h)[0] in ids}


def _epoch(entry: Epoch, view: View) -> None:
    if entry.reason != MASKED_EPOCH:
        return
    view.n_unsafe = 0
    for index, message in enumerate(view.messages):
        content = [block for block in message["content"] if not _is_masked_thinking(block)]
        if len(content) != len(message["content"]):
            view.messages[index] = {**message, "content": content}
    _drop(view, {i for i, message in enumerate(view.messages) if not message["content"]})


def _is_masked_thinking(block: Block) -> bool:
    return block.get("type") == "thinking" and bool(MASK.search(str(block.get("thinking", ""))))


def _todo(entry: Todo, view: View) -> None:
    view.todo = list(entry.items)
    view.next_todo = entry.next_id
    view.rounds_since_todo = 0


def _name(entry: Name, view: View) -> None:
    if view.name and entry.is_automatic and not view.is_name_automatic:
        return
    view.name, view.is_name_automatic = entry.name, entry.is_automatic


def _grant(entry: Grant, view: View) -> None:
    view.grants = [rule for rule in view.grants if rule != entry.rule]
    if not entry.is_removed:
        view.grants.append(entry.rule)


def _model(entry: Model, view: View) -> None:
    view.model = entry.model
    view.provider = entry.provider or view.provider


def _usage(entry: UsageEntry, view: View) -> None:
    _spend(entry.model, entry.usage, entry.cost_usd, view)


def _mode(entry: Mode, view: View) -> None:
    view.mode = entry.mode


def _pin(entry: Pin, view: View) -> None:
    view.pins = list(entry.pins)


def _prompt(entry: Prompt, view: View) -> None:
    view.prompt = entry


def _session(entry: SessionStart, view: View) -> None:
    view.session = entry


_REDUCERS = cast(
    dict[type, Callable[[Any, View], None]],
    {
        MessageEntry: _message,
        Cleared: _cleared,
        Compaction: _compaction,
        Epoch: _epoch,
        Todo: _todo,
        Name: _name,
        Pin: _pin,
        Mode: _mode,
        Model: _model,
        Grant: _grant,
        Prompt: _prompt,
        SessionStart: _session,
        UsageEntry: _usage,
    },
)
