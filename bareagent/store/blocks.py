"""The shapes of content blocks that everything else relies on: blocks of other shapes are found and mended. Pure."""

from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec

from bareagent.entries import AnyEntry, MessageEntry
from bareagent.messages import Block, Message, text_block

NO_NAME = "unknown"
"""Stands for the name or the id of a call that has none."""


def are_sound(entries: Iterable[AnyEntry]) -> bool:
    """Tell whether every block of every message has the shape its type asks for; of unknown types none is asked."""
    checks = _CHECKS
    for entry in entries:
        for block in entry.message["content"] if type(entry) is MessageEntry else ():
            kind = block.get("type")
            if kind == "text":  # most are; the rest is looked up
                is_sound = type(block.get("text")) is str
            else:
                is_sound = type(kind) is str and (kind not in checks or checks[kind](block))
            if not is_sound:
                return False
    return True


def mended(entry: AnyEntry) -> AnyEntry:
    """Return the entry with all its blocks in shape: what can be read of them stays, the rest is left out."""
    if not isinstance(entry, MessageEntry) or are_sound((entry,)):
        return entry
    message: Message = {**entry.message, "content": all_mended(entry.message["content"])}
    return msgspec.structs.replace(entry, message=message)


def _is_sound_call(block: Block) -> bool:
    return type(block.get("input")) is dict and _is_named(block.get("id")) and _is_named(block.get("name"))


def _is_named(value: Any) -> bool:
    return type(value) is str and value != ""


def _is_sound_result(block: Block) -> bool:
    content = block.get("content")
    if type(content) is not list or type(block.get("is_error", False)) is not bool:
        return False
    return _is_named(block.get("tool_use_id")) and all(map(_is_sound_part, content))


def _is_sound_part(part: Any) -> bool:
    if type(part) is not dict or type(part.get("type")) is not str:
        return False
    check = _CHECKS.get(part["type"])
    return check is None or check(part)


def _is_sound_thinking(block: Block) -> bool:
    return type(block.get("thinking")) is str and type(block.get("signature", "")) is str


def _has_sound_source(block: Block) -> bool:
    source = block.get("source")
    if type(source) is not dict or type(source.get("type")) is not str:
        return False
    needed = ("media_type", "data") if source["type"] == "base64" else ()
    return all(type(source.get(key)) is str for key in needed)


_CHECKS: dict[str, Callable[[Block], bool]] = {
    "text": lambda block: type(block.get("text")) is str,
    "tool_use": _is_sound_call,
    "tool_result": _is_sound_result,
    "thinking": _is_sound_thinking,
    "redacted_thinking": lambda block: type(block.get("data")) is str,
    "image": _has_sound_source,
    "document": _has_sound_source,
}


def all_mended(content: Any) -> list[Block]:
    """Return a message's or a result's content, whatever it is, as a list of blocks in shape."""
    parts = content if isinstance(content, list) else [content]
    return [block for block in map(_mended_block, parts) if block is not None]


def _mended_block(block: Any) -> Block | None:
    if _is_sound_part(block):
        return cast(Block, block)
    kind = block.get("type") if isinstance(block, dict) else None
    match kind:
        case "text":
            return _as_text(block.get("text"))
        case "tool_use":
            return _mended_call(block)
        case "tool_result":
            return _mended_result(block)
        case "thinking" | "redacted_thinking":
            return None
        case "image" | "document":
            return text_block(f"[{kind}: it cannot be read]")
        case _:
            return _as_text(block)


def _as_text(value: Any) -> Block | None:
    if value is None or value == "":
        return None
    return text_block(value if isinstance(value, str) else msgspec.json.encode(value).decode())


def _named(value: Any) -> str:
    return value if _is_named(value) else NO_NAME


def _mended_call(block: Block) -> Block:
    given = block.get("input")
    if not isinstance(given, dict):
        given = {} if given is None else {"input": given}
    return {**block, "id": _named(block.get("id")), "name": _named(block.get("name")), "input": given}


def _mended_result(block: Block) -> Block:
    result = {
        **block,
        "tool_use_id": _named(block.get("tool_use_id")),
        "content": all_mended(block.get("content")),
    }
    if "is_error" in block:
        result["is_error"] = bool(block["is_error"])
    return result
