"""File patterns as git reads them, with `{a,b}` as shells read it."""

import re

from pathspec import GitIgnoreSpec

_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
MAX_PATTERNS = 100


def expanded(pattern: str) -> list[str]:
    """Return the patterns that `{a,b}` stands for, at most about 100."""
    waiting = [pattern]
    done: list[str] = []
    while waiting and len(waiting) + len(done) <= MAX_PATTERNS:
        part = waiting.pop(0)
        match = _BRACES.search(part)
        if match is None:
            done.append(part)
            continue
        waiting += [part[: match.start()] + choice + part[match.end() :] for choice in match[1].split(",")]
    return done + waiting


def matcher(pattern: str) -> GitIgnoreSpec:
    """Return what tells whether a relative path fits: `*.py` at any depth, `src/*.py` from the top."""
    return GitIgnoreSpec.from_lines([_plain(part) for part in expanded(pattern)])


def _plain(pattern: str) -> str:
    pattern = pattern.removeprefix("./")
    return "\\" + pattern if pattern.startswith(("!", "#")) else pattern
