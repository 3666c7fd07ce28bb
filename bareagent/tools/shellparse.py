"""Reads a shell command into its simple commands, words and redirections, without running anything.

Built on the tree-sitter grammar for bash, read strictly: what this file does not know by name, or where
the grammar and bash may differ, is a fault, and a command with a fault is asked for.
"""

import re
import threading
import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_CHARS = 20_000
_MAX_COMMANDS = 200
_MAX_DEPTH = 60

_CONTAINERS = frozenset(
    {
        "program", "list", "pipeline", "redirected_statement", "subshell", "compound_statement",
        "if_statement", "elif_clause", "else_clause", "while_statement", "for_statement", "do_group",
        "negated_command", "case_statement", "case_item", "command_substitution", "heredoc_body",
    }
)  # fmt: skip
_TOKENS = frozenset(
    {
        ";", "\n", "&&", "||", "|", "|&", "(", ")", "{", "}", "if", "then", "elif", "else", "fi", "for",
        "in", "do", "done", "while", "until", "case", "esac", ";;", "!", "$(", "`", '"',
    }
)  # fmt: skip
_WORDS = frozenset(
    {
        "word", "number", "raw_string", "string", "concatenation", "simple_expansion", "expansion",
        "command_substitution", "process_substitution", "arithmetic_expansion", "ansi_c_string",
        "translated_string", "brace_expression",
    }
)  # fmt: skip
_LOOPS = frozenset({"while_statement", "for_statement", "do_group"})
_OUTPUT = frozenset({">", ">>", ">|", "&>", "&>>", ">&", "<>"})
_GAP = re.compile(rb"(?:[ \t\n]|(?:(?<=[ \t\n])|^)\\\n)*")
_PLAIN_VARIABLE = re.compile(r"\$(\w+|[?#@*$!-])|\$\{#?\w+\}")
_PLAIN_ARITHMETIC = re.compile(r"\$\(\([\d\s+*/%()-]*\)\)")
_PLAIN_TEST = re.compile(r"\[\[?( [\w\s./\"'=!:@%+,$~*?^-]*)\]\]?")
_TEST_THAT_COMPUTES = re.compile(r"\s-([vRo]|eq|ne|lt|le|gt|ge)\s")
_HERE_START = re.compile(r"(?P<quote>['\"]?)(?P<name>[A-Za-z_]\w*)(?P=quote)")
_BARE = re.compile(r"[A-Za-z0-9_./+:@%=,^-]+")


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """One word: as written, and its value where that is fixed.

    `is_fixed` is False for expansions of every kind; `has_glob` when `*`, `?` or `[` stand unquoted
    (the value then holds the pattern); `is_bare` when nothing is quoted or special at all.
    """

    raw: str
    text: str = ""
    is_fixed: bool = True
    has_glob: bool = False
    is_bare: bool = False

    @property
    def path(self) -> str:
        """The value as a path: a quoted `~` is a name like any other."""
        return f"./{self.text}" if self.text.startswith("~") and not self.raw.startswith("~") else self.text


ANY_WORD = Word(raw="…", is_fixed=False)
"""A word that only running the command tells."""


class Simple(msgspec.Struct, frozen=True, kw_only=True):
    """One simple command; `is_repeated` inside a loop."""

    words: tuple[Word, ...]
    is_repeated: bool = False


class Redirect(msgspec.Struct, frozen=True, kw_only=True):
    """A redirection to or from a file."""

    kind: Literal["read", "write"]
    target: Word


class Script(msgspec.Struct, kw_only=True):
    """All of a command: what stands inside substitutions, loops and subshells too, in order."""

    simples: list[Simple] = msgspec.field(default_factory=list)
    redirects: list[Redirect] = msgspec.field(default_factory=list)
    faults: list[str] = msgspec.field(default_factory=list)
    is_opaque: bool = False


# Calls of several subagents are judged side by side, in threads; a parser has one state.
_one_at_a_time = threading.Lock()


@cache
def _parser() -> "Parser":
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def parse(command: str) -> Script:
    """Read a command; what is not understood stands in `faults`, and may be missing elsewhere."""
    reason = _unreadable(command)
    if reason:
        return Script(faults=[reason], is_opaque=True)
    source = command.encode()
    with _one_at_a_time:
        root = _parser().parse(source).root_node
    if root.has_error:
        return Script(faults=["it cannot be parsed"], is_opaque=True)
    reader = _Reader(source)
    reader.statement(root, 0, is_repeated=False)
    return reader.script


def _unreadable(command: str) -> str:
    if len(command) > MAX_CHARS:
        return "it is too long to look through"
    for letter in set(command) - {" ", "\n", "\t"}:
        if unicodedata.category(letter)[0] in "CZ":
            return "it holds invisible or control characters"
    return ""


def _text(node: "Node") -> str:
    return (node.text or b"").decode()


