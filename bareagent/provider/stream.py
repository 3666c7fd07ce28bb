"""Makes a reply of a stream's events: blocks exactly as received, deltas for the screen.

Events are plain dicts. Tool arguments are kept raw and parsed here, at the end of their block.
"""

import json
from typing import Any, NamedTuple, NoReturn

from bareagent.entries import InputDelta, TextDelta, ThinkingDelta, Usage
from bareagent.messages import Block, Message
from bareagent.sanitize import scrub

Event = dict[str, Any]
Grown = TextDelta | ThinkingDelta | InputDelta


class Whole(NamedTuple):
    """What a finished stream gave; the names are those of `seams.Reply`."""

    message: Message
    stop_reason: str
    stop_details: dict[str, Any] | None
    broken: dict[int, str]
    usage: Usage
    has_cache_fields: bool
    model: str


class Assembler:
    """Takes the events of one reply in order.

    `is_done` is True after `message_stop`; `has_shown` once a delta was given out; `stop_reason` is None
    until the server named one.
    """

    def __init__(self) -> None:
        self.is_done = False
        self.has_shown = False
        self.has_begun = False
        self.stop_reason: str | None = None
        self.request_id = ""
        self._stop_details: dict[str, Any] | None = None
        self._model = ""
        self._usage: dict[str, Any] = {}
        self._blocks: dict[int, Block] = {}
        self._parts: dict[int, dict[str, list[str]]] = {}
        self._open: set[int] = set()

    def feed(self, event: Event) -> Grown | None:
        """Take an event; return what the screen hears of it.

        Raises: ValueError, TypeError or KeyError where the event is not what its type promises.
        """
        match event.get("type"):
            case "content_block_delta":
                return self._grown(event["index"], event["delta"])
            case "content_block_start":
                return self._started(event["index"], event["content_block"])
            case "content_block_stop":
                self._open.discard(event["index"])
            case "message_start":
                self._begin(event["message"])
            case "message_delta":
                self._end(event.get("delta") or {}, event.get("usage"))
            case "message_stop":
                self.is_done = True
        return None

    def whole(self) -> Whole | None:
        """Return the reply, None where the stream ended before its time."""
        if not self.is_done or self.stop_reason is None:
            return None
        broken: dict[int, str] = {}
        content = [self._block(index, place, broken) for place, index in enumerate(sorted(self._blocks))]
        return Whole(
            message={"role": "assistant", "content": scrub(content)},
            stop_reason=self.stop_reason,
            stop_details=self._stop_details,
            broken=broken,
            usage=usage_of(self._usage),
            has_cache_fields="cache_read_input_tokens" in self._usage
            or "cache_creation_input_tokens" in self._usage,
            model=self._model,
        )

    def text(self) -> str:
        """Return the text received so far."""
        return "".join(
            str(block.get("text", "")) + "".join(self._parts[index].get("text", ()))
            for index, block in sorted(self._blocks.items())
            if block.get("type") == "text"
        )

    def _begin(self, message: dict[str, Any]) -> None:
        self.has_begun = True
        self._model = str(message.get("model") or "")
        self._note_usage(message.get("usage"))

    def _end(self, delta: dict[str, Any], usage: Any) -> None:
        self.stop_reason = delta.get("stop_reason") or self.stop_reason
        details = delta.get("stop_details")
        self._stop_details = details if isinstance(details, dict) else self._stop_details
        self._note_usage(usage)

    def _note_usage(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._usage |= {key: value for key, value in usage.items() if value is not None}

    def _started(self, index: int, block: Block) -> Grown | None:
        self._blocks[index] = dict(block)
        self._parts[index] = {}
        self._open.add(index)
        self.has_begun = True
        match block.get("type"):
            case "tool_use":
                self.has_shown = True
                return InputDelta(index=index, name=str(block.get("name", "")))
            case "text" if block.get("text"):
                self.has_shown = True
                return TextDelta(text=block["text"])
            case "thinking" if block.get("thinking"):
                self.has_shown = True
                return ThinkingDelta(text=block["thinking"])
        return None

    def _grown(self, index: int, delta: dict[str, Any]) -> Grown | None:
        parts = self._parts[index]
        match delta["type"]:
            case "text_delta":
                parts.setdefault("text", []).append(delta["text"])
                self.has_shown = True
                return TextDelta(text=delta["text"])
            case "input_json_delta":
                parts.setdefault("input", []).append(delta["partial_json"])
                self.has_shown = True
                return InputDelta(index=index, partial_json=delta["partial_json"])
            case "thinking_delta":
                parts.setdefault("thinking", []).append(delta["thinking"])
                self.has_shown = True
                return ThinkingDelta(text=delta["thinking"])
            case "citations_delta":
                block = self._blocks[index]
                block["citations"] = [*(block.get("citations") or []), delta["citation"]]
            case _:
                self._grown_otherwise(index, delta)
        return None

    def _grown_otherwise(self, index: int, delta: dict[str, Any]) -> None:
        """Signatures, and kinds this program does not know: text grows, lists grow, the rest is set."""
        block = self._blocks[index]
        for key, value in delta.items():
            if key == "type":
                continue
            if isinstance(value, str):
                self._parts[index].setdefault(key, []).append(value)
            elif isinstance(value, list):
                block[key] = [*(block.get(key) or []), *value]
            else:
                block[key] = value

    def _block(self, index: int, place: int, broken: dict[int, str]) -> Block:
        block, parts = self._blocks[index], dict(self._parts[index])
        raw = "".join(parts.pop("input", ()))
        for key, grown in parts.items():
            block[key] = str(block.get(key) or "") + "".join(grown)
        if block.get("type") == "tool_use" or raw:
            value = _arguments(raw, block.get("input"))
            if value is None or index in self._open:
                broken[place] = raw
            block["input"] = {} if value is None else value
        return block


def _arguments(raw: str, given: Any) -> dict[str, Any] | None:
    """Return a call's arguments; None where they are no whole JSON object."""
    if not raw.strip():
        return given if isinstance(given, dict) else {}
    try:
        # Some models send raw tabs and line ends inside strings; the object is whole all the same.
        value = json.loads(raw, parse_constant=_refused, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def usage_of(usage: dict[str, Any]) -> Usage:
    """Return the tokens of a usage object; what is missing counts as none."""
    split, details = usage.get("cache_creation"), usage.get("output_tokens_details")
    return Usage(
        uncached=_n(usage, "input_tokens"),
        cache_read=_n(usage, "cache_read_input_tokens"),
        cache_write=_n(usage, "cache_creation_input_tokens"),
        cache_write_1h=_n(split, "ephemeral_1h_input_tokens"),
        output=_n(usage, "output_tokens"),
        thinking=_n(details, "thinking_tokens"),
    )


def _n(fields: Any, key: str) -> int:
    value = fields.get(key) if isinstance(fields, dict) else None
    return int(value) if isinstance(value, int | float) and value > 0 else 0


def events_of(message: dict[str, Any]) -> list[Event]:
    """Return the events of a message that came whole, from a server that does not stream."""
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    events: list[Event] = [{"type": "message_start", "message": message}]
    for index, block in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": message, "usage": message.get("usage")})
    return [*events, {"type": "message_stop"}]
