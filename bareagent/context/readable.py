"""The readable form of a history: what a summariser reads, one message after another."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bareagent.messages import Block, Message, blocks_of, calls, text_of

RESULT_CHARS = 2_000
_MARKER = re.compile(
    r"^(\\*)(\[(?:user|assistant|system)\]|\[tool_use:|\[tool_result:|</?conversation>|</?previous-summary>)",
    re.MULTILINE,
)
_LEFT_OUT = ("thinking", "redacted_thinking", "image", "document")


def readable(
    messages: Sequence[Message], *, result_chars: int = RESULT_CHARS, is_escaped: bool = True
) -> str:
    """Return messages as text (docs/seeds.md, row 17).

    Each result shows at most `result_chars` characters, head and tail (0: all). With `is_escaped` a
    content line that begins with a marker gets a backslash before it. Images and thinking are left out.
    """
    parts = readable_parts(messages, result_chars=result_chars, is_escaped=is_escaped)
    return "\n\n".join(filter(None, parts))


def readable_parts(
    messages: Sequence[Message], *, result_chars: int = RESULT_CHARS, is_escaped: bool = True
) -> list[str]:
    """Return the readable form of each message; empty where nothing of it can be read."""
    names: dict[Any, str] = {}
    parts = []
    for message in messages:
        for call in calls(message):
            names[call.get("id")] = str(call.get("name", "unknown"))
        lines = list(_lines(message, names, result_chars, is_escaped))
        parts.append("\n".join([f"[{message['role']}]", *lines]) if lines else "")
    return parts


def _lines(message: Message, names: Mapping[Any, str], result_chars: int, is_escaped: bool) -> Iterable[str]:
    for block in blocks_of(message):
        line = _line(block, names, result_chars, is_escaped)
        if line:
            yield line


def _line(block: Block, names: Mapping[Any, str], result_chars: int, is_escaped: bool) -> str:
    kind = block.get("type")
    if kind in _LEFT_OUT:
        return ""
    if kind == "tool_use":
        given = json.dumps(block.get("input"), ensure_ascii=False, default=str)
        return f"[tool_use:{block.get('name', 'unknown')}] {given}"
    is_plain = kind in {"text", "tool_result"}
    content = text_of(block) if is_plain else json.dumps(block, ensure_ascii=False, default=str)
    if kind != "text" and result_chars:
        content = head_and_tail(content, result_chars)
    content = escape(content) if is_escaped else content
    if kind == "tool_result":
        return f"[tool_result:{names.get(block.get('tool_use_id'), 'unknown')}] {content}"
    return content


def escape(text: str) -> str:
    """Return text whose lines cannot be taken for the form's own markers."""
    return _MARKER.sub(r"\\\1\2", text) if "[" in text or "<" in text else text


def head_and_tail(text: str, most: int) -> str:
    """Return a text of at most `most` characters: its beginning and its end, with a mark between."""
    if len(text) <= most:
        return text
    mark = f"\n[... {len(text) - most} characters left out ...]\n"
    room = most - len(mark)
    if room < 2:
        return text[:most]
    return text[: room - room // 2] + mark + text[len(text) - room // 2 :]
