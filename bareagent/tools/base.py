"""What every tool stands on: its context, checked arguments, paths, and the cap on results.

No tool lives here, and no permission: a tool only declares what it needs.
"""

import dataclasses
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bareagent import platform
from bareagent.config import Config
from bareagent.messages import Block
from bareagent.sanitize import scrub, valid_unicode
from bareagent.seams import Ask, Emit, Need, Output, Spawn, Tool
from bareagent.toolspec import schema_of

if TYPE_CHECKING:
    from bareagent.session import Session
    from bareagent.tools.background import Jobs

MIB = 1 << 20
STORED_EACH_SIDE_BYTES = 32 * MIB
"""Of a result over 64 MiB the first and last half of that are stored."""

NOTHING = [Need(kind="none")]


class ToolError(Exception):
    """A call failed; `str(error)` is what the model reads."""


class BadArguments(ToolError):
    """The arguments of a call do not fit the tool's parameters."""


class Params(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The parameters of a tool; unknown ones are errors."""


@dataclasses.dataclass(slots=True)
class Marks:
    """What tools leave behind for the loop and for later calls.

    `compact_focus`: the compact tool ran (empty text: without a focus). `shell_cwd`: where `cd` left
    the shell, under `tools.bash.keep_cwd`.
    """

    compact_focus: str | None = None
    shell_cwd: Path | None = None


@dataclasses.dataclass(slots=True, frozen=True)
class Seen:
    """How a file was when a tool last read or wrote it; `sha` is empty where only a part was read."""

    mtime_ns: int
    size: int
    sha: str


@dataclasses.dataclass(slots=True)
class ToolContext:
    """What a call may use; `for_call` gives each call its own, shared parts stay shared.

    `cwd` is the working directory, `root` the workspace. `outputs` is the session's folder for results
    too large for the view (None: in memory). `environ` is what commands inherit from, secrets still
    in it. `partial` is what a call had printed when it was cancelled. `resolved` holds each path as it
    was judged, so that the same one is opened.
    """

    session: "Session"
    config: Config
    cwd: Path
    root: Path
    emit: Emit
    ask: Ask
    jobs: "Jobs"
    call: Block = dataclasses.field(default_factory=dict)
    seen: dict[Path, Seen] = dataclasses.field(default_factory=dict)
    spawn: Spawn | None = None
    marks: Marks = dataclasses.field(default_factory=Marks)
    outputs: Path | None = None
    environ: Mapping[str, str] = dataclasses.field(default_factory=lambda: os.environ)
    partial: str = ""
    resolved: dict[str, Path] = dataclasses.field(default_factory=dict)

    def for_call(self, call: Block) -> "ToolContext":
        """Give the context of one call."""
        return dataclasses.replace(self, call=call, partial="", resolved={})


@cache
def text_for_model(name: str) -> str:
    """Return a tool's text, from the `.md` file beside this module."""
    return Path(__file__).with_name(f"{name}.md").read_text(encoding="utf-8").strip()


def decode(tool: Tool, raw: object) -> Any:
    """Return checked parameters, every string valid Unicode.

    Raises: BadArguments, which says what was wrong and what is expected.
    """
    try:
        return msgspec.convert(scrub(raw), tool.params, strict=True)
    except msgspec.ValidationError as error:
        raise BadArguments(
            f"Bad arguments for {tool.name}: {_fault(str(error))}. {_expected(tool)}"
        ) from None


def _fault(text: str) -> str:
    what, _, where = text.partition(" - at ")
    where = where.strip("`").removeprefix("$").lstrip(".")
    what = what.replace("Object contains unknown field", "unknown parameter").replace(
        "Object missing required field", "missing parameter"
    )
    what = what[:1].lower() + what[1:]
    if "got `null`" in what:
        what += " (leave an optional parameter out instead)"
    return f"`{where}`: {what}" if where else what


def _expected(tool: Tool) -> str:
    schema = schema_of(tool.params)
    required = schema.get("required", [])
    names = [
        f"{name} ({_kind(part)}{', required' if name in required else ''})"
        for name, part in schema["properties"].items()
    ]
    return f"Expected: {', '.join(names)}." if names else "It takes no parameters."


def _kind(part: dict[str, Any]) -> str:
    if "enum" in part:
        return " | ".join(map(str, part["enum"]))
    return str(part.get("type", "any"))


def resolve(ctx: ToolContext, path: str) -> Path:
    """Return the absolute path with `~`, `..` and every symlink resolved, the same all through a call.

    Raises: ToolError for a path no file can have.
    """
    known = ctx.resolved.get(path)
    if known is None:
        known = ctx.resolved[path] = _resolved(ctx.cwd, path)
    return known


def _resolved(cwd: Path, path: str) -> Path:
    if not path or "\0" in path:
        raise ToolError("The path is empty." if not path else "A path cannot hold a NUL character.")
    try:
        return Path(os.path.realpath(cwd / Path(path).expanduser()))
    except (OSError, ValueError, RuntimeError) as error:
        raise ToolError(f"Not a usable path: {valid_unicode(path)[:200]} ({error})") from None


def shown_path(ctx: ToolContext, path: Path) -> str:
    """Return a path as the model reads it: relative to the working directory where it lies below."""
    try:
        text = path.relative_to(ctx.cwd).as_posix()
    except ValueError:
        text = str(path)
    return valid_unicode(text)


def reason(error: OSError) -> str:
    """Return what the system says went wrong, without errno and path."""
    return error.strerror or str(error) or type(error).__name__


def n_of(count: int, noun: str) -> str:
    """Return `1 line`, `2,000 lines`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def cap(text: str, limit: int, stored: Path | None, *, total: int = 0, handle: str = "") -> str:
    """Return head and tail of a text, at most `limit` characters with the line between them.

    That line says how much is missing and how to read on. `total` is the length of the whole where
    `text` is only its head and tail.
    """
    total = max(total, len(text))
    if total <= limit and len(text) <= limit:
        return text
    room = max(limit - len(_gap(total, stored, handle)), 0)
    head = _whole_lines(text[: room // 2], at_end=True)
    tail = _whole_lines(text[len(text) - (room - room // 2) :], at_end=False)
    return head + _gap(total - len(head) - len(tail), stored, handle) + tail


def _gap(missing: int, stored: Path | None, handle: str) -> str:
    if stored is None:
        return f"\n\n[... {missing:,} characters left out; they were not kept ...]\n\n"
    by_handle = f', or recall with handle="{handle}"' if handle else ""
    return (
        f"\n\n[... {missing:,} characters left out. The whole result: {stored}\n"
        f"Read it in parts: read_file with offset and limit (column within a very long line){by_handle} ...]\n\n"
    )


def _whole_lines(piece: str, *, at_end: bool) -> str:
    """Cut a piece to whole lines, where that costs little."""
    spare = len(piece) // 5
    if at_end:
        cut = piece.rfind("\n") + 1
        return piece[:cut] if cut >= len(piece) - spare else piece
    cut = piece.find("\n") + 1
    return piece[cut:] if 0 < cut <= spare else piece


def store_output(ctx: ToolContext, text: str, handle: str) -> Path | None:
    """Write a result's whole text, secrets masked, to `outputs/HANDLE.txt`; None without a folder."""
    if ctx.outputs is None:
        return None
    platform.make_private_folder(ctx.outputs)
    path = ctx.outputs / f"{safe_name(handle)}.txt"
    data = valid_unicode(ctx.session.mask(text)).encode()
    with os.fdopen(platform.open_private(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
        for piece in _halves(data):
            file.write(piece)
    return path


def _halves(data: bytes) -> list[bytes]:
    missing = len(data) - 2 * STORED_EACH_SIDE_BYTES
    if missing <= 0:
        return [data]
    return [data[:STORED_EACH_SIDE_BYTES], missing_bytes(missing), data[-STORED_EACH_SIDE_BYTES:]]


def missing_bytes(count: int) -> bytes:
    """Return the line that stands in a stored output for what it lacks."""
    return f"\n[... {count:,} bytes are missing here ...]\n".encode()


def safe_name(handle: str) -> str:
    """Return a handle as a file name."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", handle) or "output"


def fit(ctx: ToolContext, output: Output, handle: str) -> Output:
    """Return an output whose text fits `tools.max_result_chars`; what was cut off is stored first.

    A file the tool had streamed to (`output.full`) takes the handle's name.
    """
    limit = ctx.config.tools.max_result_chars
    text = output.text if output.text.strip() else "(no output)"
    if not output.full and len(text) <= limit:
        return msgspec.structs.replace(output, text=text)
    stored = _adopted(ctx, output.full, handle) if output.full else store_output(ctx, text, handle)
    capped = cap(text, limit, stored, total=output.full_size, handle=handle)
    return msgspec.structs.replace(output, text=capped, full="", full_size=0)


def _adopted(ctx: ToolContext, full: str, handle: str) -> Path | None:
    source = Path(full)
    if ctx.outputs is None or not source.exists():
        return None
    return source.replace(ctx.outputs / f"{safe_name(handle)}.txt")
