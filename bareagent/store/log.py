"""The append-only log of a session, as a file or in memory. One writer; reading never repairs."""

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Protocol

from bareagent import platform
from bareagent.entries import LOG_VERSION, AnyEntry
from bareagent.errors import SessionError, SessionLocked, SessionNotFound, SessionUnreadable
from bareagent.store.lines import decode, encode_body, encode_line, now, parse
from bareagent.store.places import make_home
from bareagent.store.reading import CHUNK_BYTES, Places, Reading

MAX_LOG_BYTES = 4 << 30
"""A larger log is refused: folding it would take minutes and all memory."""

Mask = Callable[[bytes], bytes]
"""Takes an entry's JSON, returns it with secrets masked."""


class AnyLog(Protocol):
    """What a session needs of its log."""

    last_n: int
    is_read_only: bool

    @property
    def is_saved(self) -> bool:
        """Whether all of it is in a file; nothing waits for room."""

    def append(self, entry: AnyEntry) -> AnyEntry:
        """Keep an entry; return it as it will be read back, with number and time."""

    def read(self, n: int) -> AnyEntry:
        """Return entry `n`. Raises: KeyError."""

    def entries(self) -> Iterator[AnyEntry]:
        """Read all entries from the first on."""

    def sync(self) -> None:
        """Make what is written durable."""

    def close(self) -> None:
        """Let go of the file."""


class MemoryLog:
    """A log without a file."""

    is_read_only = False
    is_saved = False

    def __init__(self, mask: Mask | None = None) -> None:
        """Begin empty."""
        self.last_n = 0
        self._lines: list[bytes] = []
        self._mask = mask

    def append(self, entry: AnyEntry) -> AnyEntry:
        """Keep an entry; return it with number and time."""
        line = _line(entry, self.last_n + 1, self._mask)
        self.last_n += 1
        self._lines.append(line)
        return decode(line)

    def read(self, n: int) -> AnyEntry:
        """Return entry `n`. Raises: KeyError."""
        if not 1 <= n <= self.last_n:
            raise KeyError(n)
        return decode(self._lines[n - 1])

    def entries(self) -> Iterator[AnyEntry]:
        """Read all entries from the first on."""
        return map(decode, list(self._lines))

    def sync(self) -> None:
        """There is nothing to make durable."""

    def close(self) -> None:
        """There is nothing to close."""


def _line(entry: AnyEntry, n: int, mask: Mask | None) -> bytes:
    body = encode_body(entry)
    return encode_line(mask(body) if mask else body, n, now())


