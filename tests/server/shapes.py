"""The outermost shape of a request, checked first so that all later rules may rely on it."""

from typing import Any

from tests.server.errors import malformed
from tests.server.jsonish import Json

OBJECTS = ("tool_choice", "thinking", "output_config", "metadata", "cache_control", "diagnostics")


def check(body: Json) -> None:
    """Objects are objects, lists are lists, every block has a type; Raises: ApiError."""
    for name in OBJECTS:
        if body.get(name) is not None:
            _must_be(body[name], dict, name)
    if not isinstance(body.get("stream", False), bool):
        raise malformed("stream: Input should be a valid boolean")
    if body.get("tools") is not None:
        _check_items(body["tools"], "tools")
    if not isinstance(body.get("system"), str | None):
        _check_items(body["system"], "system")
    _check_messages(body["messages"])


def _check_messages(messages: object) -> None:
    _check_items(messages, "messages")
    if not messages:
        raise malformed("messages: at least one message is required")
    for at, message in enumerate(messages if isinstance(messages, list) else []):
        where = f"messages.{at}"
        for name in ("role", "content"):
            if name not in message:
                raise malformed(f"{where}.{name}: Field required")
        for name in sorted(message.keys() - {"role", "content"}):
            raise malformed(f"{where}.{name}: Extra inputs are not permitted")
        if message["role"] not in ("user", "assistant", "system"):
            raise malformed(f"{where}.role: Input should be 'user' or 'assistant'")
        _check_content(message["content"], f"{where}.content")


def _check_content(content: object, where: str) -> None:
    if isinstance(content, str):
        return
    _check_items(content, where)
    for at, block in enumerate(content if isinstance(content, list) else []):
        kind = block.get("type")
        if kind is None:
            raise malformed(f"{where}.{at}.type: Field required")
        if not isinstance(kind, str):
            raise malformed(f"{where}.{at}.type: Input should be a valid string")


def _check_items(value: object, where: str) -> None:
    _must_be(value, list, where)
    for at, item in enumerate(value if isinstance(value, list) else []):
        _must_be(item, dict, f"{where}.{at}")


def _must_be(value: Any, kind: type, where: str) -> None:
    if not isinstance(value, kind):
        word = "list" if kind is list else "dictionary"
        raise malformed(f"{where}: Input should be a valid {word}")
