"""Chooses where the cache marks of a request stand; at most four, by priority."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bareagent.messages import Block, is_cleared, n_images, text_of
from bareagent.provider.lower import Lowered

MAX_MARKS = 4
LOOK_BACK_BLOCKS = 20  # how far behind a mark the server looks for a cached prefix
_MARKABLE = frozenset({"text", "image", "document", "tool_use", "tool_result"})


class Place(NamedTuple):
    """A block of the lowered messages."""

    message: int
    block: int

    def __str__(self) -> str:
        """Give the name that `Sent.marks` uses."""
        return f"{self.message}.{self.block}"


def choose(
    messages: Sequence[Lowered],
    *,
    has_system: bool,
    has_tools: bool,
    clearable: Place | None,
) -> list[str]:
    """Return the marks in the order of the request: "system" or "tools", then blocks.

    By priority: the tail; the end of the system prompt (which covers the tools); the clear boundary
    (what stands before the oldest `clearable` result); the previous tail, where the newest turn adds
    more blocks than the server looks back over.
    """
    wanted: list[Place | str | None] = [
        last_before(messages, len(messages), 0),
        "system" if has_system else None,
        last_before(messages, *clearable) if clearable else None,
        _previous_tail(messages),
        "tools" if has_tools and not has_system else None,
    ]
    chosen = list(dict.fromkeys(mark for mark in wanted if mark is not None))[:MAX_MARKS]
    heads = [mark for mark in chosen if isinstance(mark, str)]
    return [*heads, *(str(mark) for mark in sorted(m for m in chosen if not isinstance(m, str)))]


def oldest_clearable(
    messages: Sequence[Lowered], protect: Sequence[str], min_chars: int, start: int = 0
) -> Place | None:
    """Return the oldest result from message `start` on that a micro batch may still clear."""
    names: dict[str, str] = {}
    for index in range(max(start - 1, 0), len(messages)):
        for place, block in enumerate(messages[index].blocks):
            if block.get("type") == "tool_use":
                names[str(block.get("id"))] = str(block.get("name"))
            elif index >= start and _is_clearable(block, names, protect, min_chars):
                return Place(index, place)
    return None


def last_before(messages: Sequence[Lowered], message: int, block: int) -> Place | None:
    """Return the last block before this place that can carry a mark."""
    places = _back_from(messages, message, block)
    return next((place for place in places if _is_markable(messages, place)), None)


def _back_from(messages: Sequence[Lowered], message: int, block: int) -> Iterator[Place]:
    for place in range(block - 1, -1, -1):
        yield Place(message, place)
    for index in range(message - 1, -1, -1):
        for place in range(len(messages[index].blocks) - 1, -1, -1):
            yield Place(index, place)


def _is_markable(messages: Sequence[Lowered], place: Place) -> bool:
    return messages[place.message].blocks[place.block].get("type") in _MARKABLE


def _is_clearable(block: Block, names: dict[str, str], protect: Sequence[str], min_chars: int) -> bool:
    if block.get("type") != "tool_result" or names.get(str(block.get("tool_use_id"))) in protect:
        return False
    return not is_cleared(block) and (len(text_of(block)) > min_chars or bool(n_images(block)))


def _previous_tail(messages: Sequence[Lowered]) -> Place | None:
    reply = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].role == "assistant"), None)
    if reply is None or sum(len(m.blocks) for m in messages[reply:]) <= LOOK_BACK_BLOCKS:
        return None
    return last_before(messages, reply, 0)
