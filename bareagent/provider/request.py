"""Builds a request: view → bytes, deterministic to the byte.

Messages are known again by being the same objects, which a view never changes in place: what a request
begins with in common with the one before is neither lowered, nor checked, nor encoded a second time.
"""

import copy
import hashlib
from collections.abc import Sequence
from itertools import islice
from operator import is_
from typing import Any

import msgspec

from bareagent.config import Thinking
from bareagent.entries import Sent, ToolSpec
from bareagent.errors import InvalidRequest
from bareagent.messages import Block, Message
from bareagent.provider import marks as cache_marks
from bareagent.provider.lower import Lowered, Lowering, Split, lower, n_alike
from bareagent.provider.thinking import thinking_fields
from bareagent.provider.validate import check
from bareagent.sanitize import scrub
from bareagent.seams import ModelInfo, Request

MIN_OUTPUT_TOKENS = 1
HOUR_S = 3600

_encoder = msgspec.json.Encoder()
_OPENINGS = {role: b'{"role":"%b","content":[' % role.encode() for role in ("user", "assistant")}

Head = dict[str, Any]
"""Every field of a request but system, tools, messages and the notes to ourselves (see `Built.head`)."""


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """One block as bytes, without its cache mark."""

    role: str
    data: bytes


class _Encoded:
    """Messages as bytes without cache marks: as blocks, and as the pieces a body is joined from.

    A message of k blocks is 2 k + 1 pieces: its opening, and behind each block a comma or its close.
    """

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.pieces: list[bytes] = []
        self._starts: list[int] = []

    def go_on(self, n_known: int, messages: Sequence[Lowered]) -> None:
        """Keep the first `n_known` messages and put these behind them."""
        if n_known < len(self._starts):
            start = self._starts[n_known]
            del self.pieces[start:], self.chunks[(start - n_known) // 2 :], self._starts[n_known:]
        encoded = iter(_encoded([block for message in messages for block in message.blocks]))
        for role, blocks in messages:
            self._starts.append(len(self.pieces))
            self.pieces.append(_OPENINGS[role])
            for data in islice(encoded, len(blocks)):
                self.chunks.append(Chunk(role, data))
                self.pieces += (data, b",")
            self.pieces[-1] = b"]},"

    def marked(self, marks: Sequence[str], mark: bytes) -> list[bytes]:
        """Return the pieces with the cache marks of a request, the last comma left out."""
        pieces = self.pieces.copy()
        pieces[-1] = b"]}"
        for place in marks:
            if place not in {"system", "tools"}:
                message, block = map(int, place.split("."))
                at = self._starts[message] + 1 + 2 * block
                pieces[at] = pieces[at][:-1] + mark
        return pieces


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """A request, ready to be sent.

    `head` is all that stands beside system, tools and messages; with the view and the tools it gives
    the same bytes again (`rebuild`). `system`, `tools` and `chunks` are the prefix without marks.
    `n_mended` calls and results did not fit together (lower.py).
    """

    body: bytes
    sha256: str
    marks: list[str]
    head: Head
    system: bytes
    tools: bytes
    chunks: list[Chunk]
    n_mended: int = 0

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.body)

    @property
    def sent(self) -> Sent:
        """What the log keeps of it."""
        return Sent(sha256=self.sha256, size=self.size, marks=self.marks, head=encode(self.head).decode())


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """A request made again from the log; `is_exact` says whether its hash is the recorded one."""

    body: bytes
    is_exact: bool


def build(
    request: Request, model: ModelInfo, thinking: Thinking | None = None, *, n_without_thinking: int = 0
) -> Built:
    """Return the request as bytes.

    Raises: InvalidRequest where the view breaks a rule of the API.
    """
    return Builder().build(request, model, thinking, n_without_thinking=n_without_thinking)


