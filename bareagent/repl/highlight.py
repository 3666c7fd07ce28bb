"""Syntax colours for code that arrives line by line, the lexer's state carried on."""

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, cast

from bareagent.repl.flow import Span
from bareagent.repl.styles import Styles

if TYPE_CHECKING:
    from pygments.lexer import ExtendedRegexLexer, Lexer

# A longer line gets no colours: lexers may take more than linear time.
_MAX_LINE_CHARS = 1000

_LEXER_FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)

# By the first words of a pygments token type, longest first.
_LOOKS = (
    ("Keyword.Constant", "number"),
    ("Keyword", "keyword"),
    ("Operator.Word", "keyword"),
    ("Operator", "operator"),
    ("Literal.String", "string"),
    ("Literal.Number", "number"),
    ("Comment", "comment"),
    ("Name.Function", "name"),
    ("Name.Class", "name"),
    ("Name.Decorator", "builtin"),
    ("Name.Builtin", "builtin"),
    ("Name.Exception", "builtin"),
    ("Name.Tag", "keyword"),
    ("Name.Attribute", "name"),
    ("Generic.Inserted", "inserted"),
    ("Generic.Deleted", "deleted"),
    ("Generic.Heading", "heading"),
    ("Generic.Subheading", "subheading"),
)

# Block comments that a lexer matches in one go are followed here, for it sees one line at a time.
_C_LIKE = frozenset(
    [
        "c",
        "c++",
        "c#",
        "java",
        "javascript",
        "typescript",
        "go",
        "rust",
        "css",
        "scss",
        "kotlin",
        "swift",
        "scala",
        "php",
        "dart",
        "groovy",
        "sql",
    ]
)
_C_SCAN = re.compile(r'"(?:\\.|[^"\\])*"|' + r"'(?:\\.|[^'\\])*'|`[^`]*`|//.*|/\*.*?\*/|/\*")
_XML_SCAN = re.compile(r"<!--.*?-->|<!--")


# The text chooses the lexer, and among pygments' hundreds there are some that never end on hostile
# lines: only these are used.
_LANGUAGES = frozenset(
    re.findall(
        r"\S+",
        """
        bash c c# c++ clojure cmake common-lisp console cpp cs csharp css dart diff docker dockerfile
        elixir elm erlang fish fsharp go golang graphql groovy haskell hcl hs html ini java javascript
        js json json5 jsx julia kotlin latex less lisp lua make makefile mako markdown md nginx nix
        objective-c ocaml perl php powershell proto protobuf ps1 py pycon python python3 r rb rs rst
        ruby rust sass scala scheme scss sh shell shell-session solidity sql swift terraform tex tf
        toml ts tsx typescript udiff vim vue xml yaml yml zig zsh
        """,
    )
)


@cache
def _lexer(language: str) -> "Lexer | None":
    from pygments.lexers import get_lexer_by_name

    if language not in _LANGUAGES:
        return None
    return get_lexer_by_name(language, stripnl=False, ensurenl=False)


@lru_cache(maxsize=2048)
def _look(token_type: Any, styles: Styles) -> str:
    name = str(token_type).removeprefix("Token.")
    return next((getattr(styles, look) for start, look in _LOOKS if name.startswith(start)), "")


class Highlighter:
    """Colours one code block, a line at a time."""

    def __init__(self, language: str, styles: Styles) -> None:
        from pygments.lexer import RegexLexer

        self._styles = styles
        self._lexer = _lexer(language.lower()) if language else None
        self._stack = ["root"]
        self._is_stateful = isinstance(self._lexer, RegexLexer)
        name = self._lexer.name.lower() if self._lexer else ""
        self._scan = _C_SCAN if name in _C_LIKE else _XML_SCAN if name in {"html", "xml"} else None
        self._until = ""

    def copy(self) -> "Highlighter":
        """Give a highlighter of its own that stands where this one does."""
        other = object.__new__(Highlighter)
        other.__dict__.update(self.__dict__, _stack=list(self._stack))
        return other

    def line(self, text: str) -> list[Span]:
        """Give the next line, without its newline, in colours."""
        if self._lexer is None or len(text) > _MAX_LINE_CHARS:
            return [Span(text)]
        comment, code = self._comment_end(text)
        code, opened = self._comment_begin(code)
        spans = [Span(comment, self._styles.comment)] if comment else []
        if code or not comment:
            spans += self._lexed(code)
        if opened:
            spans.append(Span(opened, self._styles.comment))
        return spans

    def _comment_end(self, text: str) -> tuple[str, str]:
        if not self._until:
            return "", text
        end = text.find(self._until)
        if end < 0:
            return text, ""
        end += len(self._until)
        self._until = ""
        return text[:end], text[end:]

    def _comment_begin(self, text: str) -> tuple[str, str]:
        if self._scan and not self._until:
            for match in self._scan.finditer(text):
                if match[0] in {"/*", "<!--"}:
                    self._until = "*/" if match[0] == "/*" else "-->"
                    return text[: match.start()], text[match.start() :]
        return text, ""

    def _lexed(self, text: str) -> list[Span]:
        spans = [Span(part, _look(kind, self._styles)) for kind, part in self._tokens(text) if part]
        # Colours never change the text, whatever a lexer does.
        return spans if "".join(span.text for span in spans) == text else [Span(text)]

    def _tokens(self, text: str) -> list[tuple[Any, str]]:
        # Lexers whose callbacks take no context or one of their own cannot be carried on: there
        # each line stands alone. One that fails on its own leaves the text as it is.
        for lexed in (self._stateful, self._alone) if self._is_stateful else (self._alone,):
            try:
                return lexed(text)
            except _LEXER_FAULTS:
                self._is_stateful = False
        return []

    def _alone(self, text: str) -> list[tuple[Any, str]]:
        lexer = cast("Lexer", self._lexer)
        return [(kind, part.replace("\n", "")) for kind, part in lexer.get_tokens(text)]

    def _stateful(self, text: str) -> list[tuple[Any, str]]:
        from pygments.lexer import ExtendedRegexLexer, LexerContext

        # The context form of the same algorithm keeps its stack where we can carry it on.
        context = LexerContext(text + "\n", 0, list(self._stack))
        lexer = cast("ExtendedRegexLexer", self._lexer)
        found = ExtendedRegexLexer.get_tokens_unprocessed(lexer, context=context)
        tokens = [(kind, part.replace("\n", "")) for _at, kind, part in found]
        self._stack = context.stack[-50:]
        return tokens
