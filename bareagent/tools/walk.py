"""Searching without ripgrep: the same output as `rg --null`, by a program of its own.

It runs as `python -m bareagent.tools.walk JSON`, so that a regular expression that never ends can be
ended like any command, and the terminal stays alive meanwhile.
"""

import fnmatch
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec
from pathspec import GitIgnoreSpec

IGNORE_FILES = (".gitignore", ".ignore")
SNIFF_BYTES = 8192
Rules = list[tuple[str, GitIgnoreSpec]]


class Job(msgspec.Struct, kw_only=True):
    """What to search: without a pattern the files are listed. `names` are globs of file names."""

    path: str
    pattern: str | None = None
    ignore_case: bool = False
    context: int = 0
    mode: Literal["content", "files_with_matches", "count"] = "content"
    names: list[str] = []


def files(path: str) -> Iterator[str]:
    """Yield the files below a folder that no ignore rule hides, hidden ones too, `.git` left out."""
    top = os.path.abspath(path)
    folders: list[tuple[str, str, Rules]] = [(path, top, _rules_above(top))]
    while folders:
        shown, folder, rules = folders.pop()
        rules = rules + _rules_in(folder)
        below = []
        for entry in _entries(shown):
            if entry.name == ".git" or _is_ignored(os.path.join(folder, entry.name), entry, rules):
                continue
            if entry.is_dir(follow_symlinks=False):
                below.append((entry.path, os.path.join(folder, entry.name), rules))
            elif entry.is_file(follow_symlinks=False):
                yield entry.path
        folders += reversed(below)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        sys.stderr.write(f"{folder}: {error.strerror}\n")
        return []


def _rules_above(top: str) -> Rules:
    """Return the rules of the folders over `top`, up to the repository's."""
    rules: Rules = []
    folder = top
    while not os.path.exists(os.path.join(folder, ".git")) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
        rules = _rules_in(folder) + rules
    exclude = os.path.join(folder, ".git", "info", "exclude")
    return _rules_of(exclude, folder) + rules


def _rules_in(folder: str) -> Rules:
    return [rule for name in IGNORE_FILES for rule in _rules_of(os.path.join(folder, name), folder)]


def _rules_of(file: str, folder: str) -> Rules:
    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [(folder, GitIgnoreSpec.from_lines(text.splitlines()))]


def _is_ignored(path: str, entry: os.DirEntry[str], rules: Rules) -> bool:
    for folder, spec in reversed(rules):
        name = os.path.relpath(path, folder)
        verdict = spec.check_file(name + "/" if entry.is_dir(follow_symlinks=False) else name).include
        if verdict is not None:
            return verdict
    return False


def search(job: Job, out: BinaryIO) -> bool:
    """Write what matches; tell whether anything did. Raises: re.error."""
    flags = re.MULTILINE | (re.IGNORECASE if job.ignore_case else 0)
    pattern = re.compile((job.pattern or "").encode(), flags)
    has_any = False
    for path in _chosen(job):
        lines = _lines_of(path)
        hits = [number for number, line in enumerate(lines) if pattern.search(line)]
        if hits:
            has_any = True
            out.write(_told(job, os.fsencode(path), lines, hits))
    return has_any


def _chosen(job: Job) -> Iterator[str]:
    if os.path.isfile(job.path):
        yield job.path
        return
    for path in files(job.path):
        name = os.path.basename(path)
        if not job.names or any(fnmatch.fnmatchcase(name, glob) for glob in job.names):
            yield path


def _lines_of(path: str) -> list[bytes]:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        sys.stderr.write(f"{path}: {error.strerror}\n")
        return []
    if b"\0" in data[:SNIFF_BYTES]:
        return []
    lines = data.split(b"\n")
    return lines[:-1] if not lines[-1] else lines


def _told(job: Job, path: bytes, lines: list[bytes], hits: list[int]) -> bytes:
    if job.mode == "files_with_matches":
        return path + b"\0"
    if job.mode == "count":
        return b"%s\0%d\n" % (path, len(hits))
    signs = dict.fromkeys(hits, b":")
    for hit in hits:
        for number in range(max(hit - job.context, 0), min(hit + job.context + 1, len(lines))):
            signs.setdefault(number, b"-")
    return b"".join(
        b"%s\0%d%s%s\n" % (path, number + 1, signs[number], lines[number]) for number in sorted(signs)
    )


def main() -> int:
    """Run one search; exit as rg does: 0 found, 1 nothing, 2 a bad pattern."""
    job = msgspec.json.decode(sys.argv[1], type=Job)
    out = sys.stdout.buffer
    if job.pattern is None:
        for path in files(job.path):
            out.write(os.fsencode(path) + b"\0")
        return 0
    try:
        return 0 if search(job, out) else 1
    except re.error as error:
        sys.stderr.write(f"regex parse error: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
