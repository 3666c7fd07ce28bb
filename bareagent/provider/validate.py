"""Holds every request against the rules of the API before it is sent."""

from collections.abc import Sequence

from bareagent.errors import InvalidRequest
from bareagent.messages import Block
from bareagent.provider.lower import THINKING, Lowered, is_blank

_ASSISTANTS = THINKING | {"tool_use"}


def check(messages: Sequence[Lowered], *, is_paused: bool = False, n_checked: int = 0) -> None:
    """Check a lowered history, of which the first `n_checked` messages have passed before.

    The last message must be the user's, unless the reply before it ended in `pause_turn`
    (`is_paused`). Raises: InvalidRequest, with the message's index and the reason.
    """
    if not messages:
        raise InvalidRequest("messages: there is none")
    if messages[0].role != "user":
        raise _bad(0, "the first message is not the user's")
    if messages[-1].role != "user" and not is_paused:
        raise _bad(len(messages) - 1, "the last message is not the user's")
    pending: list[str] = []
    for index in range(max(n_checked - 1, 0), len(messages)):
        _check_turn(messages, index)
        pending = _step(index, messages[index], pending if index >= n_checked else None)
    if pending and not is_paused:
        raise _bad(len(messages) - 1, f"calls without a result: {', '.join(pending)}")


def _check_turn(messages: Sequence[Lowered], index: int) -> None:
    if index and messages[index].role == messages[index - 1].role:
        raise _bad(index, f"two {messages[index].role} messages in a row")
    if not messages[index].blocks:
        raise _bad(index, "it is empty")


def _step(index: int, message: Lowered, pending: list[str] | None) -> list[str]:
    """Check one message and return the calls it leaves open; `pending` None: its results are known good."""
    for place, block in enumerate(message.blocks):
        _check_block(index, place, block, message.role)
    if message.role == "user":
        if pending is not None:
            _check_results(index, message.blocks, pending)
        return []
    ids = [_call_id(index, block) for block in message.blocks if block.get("type") == "tool_use"]
    if len(ids) != len(set(ids)):
        raise _bad(index, "two calls of one reply have the same id")
    return ids


def _call_id(index: int, block: Block) -> str:
    call_id, name = block.get("id"), block.get("name")
    if not isinstance(call_id, str) or not call_id:
        raise _bad(index, "a call has no id")
    if not isinstance(name, str) or not name:
        raise _bad(index, f"the call {call_id} has no name")
    if not isinstance(block.get("input"), dict):
        raise _bad(index, f"the input of the call {call_id} is no object")
    return call_id


def _check_results(index: int, blocks: Sequence[Block], pending: list[str]) -> None:
    n_results = sum(1 for block in blocks if block.get("type") == "tool_result")
    found = [block.get("tool_use_id") for block in blocks[:n_results] if block.get("type") == "tool_result"]
    if len(found) != n_results:
        raise _bad(index, "a result stands behind other blocks")
    if found != pending:
        raise _bad(index, f"results {found} do not answer the calls {pending} one by one and in order")


def _check_block(index: int, place: int, block: Block, role: str) -> None:
    kind = block.get("type")
    if kind == "text":
        if is_blank(block):
            raise _bad(index, f"block {place} is blank text")
    elif kind == "tool_result":
        _check_result(index, block, role)
    elif kind in _ASSISTANTS:
        if role != "assistant":
            raise _bad(index, f"a {kind} block stands in a user message")
    elif not isinstance(kind, str):
        raise _bad(index, f"block {place} has no type")


def _check_result(index: int, block: Block, role: str) -> None:
    if role != "user":
        raise _bad(index, "a result stands in a reply")
    content = block.get("content")
    if not isinstance(content, list):
        raise _bad(index, "the content of a result is no list")
    if any(map(is_blank, content)):
        raise _bad(index, "a result holds blank text")


def _bad(index: int, reason: str) -> InvalidRequest:
    return InvalidRequest(
        f"messages.{index}: {reason}",
        "This is a fault of bareagent, and nothing was sent. Please report it with the session's log.",
    )
