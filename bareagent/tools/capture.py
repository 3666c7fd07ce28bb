"""What a command prints: head and tail in memory, the whole in a file, however much comes."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from bareagent import platform
from bareagent.tools.base import STORED_EACH_SIDE_BYTES, missing_bytes

COPY_BYTES = 1 << 20


class Capture:
    """Keeps the first and the last `keep_bytes` of a stream, and its position.

    With a folder, a stream longer than both goes to a file there: its first 32 MiB, and behind them
    the last 32 MiB written round and round.
    """

    def __init__(
        self, keep_bytes: int, folder: Path | None = None, mask: Callable[[str], str] | None = None
    ) -> None:
        """Start empty; the file is made when it is needed. `mask` hides the secrets of what is stored."""
        self._mask = mask
        self.total = 0
        self.spill: Path | None = None
        self._keep = keep_bytes
        self._folder = folder
        self._head = bytearray()
        self._tail = bytearray()
        self._descriptor = -1
        self._is_full = False

    def feed(self, data: bytes) -> None:
        """Take more of the stream."""
        if self._descriptor < 0 and self._overflows(len(data)):
            self._open_spill()
        if self._descriptor >= 0:
            self._write(data)
        self.total += len(data)
        room = self._keep - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._keep:
            del self._tail[: len(self._tail) - self._keep]

    def _overflows(self, more: int) -> bool:
        return self._folder is not None and not self._is_full and self.total + more > 2 * self._keep

    def _open_spill(self) -> None:
        if self._folder is None:
            return
        path = self._folder / f".{os.urandom(6).hex()}.part"
        try:
            platform.make_private_folder(self._folder)
            self._descriptor = platform.open_private(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        except OSError:
            self._is_full = True
            return
        self.spill = path
        so_far, self.total = bytes(self._head + self._tail), 0
        self._write(so_far)
        self.total = len(so_far)

    def _write(self, data: bytes) -> None:
        try:
            self._write_round(data)
        except OSError:
            # The disk is full: head and tail in memory are what remains.
            self._drop_spill()

    def _write_round(self, data: bytes) -> None:
        position = self.total
        view = memoryview(data)
        while view:
            place, room = _place(position)
            n = os.pwrite(self._descriptor, view[:room], place)
            view = view[n:]
            position += n

    def _drop_spill(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._is_full = True
        if self.spill is not None:
            self.spill.unlink(missing_ok=True)
            self.spill = None

    def close(self) -> None:
        """Finish the file: in order, secrets masked. Blocks for as long as 64 MiB take."""
        if self._descriptor < 0:
            return
        try:
            if self._mask is not None or self.total > 2 * STORED_EACH_SIDE_BYTES:
                self._rewrite()
            os.close(self._descriptor)
            self._descriptor = -1
        except OSError:
            self._drop_spill()

    def _rewrite(self) -> None:
        finished = Path(f"{self.spill}.tmp")
        target = platform.open_private(finished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with os.fdopen(target, "wb") as file:
            if self._mask is None:
                file.writelines(self._pieces())
            else:
                file.writelines(map(self._masked, _of_whole_lines(self._pieces())))
        finished.replace(str(self.spill))

    def _masked(self, piece: bytes) -> bytes:
        if self._mask is None:
            return piece
        return self._mask(piece.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def _pieces(self) -> Iterator[bytes]:
        """Yield the file in the order of the stream."""
        side = STORED_EACH_SIDE_BYTES
        if self.total <= 2 * side:
            yield from self._part(0, self.total)
            return
        oldest, _room = _place(self.total)
        yield from self._part(0, side)
        yield missing_bytes(self.total - 2 * side)
        yield from self._part(oldest, 2 * side)
        yield from self._part(side, oldest)

    def _part(self, start: int, end: int) -> Iterator[bytes]:
        while start < end:
            piece = os.pread(self._descriptor, min(COPY_BYTES, end - start), start)
            if not piece:
                return
            yield piece
            start += len(piece)

    def discard(self) -> None:
        """Delete the file; head and tail stay."""
        self._drop_spill()

    def text(self) -> str:
        """Return the whole as text, or head and tail with a line between."""
        kept = self._kept_tail()
        missing = self.total - len(self._head) - len(kept)
        if not missing:
            return as_text(bytes(self._head) + kept)
        return f"{as_text(bytes(self._head))}\n[... {missing:,} bytes left out ...]\n{as_text(kept)}"

    def since(self, position: int) -> tuple[str, int]:
        """Return what came after a position, as far as it is still in memory, and the new position."""
        tail = self._kept_tail()
        tail_start = self.total - len(tail)
        position = min(max(position, 0), self.total)
        if position >= tail_start:
            return as_text(tail[position - tail_start :]), self.total
        head = bytes(self._head[position:])
        missing = tail_start - max(position, len(self._head))
        gap = f"\n[... {missing:,} bytes left out ...]\n" if missing else ""
        if not gap:
            return as_text(head + tail), self.total
        return as_text(head) + gap + as_text(tail), self.total

    def _kept_tail(self) -> bytes:
        return bytes(self._tail[-self._keep :])


def _of_whole_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Cut between lines, so that no secret is cut, where a line is no longer than memory should hold."""
    rest = b""
    for piece in pieces:
        rest += piece
        cut = rest.rfind(b"\n") + 1 or (len(rest) if len(rest) > COPY_BYTES else 0)
        yield rest[:cut]
        rest = rest[cut:]
    yield rest


def _place(position: int) -> tuple[int, int]:
    """Return where in the file a position of the stream is written, and the room up to the next turn."""
    side = STORED_EACH_SIDE_BYTES
    if position < side:
        return position, side - position
    around = (position - side) % side
    return side + around, side - around


def as_text(data: bytes) -> str:
    """Return a command's bytes as text: UTF-8, what is none replaced, NUL too."""
    return data.decode("utf-8", "replace").replace("\0", "\ufffd")
