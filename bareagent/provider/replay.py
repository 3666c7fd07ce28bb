"""Makes a request of the past again from a session's log: `bareagent sessions show ID --request N`."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bareagent.entries import AnyEntry, MessageEntry, Sent
from bareagent.errors import SessionNotFound
from bareagent.fold import fold
from bareagent.messages import system
from bareagent.provider.request import rebuild


class Replayed(NamedTuple):
    """A request made again: its number (from 1), the entry of its reply, the bytes that were sent.

    `is_exact` says whether their hash is the recorded one. Where it is not, what was sent differed from
    what the log holds now: secrets were masked, or another version of the program wrote it.
    """

    number: int
    n: int
    body: bytes
    is_exact: bool


def answered(entries: Iterable[AnyEntry]) -> list[tuple[int, Sent]]:
    """Return the place in the log and the `Sent` of each request that was answered, oldest first."""
    return [
        (place, entry.request)
        for place, entry in enumerate(entries)
        if isinstance(entry, MessageEntry) and entry.request is not None
    ]


def replay(entries: Sequence[AnyEntry], number: int) -> Replayed:
    """Return request `number` (from 1) of a log.

    Raises: SessionNotFound where there is none of this number.
    """
    known = answered(entries)
    if not 1 <= number <= len(known):
        raise SessionNotFound(f"There is no request {number}.", f"The session has {len(known)}.")
    place, sent = known[number - 1]
    view = fold(entries[:place])
    prompt = view.prompt
    head = [system(prompt.system)] if prompt is not None and prompt.system else []
    tools = prompt.tools if prompt is not None else []
    made = rebuild([*head, *view.messages], tools, sent)
    return Replayed(number, entries[place].n, made.body, made.is_exact)
