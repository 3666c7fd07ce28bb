"""read_file and write_file."""

import asyncio
import io
import os
from typing import IO, Annotated

import msgspec
from msgspec import Meta

from bareagent.seams import Need, Output
from bareagent.tools import disk, images, slices, text_files
from bareagent.tools.base import (
    Params,
    Seen,
    ToolContext,
    ToolError,
    n_of,
    resolve,
    shown_path,
    text_for_model,
)
from bareagent.tools.diffs import diff

MAX_HELD_BYTES = 16 << 20
SNIFF_BYTES = 8192
READ_SHARE = 14 / 15
"""A read stays so far below `tools.max_result_chars` that its notes fit too: 28,000 of 30,000."""

_TYPES = (
    (b"\x7fELF", "ELF binary"),
    (b"MZ", "Windows program"),
    (b"PK\x03\x04", "zip archive"),
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"%PDF", "PDF"),
    (b"SQLite format 3", "SQLite database"),
    (b"\xca\xfe\xba\xbe", "Java class or Mach-O binary"),
    (b"\xcf\xfa\xed\xfe", "Mach-O binary"),
)


class ReadParams(Params):
    """Which file and which part of it."""

    file_path: Annotated[str, Meta(min_length=1)]
    offset: Annotated[int, Meta(ge=1, description="first line")] = 1
    limit: Annotated[int, Meta(ge=1, description="lines at most")] = 2000
    column: Annotated[int, Meta(ge=1, description="first character, within one very long line")] = 1


class ReadFile:
    """Shows a text file with line numbers, or an image."""

    name = "read_file"
    description = text_for_model("read_file")
    params: type[msgspec.Struct] = ReadParams
    is_read_only = True

    def needs(self, params: ReadParams, ctx: ToolContext) -> list[Need]:
        """Need leave to read the file."""
        return [Need(kind="read", target=str(resolve(ctx, params.file_path)))]

    async def run(self, params: ReadParams, ctx: ToolContext) -> Output:
        """Read the part asked for."""
        return await asyncio.to_thread(_read, params, ctx)


def _read(params: ReadParams, ctx: ToolContext) -> Output:
    path = resolve(ctx, params.file_path)
    name = shown_path(ctx, path)
    with os.fdopen(disk.open_regular(ctx, path), "rb") as file:
        start = file.read(SNIFF_BYTES)
        file.seek(0)
        found = images.picture(start)
        if found is not None:
            data = file.read(images.MAX_BYTES * 16)
            line, block = images.block(name, data, images.picture(data) or found)
            return Output(text=line, blocks=[block])
        is_stored = ctx.outputs is not None and path.is_relative_to(os.path.realpath(ctx.outputs))
        if not is_stored:
            _refuse_binary(name, start, os.fstat(file.fileno()).st_size)
        text = _text(params, ctx, file, name)
        return Output(text=ctx.session.unmask(text) if is_stored else text)


def _refuse_binary(name: str, start: bytes, size: int) -> None:
    if b"\0" not in start or text_files.encoding_of(start).mark:
        return
    kind = next((kind for magic, kind in _TYPES if start.startswith(magic)), "binary")
    raise ToolError(f"{name} is no text ({kind}, {size:,} bytes) and was not read.")


def _text(params: ReadParams, ctx: ToolContext, file: IO[bytes], name: str) -> str:
    status = os.fstat(file.fileno())
    held: IO[bytes] = file
    sha = ""
    encoding = text_files.encoding_of(file.read(4))
    file.seek(0)
    if status.st_size <= MAX_HELD_BYTES or encoding.name != "utf-8":
        data = file.read(disk.MAX_EDIT_BYTES)
        sha = disk.digest(data)
        held = io.BytesIO(_as_utf8(data, encoding))
    ctx.seen[resolve(ctx, params.file_path)] = Seen(status.st_mtime_ns, status.st_size, sha)
    n_chars = int(ctx.config.tools.max_result_chars * READ_SHARE)
    if params.column > 1:
        return slices.of_line(held, name, params.offset, params.column, n_chars)
    return slices.of_lines(held, name, params.offset, params.limit, n_chars)


def _as_utf8(data: bytes, encoding: text_files.Encoding) -> bytes:
    body = data[len(encoding.mark) :]
    return body if encoding.name == "utf-8" else body.decode(encoding.name, "replace").encode()


class WriteParams(Params):
    """A file and all it shall hold."""

    file_path: Annotated[str, Meta(min_length=1)]
    content: str


class WriteFile:
    """Makes a file or replaces its whole content."""

    name = "write_file"
    description = text_for_model("write_file")
    params: type[msgspec.Struct] = WriteParams
    is_read_only = False

    def needs(self, params: WriteParams, ctx: ToolContext) -> list[Need]:
        """Need leave to write the file."""
        return [Need(kind="write", target=str(resolve(ctx, params.file_path)))]

    async def preview(self, params: WriteParams, ctx: ToolContext) -> str:
        """Return the diff that a run would make; empty where it would fail."""
        return await asyncio.to_thread(_preview, params, ctx)

    async def run(self, params: WriteParams, ctx: ToolContext) -> Output:
        """Write the file whole or not at all."""
        return await asyncio.to_thread(_write, params, ctx)


def _preview(params: WriteParams, ctx: ToolContext) -> str:
    try:
        old, new = _contents(params, ctx)
    except ToolError:
        return ""
    return _shown(old, new)


def _write(params: WriteParams, ctx: ToolContext) -> Output:
    path = resolve(ctx, params.file_path)
    name = shown_path(ctx, path)
    with disk.writing:
        old, new = _contents(params, ctx)
        if old != new:
            disk.replace_file(ctx, path, new, old)
        disk.remember(ctx, path, new)
    if old == new:
        return Output(text=f"{name} holds exactly this already; nothing was written.")
    n_lines = params.content.count("\n") + (not params.content.endswith("\n") and bool(params.content))
    verb = "Made" if old is None else "Replaced"
    return Output(text=f"{verb} {name}: {n_of(n_lines, 'line')}.", shown=_shown(old, new), shown_as="diff")


def _contents(params: WriteParams, ctx: ToolContext) -> tuple[bytes | None, bytes]:
    """Return the file's bytes before (None: no file) and after. Raises: ToolError."""
    path = resolve(ctx, params.file_path)
    disk.check_link(ctx, params.file_path, path)
    if not os.path.lexists(path):
        return None, text_files.encoded(params.content, text_files.Encoding("utf-8"))
    old = disk.read_whole(ctx, path)
    name = shown_path(ctx, path)
    if old and path not in ctx.seen:
        raise ToolError(f"{name} exists and was not read in this session. Read it first, or use edit_file.")
    if disk.has_changed(ctx, path, old):
        raise ToolError(f"{name} changed since it was read. Read it again first.")
    return old, _in_form_of(old, params.content)


def _in_form_of(old: bytes, content: str) -> bytes:
    """Return new content with the old file's encoding, mark and line ends."""
    text, encoding = text_files.decoded(old)
    if "\r" not in content and "\r\n" in text and text.count("\n") == text.count("\r\n"):
        content = content.replace("\n", "\r\n")
    if encoding.is_damaged:
        encoding = text_files.Encoding("utf-8", encoding.mark if encoding.name == "utf-8" else b"")
    return text_files.encoded(content, encoding)


def _shown(old: bytes | None, new: bytes) -> str:
    before = "" if old is None else text_files.decoded(old)[0]
    return diff(before, text_files.decoded(new)[0])
