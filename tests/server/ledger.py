"""What the server said and must find again unchanged: signatures, paused replies, odd blocks."""

import base64
import hashlib
import hmac
from typing import Any

from tests.server.jsonish import Json, canonical

THINKING = ("thinking", "redacted_thinking")


class Ledger:
    """Signs thinking with a secret, so that another server with the same secret knows it too."""

    def __init__(self, secret: bytes = b"bareagent tests") -> None:
        self._secret = secret
        self._paused: set[str] = set()
        self._blocks: set[str] = set()
        self._thoughts: dict[str, list[str]] = {}

    def sign(self, text: str) -> str:
        """The signature that belongs to a thinking text."""
        return base64.b64encode(self._mac(text.encode("utf-8"))).decode()

    def seal(self, text: str) -> str:
        """The `data` of a redacted thinking block that hides a text."""
        hidden = hashlib.sha256(text.encode("utf-8")).digest()
        return base64.b64encode(hidden + self._mac(hidden)).decode()

    def is_genuine(self, block: Json) -> bool:
        """Whether a thinking or redacted block is byte for byte one that was signed."""
        if block["type"] == "thinking":
            return bool(block["signature"] == self.sign(block["thinking"]))
        try:
            data = base64.b64decode(block["data"], validate=True)
        except ValueError:
            return False
        return hmac.compare_digest(data[32:], self._mac(data[:32]))

    def issue(self, content: list[Json], stop_reason: str | None) -> None:
        """Remember one reply that goes out."""
        if stop_reason == "pause_turn":
            self._paused.add(_print(content))
        thoughts = [_print(block) for block in content if block.get("type") in THINKING]
        for block in content:
            self._blocks.add(_print(block))
            if block.get("type") == "tool_use":
                self._thoughts[block["id"]] = thoughts

    def was_paused(self, content: list[Json]) -> bool:
        """Whether this is, as it is, a reply that stopped with `pause_turn`."""
        return any(_print(content[at:]) in self._paused for at in range(len(content)))

    def issued(self, block: Json) -> bool:
        """Whether this very block was part of a reply."""
        return _print(block) in self._blocks

    def lacks_thoughts(self, content: list[Json]) -> bool:
        """Whether a reply with calls of ours came back with other thinking than it went out."""
        present = {_print(block) for block in content if block.get("type") in THINKING}
        calls = [block.get("id") for block in content if block.get("type") == "tool_use"]
        due = {thought for call in calls for thought in self._thoughts.get(str(call), [])}
        return not due <= present

    def _mac(self, data: bytes) -> bytes:
        return hmac.new(self._secret, data, hashlib.sha256).digest()


def _print(value: Any) -> str:
    return canonical(_plain(value))


def _plain(value: Any) -> Any:
    # Clients may add the API's own nulls (`citations: null`) and cache marks; nothing else.
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: item for key, item in value.items() if key != "cache_control"}
    return {key: _plain(item) for key, item in sorted(kept.items()) if item is not None}
