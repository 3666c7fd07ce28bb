"""What a shell command does, by its parse: the words that run, the files it names, what a rule covers."""

import itertools
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bareagent.tools.carriers import carries_code
from bareagent.tools.rules import Rule, Rules
from bareagent.tools.safe import Touched, is_known, touched
from bareagent.tools.sensitive import Places, expanded, real, why_sensitive
from bareagent.tools.shellparse import Script, Word, parse
from bareagent.tools.wrappers import Words, inside, name_of

_MOST_FOLDERS = 16
_MOST_DEPTH = 8
_MOST_RULE_CHARS = 120

_TWO_WORDS = re.compile(
    r"git|npm|pnpm|yarn|bun|cargo|go|docker|podman|kubectl|pip3?|uv|poetry|hatch|make|just|dotnet|gradle|mvn|gh"
    r"|terraform|brew|bundle|rails|rake|mix|helm|rustup|conda|nx|turbo|npx"
)
_THIRD_WORD = frozenset({"run", "exec", "compose", "tool", "-m"})
_PYTHON_FLAGS = re.compile(r"-[bBdEIOPqsSuv]+")
_ONE_WORD = re.compile(
    r"pytest|ruff|mypy|pyright|black|isort|flake8|pylint|tsc|eslint|prettier|jest|vitest|mocha|gofmt|rustfmt"
    r"|shellcheck|tox|nox|pre-commit|ctest|ninja"
)


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A command looked through.

    `denied` and `asked` say by which rule or for which file it is so; `is_safe`: every part only reads;
    `is_granted`: allow rules cover it (safe parts need none beside a covered one); `is_opaque`: a deny
    rule might be slipped past. `reads` and `writes` are the paths it names. `rule` is what a grant would
    be.
    """

    denied: str = ""
    asked: str = ""
    is_safe: bool = False
    is_granted: bool = False
    is_opaque: bool = False
    reason: str = ""
    rule: str = ""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


class _Part(msgspec.Struct, frozen=True):
    """One simple command that runs by itself."""

    words: Words
    is_certain: bool = True
    is_repeated: bool = False


class _Parts(msgspec.Struct):
    """All of them, from every level, and what could not be told."""

    parts: list[_Part] = msgspec.field(default_factory=list)
    scripts: list[Script] = msgspec.field(default_factory=list)
    faults: list[str] = msgspec.field(default_factory=list)
    is_opaque: bool = False


def judge_command(command: str, rules: Rules, places: Places) -> Judged:
    """Look a command through."""
    all_parts = _Parts()
    _collect(command, all_parts, 0)
    denied = _ruled(all_parts, rules.deny)
    if denied:
        return Judged(denied=denied)
    certain = [part for part in all_parts.parts if part.is_certain]
    folders = _folders(certain, places)
    faults = list(all_parts.faults)
    if folders is None:
        faults.append("it changes directory in a way that cannot be followed")
        folders = [places.cwd]
    looked = [_looked(part, rules, places, folders) for part in certain]
    asked = _ruled(all_parts, rules.ask)
    unsafe = [each.part for each in looked if each.touched is None]
    is_covered = any(each.covering for each in looked) and all(
        each.covering or each.touched is not None for each in looked
    )
    reads, writes = _paths(all_parts, looked, places, folders)
    return Judged(
        asked=f"the rule {asked}" if asked else _sensitive_argument(unsafe, places, folders),
        is_safe=not faults and not unsafe,
        is_granted=not faults and is_covered,
        is_opaque=all_parts.is_opaque or _may_be_denied(all_parts, rules.deny),
        reason="; ".join(faults) or "it runs a command",
        rule="" if faults else _grant([each for each in looked if each.part in (unsafe or certain)]),
        reads=reads,
        writes=writes,
    )


class _Looked(msgspec.Struct, frozen=True, kw_only=True):
    """A part with the allow rule that covers it and what it touches, if it is known to do no more."""

    part: _Part
    covering: str
    touched: Touched | None


def _looked(part: _Part, rules: Rules, places: Places, folders: Sequence[Path]) -> _Looked:
    covering = _covering(part, rules)
    found = touched(part.words, places, folders)
    # A rule for `mkdir` is meant for what it makes: no second rule for the path is asked.
    return _Looked(
        part=part, covering=covering, touched=None if found and found.writes and covering else found
    )


def _paths(
    all_parts: _Parts, looked: Sequence[_Looked], places: Places, folders: Sequence[Path]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return all that is read and written, by known commands and by redirections."""
    reads = [path for each in looked if each.touched for path in each.touched.reads]
    writes = [path for each in looked if each.touched for path in each.touched.writes]
    for redirect in (each for script in all_parts.scripts for each in script.redirects):
        target = redirect.target.path
        paths = reads if redirect.kind == "read" else writes
        paths += [str(expanded(target, places, folder)) for folder in folders]
    return tuple(dict.fromkeys(reads)), tuple(dict.fromkeys(writes))


