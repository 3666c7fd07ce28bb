"""Holds every request against the rules of the API before it is sent."""

from collections.abc import Callable, Sequence

from bareagent.errors import InvalidRequest
from bareagent.messages import Block
from bareagent.provider.lower import THINKING, Lowered, is_blank


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
    role, blocks = message
    ids = [
        _CHECKS.get(block.get("type"), _check_other)(index, place, block, role)
        for place, block in enumerate(blocks)
    ]
    if role == "user":
        if pending is not None and ids != pending:
            _check_results(index, ids, pending)
        return []
    calls = [call_id for call_id in ids if call_id is not None]
    if len(calls) > 1 and len(calls) != len(set(calls)):
        raise _bad(index, "two calls of one reply have the same id")
    return calls


def _check_results(index: int, ids: list[str | None], pending: list[str]) -> None:
    """Check which blocks of a user message answer which call; None stands for a block that is no result."""
    found = [call_id for call_id in ids if call_id is not None]
    if found != ids[: len(found)]:
        raise _bad(index, "a result stands behind other blocks")
    if found != pending:
        raise _bad(index, f"results {found} do not answer the calls {pending} one by one and in order")


def _check_text(index: int, place: int, block: Block, _role: str) -> None:
    if is_blank(block):
        raise _bad(index, f"block {place} is blank text")


def _check_call(index: int, place: int, block: Block, role: str) -> str:
    _check_in_reply(index, place, block, role)
    call_id, name = block.get("id"), block.get("name")
    if not isinstance(call_id, str) or not call_id:
        raise _bad(index, "a call has no id")
    if not isinstance(name, str) or not name:
        raise _bad(index, f"the call {call_id} has no name")
    if not isinstance(block.get("input"), dict):
        raise _bad(index, f"the input of the call {call_id} is no object")
    return call_id


def _check_result(index: int, _place: int, block: Block, role: str) -> str:
    if role != "user":
        raise _bad(index, "a result stands in a reply")
    content = block.get("content")
    if not isinstance(content, list):
        raise _bad(index, "the content of a result is no list")
    if any(map(is_blank, content)):
        raise _bad(index, "a result holds blank text")
    return str(block.get("tool_use_id"))


def _check_in_reply(index: int, _place: int, block: Block, role: str) -> None:
    if role != "assistant":
        raise _bad(index, f"a {block['type']} block stands in a user message")


def _check_other(index: int, place: int, block: Block, _role: str) -> None:
    if not isinstance(block.get("type"), str):
        raise _bad(index, f"block {place} has no type")


_CHECKS: dict[object, Callable[[int, int, Block, str], str | None]] = {
    "text": _check_text,
    "tool_use": _check_call,
    "tool_result": _check_result,
    **dict.fromkeys(THINKING, _check_in_reply),
}


def _bad(index: int, reason: str) -> InvalidRequest:
    return InvalidRequest(
        f"messages.{index}: {reason}",
        "This is a fault of bareagent, and nothing was sent. Please report it with the session's log.",
    )