class _Reader:
    """Walks the tree once and fills the script."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.script = Script()
        self._n_heredocs = 0

    def fault(self, reason: str, *, is_opaque: bool = False) -> None:
        if reason not in self.script.faults:
            self.script.faults.append(reason)
        self.script.is_opaque = self.script.is_opaque or is_opaque

    def _is_too_deep(self, depth: int) -> bool:
        if depth > _MAX_DEPTH:
            self.fault("it is nested too deeply", is_opaque=True)
        return depth > _MAX_DEPTH

    def statement(self, node: "Node", depth: int, *, is_repeated: bool) -> None:
        """Walk a statement and all below it."""
        self._check_gaps(node)
        is_repeated = is_repeated or node.type in _LOOPS
        for child in node.children:
            self._child(child, depth + 1, is_repeated=is_repeated)

    def _child(self, node: "Node", depth: int, *, is_repeated: bool) -> None:
        if self._is_too_deep(depth):
            return
        match node.type:
            case "command":
                self._command(node, depth, is_repeated=is_repeated)
            case "file_redirect" | "herestring_redirect" | "heredoc_redirect":
                self._redirect(node, depth)
            case "comment":
                self._comment(node)
            case "test_command":
                self._test(node)
            case kind if kind in _CONTAINERS:
                self.statement(node, depth, is_repeated=is_repeated)
            case kind if kind in _WORDS:
                self.word(node, depth)
            case _:
                self._rest(node, depth, is_repeated=is_repeated)

    def _rest(self, node: "Node", depth: int, *, is_repeated: bool) -> None:
        if node.type in _TOKENS or node.type in {"variable_name", "heredoc_content"}:
            return
        if node.type == "&":
            self.fault("it runs something in the background")
            return
        self.fault(_STRANGE.get(node.type, f"it uses {node.type.replace('_', ' ')}"))
        for child in node.children:
            if child.is_named:
                self._child(child, depth + 1, is_repeated=is_repeated)

    def _check_gaps(self, node: "Node") -> None:
        """Between the parts of a statement stands nothing that the grammar passed over."""
        at = node.start_byte
        for child in node.children:
            self._check_gap(at, child.start_byte)
            at = max(at, child.end_byte)
        self._check_gap(at, node.end_byte)

    def _check_gap(self, start: int, end: int) -> None:
        if start < end and not _GAP.fullmatch(self.source, start, end):
            self.fault("part of it cannot be read", is_opaque=True)

    def _comment(self, node: "Node") -> None:
        before = self.source[node.start_byte - 1 : node.start_byte]
        if before not in {b"", b" ", b"\t", b"\n", b";"} or self.source[: node.start_byte].endswith(b"\\\n"):
            self.fault("it has a comment in an odd place", is_opaque=True)

    def _test(self, node: "Node") -> None:
        text = _text(node)
        if not _PLAIN_TEST.fullmatch(text) or _TEST_THAT_COMPUTES.search(text):
            self.fault("it has a condition that may run code")

    def _command(self, node: "Node", depth: int, *, is_repeated: bool) -> None:
        self._check_gaps(node)
        words: list[Word] = []
        for child in node.children:
            if child.type == "command_name":
                words.append(self.word(child.children[0], depth))
            elif child.type in _WORDS:
                words.append(self.word(child, depth))
            elif child.type == "variable_assignment":
                self.fault("it sets a variable for the command")
                self._below(child, depth)
            else:
                self._child(child, depth, is_repeated=is_repeated)
        if words and not (words[0].is_fixed and not words[0].has_glob):
            self.fault("its command word is only known when it runs", is_opaque=True)
        if len(self.script.simples) >= _MAX_COMMANDS:
            self.fault("it holds too many commands", is_opaque=True)
            return
        self.script.simples.append(Simple(words=tuple(words), is_repeated=is_repeated))

    def _below(self, node: "Node", depth: int) -> None:
        """Find the commands inside a word or an assignment."""
        if self._is_too_deep(depth):
            return
        for child in node.children:
            if child.type in _WORDS:
                self.word(child, depth + 1)
            else:
                self._below(child, depth + 1)

    def word(self, node: "Node", depth: int) -> Word:
        """Return a word's value; commands inside it are walked too."""
        raw = _text(node)
        if self._is_too_deep(depth):
            return Word(raw=raw, is_fixed=False)
        if "\\\n" in raw and node.type != "raw_string":
            self.fault("it breaks a line inside a word", is_opaque=True)
        match node.type:
            case "word" | "number":
                return _bare_word(raw)
            case "raw_string":
                return Word(raw=raw, text=raw[1:-1])
            case "string":
                return self._string(node, raw, depth)
            case "concatenation":
                return self._joined(node, raw, depth)
            case _:
                self._expansion(node, raw, depth)
                return Word(raw=raw, is_fixed=False)

    def _string(self, node: "Node", raw: str, depth: int) -> Word:
        inner = [child for child in node.children if child.type not in {'"', "string_content"}]
        for child in inner:
            self.word(child, depth + 1)
        if inner or "`" in re.sub(r"\\.", "", raw):
            return Word(raw=raw, is_fixed=False)
        return Word(raw=raw, text=re.sub(r'\\([$`"\\])', r"\1", raw[1:-1]))

    def _joined(self, node: "Node", raw: str, depth: int) -> Word:
        if raw == "{}":
            return Word(raw=raw, text=raw)
        parts = [self.word(child, depth + 1) for child in node.children]
        n_read = sum(child.end_byte - child.start_byte for child in node.children)
        if n_read != node.end_byte - node.start_byte:
            self.fault("part of it cannot be read", is_opaque=True)
        return Word(
            raw=raw,
            text="".join(part.text for part in parts),
            is_fixed=all(part.is_fixed for part in parts) and not _has_brace(raw),
            has_glob=any(part.has_glob for part in parts),
        )

    def _expansion(self, node: "Node", raw: str, depth: int) -> None:
        match node.type:
            case "simple_expansion" | "expansion":
                if not _PLAIN_VARIABLE.fullmatch(raw):
                    self.fault("it expands a variable in a way that may run code")
            case "arithmetic_expansion":
                if _PLAIN_ARITHMETIC.fullmatch(raw):
                    return
                self.fault("it computes with variables")
            case "command_substitution":
                self.statement(node, depth + 1, is_repeated=False)
                return
            case "process_substitution":
                self.fault("it reads or writes through another command")
            case "ansi_c_string" | "translated_string" | "brace_expression":
                pass
            case kind:
                self.fault(f"it uses {kind.replace('_', ' ')}", is_opaque=True)
        for child in node.children:
            if child.is_named and child.type not in {"variable_name", "special_variable_name"}:
                self._child(child, depth + 1, is_repeated=False)

    def _redirect(self, node: "Node", depth: int) -> None:
        if node.type == "heredoc_redirect":
            self._heredoc(node)
            return
        words = [self.word(child, depth + 1) for child in node.children if child.type in _WORDS]
        if node.type == "herestring_redirect":
            return
        operator = next((child.type for child in node.children if not child.is_named), "")
        if len(words) != 1 or operator not in _OUTPUT | {"<", "<&"}:
            if operator not in {">&-", "<&-"}:
                self.fault("it has an odd redirection", is_opaque=True)
            return
        self._redirect_to(operator, words[0])

    def _redirect_to(self, operator: str, target: Word) -> None:
        if operator in {">&", "<&"} and target.is_bare and target.text.isdigit():
            return
        if not target.is_fixed or target.has_glob:
            self.fault("it redirects to a file that is only known when it runs")
            return
        kind: Literal["read", "write"] = "write" if operator in _OUTPUT else "read"
        self.script.redirects.append(Redirect(kind=kind, target=target))

    def _heredoc(self, node: "Node") -> None:
        parts = {child.type: child for child in node.children}
        self._n_heredocs += 1
        start, end, body = parts.get("heredoc_start"), parts.get("heredoc_end"), parts.get("heredoc_body")
        is_plain = set(parts) <= {
            "<<",
            "<<-",
            "file_descriptor",
            "heredoc_start",
            "heredoc_body",
            "heredoc_end",
        }
        if start is None or end is None or self._n_heredocs > 1 or not is_plain:
            self.fault("it has a here-document of an unusual form", is_opaque=True)
            return
        match = _HERE_START.fullmatch(_text(start))
        if not match or self._heredoc_end(start, match["name"], is_tabbed="<<-" in parts) != end.end_byte:
            self.fault("it has a here-document whose end is unclear", is_opaque=True)
        elif body is not None and not match["quote"]:
            self._heredoc_body(_text(body))

    def _heredoc_end(self, start: "Node", name: str, *, is_tabbed: bool) -> int:
        """Return where bash would end it: behind the first line that is its name and nothing else."""
        at = self.source.find(b"\n", start.end_byte)
        rest = self.source[start.end_byte : at if at >= 0 else None]
        if at < 0 or rest.strip(b" \t"):
            return -1
        for line in self.source[at + 1 :].split(b"\n"):
            begin, at = at + 1, at + 1 + len(line)
            if (line.lstrip(b"\t") if is_tabbed else line) == name.encode():
                return begin + len(line)
        return -1

    def _heredoc_body(self, text: str) -> None:
        if "`" in text or "$(" in text or "${" in text or "\\\n" in text:
            self.fault("its here-document may run code", is_opaque=True)


def _has_brace(raw: str) -> bool:
    bare = re.sub(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"", "", raw, flags=re.DOTALL)
    return "{" in bare and bare != "{}"


def _bare_word(raw: str) -> Word:
    unquoted = re.sub(r"\\.", "", raw, flags=re.DOTALL)
    is_fixed = not _has_brace(raw) and "=~" not in raw and ":~" not in raw
    return Word(
        raw=raw,
        text=re.sub(r"\\(.)", r"\1", raw, flags=re.DOTALL),
        is_fixed=is_fixed and not set("$`") & set(unquoted),
        has_glob=bool(set("*?[") & set(unquoted)),
        is_bare=bool(_BARE.fullmatch(raw)),
    )


_STRANGE = {
    "function_definition": "it defines a function",
    "variable_assignment": "it sets a variable",
    "variable_assignments": "it sets variables",
    "declaration_command": "it sets a variable",
    "unset_command": "it removes a variable",
    "ERROR": "it cannot be parsed",
}
