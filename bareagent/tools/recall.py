"""recall: what was cleared or compacted away, word for word from the session's log."""

import asyncio
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import IO, Annotated, Any

import msgspec
from msgspec import Meta

from bareagent import messages
from bareagent.entries import AnyEntry, MessageEntry, Rewound
from bareagent.messages import Block, text_of
from bareagent.sanitize import valid_unicode
from bareagent.seams import Need, Output
from bareagent.tools import slices
from bareagent.tools.base import (
    NOTHING,
    BadArguments,
    Params,
    ToolContext,
    ToolError,
    n_of,
    resolve,
    safe_name,
    text_for_model,
)

MAX_SLICE_CHARS = 28_000
MAX_LISTED = 20
ARGUMENT_CHARS = 100
SNIPPET_CHARS = 160
_MESSAGE_HANDLE = re.compile(r"m(\d{1,15})")


class RecallParams(Params):
    """What to find: a placeholder's tool and length, a handle, or words."""

    tool: str = ""
    chars: Annotated[int, Meta(ge=0)] = 0
    nth: Annotated[int, Meta(ge=1)] = 1
    handle: str = ""
    query: str = ""
    offset: Annotated[int, Meta(ge=0, description="characters to skip")] = 0
    limit: Annotated[int, Meta(ge=1, description="characters at most")] = 10_000


class _Kept(msgspec.Struct, frozen=True):
    """A result in the log: its call's name and arguments stand beside it."""

    handle: str
    n: int
    at: str
    name: str
    arguments: dict[str, Any]
    block: Block

    def asked(self) -> str:
        return valid_unicode(json.dumps(self.arguments, ensure_ascii=False))

    def told(self) -> str:
        text = self.asked()
        short = text if len(text) <= ARGUMENT_CHARS else f"{text[:ARGUMENT_CHARS]}..."
        return f"{self.handle} {self.name} {short}"


class Recall:
    """Gives back originals from the session's log."""

    name = "recall"
    description = text_for_model("recall")
    params: type[msgspec.Struct] = RecallParams
    is_read_only = True

    def needs(self, _params: RecallParams, _ctx: ToolContext) -> list[Need]:
        """Touch nothing but the session itself."""
        return NOTHING

    async def run(self, params: RecallParams, ctx: ToolContext) -> Output:
        """Find what is asked for and return a slice of it."""
        return await asyncio.to_thread(_recalled, params, ctx)


def _recalled(params: RecallParams, ctx: ToolContext) -> Output:
    ways = [bool(params.handle), bool(params.query), bool(params.tool)]
    if sum(ways) != 1:
        raise BadArguments("Give one of: tool with chars (from a placeholder), handle, query.")
    if params.query:
        return Output(text=ctx.session.unmask(_hits(ctx, params.query)))
    if match := _MESSAGE_HANDLE.fullmatch(params.handle):
        return Output(text=ctx.session.unmask(_slice(_message_text(ctx, int(match[1])), params)))
    kept = list(_results(ctx.session.entries()))
    found, note = _by_handle(kept, params) if params.handle else _by_placeholder(kept, params)
    text = _stored(ctx, found, params) or _slice(text_of(found.block) or "(no text)", params)
    notes = [f"[{found.told()}]", note, _age(ctx, found)]
    images = [part for part in _content(found.block) if part.get("type") == "image"]
    return Output(text=ctx.session.unmask("\n".join([*filter(None, notes), text])), blocks=images)


def _content(block: Block) -> list[Block]:
    content = block.get("content")
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def _messages(entries: Iterable[AnyEntry]) -> list[MessageEntry]:
    """Return the messages of a log, those a rewind took back left out."""
    kept: list[MessageEntry] = []
    for entry in entries:
        if isinstance(entry, MessageEntry):
            kept.append(entry)
        elif isinstance(entry, Rewound):
            kept = [message for message in kept if message.n < entry.to]
    return kept


def _results(entries: Iterable[AnyEntry]) -> Iterator[_Kept]:
    asked: dict[str, Block] = {}
    for entry in _messages(entries):
        if entry.message["role"] == "assistant":
            asked = {str(call.get("id")): call for call in messages.calls(entry.message)}
            continue
        for k, block in enumerate(messages.results(entry.message), 1):
            call = asked.get(str(block.get("tool_use_id")), {})
            arguments = call.get("input")
            yield _Kept(
                handle=f"r{entry.n}" if k == 1 else f"r{entry.n}.{k}",
                n=entry.n,
                at=entry.at,
                name=str(call.get("name", "unknown")),
                arguments=arguments if isinstance(arguments, dict) else {},
                block=block,
            )


def _by_handle(kept: Sequence[_Kept], params: RecallParams) -> tuple[_Kept, str]:
    for found in kept:
        if found.handle == params.handle:
            return found, ""
    newest = ", ".join(found.handle for found in kept[-3:]) or "none"
    raise ToolError(f"There is no result {params.handle[:40]!r}; the newest are: {newest}. Try query.")


