"""Commands known to only read and show: which arguments keep them so, and which paths they read."""

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bareagent.tools.safe_git import git_paths
from bareagent.tools.safe_words import Options, Split, split, unglobbed
from bareagent.tools.sensitive import Places, expanded, holds_keys, is_inside, real
from bareagent.tools.shellparse import Word


class Touched(msgspec.Struct, frozen=True):
    """The paths a known command reads and makes."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


_ANY = Options(is_any=True)
_WORDS_ONLY = Options(is_any=True, has_paths=False)
_NO_OPERANDS = Options(is_any=True, most=0)

_GREP = Options(
    flags="EFGPivwxchlLnoqsHZzaIrRbTU",
    valued="emABCdD",
    names="extended-regexp fixed-strings basic-regexp perl-regexp ignore-case invert-match word-regexp"
    " line-regexp count files-with-matches files-without-match line-number only-matching quiet silent"
    " no-messages with-filename no-filename null text recursive dereference-recursive color colour",
    valued_names="regexp max-count after-context before-context context include exclude exclude-dir color"
    " colour binary-files",
    has_numbers=True,
    n_skipped=1,
    pattern_flags="e regexp",
)
_RG = Options(
    flags="nilcvwFoSsHNUPpxI0qa",
    valued="egtTABCmMjEdr",
    names="line-number no-line-number ignore-case smart-case case-sensitive files files-with-matches"
    " files-without-match count count-matches invert-match word-regexp fixed-strings only-matching multiline"
    " pcre2 pretty heading no-heading with-filename no-filename type-list stats json vimgrep trim column"
    " sort-files null quiet multiline-dotall no-config line-buffered",
    valued_names="regexp glob iglob type type-not after-context before-context context max-count max-columns"
    " max-depth color sort sortr replace threads encoding",
    n_skipped=1,
    pattern_flags="e regexp files type-list",
)
_SORT = Options(
    flags="bdfghiMnRrVcCmsuz",
    valued="ktS",
    names="numeric-sort reverse unique human-numeric-sort version-sort ignore-case check stable zero-terminated"
    " general-numeric-sort month-sort",
    valued_names="key field-separator buffer-size",
)
_DIFF = Options(
    flags="abBciqrsuwyNdtTEZp",
    valued="UCWxI",
    names="brief unified recursive ignore-all-space ignore-space-change ignore-blank-lines side-by-side color"
    " new-file text report-identical-files suppress-common-lines strip-trailing-cr minimal ignore-case",
    valued_names="unified context width exclude color label",
)
_TREE = Options(
    flags="adfilpsughDCnSFJQNqvtrUc1",
    valued="LPI",
    names="dirsfirst noreport prune du gitignore inodes",
    valued_names="filelimit charset sort",
)
_JQ = Options(
    flags="rcsnSeMCaj",
    names="raw-output compact-output slurp null-input sort-keys exit-status monochrome-output color-output"
    " ascii-output join-output tab raw-input",
    valued_names="indent",
    n_skipped=1,
)
_KNOWN: dict[str, Options] = {
    **dict.fromkeys(
        ("ls", "cat", "head", "tail", "wc", "stat", "du", "df", "readlink", "realpath", "nl"), _ANY
    ),
    **dict.fromkeys(("tac", "rev", "fold", "cut", "column", "paste", "comm", "cmp", "join", "expand"), _ANY),
    **dict.fromkeys(("od", "hexdump", "cksum", "md5sum", "sha1sum", "sha256sum", "sha512sum", "b2sum"), _ANY),
    **dict.fromkeys(
        ("basename", "dirname", "which", "type", "tr", "seq", "sleep", "test", "exit"), _WORDS_ONLY
    ),
    **dict.fromkeys(("true", "false", ":", "pwd", "whoami", "id", "groups", "uname", "arch"), _WORDS_ONLY),
    **dict.fromkeys(("nproc", "uptime", "free", "tty", "locale", "cal", "lscpu"), _NO_OPERANDS),
    **dict.fromkeys(("grep", "egrep", "fgrep"), _GREP),
    "dir": _ANY,
    "rg": _RG,
    "sort": _SORT,
    "diff": _DIFF,
    "tree": _TREE,
    "jq": _JQ,
    "strings": Options(flags="afo", valued="net", has_numbers=True),
    "uniq": Options(flags="cdDiuz", valued="fsw", names="count repeated unique ignore-case", most=1),
    "xxd": Options(flags="bupiE", valued="lscg", most=1),
    "file": Options(flags="bikLhN", names="brief mime mime-type mime-encoding"),
    "hostname": Options(flags="fsi", most=0),
    "date": Options(
        flags="uRI", valued="d", names="utc universal", valued_names="date iso-8601 rfc-3339", most=1
    ),
    "sed": Options(flags="nErsz", names="quiet silent regexp-extended", n_skipped=1),
    "awk": Options(valued="F", n_skipped=1),
    "ps": _WORDS_ONLY,
    "set": _WORDS_ONLY,
    "mkdir": Options(flags="pv", names="parents verbose"),
    "touch": Options(flags="c", names="no-create"),
}
_WRITERS = frozenset({"mkdir", "touch"})
_BUILTINS = frozenset(
    {"cd", "echo", "printf", "pwd", "true", "false", ":", "type", "test", "exit", "set", "command"}
)
_ASK_FOR_VERSION = re.compile(
    r"python[\d.]*|node|ruby|perl|php|gcc|g\+\+|clang|cmake|make|npm|java|docker|bash|pip3?|rg|jq|uv|ruff|curl|git|gh"
)
_VERSION = frozenset({"--version", "-V", "-v", "-version"})

# One editing script: an address or two, then a command that only prints, drops or replaces.
_ADDRESS = r"(?:\d+|\$|/(?:\\.|[^/\\\n])*/)"
_SED_STEP = (
    rf"\s*(?:{_ADDRESS}(?:,(?:{_ADDRESS}|\+\d+))?)?\s*!?\s*"
    r"(?:[pdq=]|s(?P<sep%d>[/|#,:])(?:\\.|(?!(?P=sep%d))[^\\\n])*(?P=sep%d)(?:\\.|(?!(?P=sep%d))[^\\\n])*(?P=sep%d)[gpiI\d]*)\s*"
)
_SED = re.compile(";".join([_SED_STEP.replace("%d", "0")]) + "".join(
    f"(?:;{_SED_STEP.replace('%d', str(n))})?" for n in range(1, 6)
))  # fmt: skip
_AWK_RUNS = re.compile(r"system|getline|close|\||@|ARGV|ARGC|ENVIRON|PROCINFO|SYMTAB|FUNCTAB|/inet|\\\n")
_JQ_READS = re.compile(r"\b(env|import|include|input_filename|inputs?|getpath|ltrimstr|debug)\b|\$ENV|\$__")
_FIND_PLAIN = re.compile(
    r"-(not|or?|and?|empty|print0?|prune|ls|depth|xdev|mount|true|false|quit|executable|readable|writable|noleaf"
    r"|daystart)|[()!]"
)
_FIND_VALUED = re.compile(
    r"-(i?name|type|maxdepth|mindepth|i?path|wholename|size|[mac]time|[mac]min|i?regex|regextype|perm|user|group"
    r"|links|printf|inum|lname)"
)
_FIND_EXEC = frozenset({"-exec", "-execdir"})


def _sed(found: Split) -> bool:
    return bool(found.operands) and bool(_SED.fullmatch(found.operands[0]))


def _awk(found: Split) -> bool:
    program = found.operands[0] if found.operands else "|"
    is_printing_to = ">" in program and "print" in program
    return (
        not _AWK_RUNS.search(program) and not is_printing_to and not any("=" in path for path in found.paths)
    )


def _jq(found: Split) -> bool:
    return bool(found.operands) and not _JQ_READS.search(found.operands[0])


def _ps(found: Split) -> bool:
    """Some forms show the environment of programs, keys and all."""
    return not any("e" in word for word in found.operands) and set(found.flags) <= set("auxAefwl")


def _condition(found: Split) -> bool:
    return not found.has("v", "R") and not any("[" in word for word in found.operands)


_CHECKS: dict[str, Callable[[Split], bool]] = {
    "sed": _sed,
    "awk": _awk,
    "jq": _jq,
    "ps": _ps,
    "test": _condition,
    "strings": lambda found: not any(word.startswith("@") for word in found.operands),
    "date": lambda found: all(word.startswith("+") for word in found.operands),
    "set": lambda found: set(found.flags) <= set("euxo") and found.operands in ([], ["pipefail"]),
    "wc": lambda found: not found.has("files0-from"),
    "du": lambda found: not found.has("files0-from"),
    "tail": lambda found: not found.has("f", "F", "follow"),
    "rg": lambda found: not found.has("L"),
}


def touched(words: Sequence[Word], places: Places, folders: Sequence[Path]) -> Touched | None:
    """Return what a command reads and makes if it is known to do no more; None otherwise.

    `folders` are all working directories it may have.
    """
    name = words[0].text
    if not words[0].is_bare or "/" in name or not _is_systems_own(name, places):
        return None
    if name in {"echo", "printf"}:
        return _shown(name, words)
    spread = unglobbed(words[1:], folders)
    if spread is None:
        return None
    args = [words[0], *spread]
    if _ASK_FOR_VERSION.fullmatch(name) and len(args) == 2 and args[1].text in _VERSION:
        return Touched()
    found = _known(name, args, folders)
    if found is None:
        return None
    reads = tuple(str(expanded(path, places, folder)) for path in found for folder in folders)
    if _searches_keys(name, args, [Path(path) for path in reads] or list(folders)):
        return None
    return Touched(writes=reads) if name in _WRITERS else Touched(reads=reads)


def _shown(name: str, words: Sequence[Word]) -> Touched | None:
    """`echo` and `printf` show their words, whatever these become; only `printf -v` sets a variable."""
    if name == "printf" and len(words) > 1 and (not words[1].is_fixed or words[1].text.startswith("-")):
        return None
    return Touched()


def _is_systems_own(name: str, places: Places) -> bool:
    """A program of this name inside the workspace could be anything."""
    if name in _BUILTINS:
        return True
    if any(not part.startswith("/") for part in places.search_path.split(":")):
        return False
    found = shutil.which(name, path=places.search_path)
    target = real(found) if found else None
    if found is None or target is None:
        return found is None
    return not any(is_inside(path, places.root) for path in (Path(found), target))


def _known(name: str, args: Sequence[Word], folders: Sequence[Path]) -> list[str] | None:
    match name:
        case "git":
            return git_paths(args, folders)
        case "find":
            return _find_paths(args)
        case "cd":
            return _cd_paths(args)
        case "command":
            return [] if len(args) == 3 and args[1].text in {"-v", "-V"} and args[2].is_fixed else None
        case "pip" | "pip3":
            return _pip(args)
        case _:
            return _table_paths(name, args)


def _table_paths(name: str, args: Sequence[Word]) -> list[str] | None:
    found = split(args[1:], _KNOWN[name]) if name in _KNOWN else None
    check = _CHECKS.get(name)
    return found.paths if found is not None and (check is None or check(found)) else None


def is_known(name: str) -> bool:
    """Tell whether a command of this name can be one that only reads."""
    return name in _KNOWN or name in _BUILTINS or name == "find"


def _find_paths(args: Sequence[Word]) -> list[str] | None:
    rest = list(args[1:])
    while rest and rest[0].text in {"-L", "-P", "-H"}:
        rest.pop(0)
    paths: list[str] = []
    while rest and rest[0].is_fixed and not re.match(r"[-(!]", rest[0].text):
        paths.append(rest.pop(0).path)
    while rest:
        word = rest.pop(0)
        if not word.is_fixed:
            return None
        if word.text in _FIND_EXEC:  # what it runs is judged by itself
            rest = _behind_exec(rest)
        elif _FIND_VALUED.fullmatch(word.text) and rest and rest[0].is_fixed:
            rest.pop(0)
        elif not _FIND_PLAIN.fullmatch(word.text):
            return None
    return paths or ["."]


def _behind_exec(rest: Sequence[Word]) -> list[Word]:
    ends = [at for at, word in enumerate(rest) if word.text in {";", "+"}]
    return list(rest[ends[0] + 1 :]) if ends else []


def _cd_paths(args: Sequence[Word]) -> list[str] | None:
    is_plain = len(args) == 2 and args[1].is_fixed and not args[1].text.startswith("-")
    return [args[1].path] if is_plain else None


def _pip(args: Sequence[Word]) -> list[str] | None:
    words = [word.text for word in args[1:] if word.is_fixed]
    if len(words) != len(args) - 1 or not words or words[0] not in {"list", "show", "freeze"}:
        return None
    return [] if not any(word.startswith("-") for word in words) else None


def _searches_keys(name: str, args: Sequence[Word], paths: Sequence[Path]) -> bool:
    """A search through a folder must not show what a direct look would ask for."""
    texts = [word.text for word in args[1:]]
    if name == "rg":
        with_hidden = any(text.startswith(("-g", "--glob", "--iglob")) for text in texts)
        return any(path.is_dir() and holds_keys(path, with_hidden=with_hidden) for path in paths)
    flags = "".join(text for text in texts if re.fullmatch(r"-[A-Za-z]+", text))
    is_deep = bool(set("rR") & set(flags)) or any("recursive" in text or "=recurse" in text for text in texts)
    if name not in {"grep", "egrep", "fgrep", "diff"} or not (is_deep or "recurse" in texts):
        return False
    return any(path.is_dir() and holds_keys(path, with_hidden=True) for path in paths)