class Builder:
    """Builds the requests of a conversation that grows; gives the same bytes as `build`."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._lowering = Lowering()
        self._messages: list[Lowered] = []
        self._encoded = _Encoded()
        self._bare: tuple[object, int] = ((), 0)

    def build(
        self,
        request: Request,
        model: ModelInfo,
        thinking: Thinking | None = None,
        *,
        n_without_thinking: int = 0,
    ) -> Built:
        """Return the request as bytes. Raises: as `build`."""
        head = _head(request, model, thinking, n_without_thinking)
        split, clearable = self.take(request, model, n_without_thinking)
        marks: list[str] = []
        if model.capabilities.cache and model.cache_life.seconds:
            marks = cache_marks.choose(
                split.messages,
                has_system=bool(split.system),
                has_tools=bool(request.tools),
                clearable=clearable,
            )
            if model.cache_life.seconds >= HOUR_S:
                head["ttl"] = "1h"
        built = _assembled(head, marks, split.system, request.tools, self._encoded)
        return msgspec.structs.replace(built, n_mended=split.n_mended) if split.n_mended else built

    def take(
        self, request: Request, model: ModelInfo, n_without_thinking: int = 0
    ) -> tuple[Split, cache_marks.Place | None]:
        """Lower, check and encode what is new; return it all, and where the oldest clearable result is.

        Raises: InvalidRequest, and then nothing new counts as known.
        """
        split = self._lowering.lower(request.messages, model, n_without_thinking)
        n_known = n_alike(self._messages, split.messages, is_)
        check(split.messages, is_paused=request.is_paused, n_checked=n_known)
        self._encoded.go_on(n_known, split.messages[n_known:])
        self._messages = split.messages
        return split, self._oldest_clearable(request, n_known)

    def _oldest_clearable(self, request: Request, n_known: int) -> cache_marks.Place | None:
        """Look only behind the known messages that hold nothing to clear."""
        rules = (tuple(request.protect), request.min_chars)
        known_rules, n_bare = self._bare
        start = min(n_bare, n_known) if known_rules == rules else 0
        found = cache_marks.oldest_clearable(self._messages, *rules, start)
        self._bare = (rules, found.message if found else len(self._messages))
        return found


def _head(request: Request, model: ModelInfo, thinking: Thinking | None, n_without_thinking: int) -> Head:
    max_tokens = min(request.max_tokens or model.max_output, model.max_output)
    if max_tokens < MIN_OUTPUT_TOKENS:
        raise InvalidRequest(f"max_tokens: {max_tokens} is less than {MIN_OUTPUT_TOKENS}")
    head: Head = {"model": model.name, "max_tokens": max_tokens}
    wants = request.thinking and request.purpose != "summary"
    head |= thinking_fields(thinking or Thinking(), model, max_tokens, is_wanted=wants)
    if n_without_thinking:
        head["n_without_thinking"] = n_without_thinking
    if model.capabilities.thinking == "none":
        head["no_thinking"] = True
    if not model.capabilities.images:
        head["no_images"] = True
    if model.capabilities.without:
        head["without"] = list(model.capabilities.without)
    return head


def rebuild(messages: Sequence[Message], tools: Sequence[ToolSpec], sent: Sent) -> Rebuilt:
    """Return a request of the past from the view and tools as they stood then, and the reply's `Sent`."""
    head: Head = msgspec.json.decode(sent.head or "{}")
    changes = {
        "thinking": "none" if head.get("no_thinking") else "adaptive",
        "images": not head.get("no_images"),
        "without": tuple(head.get("without", ())),
    }
    model = ModelInfo(name=str(head.get("model", "")))
    model = msgspec.structs.replace(
        model, capabilities=msgspec.structs.replace(model.capabilities, **changes)
    )
    split = lower(messages, model, int(head.get("n_without_thinking", 0)))
    encoded = _Encoded()
    encoded.go_on(0, split.messages)
    built = _assembled(head, list(sent.marks), split.system, tools, encoded)
    return Rebuilt(body=built.body, is_exact=bool(sent.sha256) and built.sha256 == sent.sha256)


def encode(value: Any) -> bytes:
    """Return a value in our one encoding; what is no valid Unicode becomes U+FFFD."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(scrub(copy.deepcopy(value)))


def _encoded(blocks: Sequence[Block]) -> list[bytes]:
    try:
        return list(map(_encoder.encode, blocks))
    except UnicodeEncodeError:
        return list(map(encode, blocks))


def _assembled(
    head: Head,
    marks: list[str],
    system: list[Block],
    tools: Sequence[ToolSpec],
    messages: _Encoded,
) -> Built:
    mark = b',"cache_control":{"type":"ephemeral"' + (b',"ttl":"1h"}}' if "ttl" in head else b"}}")
    systems = _encoded(system)
    specs = [encode(_tool(tool)) for tool in tools]
    parts = [_fields(head)]
    if systems:
        parts.append(b'"system":[' + b",".join(_marked(systems, "system" in marks, mark)) + b"]")
    if specs:
        parts.append(b'"tools":[' + b",".join(_marked(specs, "tools" in marks, mark)) + b"]")
    body = b"".join([b",".join(parts), b',"messages":[', *messages.marked(marks, mark), b"]}"])
    return Built(
        body=body,
        sha256=hashlib.sha256(body).hexdigest(),
        marks=marks,
        head=head,
        system=b",".join(systems),
        tools=b",".join(specs),
        chunks=messages.chunks.copy(),
    )


def _fields(head: Head) -> bytes:
    ours = {"n_without_thinking", "no_thinking", "no_images", "without", "ttl"}
    fields = {key: value for key, value in head.items() if key not in ours} | {"stream": True}
    return encode(fields)[:-1]


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}


def _marked(blocks: list[bytes], is_marked: bool, mark: bytes) -> list[bytes]:
    return [*blocks[:-1], blocks[-1][:-1] + mark] if is_marked else blocks


class PrefixWatch:
    """Finds, at the cost of a comparison, a request that does not begin with the one before."""

    def __init__(self) -> None:
        self._last: Built | None = None
        self._conversation = ""

    def check(self, built: Built, conversation: str = "") -> str:
        """Return where the prefix broke ("" if it did not): model, thinking, system, tools or a block.

        The first request of another conversation has none before it.
        """
        last = self._last if conversation == self._conversation else None
        self._last, self._conversation = msgspec.structs.replace(built, body=b""), conversation
        return "" if last is None else broke_at(last, built)


def head_broke(last: Head, now: Head) -> str:
    """Return which field beside the prompt a server's cache is bound to has changed, "" if none has."""
    for name in ("model", "thinking", "output_config", "n_without_thinking"):
        if last.get(name) != now.get(name):
            return name.removeprefix("n_without_").replace("output_config", "thinking")
    return ""


def sent_otherwise(last: Sent, now: Sent) -> str:
    """Return what `head_broke` does for two requests of which the log tells."""
    if not (last.head and now.head):
        return ""
    return head_broke(msgspec.json.decode(last.head), msgspec.json.decode(now.head))


def broke_at(last: Built, built: Built) -> str:
    """Return the first part of a request that its successor does not begin with, "" if there is none."""
    changed = head_broke(last.head, built.head)
    if changed:
        return changed
    if last.system != built.system:
        return "system"
    if last.tools != built.tools:
        return "tools"
    if built.chunks[: len(last.chunks)] == last.chunks:
        return ""
    pairs = zip(last.chunks, built.chunks, strict=False)
    same = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(last.chunks), len(built.chunks)))
    return f"block {same}"
