"""Permission rules: how `bash(git status:*)` or `edit_file(src/**)` is read and what it matches."""

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, Self

import msgspec
from pathspec import GitIgnoreSpec

from bareagent.errors import ConfigError
from bareagent.tools.sensitive import Places, is_inside, plain

Decision = Literal["allow", "ask", "deny"]

READERS = frozenset({"read_file", "glob", "grep"})
WRITERS = frozenset({"write_file", "edit_file"})

_SHAPE = re.compile(r"\s*(?P<tool>[a-z][a-z0-9_-]*)\s*(?:\((?P<inner>.*)\))?\s*", re.DOTALL)
_OPERATORS = re.compile(r"[;&|<>`\n$(){}]")
_HINT = 'A rule is a tool or tool(what): "bash(git status:*)", "edit_file(src/**)", "read_file(~/.ssh/**)".'


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule: a whole tool, a command's exact words or first words, a path pattern, or a target."""

    text: str
    tool: str
    form: Literal["all", "exact", "prefix", "path", "target"]
    words: tuple[str, ...] = ()
    pattern: str = ""

    def covers_words(self, words: Sequence[str]) -> bool:
        """Tell whether a command of these words falls under the rule."""
        if self.tool != "bash":
            return False
        match self.form:
            case "all":
                return True
            case "exact":
                return tuple(words) == self.words
            case "prefix":
                return tuple(words[: len(self.words)]) == self.words
            case _:
                return False


@cache
def parse_rule(text: str) -> Rule:
    """Read one rule. Raises: ConfigError with what is wrong and how a rule looks."""
    match = _SHAPE.fullmatch(text)
    if not match:
        raise ConfigError(f"not a permission rule: {text!r}", _HINT)
    tool, inner = match["tool"], (match["inner"] or "").strip()
    text = f"{tool}({inner})" if inner else tool
    if match["inner"] is not None and not inner:
        raise ConfigError(f"the rule {text!r} names nothing between its brackets", _HINT)
    if inner in {"", "*", ":*"}:
        return Rule(text=tool, tool=tool, form="all")
    if tool == "bash":
        return _command_rule(text, inner)
    if tool in READERS | WRITERS:
        return _path_rule(text, tool, inner)
    return Rule(text=text, tool=tool, form="target", pattern=inner)


def _command_rule(text: str, inner: str) -> Rule:
    is_prefix = inner.endswith(":*")
    command = inner[:-2] if is_prefix else inner
    if command.endswith(" *"):
        raise ConfigError(
            f"the rule {text!r} ends in a star", f"Write bash({command[:-2]}:*) for any arguments."
        )
    try:
        lexer = shlex.shlex(command, posix=True, punctuation_chars=";&|<>()")
        lexer.whitespace_split, lexer.commenters = True, ""
        words = tuple(lexer)
    except ValueError as error:
        raise ConfigError(f"the rule {text!r} cannot be read: {error}", _HINT) from None
    bare = re.sub(r"'[^']*'", "", command)
    if not words or _OPERATORS.search(bare):
        raise ConfigError(f"the rule {text!r} must name one simple command", _HINT)
    return Rule(text=text, tool="bash", form="prefix" if is_prefix else "exact", words=words)


def _path_rule(text: str, tool: str, inner: str) -> Rule:
    if ".." in inner.split("/"):
        raise ConfigError(f"the rule {text!r} holds `..`", "Write the path from the root, ~ or the project.")
    if inner.startswith(("!", "#")) or (
        inner.startswith("~") and not inner.startswith("~/") and inner != "~"
    ):
        raise ConfigError(f"the rule {text!r} has a pattern that cannot be used", _HINT)
    try:
        _spec(_anchored(inner))
    except ValueError as error:
        raise ConfigError(f"the rule {text!r} has a bad pattern: {error}", _HINT) from None
    return Rule(text=text, tool=tool, form="path", pattern=inner)


def _anchored(pattern: str) -> str:
    if pattern == "~":
        return "/**"
    if pattern.startswith(("~/", "./")):
        return pattern[1:]
    return pattern


@cache
def _spec(pattern: str) -> GitIgnoreSpec:
    return GitIgnoreSpec.from_lines([pattern])


def quoted_pattern(path: str) -> str:
    """Return a path as a pattern that matches nothing else."""
    return re.sub(r"([\\*?\[\] !#])", r"\\\1", path)


_Fits = Callable[[Rule, Decision], bool]


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """All rules in force; grants of the session are allow rules."""

    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()

    @classmethod
    def of(
        cls,
        allow: Iterable[str] = (),
        ask: Iterable[str] = (),
        deny: Iterable[str] = (),
        grants: Iterable[str] = (),
    ) -> Self:
        """Read the rules of the settings and the session. Raises: ConfigError."""
        return cls(
            allow=tuple(map(parse_rule, (*allow, *grants))),
            ask=tuple(map(parse_rule, ask)),
            deny=tuple(map(parse_rule, deny)),
        )

    def for_tool(self, tool: str, target: str = "") -> tuple[Decision, str] | None:
        """Return what the rules say of a tool as a whole (or of its target), and the rule."""
        return self._first(lambda rule, _: _fits_tool(rule, tool, target))

    def for_path(self, tool: str, paths: Sequence[Path], places: Places) -> tuple[Decision, str] | None:
        """Return what the rules say of a path, given as written and as real (last), and the rule.

        An allow rule must match the real path; ask and deny rules match either, in any case.
        """

        def fits(rule: Rule, decision: Decision) -> bool:
            if not _is_kin(rule.tool, tool):
                return False
            if rule.form == "all":
                return True
            if decision == "allow":
                return _fits_path(rule, paths[-1], places, in_any_case=False)
            return any(_fits_path(rule, path, places, in_any_case=True) for path in paths)

        return self._first(fits)

    def _first(self, fits: _Fits) -> tuple[Decision, str] | None:
        kinds: tuple[tuple[Decision, tuple[Rule, ...]], ...] = (
            ("deny", self.deny),
            ("ask", self.ask),
            ("allow", self.allow),
        )
        for decision, rules in kinds:
            for rule in rules:
                if fits(rule, decision):
                    return decision, rule.text
        return None


def _fits_tool(rule: Rule, tool: str, target: str) -> bool:
    if rule.tool != tool:
        return False
    return rule.form == "all" or (rule.form == "target" and rule.pattern == target)


def _is_kin(named: str, tool: str) -> bool:
    """A rule on one reading tool holds for all that reads, one on a writing tool for all that writes."""
    return named == tool or any(named in kin and tool in kin for kin in (READERS, WRITERS))


def _fits_path(rule: Rule, path: Path, places: Places, *, in_any_case: bool) -> bool:
    base = _base(rule.pattern, places)
    if in_any_case:
        path, base = Path(plain(str(path))), Path(plain(str(base)))
    if not is_inside(path, base):
        return False
    pattern = _anchored(rule.pattern)
    pattern = plain(pattern) if in_any_case else pattern
    relative = path.relative_to(base).as_posix()
    if relative == ".":
        return pattern in {"**", "/**"}
    # `src/**` means the folder itself too: listing it is not outside the rule.
    patterns = (
        [pattern, f"/{pattern[:-3].lstrip('/')}"]
        if pattern.endswith("/**") and len(pattern) > 3
        else [pattern]
    )
    return any(_spec(each).match_file(relative) for each in patterns)


def _base(pattern: str, places: Places) -> Path:
    if pattern == "~" or pattern.startswith("~/"):
        return places.home
    return Path("/") if pattern.startswith("/") else places.root
