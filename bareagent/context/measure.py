"""What the messages of a view weigh, measured once a message.

Plans work on these sizes alone, so that they can also be driven without any text.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bareagent.context.tokens import compact_json, fast_tokens, quarters, text_quarters
from bareagent.entries import Kind
from bareagent.messages import Block, Message, blocks_of, calls, is_cleared, n_images, text_of
from bareagent.view import handle_of, placeholder

BLOCK_OVERHEAD = 3.0
"""Tokens that a block costs beside its text."""
CALL_OVERHEAD = 8.0
"""What a call costs more."""
IMAGE_TOKENS = 1500.0
PLACEHOLDER_TOKENS = 13.0
"""Tokens of `[truncated: bash result, 1204 chars]`."""
_BINARY = ("image", "document")


class Result(msgspec.Struct):
    """One result of a message: its place, size, and whether it already shows its placeholder.

    `tokens` is the fast estimate, `plain` the classic one in quarters (`placeholder_plain` that of its
    placeholder), `index` the block's.
    """

    index: int
    tokens: float
    plain: int
    chars: int
    tool: str
    handle: str = ""
    n_images: int = 0
    n_bytes: int = 0
    is_cleared: bool = False
    placeholder_plain: int = 37

    @property
    def saving(self) -> float:
        """Estimated tokens that go when it is cleared."""
        return self.tokens - PLACEHOLDER_TOKENS

    @property
    def plain_saving(self) -> int:
        """Quarters of the classic estimate that go when it is cleared."""
        return self.plain - self.placeholder_plain


class Sized(msgspec.Struct):
    """One message of the view in numbers; `id` is its entry's number."""

    role: str
    kind: Kind = "other"
    id: int = 0
    tokens: float = 0.0
    plain: int = 0
    n_bytes: int = 0
    n_images: int = 0
    n_calls: int = 0
    results: list[Result] = msgspec.field(default_factory=list)
    is_header: bool = False

    @property
    def is_system(self) -> bool:
        """Whether it is a system item."""
        return self.role == "system"

    @property
    def is_reply(self) -> bool:
        """Whether it is a model's reply."""
        return self.role == "assistant"

    @property
    def is_line(self) -> bool:
        """Whether a run begins here: a user message of the user's own, no results in it."""
        return self.role == "user" and not self.results and not self.is_header and self.kind != "reminder"


def measure(message: Message, names: Mapping[Any, str], kind: Kind = "other", number: int = 0) -> Sized:
    """Measure one message; `names` maps a call's id to its tool."""
    sized = Sized(role=message["role"], kind=kind, id=number)
    for index, block in enumerate(blocks_of(message)):
        if block.get("type") == "tool_result":
            found = _measure_result(block, index, names)
            found.handle = handle_of(number, len(sized.results) + 1)
            sized.results.append(found)
            _add(sized, found.tokens, found.plain, found.n_bytes, found.n_images)
        else:
            _add(sized, *_measure_block(block))
    sized.n_calls = len(calls(message))
    return sized


def _add(sized: Sized, tokens: float, plain: int, n_bytes: int, images: int) -> None:
    sized.tokens += tokens
    sized.plain += plain
    sized.n_bytes += n_bytes
    sized.n_images += images


def _measure_result(block: Block, index: int, names: Mapping[Any, str]) -> Result:
    text = text_of(block)
    images = n_images(block)
    result = Result(
        index=index,
        tokens=fast_tokens(text) + BLOCK_OVERHEAD,
        plain=text_quarters(text),
        chars=len(text),
        tool=names.get(block.get("tool_use_id"), "unknown"),
        n_images=images,
        n_bytes=len(text),
        is_cleared=is_cleared(block),
    )
    result.placeholder_plain = text_quarters(placeholder(result.tool, result.chars, images))
    content = block.get("content")
    for part in content if isinstance(content, list) else []:
        if not isinstance(part, dict) or part.get("type") != "text":
            _add_part(result, part)
    return result


def _add_part(result: Result, part: Any) -> None:
    tokens, plain, n_bytes, _ = _measure_block(part if isinstance(part, dict) else {"text": part})
    result.tokens += tokens
    result.plain += plain
    result.n_bytes += n_bytes


def _measure_block(block: Block) -> tuple[float, int, int, int]:
    """Return tokens, quarters, bytes and images of a block that is no result."""
    kind = block.get("type")
    if kind == "text":
        text = str(block.get("text", ""))
        return fast_tokens(text) + BLOCK_OVERHEAD, text_quarters(text), len(text), 0
    if kind in _BINARY:
        size = len(compact_json(block))
        return IMAGE_TOKENS, int(IMAGE_TOKENS * 4), size, int(kind == "image")
    text = compact_json(block)
    overhead = BLOCK_OVERHEAD + (CALL_OVERHEAD if kind == "tool_use" else 0.0)
    return fast_tokens(_model_text(block)) + overhead, quarters(block), len(text), 0


def _model_text(block: Block) -> str:
    match block.get("type"):
        case "thinking":
            return str(block.get("thinking", ""))
        case "tool_use":
            return f"{block.get('name', '')}{compact_json(block.get('input'))}"
    return compact_json(block)


class Measured(msgspec.Struct):
    """A whole view in numbers; `fixed` and `fixed_plain` are system prompt and tools."""

    messages: list[Sized]
    fixed: float = 0.0

    @property
    def estimate(self) -> float:
        """Fast estimate of the whole request."""
        return self.fixed + sum(message.tokens for message in self.messages)

    @property
    def plain(self) -> int:
        """Classic estimate of the messages, in quarters."""
        return sum(message.plain for message in self.messages)


class Measurer:
    """Measures a growing view, each message once."""

    def __init__(self) -> None:
        """Start empty."""
        self._known: list[tuple[Message, Sized]] = []
        self.total = 0.0

    def forget(self) -> None:
        """Measure everything again: an epoch changed the view."""
        self._known.clear()

    def measure_more(
        self, messages: Sequence[Message], kinds: Sequence[Kind], ids: Sequence[int], n: int
    ) -> bool:
        """Measure up to `n` messages that never were; tell whether there are more."""
        start = len(self._known)
        end = min(start + n, len(messages))
        self._known += [_known(messages, kinds, ids, index) for index in range(start, end)]
        return end < len(messages)

    def measure(
        self, messages: Sequence[Message], kinds: Sequence[Kind] = (), ids: Sequence[int] = ()
    ) -> list[Sized]:
        """Return the sizes of all messages, in order."""
        known = self._known
        del known[len(messages) :]
        for index, message in enumerate(messages):
            if index < len(known) and known[index][0] is message:
                continue
            known[index : index + 1] = [_known(messages, kinds, ids, index)]
        return [sized for _, sized in known]


def _known(
    messages: Sequence[Message], kinds: Sequence[Kind], ids: Sequence[int], index: int
) -> tuple[Message, Sized]:
    message = messages[index]
    kind = kinds[index] if index < len(kinds) else "other"
    number = ids[index] if index < len(ids) else index + 1
    return message, measure(message, _names_for(messages, index), kind, number)


def _names_for(messages: Sequence[Message], index: int) -> dict[Any, str]:
    """Map the call ids that the results of one message answer to tools, newest reply first."""
    wanted = {block.get("tool_use_id") for block in blocks_of(messages[index])} - {None}
    names: dict[Any, str] = {}
    for earlier in range(index - 1, -1, -1):
        if not wanted - names.keys():
            break
        for call in calls(messages[earlier]):
            if call.get("id") in wanted:
                names.setdefault(call.get("id"), str(call.get("name", "unknown")))
    return names
