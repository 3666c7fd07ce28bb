"""Lowers a view to what the API takes: system items become tagged text, neighbours of one role merge.

Pure and deterministic: the same view gives the same blocks, and a longer view begins with them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from bareagent.messages import Block, Message, blocks_of
from bareagent.seams import ModelInfo

OPEN_TAG = "<system-message>"
CLOSE_TAG = "</system-message>"
THINKING = frozenset({"thinking", "redacted_thinking"})
_ODD = re.compile(r"[^a-zA-Z0-9_-]")
_NAMES = {"tool_use": ("id", "name"), "tool_result": ("tool_use_id",)}


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
    head = [_plain(block) for message in messages[:n_head] for block in _said(blocks_of(message))]
    lowered: list[Lowered] = []
    for index in range(n_head, len(messages)):
        message = messages[index]
        _join(lowered, message, _kept(message, model, keeps_thinking=index >= n_without_thinking))
    return Split(head, _settled(lowered))


def is_claude(model: ModelInfo) -> bool:
    """Tell whether a model is held to the strict rules for ids, names and signatures."""
    return "claude" in model.name


def _kept(message: Message, model: ModelInfo, *, keeps_thinking: bool) -> list[Block]:
    blocks = [_plain(block) for block in _said(blocks_of(message))]
    if message["role"] == "system":
        return [_tagged(block) for block in blocks]
    if is_claude(model):
        blocks = [_with_plain_names(block) for block in blocks]
    if message["role"] == "user":
        return [_result(block) if block.get("type") == "tool_result" else block for block in blocks]
    return [block for block in blocks if _is_sendable(block, model, keeps_thinking=keeps_thinking)]


def _join(lowered: list[Lowered], message: Message, blocks: list[Block]) -> None:
    role: Literal["user", "assistant"] = "assistant" if message["role"] == "assistant" else "user"
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
    results = [block for block in blocks if block.get("type") == "tool_result"]
    if not results:
        return blocks
    others = [block for block in blocks if block.get("type") != "tool_result"]
    order = {block.get("id"): place for place, block in enumerate(reply) if block.get("type") == "tool_use"}
    results.sort(key=lambda block: order.get(block.get("tool_use_id"), len(order)))
    return [*results, *others]


def _said(blocks: Iterable[Block]) -> Iterator[Block]:
    for block in blocks:
        if block.get("type") != "text" or str(block.get("text", "")).strip():
            yield block


def _plain(block: Block) -> Block:
    """Return the block without a cache mark of its own: marks are set by the builder only."""
    if "cache_control" not in block:
        return block
    return {key: value for key, value in block.items() if key != "cache_control"}


def _with_plain_names(block: Block) -> Block:
    """Other servers' ids and a model's invented tool names hold characters that Claude refuses."""
    changed = {
        key: _ODD.sub("_", value)
        for key in _NAMES.get(str(block.get("type")), ())
        if isinstance(value := block.get(key), str) and _ODD.search(value)
    }
    return {**block, **changed} if changed else block


def _tagged(block: Block) -> Block:
    if block.get("type") != "text":
        return block
    text = block["text"].replace(CLOSE_TAG, CLOSE_TAG.replace("/", "\\/"))
    return {"type": "text", "text": f"{OPEN_TAG}\n{text}\n{CLOSE_TAG}"}


def _result(block: Block) -> Block:
    content: Any = block.get("content")
    if isinstance(content, str):
        return {**block, "content": [{"type": "text", "text": content}] if content.strip() else []}
    if not isinstance(content, list):
        return block
    said = list(_said(part for part in content if isinstance(part, dict)))
    return block if len(said) == len(content) else {**block, "content": said}


def _is_sendable(block: Block, model: ModelInfo, *, keeps_thinking: bool) -> bool:
    if block.get("type") not in THINKING:
        return True
    if not keeps_thinking or model.capabilities.thinking == "none":
        return False
    # Claude refuses thinking that carries no signature; other servers sign nothing and want it back.
    return not is_claude(model) or bool(block.get("signature") or block.get("data"))
