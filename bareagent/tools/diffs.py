"""The difference of two texts for a reader's eye: fast however large they are, never the whole of a large one."""

import difflib
from collections.abc import Sequence

MAX_COMPARED_LINES = 2000
MAX_LINES = 400
MAX_LINE_CHARS = 500
CONTEXT = 3
NO_NEWLINE = "\\ No newline at end of file"


def diff(old: str, new: str) -> str:
    """Return a unified diff without file names, at most 400 lines; empty for equal texts."""
    before, after = _lines(old), _lines(new)
    start = _n_equal(before, after)
    end = _n_equal(before[start:][::-1], after[start:][::-1])
    lead = max(start - CONTEXT, 0)
    trail = max(end - CONTEXT, 0)
    changed_before = before[lead : len(before) - trail]
    changed_after = after[lead : len(after) - trail]
    if changed_before == changed_after:
        return ""
    if max(len(changed_before), len(changed_after)) > MAX_COMPARED_LINES:
        return _capped(_coarse(before, after, start, end))
    hunks = difflib.unified_diff(changed_before, changed_after, n=CONTEXT, lineterm="")
    return _capped([_moved(line, lead) for line in list(hunks)[2:]])


def _lines(text: str) -> list[str]:
    *lines, rest = text.split("\n")
    return [*lines, f"{rest}\n{NO_NEWLINE}"] if rest else lines


def _n_equal(before: Sequence[str], after: Sequence[str]) -> int:
    for count, (left, right) in enumerate(zip(before, after, strict=False)):
        if left != right:
            return count
    return min(len(before), len(after))


def _moved(line: str, by: int) -> str:
    if not line.startswith("@@"):
        return line
    ranges = [_moved_range(part, by) for part in line.split()[1:3]]
    return f"@@ {' '.join(ranges)} @@"


def _moved_range(text: str, by: int) -> str:
    start, comma, count = text[1:].partition(",")
    return f"{text[0]}{int(start) + by}{comma}{count}"


def _coarse(before: Sequence[str], after: Sequence[str], start: int, end: int) -> list[str]:
    """Say of a change too large to compare what goes and what comes, as one hunk."""
    gone = before[start : len(before) - end]
    come = after[start : len(after) - end]
    half = MAX_LINES // 2
    return [
        f"@@ -{start + 1},{len(gone)} +{start + 1},{len(come)} @@",
        *_some("-", gone, half),
        *_some("+", come, half),
    ]


def _some(sign: str, lines: Sequence[str], count: int) -> list[str]:
    shown = [sign + line for line in lines[:count]]
    more = len(lines) - count
    return [*shown, f"{sign}[... {more:,} more lines ...]"] if more > 0 else shown


def _capped(lines: Sequence[str]) -> str:
    shown = [line[:MAX_LINE_CHARS] for line in lines[: MAX_LINES + 2]]
    more = len(lines) - len(shown)
    if more > 0:
        shown.append(f"[... {more:,} more lines of the diff ...]")
    return "\n".join(shown)
