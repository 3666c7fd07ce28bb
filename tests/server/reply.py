"""From a step of a script to the content of one reply, cut where a limit says so."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.server.jsonish import Json, canonical
from tests.server.ledger import Ledger
from tests.server.script import Call, Step
from tests.server.units import Sizes


@dataclass(slots=True)
class Reply:
    """Content blocks as a plain reply shows them; `payloads` is what streams, one a block."""

    content: list[Json]
    payloads: list[str]
    stop_reason: str | None
    stop_sequence: str | None = None
    stop_details: Json | None = None
    output_tokens: int = 1
    thinking_tokens: int = 0
    usage: Json = field(default_factory=dict)

    def output_usage(self) -> Json:
        """The part of usage that is known when the reply is whole."""
        details = {"thinking_tokens": self.thinking_tokens}
        usage = {"output_tokens": self.output_tokens, "output_tokens_details": details}
        return {**usage, **self.usage}


def build(step: Step, number: int, ledger: Ledger, sizes: Sizes) -> Reply:
    """The whole reply of a step; `number` makes its ids."""
    content = list(_blocks(step, number, ledger))
    payloads = [_payload(block) for block in content]
    if step.raw_input is not None:
        _break_last_call(content, payloads, step.raw_input)
    for call, at in zip(step.calls, _call_places(content, step), strict=True):
        if call.raw_input is not None:
            content[at]["input"], payloads[at] = _read(call.raw_input), call.raw_input
    has_calls = any(block.get("type") == "tool_use" for block in content)
    stop = step.stop_reason or ("tool_use" if has_calls else "end_turn")
    reply = Reply(content, payloads, None if stop == "null" else stop)
    reply.stop_sequence, reply.usage = step.stop_sequence, dict(step.usage)
    reply.stop_details = dict(step.stop_details) if step.stop_details else None
    _measure(reply, sizes)
    if step.usage_output is not None:
        reply.output_tokens = step.usage_output
    return reply


def shorten(reply: Reply, limit: int, stop_reason: str, ledger: Ledger, sizes: Sizes) -> None:
    """Cut a reply at a number of output tokens, inside a block if need be."""
    if sizes.output(reply.content) <= max(1, limit):
        return
    room = int(limit * sizes.bytes_per_token)
    kept = 0
    for at, payload in enumerate(reply.payloads):
        kept = at + 1
        if len(payload) >= room:
            reply.payloads[at] = payload[: max(1, room)]
            _refit(reply.content[at], reply.payloads[at], ledger)
            break
        room -= len(payload)
    reply.content, reply.payloads = reply.content[:kept], reply.payloads[:kept]
    reply.stop_reason = stop_reason
    _measure(reply, sizes)
    reply.output_tokens = max(1, limit)


def _measure(reply: Reply, sizes: Sizes) -> None:
    thoughts = [block for block in reply.content if block["type"] == "thinking"]
    reply.output_tokens = sizes.output(reply.content)
    reply.thinking_tokens = sum(sizes.block(block) for block in thoughts)


def _blocks(step: Step, number: int, ledger: Ledger) -> Iterator[Json]:
    if step.empty:
        return
    if step.thinking is not None:
        signature = ledger.sign(step.thinking)
        yield {"type": "thinking", "thinking": step.thinking, "signature": signature}
    if step.text is not None:
        yield {"type": "text", "text": step.text}
    for at, block in enumerate(step.blocks):
        yield _completed(dict(block), f"toolu_{number:06d}b{at + 1:02d}", ledger)
    for at, call in enumerate(step.calls):
        name = call.id or f"toolu_{number:06d}x{at + 1:02d}"
        yield {"type": "tool_use", "id": name, "name": call.name, "input": dict(call.input)}


def _completed(block: Json, name: str, ledger: Ledger) -> Json:
    """A raw block; thinking without its signature gets the true one, a call without id gets one."""
    if block.get("type") == "tool_use":
        return {"type": "tool_use", "id": name, "input": {}, **block}
    if block.get("type") == "redacted_thinking" and "data" not in block:
        block["data"] = ledger.seal(str(block.pop("hides", "")))
    if block.get("type") == "thinking" and "signature" not in block:
        block["signature"] = ledger.sign(block["thinking"])
    return block


def _payload(block: Json) -> str:
    match block.get("type"):
        case "text" | "thinking":
            return str(block[block["type"]])
        case "tool_use" | "server_tool_use":
            return canonical(block["input"])
    return ""


def _call_places(content: list[Json], step: Step) -> range:
    return range(len(content) - (0 if step.empty else len(step.calls)), len(content))


def _break_last_call(content: list[Json], payloads: list[str], raw: str) -> None:
    for at in range(len(content) - 1, -1, -1):
        if content[at]["type"] == "tool_use":
            content[at]["input"], payloads[at] = _read(raw), raw
            return
    raise ValueError("raw_input: this step has no call")


def _read(raw: str) -> Json:
    try:
        value = json.loads(raw)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _refit(block: Json, payload: str, ledger: Ledger) -> None:
    if block["type"] == "thinking":
        block["signature"] = ledger.sign(payload)
    match block["type"]:
        case "text" | "thinking":
            block[block["type"]] = payload
        case "tool_use" | "server_tool_use":
            block["input"] = _read(payload)


__all__ = ["Call", "Reply", "build", "shorten"]
