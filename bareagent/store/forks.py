"""A session's log copied into another folder: whole, or up to an entry; only what is sound is copied."""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from bareagent import platform
from bareagent.entries import AnyEntry, Compaction, SessionStart
from bareagent.errors import SessionNotFound, SessionUnreadable
from bareagent.store.lines import Parsed, encode_body, encode_line, parse
from bareagent.store.places import LOG_NAME
from bareagent.store.reading import Reading, raw_lines


def copy_log(source: Path, target: Path, start: SessionStart, upto: int | None = None) -> int:
    """Copy the entries of the log in folder `source` up to number `upto`; return how many.

    Numbers stay, so that all that points at an entry holds; `start` takes the place of the first one.
    Results kept in files come along. Raises: OSError, SessionUnreadable where nothing can be copied.
    """
    n_copied = 0
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(platform.open_private(target / LOG_NAME, flags), "wb") as file:
        file.write(encode_line(encode_body(start), 1, start.created))
        for line, parsed in _sound_lines(source / LOG_NAME):
            if upto is not None and parsed.n > upto:
                break
            if parsed.n > 1:
                file.write(_sound(line, parsed))
            n_copied += 1
        file.flush()
        os.fsync(file.fileno())
    if not n_copied:
        raise SessionUnreadable(f"{source / LOG_NAME} holds no session.")
    _link_outputs(source / "outputs", target / "outputs", upto)
    return n_copied


def _sound_lines(path: Path) -> Iterator[tuple[bytes, Parsed]]:
    last_n = 0
    with path.open("rb") as file:
        for line in raw_lines(file.fileno()):
            parsed = parse(line)
            if parsed.n > last_n:
                last_n = parsed.n
                yield line, parsed


def _sound(line: bytes, parsed: Parsed) -> bytes:
    if parsed.reason and parsed.entry is not None:
        return encode_line(encode_body(parsed.entry), parsed.n, parsed.entry.at)
    return line + b"\n"


def _link_outputs(source: Path, target: Path, upto: int | None) -> None:
    if not source.is_dir():
        return
    platform.make_private_folder(target)
    for path in source.iterdir():
        number = re.match(r"r(\d+)", path.name)
        if upto is None or (number and int(number[1]) <= upto):
            with contextlib.suppress(OSError):
                _link(path, target / path.name)


def _link(path: Path, copy: Path) -> None:
    try:
        os.link(path, copy)
    except OSError:
        shutil.copy2(path, copy)


def last_entry_of_generation(folder: Path, generation: int) -> int | None:
    """Return the number of the last entry before generation `generation` + 1; None if it is the newest.

    Raises: SessionNotFound for a generation that never was.
    """
    newest = 0
    for entry in _entries(folder / LOG_NAME):
        if isinstance(entry, Compaction):
            if entry.generation > generation >= newest:
                return entry.n - 1
            newest = max(newest, entry.generation)
    if generation > newest:
        raise SessionNotFound(
            f"Session {folder.name} has no generation {generation}.", f"Its newest is {folder.name}.{newest}."
        )
    return None


def _entries(path: Path) -> Iterator[AnyEntry]:
    try:
        with path.open("rb") as file:
            for batch in Reading(file.fileno()).batches():
                yield from batch
    except OSError as error:
        raise SessionUnreadable(f"{path} cannot be read: {error.strerror}.") from error
