"""glob and grep: ripgrep where it is found, else the same search in Python; one format for both."""

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bareagent.seams import Need, Output
from bareagent.tools import globs, walk
from bareagent.tools.base import Params, ToolContext, ToolError, resolve, shown_path, text_for_model
from bareagent.tools.found import Found, Listing

READ_BYTES = 1 << 16
TIME_S = 60.0
MAX_ERROR_BYTES = 1000
COLUMNS = 1000
RG_VARIABLE = "BAREAGENT_RG"
RG_FLAGS = (
    "--no-config",
    "--color=never",
    "--hidden",
    "--glob=!.git",
    "--no-require-git",
    "--no-ignore-global",
    "--null",
)
Mode = Literal["content", "files_with_matches", "count"]


class GlobParams(Params):
    """A pattern of paths and where to look."""

    pattern: Annotated[str, Meta(min_length=1)]
    path: str = "."


class Glob:
    """Lists the files whose path fits a pattern."""

    name = "glob"
    description = text_for_model("glob")
    params: type[msgspec.Struct] = GlobParams
    is_read_only = True

    def needs(self, params: GlobParams, ctx: ToolContext) -> list[Need]:
        """Need leave to read the folder."""
        return [Need(kind="read", target=str(resolve(ctx, params.path)))]

    async def run(self, params: GlobParams, ctx: ToolContext) -> Output:
        """List the files, in order of their paths."""
        folder = _existing(ctx, params.path)
        if not folder.is_dir():
            raise ToolError(f"{shown_path(ctx, folder)} is not a folder.")
        listing = Listing(globs.matcher(_relative(params.pattern, folder)))
        program = _rg(ctx)
        argv = [program, *RG_FLAGS, "--files", "./"] if program else _walk(walk.Job(path="./"))
        end = await _run(argv, folder, listing.feed)
        return Output(text=listing.told(_prefix(ctx, folder)) + end.note())


class GrepParams(Params):
    """A regular expression, where to look, and what to show."""

    pattern: Annotated[str, Meta(min_length=1)]
    path: str = "."
    include: Annotated[str, Meta(description='only files that fit, e.g. "*.{ts,tsx}"')] = ""
    output_mode: Mode = "content"
    context: Annotated[int, Meta(ge=0, le=50, description="lines around each match")] = 0
    ignore_case: bool = False
    limit: Annotated[int, Meta(ge=1, le=5000, description="lines or files shown")] = 200


class Grep:
    """Searches the contents of files."""

    name = "grep"
    description = text_for_model("grep")
    params: type[msgspec.Struct] = GrepParams
    is_read_only = True

    def needs(self, params: GrepParams, ctx: ToolContext) -> list[Need]:
        """Need leave to read the file or folder."""
        return [Need(kind="read", target=str(resolve(ctx, params.path)))]

    async def run(self, params: GrepParams, ctx: ToolContext) -> Output:
        """Search and show what was found, in order of the paths."""
        target = _existing(ctx, params.path)
        folder, name = (target, "./") if target.is_dir() else (target.parent, target.name)
        found = Found(params.output_mode, is_one_file=not target.is_dir())
        if "/" in params.include and target.is_dir():
            found.include = globs.matcher(_relative(params.include, folder))
        program = _rg(ctx)
        argv = rg_argv(program, params, name) if program else _walk(_job(params, name))
        end = await _run(argv, folder, found.feed)
        if end.code > 1 and not found.n_lines:
            raise ToolError(f"The search failed: {end.error or 'no reason given'}")
        n_chars = ctx.config.tools.max_result_chars * 14 // 15
        return Output(text=found.told(_prefix(ctx, folder), params.limit, n_chars) + end.note())


class _Enough(Exception):
    """As many files as were asked for were listed."""


async def list_files(folder: Path, limit: int) -> list[str]:
    """Return the paths, from the folder on, of up to `limit` files below it, ignored ones left out."""
    found: list[str] = []
    rest = b""

    def take(data: bytes) -> None:
        nonlocal rest
        *whole, rest = (rest + data).split(b"\0")
        found.extend(os.fsdecode(path).removeprefix("./") for path in whole)
        if len(found) >= limit:
            raise _Enough

    program = _rg_in(os.environ)
    argv = [program, *RG_FLAGS, "--files", "./"] if program else _walk(walk.Job(path="./"))
    with contextlib.suppress(_Enough, OSError):
        await _run(argv, folder, take)
    return found[:limit]


