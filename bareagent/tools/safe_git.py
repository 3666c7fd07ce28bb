"""Git commands known to only read, and the repositories whose own settings could make them run programs."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from bareagent.tools.safe_words import Options, Split, split
from bareagent.tools.shellparse import Word

_GLOBAL = frozenset({"--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs"})
_ANY = Options(is_any=True)
_LOG = Options(
    flags="pusqzwbaRmcgrtiEFPMCBDen",
    valued="UGSLl",
    has_numbers=True,
    names="oneline graph stat shortstat numstat name-only name-status summary patch no-patch all branches tags"
    " remotes decorate no-decorate abbrev-commit no-abbrev-commit no-merges merges first-parent reverse cached"
    " staged no-color color word-diff color-words no-renames find-renames ignore-all-space ignore-space-change"
    " ignore-space-at-eol ignore-blank-lines minimal patience histogram raw full-index follow check exit-code"
    " quiet date-order topo-order left-right cherry cherry-pick cherry-mark parents children full-history"
    " merge-base no-prefix text walk-reflogs source dirstat compact-summary no-notes no-ext-diff no-textconv"
    " count objects boundary no-walk do-walk name-only relative numbered email no-index-filter binary cc",
    valued_names="max-count skip since after until before author committer grep pretty format date decorate"
    " abbrev diff-filter stat color word-diff unified inter-hunk-context diff-algorithm find-renames relative"
    " encoding glob branches tags remotes exclude submodule ignore-submodules",
)
_GREP = Options(
    flags="niwlcvEFPGhHoqaILpWr",
    valued="eABCm",
    names="cached untracked line-number ignore-case word-regexp count files-with-matches extended-regexp"
    " fixed-strings perl-regexp heading break show-function function-context and or not all-match column",
    valued_names="max-depth color threads max-count context",
    has_numbers=True,
    n_skipped=1,
    pattern_flags="e",
)
_STATUS = Options(
    flags="sbuvzM",
    names="short branch porcelain long ignored untracked-files verbose show-stash ahead-behind no-ahead-behind"
    " renames no-renames null",
    valued_names="porcelain untracked-files ignored column ignore-submodules",
)
_REFS = Options(
    flags="arvlniq",
    names="all remotes list verbose show-current merged no-merged contains no-contains no-color color no-column"
    " ignore-case",
    valued_names="sort format merged no-merged contains no-contains points-at color column abbrev",
    has_paths=False,
)
_SUBCOMMANDS: dict[str, Options] = {
    **dict.fromkeys(("log", "show", "diff", "rev-list", "shortlog", "whatchanged"), _LOG),
    **dict.fromkeys(("diff-tree", "diff-index", "diff-files", "reflog"), _LOG),
    **dict.fromkeys(("rev-parse", "ls-files", "ls-tree", "show-ref", "merge-base", "describe"), _ANY),
    **dict.fromkeys(("name-rev", "for-each-ref", "count-objects", "check-ignore", "version"), _ANY),
    "status": _STATUS,
    "branch": _REFS,
    "tag": _REFS,
    "grep": _GREP,
    "blame": Options(flags="wlstfenMCpb", valued="L", names="show-email root", valued_names="since date"),
    "cat-file": Options(flags="ptse"),
    "remote": Options(flags="v", names="verbose", has_paths=False),
    "stash": Options(flags="psu", names="stat patch name-only name-status oneline", has_paths=False),
    "worktree": Options(flags="v", names="porcelain verbose", has_paths=False),
    "config": Options(names="get", most=1, has_paths=False),
}
_LISTING = ("list", "contains", "no-contains", "merged", "no-merged", "points-at")


def _only_lists(found: Split) -> bool:
    return not found.operands or found.has(*_LISTING)


_CHECKS: dict[str, Callable[[Split], bool]] = {
    "branch": _only_lists,
    "tag": lambda found: _only_lists(found) or found.has("l"),
    "remote": lambda found: not found.operands or found.operands[0] == "get-url",
    "stash": lambda found: found.operands[:1] in (["list"], ["show"]),
    "worktree": lambda found: found.operands == ["list"],
    "config": lambda found: found.has("get") and len(found.operands) == 1,
    "reflog": lambda found: not found.operands or found.operands[0] == "show",
}

_RUNS_PROGRAMS = re.compile(
    r"(?im)^\s*(fsmonitor(?!\s*=\s*(true|false)\s*$)|external|textconv|command|clean|smudge|process|program"
    r"|hookspath|worktree|attributesfile|path|alternaterefscommand)\s*="
)


def git_paths(words: Sequence[Word], folders: Sequence[Path]) -> list[str] | None:
    """Return the paths that a git command reads; None where it is not known to only read."""
    rest = list(words[1:])
    while rest and rest[0].text in _GLOBAL:
        rest.pop(0)
    if not rest or not rest[0].is_fixed:
        return None
    if [word.text for word in rest] == ["--version"]:
        return []
    name = rest[0].text
    found = split(rest[1:], _SUBCOMMANDS[name]) if name in _SUBCOMMANDS else None
    check = _CHECKS.get(name)
    if found is None or (check is not None and not check(found)):
        return None
    if any(_may_run_programs(folder) for folder in folders):
        return None
    return [path for operand in found.paths for path in _of_revision(operand)]


def _of_revision(operand: str) -> list[str]:
    """`HEAD:.env` names a file too."""
    revision, colon, path = operand.partition(":")
    return [revision, path] if colon and path else [operand]


def _may_run_programs(folder: Path) -> bool:
    """Tell whether the repository here has settings or hooks that reading commands would run."""
    for place in (folder, *folder.parents):
        git = place / ".git"
        if git.is_dir():
            return _is_loaded(git)
        if git.exists():
            return _is_loaded_worktree(git)
        if all((place / name).exists() for name in ("HEAD", "objects", "refs")):
            return True
    return False


def _is_loaded_worktree(pointer: Path) -> bool:
    line = _read(pointer)
    if not line.startswith("gitdir:"):
        return True
    git = pointer.parent / line.removeprefix("gitdir:").strip()
    common = _read(git / "commondir").strip()
    return _is_loaded((git / common) if common else git)


def _is_loaded(git: Path) -> bool:
    hook = git / "hooks" / "post-index-change"
    settings = [_read(git / name) for name in ("config", "config.worktree")]
    return os.access(hook, os.X_OK) or any(_RUNS_PROGRAMS.search(text) for text in settings)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