def _collect(command: str, found: _Parts, depth: int) -> None:
    if depth > _MOST_DEPTH:
        found.faults.append("it is nested too deeply")
        found.is_opaque = True
        return
    script = parse(command)
    found.scripts.append(script)
    found.faults += script.faults
    found.is_opaque = found.is_opaque or script.is_opaque
    for simple in script.simples:
        if simple.words:
            _collect_words(_Part(simple.words, is_repeated=simple.is_repeated), found, depth)


def _collect_words(part: _Part, found: _Parts, depth: int) -> None:
    if depth > _MOST_DEPTH:
        found.faults.append("it is nested too deeply")
        found.is_opaque = True
        return
    inner = inside(part.words)
    is_set = _is_plain_set(part.words)
    if inner.fault and not is_set:
        found.faults.append(inner.fault)
        found.is_opaque = found.is_opaque or inner.is_opaque
    if not inner.is_wrapper:
        found.parts.append(part)
    for text in inner.scripts:
        _collect(text, found, depth + 1)
    for words in inner.commands:
        is_certain = part.is_certain and not inner.fault
        _collect_words(msgspec.structs.replace(part, words=words, is_certain=is_certain), found, depth + 1)


def _is_plain_set(words: Words) -> bool:
    return words[0].text == "set" and all(re.fullmatch(r"-[euxo]+|pipefail", word.raw) for word in words[1:])


def _folders(parts: Sequence[_Part], places: Places) -> list[Path] | None:
    """Return every working directory that a part may have; None where that cannot be told."""
    folders = [places.cwd]
    for part in parts:
        if part.words[0].text != "cd":
            continue
        if part.is_repeated or len(part.words) != 2 or not part.words[1].is_fixed or part.words[1].has_glob:
            return None
        folders += _below(folders, part.words[1].path, places)
        if len(folders) > _MOST_FOLDERS:
            return None
    return folders


def _below(folders: Sequence[Path], target: str, places: Places) -> list[Path]:
    """The shell goes by names, the system by links: both may be where it ends."""
    written = [expanded(target, places, folder) for folder in folders]
    both = [way for path in written for way in (Path(os.path.normpath(path)), real(path) or path)]
    return [path for path in dict.fromkeys(both) if path not in folders]


def _variants(words: Words) -> Iterator[list[Word]]:
    """The ways a command can be read when it is measured against what is denied or asked."""
    yield list(words)
    name = name_of(words[0])
    first = Word(raw=name, text=name, is_fixed=words[0].is_fixed)
    yield [first, *words[1:]]
    plain = [word for word in words[1:] if not word.text.startswith("-")]
    yield [first, *plain]
    at = 1
    while at < len(words) and words[at].text.startswith("-"):
        at += (
            2 if words[at].text in {"-C", "-c", "--git-dir", "--work-tree", "--prefix", "--cwd", "-H"} else 1
        )
        yield [first, *words[at:]]


def _ruled(all_parts: _Parts, rules: Sequence[Rule]) -> str:
    """Return the rule that one of the parts falls under; empty for none."""
    if not rules:
        return ""
    for words in _readings(all_parts):
        texts = [word.text if word.is_fixed else "\0" for word in words]
        found = next((rule.text for rule in rules if rule.covers_words(texts)), "")
        if found:
            return found
    return ""


def _readings(all_parts: _Parts) -> Iterator[list[Word]]:
    return (words for part in all_parts.parts for words in _variants(part.words))


