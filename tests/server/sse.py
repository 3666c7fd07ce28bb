"""A reply as the events of a Messages API stream."""

from collections.abc import Iterator

from tests.server.event import Event
from tests.server.jsonish import Json
from tests.server.reply import Reply


def events(reply: Reply, message: Json, chunk: int) -> list[Event]:
    """The stream of a reply: `message` is its empty envelope, `chunk` the characters a delta."""
    return list(_events(reply, message, max(1, chunk)))


def _events(reply: Reply, message: Json, chunk: int) -> Iterator[Event]:
    yield Event("message_start", {"type": "message_start", "message": message})
    yield Event("ping", {"type": "ping"})
    for index, block in enumerate(reply.content):
        yield from _block(index, block, reply.payloads[index], chunk)
    delta = {
        "stop_reason": reply.stop_reason,
        "stop_sequence": reply.stop_sequence,
        "stop_details": reply.stop_details,
    }
    usage = {**message["usage"], **reply.output_usage()}
    yield Event("message_delta", {"type": "message_delta", "delta": delta, "usage": usage})
    yield Event("message_stop", {"type": "message_stop"})


def _block(index: int, block: Json, payload: str, chunk: int) -> Iterator[Event]:
    opening = _opening(block)
    start = {"type": "content_block_start", "index": index, "content_block": opening}
    yield Event("content_block_start", start)
    for delta in _deltas(block, payload, chunk):
        data: Json = {"type": "content_block_delta", "index": index, "delta": delta}
        yield Event("content_block_delta", data, delta["type"])
    yield Event("content_block_stop", {"type": "content_block_stop", "index": index})


def _opening(block: Json) -> Json:
    match block["type"]:
        case "text":
            return {**block, "text": ""}
        case "thinking":
            return {**block, "thinking": "", "signature": ""}
        case "tool_use" | "server_tool_use":
            return {**block, "input": {}}
    return block


def _deltas(block: Json, payload: str, chunk: int) -> Iterator[Json]:
    parts = [payload[at : at + chunk] for at in range(0, len(payload), chunk)]
    match block["type"]:
        case "text":
            yield from ({"type": "text_delta", "text": part} for part in parts)
        case "thinking":
            yield from ({"type": "thinking_delta", "thinking": part} for part in parts)
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use" | "server_tool_use":
            yield {"type": "input_json_delta", "partial_json": ""}
            yield from ({"type": "input_json_delta", "partial_json": part} for part in parts)
