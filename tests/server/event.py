"""One server-sent event and its bytes."""

from dataclasses import dataclass

from tests.server.jsonish import Json, canonical


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream; `delta` is the type of its delta, if it is one."""

    name: str
    data: Json
    delta: str = ""


def encode(event: Event) -> bytes:
    """The event on the wire."""
    return raw_event(event.name, canonical(event.data))


def raw_event(name: str, data: str) -> bytes:
    """Any name and data on the wire, valid or not."""
    return f"event: {name}\ndata: {data}\n\n".encode()
