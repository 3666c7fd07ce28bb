"""Where a text that was not found may have been meant, and what differs there."""

import difflib
import re
import unicodedata
from collections.abc import Iterator, Sequence

MAX_SEARCHED_LINES = 20_000
MAX_CANDIDATES = 2
MAX_SHOWN_LINES = 8
MAX_LINE_CHARS = 200
LEAST_RATIO = 0.6

_ALIKE = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u200b\u200c\u200d\ufeff\u00ad", ""),
        "\u3001": ",",
        "\u3002": ".",
    }
)
_SPACES = re.compile(r"\s+")


def nearest(text: str, old: str) -> str:
    """Return a sentence and the lines of the nearest candidates; empty if nothing is near."""
    lines = text.split("\n")[:MAX_SEARCHED_LINES]
    wanted = old.strip("\r\n").split("\n")
    folded = [_folded(line) for line in lines]
    alike = list(_alike(folded, [_folded(line) for line in wanted]))
    if alike:
        what = _unlike(lines[alike[0] : alike[0] + len(wanted)], wanted)
        return f" Nearly the same stands here{what}:\n" + _shown(lines, alike, len(wanted))
    near = _near(folded, [_folded(line) for line in wanted])
    return " Nearest:\n" + _shown(lines, near, len(wanted)) if near else ""


def _folded(line: str) -> str:
    plain = unicodedata.normalize("NFKC", line.translate(_ALIKE)).translate(_ALIKE)
    return _SPACES.sub(" ", plain).strip()


def _alike(lines: Sequence[str], wanted: Sequence[str]) -> Iterator[int]:
    """Find where the wanted lines stand but for spaces, quotes, dashes and widths."""
    if not any(wanted):
        return
    for start in range(len(lines) - len(wanted) + 1):
        window = lines[start : start + len(wanted)]
        if len(wanted) == 1:
            is_alike = wanted[0] in window[0]
        else:
            ends = window[0].endswith(wanted[0]) and window[-1].startswith(wanted[-1])
            is_alike = ends and window[1:-1] == wanted[1:-1]
        if is_alike:
            yield start


def _near(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Find where the longest wanted line has its most similar ones."""
    key = max(wanted, key=len)
    at = wanted.index(key)
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(key[:MAX_LINE_CHARS])
    scored: list[tuple[float, int]] = []
    for number, line in enumerate(lines):
        matcher.set_seq1(line[:MAX_LINE_CHARS])
        if line and matcher.real_quick_ratio() > LEAST_RATIO and matcher.quick_ratio() > LEAST_RATIO:
            scored.append((-matcher.ratio(), number))
    good = [number for ratio, number in sorted(scored) if -ratio > LEAST_RATIO]
    return [max(number - at, 0) for number in good[:MAX_CANDIDATES]]


def _unlike(found: Sequence[str], wanted: Sequence[str]) -> str:
    """Name what differs between lines that look the same."""
    odd = sorted({char for line in found for char in line if ord(char) > 127} - set("".join(wanted)))
    if odd:
        names = [f"U+{ord(char):04X} {unicodedata.name(char, '').lower()}".rstrip() for char in odd[:4]]
        return f", with {', '.join(names)}"
    odd = sorted({char for line in wanted for char in line if ord(char) > 127} - set("".join(found)))
    if odd:
        return f", without U+{ord(odd[0]):04X} {unicodedata.name(odd[0], '').lower()}".rstrip()
    return ", with other spaces or indentation"


def _shown(lines: Sequence[str], starts: Sequence[int], count: int) -> str:
    blocks = []
    for start in starts[:MAX_CANDIDATES]:
        last = min(start + min(count, MAX_SHOWN_LINES), len(lines))
        blocks.append("\n".join(f"{i + 1}: {lines[i][:MAX_LINE_CHARS]}" for i in range(start, last)))
    return "\n...\n".join(blocks)
