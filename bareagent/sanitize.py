"""The one door for untrusted text: what passes here can neither steer the terminal nor hide.

Markup is no concern of this file: nothing untrusted is ever given to a markup parser.
"""

import re
from typing import Any

from bareagent.cells import cells, fit

ELLIPSIS = "…"

# What ends a control string: BEL, ST, CAN, SUB; an escape or the end of its line cut it short, so
# that one left open hides no more than its own line.
_STRING_BODY = r"[^\x07\x18\x1a\x1b\x9c\n\r\x85\u2028\u2029]*"
_STRING = rf"(?:\x1b[]PX^_]|[\x90\x98\x9d-\x9f]){_STRING_BODY}"
_CSI = r"(?:\x1b\[|\x9b)[ -?]*"
_ESCAPE = r"\x1b[ -/]*"
# Line ends of every kind. A lone carriage return becomes a newline: what a progress bar would
# overwrite stays readable, and no text can cover another.
_NEWLINE = r"\r+\n?|[\x0b\x0c\x85\u2028\u2029]"
_BIDI = r"\u202a-\u202e\u2066-\u2069"
# Shown as nothing: soft hyphen, zero-width space, word joiner, byte-order mark, tags, fillers
# and the variation selectors no emoji uses.
_HIDDEN = (
    r"\xad\u034f\u061c\u180b-\u180f\u200b\u200e\u200f\u2060-\u2065\u206a-\u206f\ufeff\ufff0-\ufffb"
    r"\U000e0000-\U000e0fff"
)
_CONTROL = r"\x00-\x08\x0e-\x1f\x7f-\x9f"
_JOINERS = "\u200c\u200d"
_SELECTORS = "".join(map(chr, range(0xFE00, 0xFE10)))
_JOINING = re.compile(r"[\u200c\u200d\ufe00-\ufe0f]+")
_PAIR = r"[\ud800-\udbff][\udc00-\udfff]"

_SUSPECT = re.compile(
    rf"[{_CONTROL}\x0b-\x0d\u2028\u2029{_BIDI}{_HIDDEN}\u200c\u200d\ufe00-\ufe0f\ud800-\udfff]"
)
_DIRTY = re.compile(
    rf"(?P<line>{_NEWLINE})|(?P<drop>{_CSI}[@-~]?|{_STRING}[\x07\x18\x1a\x9c]?|{_ESCAPE}[0-~]?"
    rf"|[{_CONTROL}{_BIDI}{_HIDDEN}])|{_PAIR}|[\ud800-\udfff]"
)
# What the end of a chunk may leave open, and the shortest text that leaves the same open.
_OPEN = re.compile(
    rf"(?:(?P<csi>{_CSI})|(?P<string>{_STRING})|(?P<escape>\x1b[ -/]+)|(?P<bare>\x1b)"
    r"|(?P<cr>\r+)|[\ud800-\udbff])\Z"
)
_SHORTEST = {"csi": "\x1b[", "string": "\x1b]", "escape": "\x1b(", "bare": "\x1b", "cr": "\r"}
_SURROGATES = re.compile(rf"{_PAIR}|[\ud800-\udfff]")
_SPACE = re.compile(r"\s+")


def _replacement(match: re.Match[str]) -> str:
    if match.lastgroup == "drop":
        return ""
    return "\n" if match.lastgroup == "line" else _joined(match)


def _joined(match: re.Match[str]) -> str:
    text = match[0]
    if len(text) == 1:
        return "\ufffd"
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def clean(text: str) -> str:
    """Give the text without anything that could steer a terminal or hide from a reader.

    Gone are escape sequences of every form, control characters but newline and tab, direction
    overrides and invisible characters (joiners and selectors stay where emoji and scripts need
    them). Every line end becomes a newline, a lone surrogate U+FFFD. Time is linear.
    """
    if text.isprintable() and text.isascii():
        return text
    if not _SUSPECT.search(text):
        return text
    return _JOINING.sub(_needed, _DIRTY.sub(_replacement, text))


def _needed(match: re.Match[str]) -> str:
    # A selector must follow something visible, a joiner a sign or letter of a script that joins.
    last = match.string[match.start() - 1] if match.start() else " "
    kept = ""
    for char in match[0]:
        if char in _JOINERS:
            is_needed = last >= "\u0600" and last not in _JOINERS
        else:
            is_needed = last > " " and not _JOINING.match(last)
        if is_needed:
            kept += char
            last = char
    return kept


class Cleaner:
    """Cleans a stream: the pieces it gives, joined, are the cleaned whole, however it was cut."""

    def __init__(self) -> None:
        self._open = ""
        self._last = ""

    def feed(self, chunk: str) -> str:
        """Give what of the text so far is certain; the rest waits for the next piece."""
        text = self._open + chunk
        self._open = ""
        if not _SUSPECT.search(text):
            self._last = text[-1:] or self._last
            return text
        match = _OPEN.search(text)
        if match:
            text = text[: match.start()]
            self._open = _SHORTEST.get(match.lastgroup or "", match[0])
        return self._continued(text)

    def finish(self) -> str:
        """Give what was held back; the cleaner is as new."""
        held, self._open = self._open, ""
        result = self._continued(held)
        self._last = ""
        return result

    def _continued(self, text: str) -> str:
        # Whether a joiner or selector stays depends on what it follows: at most two of them and
        # their sign, which an earlier piece may hold.
        result = clean(self._last + text)[len(self._last) :]
        self._last = (self._last + result)[-3:].lstrip(_JOINERS + _SELECTORS)
        return result


def valid_unicode(text: str) -> str:
    """Give the text with surrogate pairs joined and lone surrogates as U+FFFD."""
    return text if text.isascii() else _SURROGATES.sub(_joined, text)


def scrub(value: Any) -> Any:
    """Give a JSON value, nested as it may be, in which every string is valid Unicode."""
    root = [value]
    open_boxes: list[Any] = [root]
    while open_boxes:
        box = open_boxes.pop()
        for key, item in enumerate(box) if isinstance(box, list) else list(box.items()):
            box[key] = _scrubbed_shallow(item)
            if isinstance(item, dict | list):
                open_boxes.append(box[key])
    return root[0]


def _scrubbed_shallow(item: Any) -> Any:
    if isinstance(item, str):
        return valid_unicode(item)
    if isinstance(item, dict):
        return {valid_unicode(key) if isinstance(key, str) else key: v for key, v in item.items()}
    return list(item) if isinstance(item, list) else item


def one_line(text: str, width_cells: int) -> str:
    """Give the text cleaned, on one line, cut with `…` to at most `width_cells` cells."""
    if len(text) <= width_cells and text.isascii() and text.isprintable() and "  " not in text:
        return text.strip()
    # A cell takes at most a few characters; what lies far beyond the cut is not looked at.
    text = clean(text[: 64 * max(width_cells, 1) + 4096])
    text = _SPACE.sub(" ", text).strip()
    if cells(text) <= width_cells:
        return text
    if width_cells < 1:
        return ""
    return text[: fit(text, width_cells - 1)].rstrip() + ELLIPSIS


def counted(n: int, noun: str) -> str:
    """Return a number with its noun: `1 fault`, `1,204 faults`."""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")
