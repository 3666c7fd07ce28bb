"""Messages in the Messages API's JSON shape, kept exactly as received, and what is read off them.

A message is a plain dict `{"role", "content"}`; content is always a list of blocks. Beside "user" and
"assistant" the role "system" may stand inside a list of messages: the request builder lowers it.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NotRequired, TypedDict

Block = dict[str, Any]
"""One content block, any type, unknown ones included."""

Role = Literal["user", "assistant", "system"]

CLEARED_PREFIX = "[truncated:"
INTERRUPTED_TEXT = "[interrupted by the user]"
COMPRESSED_HEADER = "[Context Compressed]\n"
_LOST_CALL = "[the call of this result was lost: the log is damaged here]"
_LOST_RESULT = "[the result of this call was lost: the log is damaged here; it may have had effects]"


class Message(TypedDict):
    """One message of the view."""

    role: Role
    content: list[Block]


class ToolUse(TypedDict):
    """A call: one `tool_use` block."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class ToolResult(TypedDict):
    """A result: one `tool_result` block; content is always a list of blocks here."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: list[Block]
    is_error: NotRequired[bool]


def text_block(text: str) -> Block:
    """Return a text block."""
    return {"type": "text", "text": text}


def user(*texts: str) -> Message:
    """Return a user message of text blocks."""
    return {"role": "user", "content": [text_block(text) for text in texts]}


def system(text: str) -> Message:
    """Return a system item, to stand inside the list of messages."""
    return {"role": "system", "content": [text_block(text)]}


def calls(message: Message) -> list[Block]:
    """Return the `tool_use` blocks of a message, in order."""
    return [block for block in blocks_of(message) if block.get("type") == "tool_use"]


def results(message: Message) -> list[Block]:
    """Return the `tool_result` blocks of a message, in order."""
    return [block for block in blocks_of(message) if block.get("type") == "tool_result"]


def has_results(message: Message) -> bool:
    """Tell whether a message holds at least one result."""
    return any(block.get("type") == "tool_result" for block in blocks_of(message))


def blocks_of(message: Message) -> list[Block]:
    """Return the blocks of a message; a foreign bare string counts as one text block."""
    content: Any = message["content"]
    if isinstance(content, str):
        return [text_block(content)] if content else []
    return [block for block in content if isinstance(block, dict)]


def unanswered(messages: Sequence[Message]) -> list[Block]:
    """Return the calls of the last reply that have no result behind it, in call order."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index]["role"] == "assistant":
            answered = {
                block.get("tool_use_id") for message in messages[index + 1 :] for block in results(message)
            }
            return [call for call in calls(messages[index]) if call.get("id") not in answered]
    return []


def answer(call: Block, content: str | list[Block], *, is_error: bool = False) -> Block:
    """Return the `tool_result` block that answers a call."""
    blocks = [text_block(content)] if isinstance(content, str) else content
    result: Block = {"type": "tool_result", "tool_use_id": call["id"], "content": blocks}
    if is_error:
        result["is_error"] = True
    return result


def lost_result(call: Block) -> Block:
    """Return the result of a call whose own was lost."""
    return answer({"id": call.get("id")}, _LOST_RESULT, is_error=True)


def lost_call(result: Block) -> Block:
    """Return what stands for a result whose call was lost: its words, as text."""
    return text_block(f"{_LOST_CALL}\n{text_of(result)}".strip())


def text_of(value: Message | Block | str | list[Block] | None) -> str:
    """Return the text of a message, a block, a content list or a string, blocks joined by newlines.

    Text blocks and the texts inside results count; calls, thinking and images do not.
    """
    return "\n".join(_texts(value))


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        yield from _texts_of_dict(value)


def _texts_of_dict(value: dict[str, Any]) -> Iterable[str]:
    match value.get("type"):
        case "text":
            yield str(value.get("text", ""))
        case None | "tool_result":
            yield from _texts(value.get("content"))


def n_images(block: Block) -> int:
    """Count the images inside a result."""
    content = block.get("content")
    if not isinstance(content, list):
        return 0
    return sum(1 for part in content if isinstance(part, dict) and part.get("type") == "image")


def is_cleared(block: Block) -> bool:
    """Tell whether a result's text already is a placeholder (seeds.md, row 7)."""
    return text_of(block).startswith(CLEARED_PREFIX)
