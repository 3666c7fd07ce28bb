"""Learns from a refusal what a server or model lacks, and remembers it for the process."""

import re
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from bareagent.messages import Message, blocks_of
from bareagent.provider.lower import THINKING
from bareagent.seams import Capabilities, ModelInfo

_HISTORY = re.compile(
    r"thinking.{0,80}(?:block|signature)|signature.{0,80}thinking|invalid.{0,20}signature"
    r"|content\.\d+\.thinking",
    re.IGNORECASE | re.DOTALL,
)
_WANTED = re.compile(r"must start with a thinking|Expected `thinking`", re.IGNORECASE)
_LATEST = re.compile(r"latest assistant message", re.IGNORECASE)
_THINKING = re.compile(r"thinking|budget_tokens", re.IGNORECASE)
_EFFORT = re.compile(r"\beffort\b|output_config", re.IGNORECASE)
_CACHE = re.compile(r"cache_control", re.IGNORECASE)
_NO_IMAGES = re.compile(
    r"(?:image|vision|multimodal).{0,60}(?:not support|unsupported|not enabled)|does not support.{0,20}image",
    re.IGNORECASE,
)
_STRANGE = re.compile(r"Input tag '(\w+)' found using 'type' does not match")
LEAST_WINDOW = 1_000
"""A window of fewer tokens is a misread number."""
_NO_TOOLS = re.compile(r"does not support tools|tools? (?:is|are) not supported", re.IGNORECASE)


class Adapted:
    """What was learned, by model; `counts_tokens` is the server's."""

    def __init__(self) -> None:
        self.counts_tokens = True
        self._changes: dict[str, dict[str, Any]] = {}
        self._windows: dict[str, int] = {}
        self._refused: set[str] = set()
        self._wanted: set[str] = set()

    def to(self, model: ModelInfo) -> ModelInfo:
        """Return the model with what was learned of it."""
        window = self._windows.get(model.name, model.window)
        if window < model.window:
            model = replace(model, window=window)
        changes = dict(self._changes.get(model.name, {}))
        if not self.counts_tokens:
            changes["count_tokens"] = False
        if not changes:
            return model
        return replace(model, capabilities=replace(model.capabilities, **changes))

    def learn_window(self, window: int, model: ModelInfo) -> bool:
        """Take the window a refusal named; tell whether it is smaller than what it counted as."""
        is_smaller = LEAST_WINDOW <= window < self.to(model).window
        if is_smaller:
            self._windows[model.name] = window
        return is_smaller

    def learn(self, words: str, model: ModelInfo, messages: Sequence[Message]) -> str:
        """Take a refusal's words; return what the request will do without, "" where that helps nothing."""
        present = self.to(model).capabilities
        strange = _STRANGE.search(words)
        if strange:
            return self._leave_out(strange[1], model, present)
        if _NO_IMAGES.search(words):
            is_new = present.images and any(map(_has_image, messages))
            self._note(model, images=False)
            return "images" if is_new else ""
        if _NO_TOOLS.search(words):
            self._note(model, tools=False)
            return ""
        if _CACHE.search(words) and present.cache:
            return self._note(model, cache=False) or "cache marks"
        if _HISTORY.search(words) and not _WANTED.search(words):
            learned = self._refuse(messages) or self._want_latest(words, messages)
            if learned:
                return learned
        if _THINKING.search(words):
            return self._less_thinking(words, model, present)
        if _EFFORT.search(words) and present.effort:
            return self._note(model, effort=False) or "a chosen effort"
        return ""

    def n_without_thinking(self, messages: Sequence[Message]) -> int:
        """Return how many messages at the start are sent without thinking, since it was refused."""
        if not self._refused:
            return 0
        marked = (i for i in range(len(messages) - 1, -1, -1) if _seals(messages[i]) & self._refused)
        return next(marked, -1) + 1

    def _leave_out(self, kind: str, model: ModelInfo, present: Capabilities) -> str:
        if kind in present.without:
            return ""
        return self._note(model, without=(*present.without, kind)) or f"blocks of the type {kind}"

    def _refuse(self, messages: Sequence[Message]) -> str:
        seals = {seal for message in messages for seal in _seals(message)} - self._wanted
        is_new = bool(seals - self._refused)
        self._refused |= seals
        return "earlier thinking" if is_new else ""

    def _want_latest(self, words: str, messages: Sequence[Message]) -> str:
        """Send the newest reply's thinking again where a server misses it amid calls; once."""
        latest = next((_seals(m) for m in reversed(messages) if m["role"] == "assistant"), set())
        if not _LATEST.search(words) or not latest & self._refused:
            return ""
        self._refused -= latest
        self._wanted |= latest
        return "thinking before the newest reply"

    def _less_thinking(self, words: str, model: ModelInfo, present: Capabilities) -> str:
        if present.thinking == "none":
            return ""
        if present.thinking == "budget" and "adaptive" in words:
            return self._note(model, thinking="adaptive", thinking_off="omit") or "a thinking budget"
        if "disabled" in words and present.thinking_off != "never":
            return self._note(model, thinking_off="never") or "turning thinking off"
        if "between_tools" in words and present.thinking_off == "between_tools":
            return self._note(model, thinking_off="never") or "turning thinking off"
        return self._note(model, thinking="none") or "thinking"

    def _note(self, model: ModelInfo, **changes: Any) -> str:
        self._changes.setdefault(model.name, {}).update(changes)
        return ""


def _has_image(message: Message) -> bool:
    blocks = [
        part
        for block in blocks_of(message)
        for part in (block, *(block["content"] if isinstance(block.get("content"), list) else ()))
    ]
    return any(block.get("type") == "image" for block in blocks)


def _seals(message: Message) -> set[str]:
    """Return what tells the thinking blocks of a message from all others."""
    if message["role"] != "assistant":
        return set()
    blocks = [block for block in message["content"] if block.get("type") in THINKING]
    return {str(block.get("signature") or block.get("data") or block.get("thinking")) for block in blocks}