def _by_placeholder(kept: Sequence[_Kept], params: RecallParams) -> tuple[_Kept, str]:
    same = [found for found in kept if found.name == params.tool and _n_chars(found) == params.chars]
    same.reverse()
    if not same:
        raise ToolError(_none_such(kept, params))
    if params.nth > len(same):
        raise ToolError(f"There are only {n_of(len(same), 'such result')}: {_listed(same)}")
    note = f"[{len(same)} results fit, newest first: {_listed(same)}]" if len(same) > 1 else ""
    return same[params.nth - 1], note


def _n_chars(found: _Kept) -> int:
    return len(text_of(found.block))


def _listed(found: Sequence[_Kept]) -> str:
    more = f" and {len(found) - MAX_LISTED} more" if len(found) > MAX_LISTED else ""
    return "; ".join(f"nth={i} {one.told()}" for i, one in enumerate(found[:MAX_LISTED], 1)) + more


def _none_such(kept: Sequence[_Kept], params: RecallParams) -> str:
    near = sorted(
        (found for found in reversed(kept) if found.name == params.tool),
        key=lambda found: abs(_n_chars(found) - params.chars),
    )
    listed = "; ".join(f"{found.told()} ({_n_chars(found)} chars)" for found in near[:3])
    return f"No {params.tool[:40]} result has {params.chars} characters. " + (
        f"Nearest: {listed}." if listed else "That tool has no results here; try query."
    )


def _slice(text: str, params: RecallParams) -> str:
    if params.offset and params.offset >= len(text):
        raise ToolError(f"The text has only {n_of(len(text), 'character')}.")
    end = min(params.offset + min(params.limit, MAX_SLICE_CHARS), len(text))
    note = f"\n[characters {params.offset}-{end} of {len(text):,}; offset={end} reads on]"
    return text[params.offset : end] + (note if end < len(text) else "")


def _stored(ctx: ToolContext, found: _Kept, params: RecallParams) -> str:
    """Return a slice of the whole output where it was too large for the view; else nothing."""
    if ctx.outputs is None:
        return ""
    try:
        with (ctx.outputs / f"{safe_name(found.handle)}.txt").open("rb") as file:
            return _file_slice(file, params)
    except FileNotFoundError:
        return ""


def _file_slice(file: IO[bytes], params: RecallParams) -> str:
    text, is_more = slices.of_chars(file, params.offset, min(params.limit, MAX_SLICE_CHARS))
    if not text and params.offset:
        raise ToolError(f"The output ends before character {params.offset}.")
    end = params.offset + len(text)
    return text + (f"\n[characters {params.offset}-{end}; offset={end} reads on]" if is_more else "")


def _age(ctx: ToolContext, found: _Kept) -> str:
    """Return a warning where a file was read and has another state on disk by now."""
    name = found.arguments.get("file_path")
    if found.name != "read_file" or not isinstance(name, str) or found.block.get("is_error"):
        return ""
    try:
        changed = resolve(ctx, name).stat().st_mtime
    except (OSError, ToolError):
        return f"[{valid_unicode(name)} is gone from disk since]"
    is_older = changed > datetime.fromisoformat(found.at).timestamp()
    return f"[{valid_unicode(name)} changed on disk since: read it again before editing]" if is_older else ""


def _message_text(ctx: ToolContext, n: int) -> str:
    try:
        return text_of(ctx.session.original_message(n)) or "(no text)"
    except KeyError:
        raise ToolError(f"There is no message m{n}.") from None


def _hits(ctx: ToolContext, query: str) -> str:
    """Return where all words of a query stand, in texts or in the arguments of calls, newest first."""
    words = [word.casefold() for word in query.split()]
    if not words:
        raise BadArguments("The query is blank.")
    lines = [
        f"{label}: {_snippet(text, words)}"
        for label, text in _searchable(ctx)
        if all(word in text.casefold() for word in words)
    ]
    lines.reverse()
    if not lines:
        return f"Nothing in this session holds {query!r}."
    more = len(lines) - MAX_LISTED
    end = [f"[{n_of(more, 'older hit')} more; give more words]"] if more > 0 else []
    return "\n".join([*lines[:MAX_LISTED], "[recall with handle= gives one whole]", *end])


def _searchable(ctx: ToolContext) -> Iterator[tuple[str, str]]:
    entries = _messages(ctx.session.entries())
    by_handle: dict[int, list[_Kept]] = {}
    for kept in _results(entries):
        by_handle.setdefault(kept.n, []).append(kept)
    for entry in entries:
        for kept in by_handle.get(entry.n, []):
            if kept.name != "recall":
                yield kept.told(), f"{text_of(kept.block)}\n{kept.asked()}"
        if entry.n not in by_handle and entry.message["role"] != "system":
            yield f"m{entry.n} {entry.message['role']}", text_of(entry.message)


def _snippet(text: str, words: Sequence[str]) -> str:
    at = max(text.casefold().find(words[0]), 0)
    start = max(at - SNIPPET_CHARS // 2, 0)
    piece = " ".join(text[start : start + SNIPPET_CHARS].split())
    return ("..." if start else "") + piece + ("..." if start + SNIPPET_CHARS < len(text) else "")
