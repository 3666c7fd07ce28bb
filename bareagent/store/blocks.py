"""The shapes of content blocks that everything else relies on: blocks of other shapes are found and mended. Pure."""

from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec

from bareagent.entries import AnyEntry, MessageEntry
from bareagent.messages import Block, Message, text_block

NO_NAME = "unknown"
"""Stands for the name or the id of a call that has none."""
_SHARED = {kind: kind for kind in ("text", "tool_use", "tool_result", "thinking", "image")}


def are_sound(entries: Iterable[AnyEntry]) -> bool:
    """Tell whether every block of every message has the shape its type asks for and stands where it may.

    Of unknown types no shape is asked. Many thousand blocks pass here when a log is read, so what is not there
    is found by its KeyError, and the names of the types become one string each, which all blocks share.
    """
    try:
        return _all_sound([entry.message for entry in entries if type(entry) is MessageEntry])
    except (KeyError, TypeError):
        return False


def _all_sound(messages: list[Message]) -> bool:
    for message in messages:
        for block in message["content"]:
            kind = block["type"]
            block["type"] = _SHARED.get(kind, kind)
            if kind == "text":
                is_sound = type(block["text"]) is str
            else:
                is_sound = _CHECKS[message["role"]].get(kind, _is_typed)(block)
            if not is_sound:
                return False
    return True


def mended(entry: AnyEntry) -> AnyEntry:
    """Return the entry with all its blocks in shape: what can be read of them stays, the rest is left out."""
    if not isinstance(entry, MessageEntry) or are_sound((entry,)):
        return entry
    role = entry.message["role"]
    message: Message = {**entry.message, "content": all_mended(entry.message["content"], role)}
    return msgspec.structs.replace(entry, message=message)


def _is_typed(block: Block) -> bool:
    return type(block["type"]) is str


def _is_sound_text(block: Block) -> bool:
    return type(block["text"]) is str


def _is_sound_call(block: Block) -> bool:
    call_id, name = block["id"], block["name"]
    is_named = type(call_id) is str and call_id != "" and type(name) is str and name != ""
    return is_named and type(block["input"]) is dict


def _is_sound_result(block: Block) -> bool:
    call_id, content = block["tool_use_id"], block["content"]
    if type(call_id) is not str or not call_id or type(content) is not list:
        return False
    for part in content:
        part["type"] = _SHARED.get(part["type"], part["type"])
        if not _CHECKS["part"].get(part["type"], _is_typed)(part):
            return False
    return "is_error" not in block or type(block["is_error"]) is bool


def _is_sound_thinking(block: Block) -> bool:
    return type(block["thinking"]) is str and type(block.get("signature", "")) is str


def _is_sound_hidden(block: Block) -> bool:
    return type(block["data"]) is str


def _has_sound_source(block: Block) -> bool:
    source = block["source"]
    if source["type"] == "base64":
        return type(source["media_type"]) is str and type(source["data"]) is str
    return type(source["type"]) is str


def _is_in_shape(block: Any, where: str) -> bool:
    try:
        return _CHECKS[where].get(block["type"], _is_typed)(block)
    except (KeyError, TypeError, IndexError):
        return False


def _never(_: Block) -> bool:
    return False


Checks = dict[str, Callable[[Block], bool]]
_TEXT: Checks = {"text": _is_sound_text}
_CALL: Checks = {"tool_use": _is_sound_call}
_RESULT: Checks = {"tool_result": _is_sound_result}
_THINKING: Checks = {"thinking": _is_sound_thinking, "redacted_thinking": _is_sound_hidden}
_MEDIA: Checks = {"image": _has_sound_source, "document": _has_sound_source}
_NOWHERE: Checks = dict.fromkeys((*_CALL, *_RESULT, *_THINKING, *_MEDIA), _never)
_CHECKS: dict[str, Checks] = {
    "user": {**_NOWHERE, **_TEXT, **_RESULT, **_MEDIA},
    "assistant": {**_NOWHERE, **_TEXT, **_CALL, **_THINKING},
    "system": {**_NOWHERE, **_TEXT, **_MEDIA},
    "part": {**_NOWHERE, **_TEXT, **_MEDIA},
}
"""By role, and for the parts of a result."""


def all_mended(content: Any, where: str) -> list[Block]:
    """Return content, whatever it is, as a list of blocks in shape; `where` is a role or "part" (of a result)."""
    parts = content if isinstance(content, list) else [content]
    return [block for part in parts if (block := _mended_block(part, where)) is not None]


def _mended_block(block: Any, where: str) -> Block | None:
    if _is_in_shape(block, where):
        return cast(Block, block)
    kind = block.get("type") if isinstance(block, dict) else None
    match kind, where:
        case "text", _:
            return _as_text(block.get("text"))
        case "tool_use", "assistant":
            return _mended_call(block)
        case "tool_result", "user":
            return _mended_result(block)
        case (("thinking" | "redacted_thinking"), _):
            return None
        case (("image" | "document"), _):
            return text_block(f"[{kind}: it cannot be read]")
        case _:
            return _as_text(block)


def _as_text(value: Any) -> Block | None:
    if value is None or value == "":
        return None
    return text_block(value if isinstance(value, str) else msgspec.json.encode(value).decode())


def _named(value: Any) -> str:
    return value if isinstance(value, str) and value else NO_NAME


def _mended_call(block: Block) -> Block:
    given = block.get("input")
    if not isinstance(given, dict):
        given = {} if given is None else {"input": given}
    return {**block, "id": _named(block.get("id")), "name": _named(block.get("name")), "input": given}


def _mended_result(block: Block) -> Block:
    result = {
        **block,
        "tool_use_id": _named(block.get("tool_use_id")),
        "content": all_mended(block.get("content"), "part"),
    }
    if "is_error" in block:
        result["is_error"] = bool(block["is_error"])
    return result