def _existing(ctx: ToolContext, path: str) -> Path:
    target = resolve(ctx, path)
    if not target.exists():
        raise ToolError(f"There is no file or folder {shown_path(ctx, target)}.")
    if not (target.is_dir() or target.is_file()):
        raise ToolError(f"{shown_path(ctx, target)} is neither a file nor a folder.")
    return target


def _relative(pattern: str, folder: Path) -> str:
    """Return a pattern that was written with the whole path as one from the folder."""
    return pattern.removeprefix(f"{folder}/")


def _prefix(ctx: ToolContext, folder: Path) -> str:
    text = shown_path(ctx, folder)
    return "" if text == "." else f"{text.rstrip('/')}/"


def _rg(ctx: ToolContext) -> str | None:
    return _rg_in(ctx.environ)


def _rg_in(environ: Mapping[str, str]) -> str | None:
    """Find ripgrep: named by BAREAGENT_RG ("none": not used), in PATH, or beside our own Python."""
    named = environ.get(RG_VARIABLE)
    if named:
        return None if named == "none" else named
    return shutil.which("rg", path=environ.get("PATH")) or shutil.which(
        "rg", path=str(Path(sys.executable).parent)
    )


def _names(include: str) -> list[str]:
    """Return globs of the file names an include can fit; none where it says nothing of the name."""
    names = [part.rpartition("/")[2] for part in globs.expanded(include)]
    return [] if any(name in {"", "**"} for name in names) else names


def rg_argv(program: str, params: GrepParams, name: str) -> list[str]:
    """Return the command line of a search with ripgrep."""
    shape = {
        "content": ["--line-number", "--no-heading", f"--max-columns={COLUMNS}", "--max-columns-preview"],
        "files_with_matches": ["--files-with-matches"],
        "count": ["--count"],
    }[params.output_mode]
    # A type, unlike a glob, does not bring ignored files back.
    kinds = [f"--type-add=chosen:{glob}" for glob in _names(params.include)]
    return [
        program,
        *RG_FLAGS,
        "--with-filename",
        *shape,
        *kinds,
        *(["--type=chosen"] if kinds else []),
        *([f"--context={params.context}"] if params.context else []),
        *(["--ignore-case"] if params.ignore_case else []),
        f"--regexp={params.pattern}",
        "--",
        name,
    ]


def _job(params: GrepParams, name: str) -> walk.Job:
    return walk.Job(
        path=name,
        pattern=params.pattern,
        ignore_case=params.ignore_case,
        context=params.context,
        mode=params.output_mode,
        names=_names(params.include),
    )


def _walk(job: walk.Job) -> list[str]:
    return [sys.executable, "-m", walk.__name__, msgspec.json.encode(job).decode()]


class _End(msgspec.Struct, frozen=True):
    code: int
    error: str
    is_timeout: bool

    def note(self) -> str:
        if self.is_timeout:
            return f"\n[stopped after {TIME_S:.0f} s: there may be more; narrow the path]"
        return f"\n[not all could be read: {self.error}]" if self.code > 1 and self.error else ""


async def _run(argv: Sequence[str], folder: Path, take: Callable[[bytes], None]) -> _End:
    """Run a search and give its output on, chunk by chunk; a cancelled one is killed."""
    child = await asyncio.create_subprocess_exec(
        *argv,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=_environment(),
    )
    try:
        error = await asyncio.wait_for(_read(child, take), TIME_S)
    except TimeoutError:
        return _End(0, "", is_timeout=True)
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
    return _End(child.returncode or 0, error, is_timeout=False)


async def _read(child: asyncio.subprocess.Process, take: Callable[[bytes], None]) -> str:
    """Read both pipes to their end; return the first words of the errors."""
    if child.stdout is None or child.stderr is None:
        return ""
    errors = asyncio.create_task(_first_bytes(child.stderr))
    while data := await child.stdout.read(READ_BYTES):
        take(data)
    await child.wait()
    return await errors


async def _first_bytes(stream: asyncio.StreamReader) -> str:
    first = b""
    while data := await stream.read(READ_BYTES):
        first = (first + data)[:MAX_ERROR_BYTES]
    return first.decode("utf-8", "replace").strip()


def _environment() -> dict[str, str]:
    # The search in Python finds this package from any folder.
    here = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": here, "PYTHONSAFEPATH": "1"}
