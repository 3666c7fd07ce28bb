"""What can go wrong with a reply, as data, and how it changes the stream of events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from tests.server.errors import MESSAGES, ApiError, in_stream, preset
from tests.server.event import Event, encode, raw_event
from tests.server.jsonish import Json, canonical

# Instead of a reply: nothing of the reply is sent.
INSTEAD = ("status", "reset", "refuse", "html", "empty", "close")
# Within a reply, at a moment.
WITHIN = ("cut", "stall", "garble", "error", "ping", "unknown_event", "huge", "comment")
# Over the whole reply.
OVER = ("drop", "content_type", "no_usage", "drip")
KINDS = INSTEAD + WITHIN + OVER
MOMENTS = (
    "first_byte",  # before the status line
    "headers",  # after the headers, before the first event
    "text",  # in the middle of the first text block
    "thinking",
    "tool_input",
    "between",  # after the end of one block, before the next begins
    "after_last",  # after the end of the last block
    "before_stop",  # after message_delta, before message_stop
)
DELTAS = {"text": "text_delta", "thinking": "thinking_delta", "tool_input": "input_json_delta"}
HTML = "<html><head><title>{status} Error</title></head><body><h1>{status}</h1></body></html>\n"

At = str | Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault; which fields count depends on `kind` (README.md has the table)."""

    kind: str
    at: At = "headers"
    times: int = 1
    how: str = "close"  # of a cut: "close" (FIN), "reset" (RST) or "end" (a whole body, too short)
    status: int = 500
    preset: str = ""
    message: str = ""
    error_type: str = ""
    retry_after: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None  # of a stall: None waits until released or the client goes
    data: str = ""
    event: str = ""
    events: Sequence[str] = ("message_delta", "message_stop")
    value: str = ""
    bytes: int = 1_000_000
    count: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"fault kind {self.kind!r}: one of {', '.join(KINDS)}")
        if isinstance(self.at, str) and self.at not in MOMENTS:
            raise ValueError(f"fault at {self.at!r}: one of {', '.join(MOMENTS)}, event or byte")

    def error(self) -> ApiError:
        """The refusal of a `status` fault or of an `error` event."""
        if self.preset:
            found = preset(self.preset)
        elif self.kind == "error":
            found = in_stream(self.error_type or "overloaded_error")
        else:
            found = ApiError(self.status, MESSAGES.get(self.status, "Error"), self.error_type)
        found.message = self.message or found.message
        found.headers = dict(self.headers)
        if self.retry_after is not None:
            found.headers["retry-after"] = f"{self.retry_after:g}"
        return found


@dataclass(frozen=True, slots=True)
class Send:
    """Bytes of the body."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """A pause; None lasts until the test releases it or the client leaves."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class Cut:
    """The end of the connection: "close", "reset", or "end" for a clean end of the body."""

    how: str


Action = Send | Wait | Cut


def fault_from(value: Fault | Mapping[str, Any]) -> Fault:
    """A fault from its JSON; Raises: ValueError that names an unknown field."""
    if isinstance(value, Fault):
        return value
    known = {item.name for item in fields(Fault)}
    for name in value:
        if name not in known:
            raise ValueError(f"fault: unknown field {name!r}; known: {', '.join(sorted(known))}")
    return Fault(**value)


def plan(events: list[Event], faults: Sequence[Fault], delay_s: float = 0.0) -> list[Action]:
    """The stream as actions, with every fault in its place.

    Raises: ValueError where the reply has no such moment.
    """
    for fault in faults:
        events = _over(events, fault)
    at_event = [(fault, position(events, fault.at)) for fault in faults if _by_event(fault)]
    actions: list[Action] = []
    for number, event in enumerate(events):
        for fault, place in at_event:
            if place == number:
                actions += _strike(fault, _index(events, number))
        actions.append(Send(encode(event)))
        if delay_s:
            actions.append(Wait(delay_s))
    for fault, place in at_event:
        if place >= len(events):
            actions += _strike(fault)
    return _by_bytes(actions, faults)


