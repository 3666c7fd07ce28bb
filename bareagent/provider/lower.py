"""Lowers a view to what the API takes: system items become tagged text, neighbours of one role merge.

Deterministic: the same view gives the same blocks, and a longer view begins with them.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, Literal, NamedTuple, TypeVar

from bareagent.messages import Block, Message, blocks_of, lost_call, lost_result, text_block
from bareagent.seams import ModelInfo

LOST_BEGINNING = "[the beginning of this conversation was lost]"
OPEN_TAG = "<system-message>"
CLOSE_TAG = "</system-message>"
THINKING = frozenset({"thinking", "redacted_thinking"})
_ODD = re.compile(r"[^a-zA-Z0-9_-]")
_UNSEEN: Block = {"type": "text", "text": "[an image, which this model cannot see]"}
T = TypeVar("T")


class Lowered(NamedTuple):
    """One message as the API takes it."""

    role: Literal["user", "assistant"]
    blocks: list[Block]


class _Joined(NamedTuple):
    """Neighbours of one role as one message, and the index of the first of them."""

    start: int
    lowered: Lowered


class Split(NamedTuple):
    """The texts of the `system` field, and the messages behind them.

    `n_mended` results and calls did not fit together: a damaged or foreign log; each says so in its place.
    """

    system: list[Block]
    messages: list[Lowered]
    n_mended: int = 0


def lower(messages: Sequence[Message], model: ModelInfo, n_without_thinking: int = 0) -> Split:
    """Return what a view looks like to the API.

    The first `n_without_thinking` messages give no thinking blocks: a server refused them (another
    model's, or from before an edit of the history).
    """
    return Lowering().lower(messages, model, n_without_thinking)


class Lowering:
    """Lowers a view that grows from request to request; what two of them begin with is lowered once.

    A message is known again by being the same object: a view's messages are never changed in place.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._given: Sequence[Message] = ()
        self._how: object = None
        self._settled: list[Lowered] = []
        self._starts: list[int] = []
        self._mended: list[int] = []

    def lower(self, messages: Sequence[Message], model: ModelInfo, n_without_thinking: int = 0) -> Split:
        """Return what `lower` does; messages lowered before are the same objects."""
        n_head = next((i for i, m in enumerate(messages) if m["role"] != "system"), len(messages))
        head = [
            _plain(block)
            for message in messages[:n_head]
            for block in blocks_of(message)
            if not is_blank(block)
        ]
        can = model.capabilities
        rules = _Rules(is_claude(model), can.thinking != "none", can.images, frozenset(can.without))
        n_unthinking = max(n_without_thinking - n_head, 0)
        body = messages[n_head:]
        self._forget_changed(body, (rules, n_unthinking))
        self._go_on(body, rules, n_unthinking)
        return Split(head, list(self._settled), sum(self._mended))

    def _forget_changed(self, body: Sequence[Message], how: object) -> None:
        """Keep what no later message can change: all but the last two of what stands on equal messages."""
        n_same = n_alike(self._given, body, is_) if how == self._how else 0
        n_kept = max(bisect_left(self._starts, n_same) - 2, 0)
        self._given, self._how = body, how
        del self._settled[n_kept:]

    def _go_on(self, body: Sequence[Message], rules: "_Rules", n_unthinking: int) -> None:
        n_kept = len(self._settled)
        first = self._starts[n_kept] if n_kept else 0
        del self._starts[n_kept:]
        del self._mended[n_kept:]
        unthinking = rules._replace(has_thinking=False)
        joined: list[_Joined] = []
        if not n_kept:
            joined += _beginning(body)
        for index in range(first, len(body)):
            _join(joined, body[index], rules if index >= n_unthinking else unthinking, index)
        for one in joined:
            self._settle(one, is_last=one is joined[-1])
        for place in range(n_kept, len(self._settled)):
            self._mended.append(self._pair(place))

    def _settle(self, one: _Joined, *, is_last: bool) -> None:
        lowered = one.lowered
        role, blocks = lowered
        if role == "assistant":
            if not is_last and blocks[-1].get("type") in THINKING:
                blocks = _without_thinking_at_the_end(blocks)
            blocks = _distinct(blocks, "tool_use", "id")
        if self._settled and self._settled[-1].role == role:  # a reply between them said nothing
            self._settled[-1].blocks.extend(blocks)
        elif blocks:
            self._settled.append(lowered if blocks is lowered.blocks else Lowered(role, blocks))
            self._starts.append(one.start)

    def _pair(self, place: int) -> int:
        """Put the results of a settled message first and in call order; return how many were mended."""
        role, blocks = self._settled[place]
        if role == "assistant":
            return 0
        ids = _ids(self._settled[place - 1].blocks, "tool_use", "id") if place else []
        answered = _ids(blocks[: len(ids)], "tool_result", "tool_use_id")
        behind = _ids(blocks[len(ids) :], "tool_result", "tool_use_id")
        if answered == ids and not behind:
            return 0
        blocks[:], n_mended = _results_first(blocks, ids)
        return n_mended


def n_alike(old: Sequence[T], new: Sequence[T], is_alike: Callable[[T, T], bool]) -> int:
    """Return how many items two sequences begin with in common."""
    alike = list(map(is_alike, old, new))
    return alike.index(False) if False in alike else len(alike)


def is_claude(model: ModelInfo) -> bool:
    """Tell whether a model is held to the strict rules for ids, names and signatures."""
    return "claude" in model.name


def is_blank(block: Block) -> bool:
    """Tell whether a block is text that says nothing."""
    if block.get("type") != "text":
        return False
    text = block.get("text")
    return not text or str(text).isspace()


class _Rules(NamedTuple):
    is_strict: bool
    has_thinking: bool
    has_images: bool
    without: frozenset[str] = frozenset()


def _kept(message: Message, rules: _Rules) -> list[Block]:
    if message["role"] == "system":
        return [_tagged(_plain(block)) for block in blocks_of(message) if not is_blank(block)]
    kept = []
    for block in blocks_of(message):
        lowered = _LOWERED.get(block.get("type"), _other)(block, rules)
        if lowered is not None:
            kept.append(_plain(lowered))
    return kept


def _join(joined: list[_Joined], message: Message, rules: _Rules, index: int) -> None:
    role: Literal["user", "assistant"] = "assistant" if message["role"] == "assistant" else "user"
    blocks = _kept(message, rules)
    if not blocks:
        return
    if joined and joined[-1].lowered.role == role:
        joined[-1].lowered.blocks.extend(blocks)
    else:
        joined.append(_Joined(index, Lowered(role, blocks)))


def _without_thinking_at_the_end(blocks: list[Block]) -> list[Block]:
    n = len(blocks)
    while n and blocks[n - 1].get("type") in THINKING:
        n -= 1
    return blocks[:n]


def _beginning(body: Sequence[Message]) -> list[_Joined]:
    """Return what must stand before a history that begins with a reply."""
    first = next((message["role"] for message in body if message["role"] != "system"), "user")
    is_lost = first == "assistant" and body[0]["role"] == "assistant"
    return [_Joined(0, Lowered("user", [text_block(LOST_BEGINNING)]))] if is_lost else []


def _ids(blocks: list[Block], kind: str, key: str) -> list[Any]:
    return [block.get(key) for block in blocks if block.get("type") == kind]


def _results_first(blocks: list[Block], ids: list[Any]) -> tuple[list[Block], int]:
    """Return the blocks with a result for each call, in call order, and how many were mended."""
    results: dict[Any, Block] = {}
    others: list[Block] = []
    n_mended = 0
    for block in _distinct(blocks, "tool_result", "tool_use_id"):
        call_id = block.get("tool_use_id")
        if block.get("type") != "tool_result":
            others.append(block)
        elif call_id in ids and call_id not in results:
            results[call_id] = block
        else:
            n_mended += 1
            others.append(lost_call(block))
    lost = [call_id for call_id in ids if call_id not in results]
    results |= {call_id: lost_result({"id": call_id}) for call_id in lost}
    return [*(results[call_id] for call_id in ids), *others], n_mended + len(lost)


def _distinct(blocks: list[Block], kind: str, key: str) -> list[Block]:
    """Return the blocks with repeated ids numbered: servers repeat them over replies, never within one."""
    ids = _ids(blocks, kind, key)
    if len(ids) < 2 or len(ids) == len(set(ids)):
        return blocks
    seen: Counter[str] = Counter()
    distinct = []
    for block in blocks:
        if block.get("type") == kind:
            call_id = block[key]
            seen[call_id] += 1
            repeat = f"{call_id}__{seen[call_id]}"
            distinct.append(block if seen[call_id] == 1 else {**block, key: repeat})
        else:
            distinct.append(block)
    return distinct


def _plain(block: Block) -> Block:
    """Return the block without a cache mark of its own: marks are set by the builder only."""
    if "cache_control" not in block:
        return block
    return {key: value for key, value in block.items() if key != "cache_control"}


def _text(block: Block, rules: _Rules) -> Block | None:
    return None if is_blank(block) or "text" in rules.without else _seen(block, rules)


def _other(block: Block, rules: _Rules) -> Block | None:
    return None if block.get("type") in rules.without else _seen(block, rules)


def _call(block: Block, rules: _Rules) -> Block:
    block = _named(_named(block, "id", rules), "name", rules)
    given = block.get("input")
    return block if isinstance(given, dict) else {**block, "input": _as_input(given)}


def _named(block: Block, key: str, rules: _Rules) -> Block:
    """Return the block with an id or name that is accepted.

    Other servers' ids and a model's invented tool names hold characters that Claude refuses.
    """
    value = block.get(key)
    if not isinstance(value, str) or not value:
        return {**block, key: "unknown"}
    if rules.is_strict and _ODD.search(value):
        return {**block, key: _ODD.sub("_", value)}
    return block


def _as_input(given: Any) -> dict[str, Any]:
    return {} if given is None else {"given": given}


def _tagged(block: Block) -> Block:
    if block.get("type") != "text":
        return block
    text = block["text"].replace(CLOSE_TAG, CLOSE_TAG.replace("/", "\\/"))
    return {"type": "text", "text": f"{OPEN_TAG}\n{text}\n{CLOSE_TAG}"}


def _result(block: Block, rules: _Rules) -> Block:
    block = _named(block, "tool_use_id", rules)
    content: Any = block.get("content")
    if isinstance(content, str):
        return {**block, "content": [{"type": "text", "text": content}] if content.strip() else []}
    if not isinstance(content, list):
        return {**block, "content": []}
    if rules.has_images and not any(map(is_blank, content)):
        return block
    return {**block, "content": [_seen(part, rules) for part in content if not is_blank(part)]}


def _seen(block: Block, rules: _Rules) -> Block:
    """Return an image as words where the model takes none, and any text as a string."""
    kind = block.get("type")
    if kind == "text" and not isinstance(block.get("text"), str):
        return text_block(str(block.get("text")))
    return block if rules.has_images or kind != "image" else _UNSEEN


def _thinking(block: Block, rules: _Rules) -> Block | None:
    # Claude refuses thinking that carries no signature; other servers sign nothing and want it back.
    is_signed = bool(block.get("signature") or block.get("data"))
    return block if rules.has_thinking and (is_signed or not rules.is_strict) else None


_LOWERED: dict[Any, Callable[[Block, _Rules], Block | None]] = {
    "text": _text,
    "tool_use": _call,
    "tool_result": _result,
    **dict.fromkeys(THINKING, _thinking),
}
