"""What was typed in a project: one file in the user's data folder, shared by programs side by side."""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from prompt_toolkit.history import History

from bareagent import folders, platform
from bareagent.sanitize import valid_unicode

MAX_READ_BYTES = 1 << 20
MAX_FILE_BYTES = 4 << 20
MAX_LINE_CHARS = 100_000
LOCK_TRIES = 50


def history_path(root: Path) -> Path:
    """Return the history file of a project."""
    name = hashlib.sha256(os.fsencode(str(root))).hexdigest()[:16]
    return folders.data_folder() / "history" / f"{name}.jsonl"


class SharedHistory(History):
    """One JSON string a line, appended under a lock; a line with a secret in it is not written."""

    def __init__(self, path: Path) -> None:
        """Read nothing yet."""
        super().__init__()
        self._path = path
        self._mask: Callable[[str], str] | None = None
        self._unsaved: list[str] = []

    def keep(self, mask: Callable[[str], str]) -> None:
        """Begin to write: `mask` changes what holds a secret, and such a line is not written."""
        self._mask = mask
        waiting, self._unsaved = self._unsaved, []
        for line in waiting:
            self.store_string(line)

    def load_history_strings(self) -> Iterable[str]:
        """Give the lines kept, newest first, equal neighbours once."""
        previous = None
        for line in reversed(self._lines()):
            if line != previous:
                yield line
            previous = line

    def _lines(self) -> list[str]:
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - MAX_READ_BYTES, 0))
                rows = file.read().split(b"\n")
        except OSError:
            return []
        return [text for text in map(_decoded, rows) if text]

    def store_string(self, string: str) -> None:
        """Append a line that holds no secret; a disk that refuses costs the history, nothing else."""
        string = valid_unicode(string)[:MAX_LINE_CHARS]
        if self._mask is None:
            self._unsaved.append(string)
            return
        if self._mask(string) != string:
            return
        row = json.dumps(string).encode() + b"\n"
        with contextlib.suppress(OSError):
            platform.make_private_folder(self._path.parent)
            self._append(row)

    def _append(self, row: bytes) -> None:
        descriptor = platform.open_private(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            for _ in range(LOCK_TRIES):
                if platform.try_lock(file):
                    break
                time.sleep(0.002)
            size = file.seek(0, os.SEEK_END)
            if size > MAX_FILE_BYTES:
                self._shorten(file.fileno(), size)
            file.write(row)
            platform.unlock(file)

    def _shorten(self, descriptor: int, size: int) -> None:
        """Keep the newer half, in place: other programs hold the same file open."""
        kept = os.pread(descriptor, MAX_FILE_BYTES // 2, size - MAX_FILE_BYTES // 2)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, kept[kept.find(b"\n") + 1 :])


def _decoded(row: bytes) -> str:
    try:
        value = json.loads(row)
    except ValueError:
        return ""
    return valid_unicode(value) if isinstance(value, str) else ""
