"""Editing by what a reader sees as one character: a joined emoji, a letter with its marks."""

import re
from bisect import bisect_left

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput

from bareagent.cells import graphemes

MAX_GRAPHEME_CHARS = 64
# Joiner, forms and skin tones: terminals differ in how wide they make what these join.
_JOINING = re.compile("[\u200d\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]")


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


class Apart(Processor):
    """Shows joined emoji as their parts side by side, so that every terminal agrees where the cursor is."""

    def apply_transformation(self, given: TransformationInput) -> Transformation:
        """Leave joining characters out of a line; the text keeps them."""
        text = "".join(fragment[1] for fragment in given.fragments)
        if text.isascii() or not _JOINING.search(text):
            return Transformation(given.fragments)
        kept = [at for at, char in enumerate(text) if not _JOINING.match(char)]
        shown: StyleAndTextTuples = [(each[0], _JOINING.sub("", each[1])) for each in given.fragments]
        return Transformation(
            shown,
            source_to_display=lambda at: bisect_left(kept, at),
            display_to_source=lambda at: kept[at] if at < len(kept) else len(text) + at - len(kept),
        )
