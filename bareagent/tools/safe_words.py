"""How the arguments of a known command are told apart: flags, their values, operands."""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bareagent.tools.shellparse import Word

_MOST_NAMES = 1_000


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The flags a command may have and stay safe; every other one makes it ask.

    `flags` are letters, `valued` letters that take a value, `names` and `valued_names` the same for long
    ones, a space between. `is_any`: no flag of the command does harm. `n_skipped` operands at the front
    are no paths (a pattern, a program), but where one of `pattern_flags` gives it. `most` limits operands
    (-1: any number). `has_paths` is False where operands are words only.
    """

    flags: str = ""
    valued: str = ""
    names: str = ""
    valued_names: str = ""
    is_any: bool = False
    has_numbers: bool = False
    n_skipped: int = 0
    pattern_flags: str = ""
    most: int = -1
    has_paths: bool = True


class Split(msgspec.Struct, kw_only=True):
    """Arguments told apart; `flags` without their dashes, `values` by flag, `paths` among the operands."""

    flags: list[str] = msgspec.field(default_factory=list)
    values: list[tuple[str, str]] = msgspec.field(default_factory=list)
    operands: list[str] = msgspec.field(default_factory=list)
    paths: list[str] = msgspec.field(default_factory=list)

    def has(self, *flags: str) -> bool:
        """Tell whether one of these flags is there."""
        return any(flag in self.flags for flag in flags)


def split(words: Sequence[Word], options: Options) -> Split | None:
    """Tell the words behind a command apart; None where one is not known to be safe."""
    found = Split()
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if not word.is_fixed:
            return None
        if word.text == "--":
            if not all(rest.is_fixed for rest in waiting):
                return None
            found.operands += [rest.path for rest in waiting]
            break
        if len(word.text) < 2 or not word.text.startswith("-"):
            found.operands.append(word.path)
        elif not _take_flag(word.text, waiting, options, found):
            return None
    return _with_paths(found, options)


def _take_flag(text: str, waiting: list[Word], options: Options, found: Split) -> bool:
    if options.is_any:
        name, equals, value = text.lstrip("-").partition("=")
        found.flags += [name] if text.startswith("--") else list(name)
        if equals:
            found.operands.append(value)
        return True
    if options.has_numbers and re.fullmatch(r"-\d+", text):
        return True
    return (
        _take_long(text[2:], waiting, options, found)
        if text.startswith("--")
        else _take_short(text[1:], waiting, options, found)
    )


def _take_long(text: str, waiting: list[Word], options: Options, found: Split) -> bool:
    name, equals, value = text.partition("=")
    found.flags.append(name)
    if equals:
        found.values.append((name, value))
        return name in options.valued_names.split()
    if name in options.names.split():
        return True
    return name in options.valued_names.split() and _take_value(name, waiting, found)


def _take_short(letters: str, waiting: list[Word], options: Options, found: Split) -> bool:
    for at, letter in enumerate(letters):
        found.flags.append(letter)
        if letter in options.valued:
            if letters[at + 1 :]:
                found.values.append((letter, letters[at + 1 :]))
                return True
            return _take_value(letter, waiting, found)
        if letter not in options.flags:
            return False
    return True


def _take_value(flag: str, waiting: list[Word], found: Split) -> bool:
    if not waiting or not waiting[0].is_fixed:
        return False
    found.values.append((flag, waiting.pop(0).text))
    return True


def _with_paths(found: Split, options: Options) -> Split | None:
    if options.most >= 0 and len(found.operands) > options.most:
        return None
    n_skipped = 0 if found.has(*options.pattern_flags.split()) else options.n_skipped
    found.paths = found.operands[n_skipped:] if options.has_paths else []
    return found


def unglobbed(words: Sequence[Word], folders: Sequence[Path]) -> list[Word] | None:
    """Return the words with every pattern replaced by the names it stands for; None where that is unclear."""
    taken: list[Word] = []
    for word in words:
        if not word.has_glob or not word.is_fixed:
            taken.append(word)
            continue
        names = _names(word, folders)
        if names is None:
            return None
        taken += [Word(raw=name, text=name) for name in names] or [word]
    return taken


def _names(word: Word, folders: Sequence[Path]) -> list[str] | None:
    pattern = word.text
    if pattern.startswith(("/", "~")) or ".." in pattern or set(word.raw) & set("[]'\"\\"):
        return None
    names: list[str] = []
    for folder in folders:
        found = folder.glob(pattern.replace("**", "*")) if folder.is_dir() else []
        shown = (path.relative_to(folder).as_posix() for path in found)
        names += itertools.islice((name for name in shown if _is_shown(name, pattern)), _MOST_NAMES + 1)
    return names if len(names) <= _MOST_NAMES else None


def _is_shown(name: str, pattern: str) -> bool:
    """A pattern stands for hidden names only where it writes the dot."""
    pairs = zip(name.split("/"), Path(pattern).parts, strict=False)
    return not any(part.startswith(".") and not asked.startswith(".") for part, asked in pairs)
