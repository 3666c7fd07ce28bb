"""Inline Markdown to styled spans: emphasis, code, links, autolinks, hard breaks."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from bareagent.repl.flow import Page, Span
from bareagent.repl.styles import joined
from bareagent.sanitize import clean

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_SPECIAL = re.compile(r"[*_`~\[\]<>&\\!\n]|://")
_URL = re.compile(r"https?://[^\s<>\"'`|]*[^\s<>\"'`|.,;:!?)\]}*_]")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_LINKABLE = re.compile(r"(?:https?://|mailto:)[!-~]{1,2000}")
_OPEN_LINK = re.compile(r"""!?\[([^\[\]]*)(?:\](?:\(\s*[^()\s]*(?:\s+["'][^()]*)?)?)?\Z""")
_OPEN_AUTOLINK = re.compile(r"<(https?://[^\s<>]*)\Z")
# Where a link leads, with its title; one that is still open goes up to the end of the text.
_TARGET = (
    r"\(\s*(?:<[^<>\n]*(?:>|\Z)|[^()\s<]*(?:\([^()\s]*\)[^()\s]*)*)"
    r"""(?:\s+(?:"[^"]*(?:"|\Z)|'[^']*(?:'|\Z))?)?\s*(?:\)|\Z)"""
)
_DELIMITER = re.compile(
    rf"\\[!-/:-@\[-`{{-~]|(`+)|\[|\](?:{_TARGET})?|\*+|(?<!\w)_+|_+(?!\w)|~~|\s", re.ASCII
)
_HARD_END = re.compile(r"(?: {2,}|(?<!\\)\\)\n\s*\Z")
# The parser's time grows with the square of the brackets in one block.
_MAX_BRACKETS = 200
# An opener this far back that is still open is taken for plain text.
_MAX_OPEN_CHARS = 1024


@lru_cache(maxsize=1)
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable("strikethrough").disable("html_inline")


def parse(source: str, page: Page, base: str = "") -> list[Span]:
    """Give the clean source of one block as spans; `base` is the look of what has no other."""
    if not _SPECIAL.search(source) or source.count("[") > _MAX_BRACKETS:
        return [Span(source, base)]
    tokens = _parser().parseInline(source)[0].children or []
    return _Reader(page, base).read(tokens)


def parse_part(source: str, page: Page, base: str = "") -> list[Span]:
    """Give the first part of a block, which ends with blanks, as spans; a hard break there is kept."""
    found = _HARD_END.search(source)
    body = source[: found.start()] if found else source.rstrip()
    return [*parse(body, page, base), Span("\n" if found else " ")]


class _Reader:
    """Turns the parser's tokens into spans, keeping the looks that are open."""

    def __init__(self, page: Page, base: str) -> None:
        self._page = page
        self._looks = [base]
        self._hrefs = [""]
        self._link_began = 0
        self._spans: list[Span] = []

    def read(self, tokens: "list[Token]") -> list[Span]:
        for token in tokens:
            if token.type == "text":
                self._text(clean(token.content))
            elif token.type == "code_inline":
                self._code(clean(token.content).replace("\n", " "))
            elif token.type in {"softbreak", "hardbreak"}:
                self._add(" " if token.type == "softbreak" else "\n")
            elif token.type == "image":
                self._image(token)
            else:
                self._mark(token)
        return self._spans

    def _add(self, text: str, look: str = "", href: str = "") -> None:
        if text:
            self._spans.append(Span(text, joined(self._looks[-1], look), href or self._hrefs[-1]))

    def _code(self, text: str) -> None:
        look = joined(self._looks[-1], self._page.styles.code)
        self._spans.append(Span(text, look, self._hrefs[-1], keeps_blanks=True))

    def _text(self, text: str) -> None:
        text = _BREAK.sub("\n", text) if "<" in text else text
        if "://" not in text or self._hrefs[-1]:
            return self._add(text)
        end = 0
        for match in _URL.finditer(text):
            self._add(text[end : match.start()])
            self._add(match[0], self._page.styles.link, _linkable(match[0]))
            end = match.end()
        return self._add(text[end:])

    def _image(self, token: "Token") -> None:
        source = clean(str(token.attrs.get("src", "")))
        self._add(f"[image: {clean(token.content)}] " if token.content else "[image] ")
        self._add(source, self._page.styles.url, _linkable(source))

    def _mark(self, token: "Token") -> None:
        looks = self._page.styles
        names = {"strong": looks.strong, "em": looks.emphasis, "s": looks.strike, "link": looks.link}
        kind, _, end = token.type.rpartition("_")
        if kind not in names:
            self._add(clean(token.content))
        elif end == "open":
            self._looks.append(joined(self._looks[-1], names[kind]))
            if kind == "link":
                self._link_began = len(self._spans)
                self._hrefs.append(clean(str(token.attrs.get("href", ""))))
        else:
            self._looks.pop()
            if kind == "link":
                self._end_link(self._hrefs.pop())

    def _end_link(self, href: str) -> None:
        # The address is shown beside the words where it cannot be opened, and where the words
        # look like another address.
        inside = self._spans[self._link_began :]
        words = "".join(span.text for span in inside)
        self._spans[self._link_began :] = [span._replace(href=_linkable(href)) for span in inside]
        is_same = href.removeprefix("mailto:").rstrip("/") == words.rstrip("/")
        opens = self._page.hyperlinks and _linkable(href) and "://" not in words and "www." not in words
        if href and not is_same and not opens:
            self._add(f" ({href})", self._page.styles.url)


def _linkable(href: str) -> str:
    return href if _LINKABLE.fullmatch(href) else ""


def _steps(text: str) -> Iterator[tuple[int, list[str]]]:
    # After each delimiter or blank: where it ends, and which delimiters are open there.
    opened: list[str] = []
    began = 0
    for match in _DELIMITER.finditer(text):
        token = match[0]
        if opened and match.start() - began > _MAX_OPEN_CHARS:
            opened.clear()
        is_code = bool(opened) and opened[-1][0] == "`"
        if opened and (token == opened[-1] or token[0] + opened[-1] == "]["):
            opened.pop()
        elif not is_code and _opens(token, text[match.end() : match.end() + 1]):
            began = began if opened else match.start()
            opened.append(token)
        yield match.end(), opened


def _opens(token: str, following: str) -> bool:
    return token[0] in "`[" or (token[0] in "*_~" and not following.isspace())


def cut(text: str, must: bool) -> int:
    """Give where the last word begins before which no emphasis, code or link is open.

    Where there is none: 0, or if it `must` be cut, where the last word begins, or the end of the text.
    """
    best = last = 0
    for end, opened in _steps(text):
        if text[end - 1].isspace() and not text[end : end + 1].isspace() and end < len(text):
            last = end
            best = best if opened else end
    return best or (last or len(text) if must else 0)


def closed(text: str) -> str:
    """Give unfinished text as it will look once what is open in it is closed."""
    text = _OPEN_AUTOLINK.sub(r"\1", _OPEN_LINK.sub(r"\1", text)).rstrip("*_~`\\")
    steps = list(_steps(text))
    opened = steps[-1][1] if steps else []
    ends = "".join(delimiter for delimiter in reversed(opened) if delimiter != "[")
    return text.rstrip() + ends if ends else text
