"""Opening and replacing files so that the path that was judged is the file that is touched."""

import contextlib
import hashlib
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

from bareagent import platform
from bareagent.tools.base import Seen, ToolContext, ToolError, reason, shown_path

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
_HAS_DIR_FD = os.open in os.supports_dir_fd
MAX_EDIT_BYTES = 64 << 20
writing = threading.Lock()
"""Held from the reading of a file to its replacement, so that helpers do not undo each other's edits."""

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symlink that was put there just now",
}


@contextlib.contextmanager
def folder(path: Path, *, make: bool = False) -> Iterator[int | None]:
    """Open a resolved folder part by part, through no symlink; give its descriptor.

    `make`: missing parts are made. None where the system cannot open relative to a folder.
    Raises: OSError.
    """
    if not _HAS_DIR_FD:
        if make:
            path.mkdir(parents=True, exist_ok=True)
        yield None
        return
    descriptor = os.open(path.anchor, _FOLDER)
    try:
        for part in path.parts[1:]:
            below = _step(descriptor, part, make=make)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def _step(descriptor: int, part: str, *, make: bool) -> int:
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(part, dir_fd=descriptor)
    return os.open(part, _FOLDER | _NO_LINK, dir_fd=descriptor)


def open_regular(ctx: ToolContext, path: Path) -> int:
    """Open a resolved path for reading and return its descriptor.

    Raises: ToolError where it is missing, unreadable or no regular file; nothing of it is read then.
    """
    name = shown_path(ctx, path)
    try:
        with folder(path.parent) as inside:
            target = path if inside is None else path.name or "."
            descriptor = os.open(target, os.O_RDONLY | _NO_LINK | _NO_WAIT, dir_fd=inside)
    except OSError as error:
        raise ToolError(_not_opened(ctx, path, error)) from None
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        hint = "; glob lists what is in it" if kind == stat.S_IFDIR else ""
        raise ToolError(f"{name} is {_KINDS.get(kind, 'no regular file')}, not a file{hint}.")
    return descriptor


def _not_opened(ctx: ToolContext, path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"There is no file {shown_path(ctx, path)}.{_similar(ctx, path)}"
    return f"{shown_path(ctx, path)} cannot be opened: {reason(error)}."


def _similar(ctx: ToolContext, path: Path) -> str:
    """Name files of the same stem or spelling beside a missing one."""
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:
        return " Its folder does not exist either."
    wanted = path.name.lower()
    near = [name for name in names if name.lower() == wanted or Path(name).stem.lower() == path.stem.lower()]
    if not near:
        return ""
    return f" There is {', '.join(shown_path(ctx, path.with_name(name)) for name in near[:3])}."


def read_whole(ctx: ToolContext, path: Path) -> bytes:
    """Return a file's bytes. Raises: ToolError, also for a file over 64 MiB."""
    with os.fdopen(open_regular(ctx, path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_EDIT_BYTES:
            raise ToolError(f"{shown_path(ctx, path)} has {size:,} bytes: too large to be edited here.")
        return file.read(MAX_EDIT_BYTES + 1)


def remember(ctx: ToolContext, path: Path, data: bytes) -> None:
    """Note how a file is now that its whole content is known."""
    with contextlib.suppress(OSError):
        status = path.stat()
        ctx.seen[path] = Seen(status.st_mtime_ns, status.st_size, digest(data))


def digest(data: bytes) -> str:
    """Return a content's hash."""
    return hashlib.sha256(data).hexdigest()


def has_changed(ctx: ToolContext, path: Path, data: bytes) -> bool:
    """Tell whether a file that was read before has another content now."""
    seen = ctx.seen.get(path)
    if seen is None:
        return False
    if seen.sha:
        return seen.sha != digest(data)
    status = path.stat()
    return (seen.mtime_ns, seen.size) != (status.st_mtime_ns, status.st_size)


def check_link(ctx: ToolContext, given: str, path: Path) -> None:
    """Refuse a name inside the workspace that leads out of it. Raises: ToolError."""
    lexical = Path(os.path.normpath(ctx.cwd / Path(given).expanduser()))
    bases = (ctx.root, ctx.cwd)
    if any(lexical.is_relative_to(base) for base in bases) and not any(
        path.is_relative_to(os.path.realpath(base)) for base in bases
    ):
        raise ToolError(
            f"{given} is a symlink out of the workspace, to {path}. Name that file itself if it is meant."
        )


def replace_file(ctx: ToolContext, path: Path, data: bytes, old: bytes | None) -> None:
    """Put new content in a file's place, whole or not at all; mode and owner stay.

    `old` is the content the change was made from (None: there was no file): if another stands there
    by now, nothing is written. Raises: ToolError.
    """
    try:
        with folder(path.parent, make=True) as inside:
            _replace(ctx, path, data, old, inside)
    except OSError as error:
        raise ToolError(f"{shown_path(ctx, path)} was not written: {reason(error)}.") from None


def _replace(ctx: ToolContext, path: Path, data: bytes, old: bytes | None, inside: int | None) -> None:
    status = _status(path, inside)
    if status is not None and not os.access(path, os.W_OK):
        raise ToolError(f"{shown_path(ctx, path)} is write-protected.")
    temporary = f".{path.name[:100]}.{os.urandom(4).hex()}.tmp"
    try:
        _write_new(_at(path, temporary, inside), data, status, inside)
        _check_unchanged(ctx, path, old, inside)
        os.replace(
            _at(path, temporary, inside), _at(path, path.name, inside), src_dir_fd=inside, dst_dir_fd=inside
        )
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(_at(path, temporary, inside), dir_fd=inside)
        raise
    platform.sync_folder(path.parent)


def _check_unchanged(ctx: ToolContext, path: Path, old: bytes | None, inside: int | None) -> None:
    """As late as can be: what another program writes between here and the rename is lost."""
    is_there = _status(path, inside) is not None
    if not is_there and old is not None:
        raise ToolError(f"{shown_path(ctx, path)} is gone; nothing was written.")
    if is_there and (old is None or read_whole(ctx, path) != old):
        raise ToolError(f"{shown_path(ctx, path)} changed just now; read it again. Nothing was written.")


def _at(path: Path, name: str, inside: int | None) -> str:
    return name if inside is not None else str(path.with_name(name))


def _status(path: Path, inside: int | None) -> os.stat_result | None:
    try:
        return os.stat(_at(path, path.name, inside), dir_fd=inside, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _write_new(name: str, data: bytes, status: os.stat_result | None, inside: int | None) -> None:
    mode = 0o666 if status is None else 0o600
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK
    with os.fdopen(os.open(name, flags, mode, dir_fd=inside), "wb") as file:
        file.write(data)
        if status is not None:
            _keep_owner(file.fileno(), status)
        file.flush()
        os.fsync(file.fileno())


def _keep_owner(descriptor: int, status: os.stat_result) -> None:
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (status.st_uid, status.st_gid):
        os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
