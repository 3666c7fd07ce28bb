"""Parts of a text file of any size: by lines, or by characters within one line of megabytes."""

import codecs
from collections.abc import Iterator
from typing import IO

from bareagent.tools.base import ToolError, n_of

CHUNK_BYTES = 1 << 20
LINE_CHARS = 2000
MAX_COUNTED_BYTES = 1 << 28


def of_lines(file: IO[bytes], name: str, offset: int, limit: int, n_chars: int) -> str:
    """Return numbered lines from `offset` (1 is the first), at most `n_chars` characters, and what is left.

    Raises: ToolError where the file has fewer lines.
    """
    _go_to_line(file, name, offset)
    shown: list[str] = []
    used = 0
    is_damaged = False
    for number in range(offset, offset + limit):
        start = file.tell()
        raw, n_cut = _line(file)
        if not raw:
            break
        text, is_bad = _decoded(raw, n_cut)
        line = f"{number}: {text}" + (_goes_on(number, n_cut) if n_cut else "")
        used += len(line) + 1
        if shown and used > n_chars:
            file.seek(start)
            break
        shown.append(line)
        is_damaged = is_damaged or is_bad
    if not shown:
        return f"({name} is empty)"
    return "\n".join([*shown, *_notes(file, offset, len(shown), is_damaged=is_damaged)])


def _line(file: IO[bytes]) -> tuple[bytes, int]:
    """Read a line, at most what `LINE_CHARS` need; return it and how many bytes of it were passed over."""
    # As many bytes as the characters can have, and a line end.
    raw = file.readline(LINE_CHARS * 4 + 2)
    text = raw.decode("utf-8", "replace").rstrip("\r\n")
    if len(text) <= LINE_CHARS:
        return raw, 0
    kept = text[:LINE_CHARS].encode()
    n_cut = max(len(raw) - len(kept), 1)
    while not raw.endswith(b"\n"):
        raw = file.readline(CHUNK_BYTES)
        if not raw:
            break
        n_cut += len(raw)
    return kept, n_cut


def _decoded(raw: bytes, n_cut: int) -> tuple[str, bool]:
    if not n_cut:
        raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    text = raw.decode("utf-8", "replace").replace("\0", "\ufffd")
    return text, "\ufffd" in text


def _goes_on(number: int, n_cut: int) -> str:
    return f" [... {n_of(n_cut, 'more byte')} in this line: offset={number}, column={LINE_CHARS + 1} reads on ...]"


def _notes(file: IO[bytes], offset: int, n_shown: int, *, is_damaged: bool) -> list[str]:
    notes = []
    last = offset + n_shown - 1
    left, is_all = _n_lines_left(file)
    if left:
        of = f" of {last + left:,}" if is_all else ""
        notes.append(f"[lines {offset}-{last}{of}; offset={last + 1} reads on]")
    if is_damaged:
        notes.append("[U+FFFD stands for bytes that are no UTF-8, and for NUL]")
    return notes


def _n_lines_left(file: IO[bytes]) -> tuple[int, bool]:
    """Count the lines from here on; False where the file is too large to count them all."""
    count = n_read = 0
    last = b"\n"
    while chunk := file.read(CHUNK_BYTES):
        count += chunk.count(b"\n")
        last = chunk[-1:]
        n_read += len(chunk)
        if n_read > MAX_COUNTED_BYTES:
            return max(count, 1), False
    return count + (last != b"\n"), True


def _go_to_line(file: IO[bytes], name: str, number: int) -> None:
    """Place the file at the start of a line. Raises: ToolError where there is none."""
    wanted = number - 1
    position = passed = 0
    last = b""
    while wanted > passed:
        chunk = file.read(CHUNK_BYTES)
        if not chunk:
            n_lines = passed + (last not in {b"", b"\n"})
            raise ToolError(f"{name} has only {n_of(n_lines, 'line')}.")
        here = chunk.count(b"\n")
        if passed + here >= wanted:
            position += _after_newline(chunk, wanted - passed)
            break
        passed += here
        position += len(chunk)
        last = chunk[-1:]
    file.seek(position)
    if number > 1 and not file.read(1):
        raise ToolError(f"{name} has only {n_of(number - 1, 'line')}.")
    file.seek(position)


def _after_newline(chunk: bytes, nth: int) -> int:
    at = 0
    for _ in range(nth):
        at = chunk.index(b"\n", at) + 1
    return at


def of_line(file: IO[bytes], name: str, number: int, column: int, n_chars: int) -> str:
    """Return up to `n_chars` characters of one line from a column on (1 is the first).

    Raises: ToolError where the line is shorter.
    """
    _go_to_line(file, name, number)
    to_skip = column - 1
    taken: list[str] = []
    room = n_chars
    is_more = False
    for text in _pieces(file):
        part = text[to_skip:]
        to_skip -= min(to_skip, len(text))
        taken.append(part[:room])
        is_more = len(part) > room
        room -= len(taken[-1])
        if is_more:
            break
    if to_skip or not any(taken):
        raise ToolError(f"Line {number} of {name} ends before column {column}.")
    end = column + n_chars - room
    goes_on = f"\n[line {number} goes on; offset={number}, column={end} reads on]"
    return f"{number}: {''.join(taken)}" + (goes_on if is_more else f"\n[end of line {number}]")


def _pieces(file: IO[bytes]) -> Iterator[str]:
    """Decode a line chunk by chunk, without its end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    is_last = False
    while not is_last:
        raw = file.readline(CHUNK_BYTES)
        is_last = not raw or raw.endswith(b"\n")
        text = decoder.decode(raw, final=is_last).replace("\0", "\ufffd")
        yield text.rstrip("\r\n") if is_last else text


def of_chars(file: IO[bytes], offset: int, limit: int) -> tuple[str, bool]:
    """Return `limit` characters of a file from `offset` (0 is the first), and whether more follow."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    taken: list[str] = []
    room = limit
    raw = b"-"
    while raw:
        raw = file.read(CHUNK_BYTES)
        text = decoder.decode(raw, final=not raw).replace("\0", "\ufffd")
        part = text[offset:]
        offset -= min(offset, len(text))
        taken.append(part[:room])
        if len(part) > room:
            return "".join(taken), True
        room -= len(part)
    return "".join(taken), False
