"""Editing by what a reader sees as one character: a joined emoji, a letter with its marks."""

from prompt_toolkit.buffer import Buffer

from bareagent.cells import graphemes

MAX_GRAPHEME_CHARS = 64


def size_before(text: str) -> int:
    """Return how many characters the last grapheme of a text has; 0 for an empty one."""
    if not text or text[-1].isascii():
        return len(text[-1:])
    return len(list(graphemes(text[-MAX_GRAPHEME_CHARS:]))[-1])


def size_after(text: str) -> int:
    """Return how many characters the first grapheme of a text has; 0 for an empty one."""
    return len(next(iter(graphemes(text[:MAX_GRAPHEME_CHARS])), ""))


def delete_before(buffer: Buffer) -> None:
    """Delete the grapheme before the cursor."""
    n = size_before(buffer.document.text_before_cursor)
    if n:
        buffer.delete_before_cursor(n)


def delete_after(buffer: Buffer) -> None:
    """Delete the grapheme behind the cursor."""
    n = size_after(buffer.document.text_after_cursor)
    if n:
        buffer.delete(n)


def go_left(buffer: Buffer) -> None:
    """Go back over a grapheme of this line."""
    buffer.cursor_position -= size_before(buffer.document.current_line_before_cursor)


def go_right(buffer: Buffer) -> None:
    """Go on over a grapheme of this line."""
    buffer.cursor_position += size_after(buffer.document.current_line_after_cursor)