def _may_be_denied(all_parts: _Parts, rules: Sequence[Rule]) -> bool:
    mine = [rule for rule in rules if rule.tool == "bash"]
    return bool(mine) and any(_could_match(rule, words) for words in _readings(all_parts) for rule in mine)


def _could_match(rule: Rule, words: Sequence[Word]) -> bool:
    for word, wanted in zip(words, rule.words, strict=False):
        if not word.is_fixed or word.has_glob:
            return True
        if word.text != wanted:
            return False
    return False


def _covering(part: _Part, rules: Rules) -> str:
    """Return the allow rule that covers a part; empty for none."""
    return next((rule.text for rule in rules.allow if _is_covered(part.words, rule)), "")


def _is_covered(words: Words, rule: Rule) -> bool:
    """The words of the rule must stand there as written; a prefix covers no arguments that may be code."""
    if rule.tool != "bash" or not words[0].is_bare or not all(map(_is_as_written, words[: len(rule.words)])):
        return False
    if not rule.covers_words([word.text if word.is_fixed else "\0" for word in words]):
        return False
    return all(map(_is_as_written, words)) if rule.form == "exact" else not carries_code(words)


def _is_as_written(word: Word) -> bool:
    return word.is_fixed and not word.has_glob


def _sensitive_argument(parts: Sequence[_Part], places: Places, folders: Sequence[Path]) -> str:
    """Return why an argument of a part makes it ask even when a rule allows it."""
    texts = [text for part in parts for text in _arguments(part.words[1:])]
    for text, folder in itertools.product(dict.fromkeys(texts), folders):
        path = real(expanded(text, places, folder))
        why = why_sensitive(path, places, is_write=False) if path else ""
        if why:
            return f"{text}: {why}"
    return ""


def _arguments(words: Sequence[Word]) -> Iterator[str]:
    for word in words:
        if not word.is_fixed or not word.text or "\n" in word.text or len(word.text) > 4096:
            continue
        yield word.path
        _, equals, value = word.text.partition("=")
        if equals and value:
            yield value
        if re.match(r"-[A-Za-z@]*[./~]", word.text):
            yield re.sub(r"^-[A-Za-z@]", "", word.text)
        if re.match(r"[@:]|\w+:", word.text):
            yield re.sub(r"^\w*[@:]", "", word.text)


def _grant(looked: Sequence[_Looked]) -> str:
    """Return the one rule that would cover all parts that need one; empty if there is none."""
    needy = [each.part for each in looked if not each.covering]
    needy = [part for part in needy if part.words[0].text != "cd"] or needy
    # Where all parts are safe, one covered part is enough.
    if all(each.touched for each in looked):
        needy = needy[:1]
    suggested = {_suggested(part.words) for part in needy}
    return suggested.pop() if len(suggested) == 1 else ""


def _suggested(words: Words) -> str:
    n_words = _n_telling(words)
    if (
        n_words
        and len(words) >= n_words
        and all(word.is_bare for word in words[:n_words])
        and not carries_code(words)
    ):
        return f"bash({' '.join(word.text for word in words[:n_words])}:*)"
    if not all(word.is_fixed and not word.has_glob for word in words):
        return ""
    exact = shlex.join(word.text for word in words)
    is_plain = exact.isprintable() and len(exact) <= _MOST_RULE_CHARS and not exact.endswith(("*", ":*"))
    return f"bash({exact})" if is_plain and not carries_code(words) else ""


def _n_telling_of_python(words: Words) -> int:
    """Count up to the module or the script: flags alone would let every script run."""
    n = 1
    while n < len(words) and _PYTHON_FLAGS.fullmatch(words[n].text):
        n += 1
    if n == len(words):
        return 0
    first = words[n].text
    if first == "-m":
        return n + 2
    return 0 if first.startswith("-") else n + 1


def _n_telling(words: Words) -> int:
    """Return how many first words tell a command's kind; 0 where only the whole does."""
    name = words[0].text
    if is_known(name) or _ONE_WORD.fullmatch(name):
        return 1
    if re.fullmatch(r"python[\d.]*", name):
        return _n_telling_of_python(words)
    if not _TWO_WORDS.fullmatch(name) or len(words) < 2 or words[1].text.startswith("-"):
        return 0
    return 3 if words[1].text in _THIRD_WORD and len(words) > 2 else 2
