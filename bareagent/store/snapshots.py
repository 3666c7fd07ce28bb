"""Snapshots: a view written whole, one message a line, in numbered files of a session's folder."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from bareagent import platform
from bareagent.messages import Message

_NAME = re.compile(r"(\d{4,})-[a-z]+\.jsonl")


def write(
    folder: Path, suffix: str, messages: Iterable[Message], *, only_if_new: bool = False
) -> Path | None:
    """Write the next snapshot into `folder` and return its path.

    `only_if_new`: where the newest one holds the same, none is written and None is returned.
    Raises: OSError; no half file is left.
    """
    if not folder.exists():
        platform.make_private_folder(folder)
    newest = _newest(folder)
    number = int(newest.name.split("-")[0]) + 1 if newest else 1
    path = folder / f"{number:04}-{suffix}.jsonl"
    draft = folder / f".{path.name}.part"
    try:
        _write_lines(draft, messages)
        if only_if_new and newest and _is_same(draft, newest):
            draft.unlink()
            return None
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    return path


def _newest(folder: Path) -> Path | None:
    known = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    return max(known, key=lambda path: int(path.name.split("-")[0]), default=None)


def _write_lines(path: Path, messages: Iterable[Message]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(platform.open_private(path, flags), "wb") as file:
        for message in messages:
            file.write(msgspec.json.encode(message) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _is_same(one: Path, other: Path) -> bool:
    if one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as first, other.open("rb") as second:
        while block := first.read(1 << 20):
            if block != second.read(1 << 20):
                return False
    return True
