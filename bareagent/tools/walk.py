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
from typing import BinaryIO, Literal, NamedTuple

import msgspec
from pathspec import GitIgnoreSpec

IGNORE_FILES = (".gitignore", ".ignore")
SNIFF_BYTES = 8192


class Rule(NamedTuple):
    """An ignore file: a path as it is shown, cut and led in like this, is one it can judge."""

    n_cut: int
    lead: str
    spec: GitIgnoreSpec


class Job(msgspec.Struct, kw_only=True):
    """What to search: without a pattern the files are listed. `names` are globs of file names."""

    path: str
    pattern: str | None = None
    ignore_case: bool = False
    context: int = 0
    mode: Literal["content", "files_with_matches", "count"] = "content"
    names: list[str] = []


def files(top: str) -> Iterator[str]:
    """Yield the files below a folder that no ignore rule hides, hidden ones too, `.git` left out."""
    top = top.rstrip("/")
    folders = [(top, _rules_above(top))]
    while folders:
        folder, rules = folders.pop()
        rules = rules + _rules_in(folder, len(folder) + 1, "")
        below = []
        for entry in _entries(folder):
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name == ".git" or _is_ignored(entry.path, rules, is_folder=is_folder):
                continue
            if is_folder:
                below.append((entry.path, rules))
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


def _rules_above(top: str) -> list[Rule]:
    """Return the rules of the folders over `top`, up to the repository's, farthest first."""
    here = Path(top).resolve()
    rules: list[Rule] = []
    for folder in [here, *here.parents]:
        lead = here.relative_to(folder).as_posix()
        lead = "" if lead == "." else f"{lead}/"
        if folder != here:
            rules = _rules_in(str(folder), len(top) + 1, lead) + rules
        if (folder / ".git").exists():
            return _rules_of(folder / ".git" / "info" / "exclude", len(top) + 1, lead) + rules
    return rules


def _rules_in(folder: str, n_cut: int, lead: str) -> list[Rule]:
    return [rule for name in IGNORE_FILES for rule in _rules_of(Path(folder, name), n_cut, lead)]


def _rules_of(file: Path, n_cut: int, lead: str) -> list[Rule]:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [Rule(n_cut, lead, GitIgnoreSpec.from_lines(text.splitlines()))]


def _is_ignored(path: str, rules: list[Rule], *, is_folder: bool) -> bool:
    """Ask the nearest rules first; the first word counts."""
    end = "/" if is_folder else ""
    for rule in reversed(rules):
        verdict = rule.spec.check_file(f"{rule.lead}{path[rule.n_cut :]}{end}").include
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
    if Path(job.path).is_file():
        yield job.path
        return
    for path in files(job.path):
        name = path.rpartition("/")[2]
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
