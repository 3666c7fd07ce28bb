"""What a search prints, read as it comes and told in one format, with caps that say how many more."""

import re
from collections.abc import Iterator
from typing import Literal

from pathspec import GitIgnoreSpec

from bareagent.tools.base import n_of
from bareagent.tools.sensitive import is_key_name

MAX_HELD_BYTES = 8 << 20
MAX_LISTED = 1000
MAX_LINE_CHARS = 500
_LINE = re.compile(rb"(\d+)([:-])(.*)", re.DOTALL)


def _name(raw: bytes) -> str:
    return raw.removeprefix(b"./").decode("utf-8", "replace")


class Listing:
    """Paths that fit a pattern, from a stream of them parted by NUL."""

    def __init__(self, pattern: GitIgnoreSpec) -> None:
        """Start empty."""
        self._pattern = pattern
        self._paths: list[str] = []
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take more of the stream."""
        *raw, self._rest = (self._rest + data).split(b"\0")
        self._paths += [path for path in map(_name, raw) if self._pattern.match_file(path)]

    def told(self, prefix: str) -> str:
        """Return the paths in order, and how many more there are."""
        if not self._paths:
            return "No files fit."
        shown = [prefix + path for path in sorted(self._paths)[:MAX_LISTED]]
        more = len(self._paths) - len(shown)
        if more:
            shown.append(f"[{more:,} more; narrow the pattern or the path]")
        return "\n".join(shown)


class Found:
    """Matches, from a stream as `rg --null` prints it.

    `include` holds a pattern of paths where names alone do not tell. Files that hold keys by their
    name are left out of a search through a folder, and counted.
    """

    def __init__(
        self, mode: Literal["content", "files_with_matches", "count"], *, is_one_file: bool = False
    ) -> None:
        """Start empty."""
        self.include: GitIgnoreSpec | None = None
        self.n_lines = 0
        self._mode = mode
        self._is_one_file = is_one_file
        self._held: list[bytes] = []
        self._n_held_bytes = 0
        self._rest = b""
        self._hidden: set[str] = set()
        self._verdicts: dict[bytes, bool] = {}

    def feed(self, data: bytes) -> None:
        """Take more of the stream; beyond 8 MiB only count."""
        end = b"\0" if self._mode == "files_with_matches" else b"\n"
        if self._n_held_bytes > MAX_HELD_BYTES:
            self.n_lines += data.count(end)
            return
        *lines, self._rest = (self._rest + data).split(end)
        kept = [line for line in lines if self._is_wanted(line)]
        self._held += kept
        self.n_lines += len(kept)
        self._n_held_bytes += sum(map(len, kept))

    def _is_wanted(self, line: bytes) -> bool:
        raw, nul, _ = line.partition(b"\0")
        if not nul and self._mode != "files_with_matches":
            return False
        verdict = self._verdicts.get(raw)
        if verdict is None:
            verdict = self._verdicts[raw] = self._is_shown(_name(raw))
        return verdict

    def _is_shown(self, path: str) -> bool:
        if self.include is not None and not self.include.match_file(path):
            return False
        if not self._is_one_file and any(map(is_key_name, path.split("/"))):
            self._hidden.add(path)
            return False
        return True

    def told(self, prefix: str, limit: int, n_chars: int) -> str:
        """Return what was found in order of the paths, within the limits, and what is left out."""
        lines = sorted(self._held, key=lambda line: line.partition(b"\0")[0])
        shown: list[str] = []
        used = n_shown = 0
        for text, is_counted in self._texts(lines, prefix):
            used += len(text) + 1
            if used > n_chars or (is_counted and n_shown >= limit):
                break
            shown.append(text)
            n_shown += is_counted
        if shown and not n_shown:
            shown.clear()
        return "\n".join([*(shown or ["No matches."]), *self._notes(n_shown, prefix)])

    def _texts(self, lines: list[bytes], prefix: str) -> Iterator[tuple[str, bool]]:
        """Yield lines to show and whether each counts as one found."""
        if self._mode != "content":
            for line in lines:
                path, nul, count = line.partition(b"\0")
                yield prefix + _name(path) + (f": {count.decode()}" if nul else ""), True
            return
        file, before = b"", 0
        for line in lines:
            path, _, rest = line.partition(b"\0")
            match = _LINE.fullmatch(rest)
            if match is None:
                continue
            number = int(match[1])
            if path != file:
                yield prefix + _name(path), False
            elif b"-" in {match[2]} | {self._sign_before} and number > before + 1:
                yield "--", False
            file, before, self._sign_before = path, number, match[2]
            yield f"{number}{match[2].decode()} {_cut(match[3])}", True

    _sign_before = b":"

    def _notes(self, n_shown: int, prefix: str) -> list[str]:
        notes = []
        what = "line" if self._mode == "content" else "file"
        if self.n_lines > n_shown:
            more = n_of(self.n_lines - n_shown, f"more {what}")
            notes.append(f"[{more} found; narrow the pattern or the path, or raise limit]")
        if self._hidden:
            names = ", ".join(prefix + path for path in sorted(self._hidden)[:3])
            notes.append(
                f"[{n_of(len(self._hidden), 'file')} that may hold keys left out: {names}; read_file asks]"
            )
        return notes


def _cut(raw: bytes) -> str:
    text = raw.rstrip(b"\r").decode("utf-8", "replace").replace("\0", "\ufffd")
    return text if len(text) <= MAX_LINE_CHARS else f"{text[:MAX_LINE_CHARS]} [...]"
