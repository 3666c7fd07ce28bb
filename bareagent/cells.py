"""Terminal cells: how wide text is, where it may be cut.

One measure for all: a grapheme counts the larger of what modern terminals give it (one emoji of
joined parts: 2) and what older ones do (the sum of its parts), so a line that fits here fits
everywhere.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate


@lru_cache(maxsize=4096)
def _grapheme_cells(grapheme: str) -> int:
    # Loaded when first needed: its tables cost more than a plain start of the program.
    from wcwidth import wcswidth, wcwidth

    whole = wcswidth(grapheme)
    return max(whole, sum(max(wcwidth(char), 0) for char in grapheme))


def graphemes(text: str) -> Iterator[str]:
    """Give the units a reader sees as one character, in order."""
    if text.isascii():
        return iter(text)
    from wcwidth import iter_graphemes

    return iter_graphemes(text)


def cells(text: str) -> int:
    """Give the width of clean text in terminal cells (a tab or newline counts as none)."""
    if text.isascii():
        return len(text) if text.isprintable() else sum(map(str.isprintable, text))
    return sum(map(_grapheme_cells, graphemes(text)))


def fit(text: str, width_cells: int) -> int:
    """Give the largest index at which a prefix of `text` ends on a grapheme and fits the width."""
    if text.isascii() and text.isprintable():
        return min(len(text), max(width_cells, 0))
    used = end = 0
    for grapheme in graphemes(text):
        used += _grapheme_cells(grapheme) if not grapheme.isascii() else int(grapheme.isprintable())
        if used > width_cells:
            break
        end += len(grapheme)
    return end


def fit_right(text: str, width_cells: int) -> int:
    """Give the smallest index from which the rest of `text` fits the width."""
    parts = list(graphemes(text))
    sizes = accumulate(cells(part) for part in reversed(parts))
    n_kept = sum(1 for size in sizes if size <= width_cells)
    return len(text) - sum(len(part) for part in parts[len(parts) - n_kept :])
