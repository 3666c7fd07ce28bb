"""Rows of text with colours: painting, cutting and wrapping by terminal cells. Light: the first prompt needs it."""

from collections.abc import Iterator

from bareagent.cells import cells, fit
from bareagent.sanitize import clean


def paint(text: str, style: str) -> str:
    """Return a text in a style, SGR parameters; empty leaves it as it is."""
    return f"\x1b[{style}m{text}\x1b[0m" if style and text else text


def cut(text: str, width: int) -> str:
    """Return one clean line cut to the width, its indent kept."""
    text = clean(text[: 16 * max(width, 1) + 256]).replace("\n", " ").expandtabs(4).rstrip()
    if cells(text) <= width:
        return text
    return text[: fit(text, max(width - 1, 0))] + ("…" if width > 0 else "")


def wrapped(text: str, width: int) -> list[str]:
    """Return clean text as rows of at most `width` cells, broken at blanks where they are near."""
    return [row for line in text.expandtabs(4).split("\n") for row in _broken(line, width)]


def _broken(line: str, width: int) -> Iterator[str]:
    while cells(line) > width:
        end = max(fit(line, width), 1)
        blank = line.rfind(" ", max(end - width // 3, 1), end + 1)
        end = blank + 1 if blank > 0 else end
        yield line[:end].rstrip()
        line = line[end:]
    yield line
