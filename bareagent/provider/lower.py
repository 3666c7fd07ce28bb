"""Lowers a view to what the API takes: system items become tagged text, neighbours of one role merge.

Pure and deterministic: the same view gives the same blocks, and a longer view begins with them.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from bareagent.messages import Block, Message, blocks_of
from bareagent.seams import ModelInfo

OPEN_TAG = "<system-message>"
CLOSE_TAG = "</system-message>"
THINKING = frozenset({"thinking", "redacted_thinking"})
_ODD = re.compile(r"[^a-zA-Z0-9_-]")
_PAIRED = frozenset({"tool_use", "tool_result"})


class Lowered(NamedTuple):
    """One message as the API takes it."""

    role: Literal["user", "assistant"]
    blocks: list[Block]


class Split(NamedTuple):
    """The texts of the `system` field, and the messages behind them."""

    system: list[Block]
    messages: list[Lowered]


def lower(messages: Sequence[Message], model: ModelInfo, n_without_thinking: int = 0) -> Split:
    """Return what a view looks like to the API.

    The first `n_without_thinking` messages give no thinking blocks: a server refused them (another
    model's, or from before an edit of the history).
    """
    n_head = next((i for i, m in enumerate(messages) if m["role"] != "system"), len(messages))
    rules = _Rules(is_claude(model), model.capabilities.thinking != "none")
    unthinking = _Rules(rules.is_strict, has_thinking=False)
    head = [
        _plain(block) for message in messages[:n_head] for block in blocks_of(message) if not is_blank(block)
    ]
    lowered: list[Lowered] = []
    for index in range(n_head, len(messages)):
        _join(lowered, messages[index], rules if index >= n_without_thinking else unthinking)
    return Split(head, _settled(lowered))


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


def _kept(message: Message, rules: _Rules) -> list[Block]:
    if message["role"] == "system":
        return [_tagged(_plain(block)) for block in blocks_of(message) if not is_blank(block)]
    kept = []
    for block in blocks_of(message):
        kind = block.get("type")
        if kind in _PAIRED:
            kept.append(_plain(_paired(block, kind == "tool_result", rules)))
        elif kind not in THINKING:
            if not is_blank(block):
                kept.append(_plain(block))
        elif _is_sendable(block, rules):
            kept.append(_plain(block))
    return kept


def _join(lowered: list[Lowered], message: Message, rules: _Rules) -> None:
    role: Literal["user", "assistant"] = "assistant" if message["role"] == "assistant" else "user"
    blocks = _kept(message, rules)
    if not blocks:
        return
    if lowered and lowered[-1].role == role:
        lowered[-1].blocks.extend(blocks)
    else:
        lowered.append(Lowered(role, blocks))


def _settled(lowered: list[Lowered]) -> list[Lowered]:
    """Leave out thinking that nothing follows in its message; put results first and in call order."""
    settled: list[Lowered] = []
    for index, (role, given) in enumerate(lowered):
        is_last = index == len(lowered) - 1
        blocks = given if role == "user" or is_last else _without_thinking_at_the_end(given)
        if settled and settled[-1].role == role:  # a reply between them said nothing
            settled[-1].blocks.extend(blocks)
        elif blocks:
            settled.append(Lowered(role, blocks))
    for reply, message in pairwise(settled):
        if message.role == "user":
            message.blocks[:] = _results_first(message.blocks, reply.blocks)
    return settled


def _without_thinking_at_the_end(blocks: list[Block]) -> list[Block]:
    n = len(blocks)
    while n and blocks[n - 1].get("type") in THINKING:
        n -= 1
    return blocks[:n]


def _results_first(blocks: list[Block], reply: list[Block]) -> list[Block]:
    ids = [block.get("id") for block in reply if block.get("type") == "tool_use"]
    if not ids or [block.get("tool_use_id") for block in blocks[: len(ids)]] == ids:
        return blocks
    results = [block for block in blocks if block.get("type") == "tool_result"]
    others = [block for block in blocks if block.get("type") != "tool_result"]
    order = {call_id: place for place, call_id in enumerate(ids)}
    results.sort(key=lambda block: order.get(block.get("tool_use_id"), len(order)))
    return [*results, *others]


def _plain(block: Block) -> Block:
    """Return the block without a cache mark of its own: marks are set by the builder only."""
    if "cache_control" not in block:
        return block
    return {key: value for key, value in block.items() if key != "cache_control"}


def _paired(block: Block, is_result: bool, rules: _Rules) -> Block:
    """Lower a call or a result.

    Other servers' ids and a model's invented tool names hold characters that Claude refuses.
    """
    if rules.is_strict:
        for key in ("tool_use_id",) if is_result else ("id", "name"):
            value = block.get(key)
            if isinstance(value, str) and _ODD.search(value):
                block = {**block, key: _ODD.sub("_", value)}
    return _result(block) if is_result else block


def _tagged(block: Block) -> Block:
    if block.get("type") != "text":
        return block
    text = block["text"].replace(CLOSE_TAG, CLOSE_TAG.replace("/", "\\/"))
    return {"type": "text", "text": f"{OPEN_TAG}\n{text}\n{CLOSE_TAG}"}


def _result(block: Block) -> Block:
    content: Any = block.get("content")
    if isinstance(content, str):
        return {**block, "content": [{"type": "text", "text": content}] if content.strip() else []}
    if not isinstance(content, list) or not any(map(is_blank, content)):
        return block
    return {**block, "content": [part for part in content if not is_blank(part)]}


def _is_sendable(block: Block, rules: _Rules) -> bool:
    # Claude refuses thinking that carries no signature; other servers sign nothing and want it back.
    is_signed = bool(block.get("signature") or block.get("data"))
    return rules.has_thinking and (is_signed or not rules.is_strict)