def plan_plain(body: bytes, faults: Sequence[Fault]) -> list[Action]:
    """A plain JSON body as actions; every moment but the headers is the middle of it."""
    for fault in faults:
        if fault.kind == "no_usage":
            body = body.replace(b'"usage":', b'"_usage":')
        if fault.kind == "garble":
            body = fault.data.encode() or body[: len(body) // 2]
    within = [fault for fault in faults if fault.kind in {"cut", "stall"}]
    placed = [(fault, _plain_place(fault, len(body))) for fault in within]
    return _split([Send(body)], sorted(placed, key=lambda pair: pair[1]), faults)


def position(events: list[Event], at: At) -> int:
    """Before which event a moment lies; Raises: ValueError where there is none."""
    if not isinstance(at, str):
        return at["event"]
    match at:
        case "first_byte" | "headers":
            return 0
        case "between":
            return _nth(events, "content_block_start", 2, at)
        case "after_last":
            return _nth(events, "message_delta", 1, at)
        case "before_stop":
            return _nth(events, "message_stop", 1, at)
    of_kind = [(n, event.data["index"]) for n, event in enumerate(events) if event.delta == DELTAS[at]]
    if not of_kind:
        raise ValueError(f"fault at {at!r}: this reply has no such block")
    deltas = [number for number, index in of_kind if index == of_kind[0][1]]
    return deltas[len(deltas) // 2] + (len(deltas) == 1)


def _nth(events: list[Event], name: str, which: int, at: str) -> int:
    found = [number for number, event in enumerate(events) if event.name == name]
    if len(found) < which:
        raise ValueError(f"fault at {at!r}: this reply has no such moment")
    return found[which - 1]


def _by_event(fault: Fault) -> bool:
    return fault.kind in WITHIN and not _at_byte(fault)


def _at_byte(fault: Fault) -> bool:
    return not isinstance(fault.at, str) and "byte" in fault.at


def _over(events: list[Event], fault: Fault) -> list[Event]:
    if fault.kind == "drop":
        return [event for event in events if event.name not in fault.events]
    if fault.kind == "no_usage":
        names = {"message_start"} if fault.value == "prompt" else {"message_delta"}
        names |= {"message_start"} if fault.value == "all" else set()
        return [
            _without_usage(event) if event.name in names else _less_usage(event, fault) for event in events
        ]
    return events


def _less_usage(event: Event, fault: Fault) -> Event:
    """Leave only what was said, not what was sent, where a fault asks for that."""
    if fault.value != "prompt" or event.name != "message_delta":
        return event
    usage = {"output_tokens": event.data["usage"]["output_tokens"]}
    return Event(event.name, {**event.data, "usage": usage})


def _without_usage(event: Event) -> Event:
    data = {key: item for key, item in event.data.items() if key != "usage"}
    if "message" in data:
        message: Json = data["message"]
        data["message"] = {key: item for key, item in message.items() if key != "usage"}
    return Event(event.name, data)


def _index(events: list[Event], place: int) -> int:
    """The content block that is open (or was last) at a place."""
    indexes = [int(event.data["index"]) for event in events[:place] if "index" in event.data]
    return indexes[-1] if indexes else 0


def _strike(fault: Fault, index: int = 0) -> list[Action]:
    match fault.kind:
        case "cut":
            return [Cut(fault.how)]
        case "stall":
            return [Wait(fault.seconds)]
        case "garble":
            data = fault.data or '{"type":"content_block_delta","index":0,"del'
            return [Send(raw_event("content_block_delta", data)), Cut("end")]
        case "error":
            body = fault.error().body("req_stream_error")
            return [Send(raw_event("error", canonical(body))), Cut("end")]
        case _:
            return [Send(_extra(fault, index))] * fault.count


def _extra(fault: Fault, index: int) -> bytes:
    if fault.kind == "ping":
        return raw_event("ping", '{"type":"ping"}')
    if fault.kind == "comment":
        return b": keep-alive\n\n"
    if fault.kind == "huge":
        delta = {"type": "text_delta", "text": "x" * fault.bytes}
        data: Json = {"type": "content_block_delta", "index": index, "delta": delta}
        return raw_event("content_block_delta", canonical(data))
    name = fault.event or "future_event"
    return raw_event(name, fault.data or canonical({"type": name, "detail": "unknown"}))


def _by_bytes(actions: list[Action], faults: Sequence[Fault]) -> list[Action]:
    placed = [
        (fault, fault.at["byte"])
        for fault in faults
        if fault.kind in WITHIN and not isinstance(fault.at, str) and "byte" in fault.at
    ]
    return _split(actions, sorted(placed, key=lambda pair: pair[1]), faults)


def _split(actions: list[Action], placed: list[tuple[Fault, int]], faults: Sequence[Fault]) -> list[Action]:
    done: list[Action] = []
    sent = 0
    for action in actions:
        if not isinstance(action, Send):
            done.append(action)
            continue
        start, data = sent, action.data
        sent += len(data)
        while placed and placed[0][1] < sent:
            fault, byte = placed.pop(0)
            head = data[: byte - start]
            data, start = data[len(head) :], byte
            done += [Send(head), *_strike(fault)]
        done.append(Send(data))
    for fault, _byte in placed:
        done += _strike(fault)
    return _drip([step for step in done if step != Send(b"")], faults)


def _drip(actions: list[Action], faults: Sequence[Fault]) -> list[Action]:
    drip = next((fault for fault in faults if fault.kind == "drip"), None)
    if drip is None:
        return actions
    dripped: list[Action] = []
    for action in actions:
        if not isinstance(action, Send):
            dripped.append(action)
            continue
        for at in range(0, len(action.data), drip.bytes):
            dripped += [Send(action.data[at : at + drip.bytes]), Wait(drip.seconds or 0.0)]
    return dripped


def _plain_place(fault: Fault, size: int) -> int:
    if not isinstance(fault.at, str):
        return fault.at.get("byte", size // 2)
    return 0 if fault.at in {"first_byte", "headers"} else size // 2
