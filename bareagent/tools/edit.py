"""edit_file: exact replacements in one file, all of a call or none."""

import asyncio
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from bareagent.sanitize import valid_unicode
from bareagent.seams import Need, Output
from bareagent.tools import disk, text_files
from bareagent.tools.base import (
    BadArguments,
    Params,
    ToolContext,
    ToolError,
    resolve,
    shown_path,
    text_for_model,
)
from bareagent.tools.diffs import diff
from bareagent.tools.nearest import nearest

MAX_NAMED_LINES = 10
# A line end of either kind, never the second half of one.
_LINE_END = r"(?:\r\n|(?<!\r)\n)"

Spot = tuple[int, int]


class Edit(Params):
    """One replacement."""

    old_text: str
    new_text: str
    replace_all: bool = False


class EditParams(Params):
    """One replacement, or several, in one file."""

    file_path: Annotated[str, Meta(min_length=1)]
    old_text: str = ""
    new_text: str = ""
    replace_all: bool = False
    edits: list[Edit] = msgspec.field(default_factory=list)


class EditFile:
    """Replaces text in a file."""

    name = "edit_file"
    description = text_for_model("edit_file")
    params: type[msgspec.Struct] = EditParams
    is_read_only = False

    def needs(self, params: EditParams, ctx: ToolContext) -> list[Need]:
        """Need leave to write the file."""
        return [Need(kind="write", target=str(resolve(ctx, params.file_path)))]

    async def preview(self, params: EditParams, ctx: ToolContext) -> str:
        """Return the diff that a run would make; empty where it would fail."""
        return await asyncio.to_thread(_preview, params, ctx)

    async def run(self, params: EditParams, ctx: ToolContext) -> Output:
        """Make all replacements and write the file once."""
        return await asyncio.to_thread(_edit, params, ctx)


class _Change(msgspec.Struct, frozen=True):
    old_data: bytes
    new_data: bytes
    old: str
    new: str
    n_spots: int


def _preview(params: EditParams, ctx: ToolContext) -> str:
    try:
        change = _change(params, ctx)
    except ToolError:
        return ""
    return diff(change.old, change.new)


def _edit(params: EditParams, ctx: ToolContext) -> Output:
    path = resolve(ctx, params.file_path)
    with disk.writing:
        change = _change(params, ctx)
        disk.replace_file(ctx, path, change.new_data, change.old_data)
        disk.remember(ctx, path, change.new_data)
    times = f"{change.n_spots} replacements" if change.n_spots > 1 else "1 replacement"
    return Output(
        text=f"Edited {shown_path(ctx, path)}: {times}.",
        shown=diff(change.old, change.new),
        shown_as="diff",
    )


def _change(params: EditParams, ctx: ToolContext) -> _Change:
    """Return the file before and after. Raises: ToolError; nothing was written then."""
    edits = _edits(params)
    path = resolve(ctx, params.file_path)
    disk.check_link(ctx, params.file_path, path)
    data = disk.read_whole(ctx, path)
    if disk.has_changed(ctx, path, data):
        raise ToolError(f"{shown_path(ctx, path)} changed since it was read. Read it again first.")
    old, encoding = text_files.decoded(data)
    if "\0" in old:
        raise ToolError(f"{shown_path(ctx, path)} is no text ({len(data):,} bytes); it was not edited.")
    new, n_spots = old, 0
    for number, edit in enumerate(edits, 1):
        which = f"Edit {number} of {len(edits)}: " if len(edits) > 1 else ""
        new, count = replaced(new, edit, f"{which}old_text", shown_path(ctx, path))
        n_spots += count
    try:
        return _Change(data, text_files.encoded(new, encoding), old, new, n_spots)
    except UnicodeEncodeError as error:
        raise ToolError(
            f"The file is {encoding.name}, which lacks a character of new_text: {error}."
        ) from None


def _edits(params: EditParams) -> Sequence[Edit]:
    if params.edits and (params.old_text or params.new_text):
        raise BadArguments("Give either old_text and new_text, or edits, not both.")
    return params.edits or [
        Edit(old_text=params.old_text, new_text=params.new_text, replace_all=params.replace_all)
    ]


def replaced(text: str, edit: Edit, what: str, name: str) -> tuple[str, int]:
    """Return the text with an edit made, and how often. Raises: ToolError."""
    if not edit.old_text:
        raise ToolError(f"{what} is empty. To make or replace a file use write_file.")
    if edit.old_text == edit.new_text:
        raise ToolError(f"{what} and new_text are the same.")
    find = _apart if edit.replace_all else _anywhere
    spots = list(find(text, edit.old_text))
    if not spots:
        raise ToolError(f"{what} does not stand in {name}.{nearest(text, edit.old_text)}")
    if len(spots) > 1 and not edit.replace_all:
        raise ToolError(
            f"{what} stands {len(spots)} times in {name}: {_lines_of(text, spots)}. "
            "Give more of the text around it, or replace_all=true."
        )
    return _spliced(text, spots, edit), len(spots)


def _apart(text: str, old: str) -> Iterator[Spot]:
    """Find the places of a text that do not overlap, from the left."""
    end = 0
    for spot in _anywhere(text, old):
        if spot[0] >= end:
            yield spot
            end = spot[1]


def _anywhere(text: str, old: str) -> Iterator[Spot]:
    """Find every place of a text, overlapping ones too; a line end matches either kind."""
    if "\r" not in text and "\r" not in old:
        at = text.find(old)
        while at >= 0:
            yield at, at + len(old)
            at = text.find(old, at + 1)
        return
    lines = old.replace("\r\n", "\n").split("\n")
    pattern = re.compile(_LINE_END.join(map(re.escape, lines)))
    found = pattern.search(text)
    while found:
        yield found.span()
        found = pattern.search(text, found.start() + 1)


def _lines_of(text: str, spots: Sequence[Spot]) -> str:
    ends = [match.start() for match in re.finditer("\n", text)]
    numbers = [str(bisect_left(ends, start) + 1) for start, _end in spots[:MAX_NAMED_LINES]]
    more = f" and {len(spots) - MAX_NAMED_LINES} more" if len(spots) > MAX_NAMED_LINES else ""
    return f"lines {', '.join(numbers)}{more}"


def _spliced(text: str, spots: Sequence[Spot], edit: Edit) -> str:
    new = valid_unicode(edit.new_text)
    parts: list[str] = []
    end = 0
    for start, stop in spots:
        parts += [text[end:start], _with_line_ends(new, text, start, stop)]
        end = stop
    return "".join([*parts, text[end:]])


def _with_line_ends(new: str, text: str, start: int, stop: int) -> str:
    """Return new text with the line ends that stand at its place."""
    if "\r" in new or "\n" not in new:
        return new
    at = text.find("\n", start)
    if at < 0:
        at = text.rfind("\n", 0, stop)
    return new.replace("\n", "\r\n") if at > 0 and text[at - 1] == "\r" else new
