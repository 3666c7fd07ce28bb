"""What the model sees, as the entries so far make it; how results are named."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from bareagent.entries import Compaction, Kind, Prompt, SessionStart, TodoItem, Usage
from bareagent.messages import Block, Message, calls, results


@dataclass(slots=True)
class View:
    """What the entries so far come to.

    `ids` and `kinds` stand beside `messages`; `tail_start` is the index from which on `ids` ascend.
    `capped` holds, for results whose text was cut by a compaction, the original length in characters.
    `n_masked` counts masked secrets, `masks` what stands for them, `n_unsafe` those masked since the last
    epoch of masks. `n_mended` counts what a gap in the log made unsendable and the fold mended. `n` is
    the last entry's number. Money, usage and `n_turns` (replies) count what was taken back, too.
    """

    messages: list[Message] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)
    cleared: set[str] = field(default_factory=set)
    capped: dict[str, int] = field(default_factory=dict)
    todo: list[TodoItem] = field(default_factory=list)
    next_todo: int = 1
    pins: list[str] = field(default_factory=list)
    name: str = ""
    is_name_automatic: bool = True
    first_line: str = ""
    mode: str = ""
    model: str = ""
    provider: str = ""
    grants: list[str] = field(default_factory=list)
    generation: int = 0
    prompt: Prompt | None = None
    compactions: list[Compaction] = field(default_factory=list)
    n_turns: int = 0
    cost_usd: float = 0.0
    usage: dict[str, Usage] = field(default_factory=dict)
    rounds_since_todo: int = 0
    session: SessionStart | None = None
    n: int = 0
    tail_start: int = 0
    n_masked: int = 0
    n_unsafe: int = 0
    masks: set[str] = field(default_factory=set)
    n_mended: int = 0
    has_gap: bool = False

    def become(self, other: "View") -> None:
        """Take over another view; the list of messages stays the same object."""
        messages = self.messages
        messages[:] = other.messages
        for item in fields(self):
            setattr(self, item.name, getattr(other, item.name))
        self.messages = messages

    def index(self, n: int) -> int:
        """Return the index of the message that stems from entry `n`. Raises: KeyError."""
        place = bisect_left(self.ids, n, lo=self.tail_start)
        if place < len(self.ids) and self.ids[place] == n:
            return place
        try:
            return self.ids.index(n)
        except ValueError:
            raise KeyError(n) from None

    def is_header(self, n: int) -> bool:
        """Tell whether a number is that of a live compaction."""
        return any(compaction.n == n for compaction in self.compactions)

    def find(self, handle: str) -> tuple[int, Block]:
        """Return the message's index and the block of a result. Raises: KeyError."""
        n, k = parse_handle(handle)
        index = self.index(n)
        blocks = results(self.messages[index])
        if not 1 <= k <= len(blocks):
            raise KeyError(handle)
        return index, blocks[k - 1]

    def tool_name(self, index: int, block: Block) -> str:
        """Return which tool a result in message `index` comes from; "unknown" without its call."""
        for message in reversed(self.messages[:index]):
            if message["role"] == "assistant":
                names = [c["name"] for c in calls(message) if c.get("id") == block.get("tool_use_id")]
                return str(names[0]) if names else "unknown"
        return "unknown"


def handle_of(n: int, k: int = 1) -> str:
    """Return the handle of the k-th result (from 1) of the message that is entry `n`."""
    return f"r{n}" if k == 1 else f"r{n}.{k}"


def parse_handle(handle: str) -> tuple[int, int]:
    """Return entry number and place (from 1) of a handle. Raises: KeyError."""
    match = re.fullmatch(r"r([0-9]{1,15})(?:\.([0-9]{1,6}))?", handle)
    if not match:
        raise KeyError(handle)
    return int(match[1]), int(match[2] or 1)


def placeholder(tool: str, n_chars: int, images: int = 0) -> str:
    """Return the text that stands for a cleared result."""
    tail = f", {images} image{'s' if images > 1 else ''}" if images else ""
    return f"[truncated: {tool} result, {n_chars} chars{tail}]"


def copied(value: Any) -> Any:
    """Return a JSON value that shares no list and no object with the given one."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value


def strings(value: Any) -> Iterator[str]:
    """Yield every string of a JSON value, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
