"""One pass over a log's file, and where its entries stand. Streams; changes nothing."""

import os
from array import array
from bisect import bisect_right
from collections.abc import Iterator

from bareagent.entries import LOG_VERSION, AnyEntry
from bareagent.store.lines import ODD_BLOCKS, Fault, decode_many, parse

CHUNK_BYTES = 1 << 18


class Places:
    """Where entries begin in a file, by number.

    Whole runs of entries are kept as one piece (`size` bytes at `place`), whose lines are looked for
    when one of them is asked for; single entries stand in arrays.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._firsts: list[int] = []
        self._pieces: list[tuple[int, int] | array[int]] = []

    def add_run(self, first_n: int, place: int, size: int) -> None:
        """Keep that the entries from `first_n` on stand line by line at `place`."""
        self._firsts.append(first_n)
        self._pieces.append((place, size))

    def add(self, n: int, place: int) -> None:
        """Keep where one entry begins."""
        piece = self._pieces[-1] if self._pieces else None
        if isinstance(piece, array) and self._firsts[-1] + len(piece) == n:
            piece.append(place)
        else:
            self._firsts.append(n)
            self._pieces.append(array("q", [place]))

    def find(self, n: int, descriptor: int) -> int:
        """Return where entry `n` begins. Raises: KeyError."""
        at = bisect_right(self._firsts, n) - 1
        if at < 0:
            raise KeyError(n)
        piece = self._pieces[at]
        if not isinstance(piece, array):
            piece = self._pieces[at] = _line_starts(descriptor, *piece)
        if n - self._firsts[at] >= len(piece):
            raise KeyError(n)
        return piece[n - self._firsts[at]]


def _line_starts(descriptor: int, place: int, size: int) -> "array[int]":
    starts = array("q")
    for line in os.pread(descriptor, size, place).split(b"\n")[:-1]:
        if line:
            starts.append(place)
        place += len(line) + 1
    return starts


def _has_foreign_bytes(buffer: bytearray, size: int) -> bool:
    """Carriage returns and byte-order marks, which the quick decoder passes over in silence."""
    if buffer.find(b"\r", 0, size) >= 0:
        return True
    # One byte is found many times faster than three.
    return buffer.find(b"\xef", 0, size) >= 0 and buffer.find(b"\xef\xbb\xbf", 0, size) >= 0


def _fill(descriptor: int, buffer: bytearray, place: int) -> int:
    """Read until the buffer is full or the file ends; return the number of bytes."""
    size = 0
    with memoryview(buffer) as room:
        while n_read := os.preadv(descriptor, [room[size:]], place + size):
            size += n_read
    return size


class Reading:
    """One pass over a log's file, in batches; what it learns on its way stands in its fields.

    `end` is the offset behind the last sound line, `torn` what stands behind that; `lacks_line_end` says
    that only a line end is missing. `last_n` is the highest number, `newest_version` the highest version.
    """

    def __init__(self, descriptor: int) -> None:
        """Read from the file's beginning, wherever its position is."""
        self._descriptor = descriptor
        self.last_n = 0
        self.n_lines = 0
        self._counted = 0
        self.newest_version = LOG_VERSION
        self.faults: list[Fault] = []
        self.places = Places()
        self.end = 0
        self.torn = b""
        self.lacks_line_end = False

    def batches(self) -> Iterator[list[AnyEntry]]:
        """Yield the entries in order, some at a time."""
        buffer = bytearray(CHUNK_BYTES)  # used again and again: fresh memory costs more than the read
        while n_read := _fill(self._descriptor, buffer, self.end):
            cut = buffer.rfind(b"\n", 0, n_read) + 1
            if cut:
                yield self._batch(buffer, cut)
            elif n_read < len(buffer):
                yield from self._last_line(bytes(buffer[:n_read]))
                return
            else:
                buffer = bytearray(2 * len(buffer))

    def _last_line(self, line: bytes) -> Iterator[list[AnyEntry]]:
        """A line without its end is torn, unless only the end is missing."""
        parsed = parse(line)
        if parsed.n <= self.last_n or parsed.reason not in {"", ODD_BLOCKS}:
            self.torn = line
            return
        self.lacks_line_end = True
        self.newest_version = max(self.newest_version, parsed.v)
        self.places.add(parsed.n, self.end)
        self.last_n = parsed.n
        self.end += len(line)
        if parsed.entry is not None:
            yield [parsed.entry]

    def _batch(self, buffer: bytearray, size: int) -> list[AnyEntry]:
        entries = None
        if not _has_foreign_bytes(buffer, size):
            entries = decode_many(memoryview(buffer)[:size])
        first = self.last_n + 1
        if entries is None or [e.n for e in entries] != list(range(first, first + len(entries))):
            entries = self._slow_batch(bytes(buffer[:size]))
        else:
            self.places.add_run(first, self.end, size)
            self.last_n += len(entries)
        self.end += size
        return entries

    def _slow_batch(self, chunk: bytes) -> list[AnyEntry]:
        entries = []
        place = self.end
        self.count_lines()
        for line in chunk.split(b"\n")[:-1]:
            entry = self._slow_line(line, place)
            if entry is not None:
                entries.append(entry)
            place += len(line) + 1
        return entries

    def count_lines(self) -> int:
        """Return the number of whole lines read so far; quick batches are counted only when asked for."""
        while self._counted < self.end:
            size = min(CHUNK_BYTES, self.end - self._counted)
            block = os.pread(self._descriptor, size, self._counted)
            self.n_lines += block.count(b"\n")
            self._counted += len(block)
        return self.n_lines

    def _slow_line(self, line: bytes, place: int) -> AnyEntry | None:
        self.n_lines += 1
        self._counted += len(line) + 1
        parsed = parse(line)
        if parsed.reason:
            self.faults.append(Fault(self.n_lines, parsed.reason))
        self.newest_version = max(self.newest_version, parsed.v)
        if not parsed.n:
            return None
        if parsed.n <= self.last_n:
            self.faults.append(Fault(self.n_lines, f"repeats number {parsed.n}"))
            return None
        if parsed.n > self.last_n + 1:
            lost = _span(self.last_n + 1, parsed.n - 1)
            self.faults.append(Fault(self.n_lines, f"{lost} missing before it"))
        self.places.add(parsed.n, place)
        self.last_n = parsed.n
        return parsed.entry


def _span(first: int, last: int) -> str:
    return f"entry {first} is" if first == last else f"entries {first} to {last} are"


def raw_lines(descriptor: int) -> Iterator[bytes]:
    """Yield every line of a file, whole or not, without its line end."""
    place = 0
    size = CHUNK_BYTES
    while block := os.pread(descriptor, size, place):
        cut = block.rfind(b"\n") + 1
        if not cut and len(block) < size:
            yield block
            return
        yield from block[:cut].split(b"\n")[:-1]
        place += cut
        size = CHUNK_BYTES if cut else size * 2