class Log:
    """A log in a file.

    Where the file cannot be written, `on_trouble` hears one line, entries wait in memory, and each later
    append tries again. `repairs` says what was done on opening. `remembered` gives the entries that memory
    still holds, for a file that was cut short under us.
    """

    def __init__(
        self,
        path: Path,
        file: IO[bytes],
        *,
        is_read_only: bool,
        mask: Mask | None = None,
        on_trouble: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Take an open (and for writing: locked) file; `load` must follow."""
        self.path = path
        self.is_read_only = is_read_only
        self.on_trouble = on_trouble
        self.remembered: Callable[[], Iterable[AnyEntry]] = tuple
        self.repairs: list[str] = []
        self.reading = Reading(file.fileno())
        self.last_n = 0
        self._file = file
        self._mask = mask
        self._end = 0
        self._is_line_open = False
        self._waiting: dict[int, bytes] = {}
        self._is_troubled = False

    @classmethod
    def create(cls, path: Path, mask: Mask | None = None) -> "Log":
        """Make a new file, which must not exist. Raises: OSError."""
        file = _open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL)
        platform.try_lock(file)
        return cls(path, file, is_read_only=False, mask=mask)

    @classmethod
    def open(cls, path: Path, *, is_read_only: bool = False, mask: Mask | None = None) -> "Log":
        """Open a file; for writing take its lock.

        Raises: SessionNotFound, SessionUnreadable, SessionLocked (without saying who).
        """
        try:
            file = _open(path, os.O_RDONLY if is_read_only else os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            raise SessionNotFound(f"There is no session at {path.parent}.") from None
        except OSError as error:
            raise SessionUnreadable(f"{path} cannot be opened: {error.strerror}.") from error
        if not is_read_only and not platform.try_lock(file):
            file.close()
            raise SessionLocked(f"Session {path.parent.name} is open in another place.")
        size = os.fstat(file.fileno()).st_size
        if size > MAX_LOG_BYTES:
            file.close()
            raise SessionUnreadable(
                f"{path} is {size / 1e9:.1f} GB; logs over {MAX_LOG_BYTES / 1e9:.1f} GB are not opened.",
                "take what you need of it with grep; it is one JSON object a line",
            )
        return cls(path, file, is_read_only=is_read_only, mask=mask)

    def load(self) -> Iterator[AnyEntry]:
        """Read all entries for the first time; at the end of the pass the log is ready for appends.

        Raises: SessionUnreadable for a file that holds no record at all.
        """
        return chain.from_iterable(self.load_batches())

    def load_batches(self) -> Iterator[list[AnyEntry]]:
        """Do what `load` does, some entries at a time."""
        reading = self.reading = Reading(self._file.fileno())
        yield from reading.batches()
        if not reading.last_n and (reading.end or reading.torn) and not self._is_first_line_torn():
            raise SessionUnreadable(f"{self.path} holds no session.")
        self.last_n = reading.last_n
        self._end = reading.end
        if self.is_newer:
            self.is_read_only = True
        if not self.is_read_only:
            self._repair()

    @property
    def is_saved(self) -> bool:
        """Whether no entry waits for room on the disk."""
        return not self._waiting

    @property
    def is_newer(self) -> bool:
        """A newer version of the format stands in the file."""
        return self.reading.newest_version > LOG_VERSION

    def _is_first_line_torn(self) -> bool:
        return not self.reading.end and b'{"v":'.startswith(self.reading.torn[:5])

    def _repair(self) -> None:
        torn = self.reading.torn
        self._is_line_open = self.reading.lacks_line_end
        if not torn:
            return
        try:
            self._move_torn(torn)
        except OSError as error:
            self._is_line_open = True
            self._tell(error)

    def _move_torn(self, torn: bytes) -> None:
        with _open(self.path.with_name("log.jsonl.torn"), _APPEND_NEW) as file:
            file.write(torn + b"\n")
            os.fsync(file.fileno())
        os.ftruncate(self._file.fileno(), self.reading.end)
        self.repairs.append(f"The last line was cut off ({len(torn)} bytes, kept in log.jsonl.torn).")

    def append(self, entry: AnyEntry) -> AnyEntry:
        """Hand an entry to the system; return it as it will be read back. Raises: SessionError."""
        if self.is_read_only:
            raise SessionError("This session is open for reading only.")
        n = self.last_n + 1
        line = _line(entry, n, self._mask)
        self.last_n = n
        self._waiting[n] = line
        self._write_waiting()
        return decode(line)

    def _write_waiting(self) -> None:
        try:
            status = os.fstat(self._file.fileno())
            if status.st_size < self._end:
                self._begin_anew(status.st_size)
            if status.st_nlink == 0:
                self._write_anew()
            for n, line in list(self._waiting.items()):
                self._write(n, line)
                del self._waiting[n]
        except OSError as error:
            self._tell(error)
        else:
            self._tell_recovered()

    def _write(self, n: int, line: bytes) -> None:
        descriptor = self._file.fileno()
        if self._is_line_open:
            os.write(descriptor, b"\n")
            self._end += 1
            self._is_line_open = False
        written = 0
        try:
            while written < len(line):
                written += os.write(descriptor, line[written:])
        except OSError:
            if written:
                self._take_back(written)
            raise
        self.reading.places.add(n, self._end)
        self._end += len(line)

    def _take_back(self, written: int) -> None:
        try:
            os.ftruncate(self._file.fileno(), self._end)
        except OSError:
            self._end += written
            self._is_line_open = True

    def _write_anew(self) -> None:
        """The folder was deleted under us: the open file still has all, so write it again."""
        make_home(self.path.parent.parent)
        platform.make_private_folder(self.path.parent)
        file = _open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL)
        platform.try_lock(file)
        try:
            self._copy_to(file, self._end)
        except OSError:
            file.close()
            self.path.unlink(missing_ok=True)
            raise
        self._file.close()
        self._file = file
        if not self._is_troubled:
            self.on_trouble(
                "The session's folder was deleted; its log was written again, nothing is missing."
            )

    def _mend(self) -> bool:
        """Write the file again if it was cut short under us; False if it was not."""
        is_short = not self.is_read_only and os.fstat(self._file.fileno()).st_size < self._end
        if is_short:
            self._write_waiting()
        return is_short

    def _begin_anew(self, size: int) -> None:
        """The file was cut short under us: what is left goes aside, what memory holds waits to be written."""
        if size:
            with _open(self.path.with_name("log.jsonl.torn"), _APPEND_NEW) as aside:
                self._copy_to(aside, size)
        os.ftruncate(self._file.fileno(), 0)
        lines = {entry.n: encode_line(encode_body(entry), entry.n, entry.at) for entry in self.remembered()}
        self._waiting = dict(sorted((lines | self._waiting).items()))
        self.reading.places = Places()
        self._end, self._is_line_open = 0, False
        self.on_trouble(
            "The session's log was cut short from outside; the conversation as it stands was written again."
        )

    def _copy_to(self, file: IO[bytes], size: int) -> None:
        place = 0
        while place < size:
            block = os.pread(self._file.fileno(), min(CHUNK_BYTES, size - place), place)
            place += os.write(file.fileno(), block)

    def _tell(self, error: OSError) -> None:
        if not self._is_troubled:
            self._is_troubled = True
            reason = error.strerror or str(error)
            self.on_trouble(f"The session cannot be saved ({reason}); it goes on in memory.")

    def _tell_recovered(self) -> None:
        if self._is_troubled:
            self._is_troubled = False
            self.on_trouble("The session is saved again; nothing is missing.")

    def read(self, n: int) -> AnyEntry:
        """Return entry `n`. Raises: KeyError."""
        self._mend()
        if n in self._waiting:
            return decode(self._waiting[n])
        line = _read_line(self._file.fileno(), self.reading.places.find(n, self._file.fileno()))
        entry = parse(line).entry
        if entry is None:
            raise KeyError(n)
        return entry

    def entries(self) -> Iterator[AnyEntry]:
        """Read all entries from the first on, those that wait in memory too."""
        self._mend()
        yield from chain.from_iterable(Reading(self._file.fileno()).batches())
        yield from map(decode, list(self._waiting.values()))

    def sync(self) -> None:
        """Make what is written durable."""
        if self.is_read_only:
            return
        if not self._mend() and self._waiting:
            self._write_waiting()
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            self._tell(error)

    def close(self) -> None:
        """Let go of the file and its lock."""
        if not self._file.closed:
            self.sync()
            self._file.close()


_APPEND_NEW = os.O_RDWR | os.O_APPEND | os.O_CREAT


def _open(path: Path, flags: int) -> IO[bytes]:
    return os.fdopen(platform.open_private(path, flags), "rb" if flags & 3 == os.O_RDONLY else "r+b", 0)


def _read_line(descriptor: int, place: int) -> bytes:
    size = 1 << 14
    while True:
        block = os.pread(descriptor, size, place)
        end = block.find(b"\n")
        if end >= 0 or len(block) < size:
            return block[:end] if end >= 0 else block
        size *= 8
