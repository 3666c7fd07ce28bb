"""A conversation as a document: Markdown for people, JSON and JSON lines for programs."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from bareagent import platform
from bareagent.entries import AnyEntry, MessageEntry, Rewound, Undone
from bareagent.errors import SessionError, UsageError
from bareagent.fold import taken_back
from bareagent.messages import Block, Message, blocks_of, text_of
from bareagent.view import View

FORMATS = ("md", "json", "jsonl")
_HEADINGS = {"user": "You", "assistant": "Assistant", "system": "System"}
_BACKTICKS = re.compile(r"`{3,}")


def document(form: str, full_id: str, view: View, entries: Iterable[AnyEntry]) -> Iterator[str]:
    """Yield the whole conversation of a log: compacted parts too, what was taken back left out."""
    known = list(entries)
    dead = taken_back(entry for entry in known if isinstance(entry, Undone | Rewound))
    said = (entry for entry in known if isinstance(entry, MessageEntry) and not dead.has(entry))
    return exported(form, full_id, view, said)


def exported(form: str, full_id: str, view: View, entries: Iterable[MessageEntry]) -> Iterator[str]:
    """Yield a conversation piece by piece in one of the `FORMATS`; `entries` are its messages in order."""
    match form:
        case "md":
            yield from markdown(full_id, view, entries)
        case "json":
            yield as_json(full_id, view, entries)
        case _:
            yield from json_lines(view, (entry.message for entry in entries))


def markdown(full_id: str, view: View, entries: Iterable[MessageEntry]) -> Iterator[str]:
    """Yield the conversation as Markdown: lines and answers as text, calls and results as code."""
    start = view.session
    about = [f"session {full_id}", start.created[:10] if start else "", view.model]
    yield f"# {_one_line(view.name or view.first_line) or full_id}\n\n{' · '.join(filter(None, about))}\n"
    speaker = ""
    for entry in entries:
        heading = _heading(entry)
        if heading and heading != speaker:
            speaker = heading
            yield f"\n## {heading}\n"
        for block in blocks_of(entry.message):
            text = _block(block)
            if text:
                yield f"\n{text}\n"


def _heading(entry: MessageEntry) -> str:
    if entry.kind == "results":
        return ""
    return _HEADINGS[entry.message["role"]]


def _block(block: Block) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text", "")).strip()
        case "tool_use":
            arguments = msgspec.json.format(msgspec.json.encode(block.get("input"))).decode()
            return f"**{_one_line(str(block.get('name')))}**\n\n{_fenced(arguments, 'json')}"
        case "tool_result":
            label = "Error" if block.get("is_error") else "Result"
            return f"{label}\n\n{_fenced(text_of(block))}"
        case "thinking" | "redacted_thinking":
            return ""
        case other:
            return f"*[{_one_line(str(other))}]*"


def _fenced(text: str, language: str = "") -> str:
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def as_json(full_id: str, view: View, entries: Iterable[MessageEntry]) -> str:
    """Return the conversation as one JSON object."""
    start = view.session
    whole: dict[str, Any] = {
        "id": full_id,
        "name": view.name,
        "created": start.created if start else "",
        "cwd": start.cwd if start else "",
        "model": view.model,
        "turns": view.n_turns,
        "cost_usd": view.cost_usd,
        "usage": view.usage,
        "system": view.prompt.system if view.prompt else "",
        "messages": [{"n": e.n, "at": e.at, "kind": e.kind, **e.message} for e in entries],
    }
    return msgspec.json.format(msgspec.json.encode(whole)).decode() + "\n"


def json_lines(view: View, messages: Iterable[Message]) -> Iterator[str]:
    """Yield one message a line, the system prompt first, as snapshots have them."""
    if view.prompt is not None:
        prompt = {"role": "system", "content": [{"type": "text", "text": view.prompt.system}]}
        yield msgspec.json.encode(prompt).decode() + "\n"
    for message in messages:
        yield msgspec.json.encode(message).decode() + "\n"


def write_new(path: Path, pieces: Iterator[str]) -> None:
    """Write a new private file. Raises: UsageError where there is one, SessionError where it cannot be."""
    try:
        descriptor = platform.open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.writelines(pieces)
    except FileExistsError:
        raise UsageError(f"{path} exists and is not overwritten.", "name another file") from None
    except OSError as error:
        raise SessionError(f"{path} cannot be written: {error.strerror}.") from error
