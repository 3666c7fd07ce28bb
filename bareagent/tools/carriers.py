"""Commands whose arguments can be code: what no rule on a command's first words may cover."""

import re
from collections.abc import Sequence

from bareagent.tools.shellparse import Word
from bareagent.tools.wrappers import SHELLS, name_of

_INTERPRETERS = {
    r"python[\d.]*|pypy[\d.]*|ipython[\d.]*": r"-[A-Za-z]*c.*",
    r"node|nodejs|bun|tsx|ts-node": r"-[A-Za-z]*[eprc].*|--(eval|print|require|import|loader|experimental-loader).*",
    r"deno": r"eval|repl|-.*",
    r"ruby[\d.]*|jruby": r"-[A-Za-z0-9]*[erIC].*",
    r"perl[\d.]*": r"-[A-Za-z0-9]*[eEMmIx].*",
    r"php[\d.]*": r"-[rBREdFz].*|--(run|process|define).*",
    r"lua[\d.]*|luajit": r"-[el].*",
    r"Rscript|R": r"-e.*|--(args|expr|file).*",
    r"julia": r"-[eELp].*|--(eval|print|load).*",
    r"osascript|swift|ghci|ghc|runghc|scala|groovy|jshell|irb|iex|elixir|erl|clojure|clj|guile|racket|sbcl|tclsh"
    r"|wish|pwsh|powershell|nu|xonsh|elvish|gnuplot|octave|maxima|gp|bc": r"-.*",
}
_ALWAYS_CODE = re.compile(
    r"[gmn]?awk|sed|gsed|jq|yq|ed|ex|vi|vim|nvim|view|emacs|nano|less|more|man|pv|sqlite3?|psql|mysql|mariadb|duckdb"
    r"|redis-cli|mongosh?|gdb|lldb|dc|m4|expect|socat|nc|ncat|netcat|tclsh"
)
_OPTIONS = {
    "git": r"-c.*|--exec-path.*|--config-env.*|--git-dir.*|--work-tree.*|-O.*|--open-files-in-pager.*|--exec.*|-x.*"
    r"|--upload-pack.*|--receive-pack.*|--ext-diff|--textconv|--output.*|--extcmd.*|--template.*|ext::.*|-u.+",
    "tar": r"--to-c.*|--checkpoint-a.*|-[A-Za-z]*[IF].*|--use-c.*|--info-s.*|--new-v.*|--rsh.*|--rmt.*",
    "rsync": r"-[A-Za-z]*e.*|--rsh.*|--rsync-path.*",
    "scp": r"-[A-Za-z]*[SoF].*",
    "sftp": r"-[A-Za-z]*[SoFDb].*",
    "curl": r"-[A-Za-z]*[KoOTD].*|--(config|output|upload|dump|remote-name|engine).*",
    "wget": r"-[A-Za-z]*[eoOiPa].*|--(execute|use-askpass|config|output|directory|post-file|body-file).*",
    "zip": r"-[A-Za-z]*T.*|--(unzip-command|test).*",
    "make": r".*=.*|--eval.*|-[A-Za-z]*[fCEI].*|--(file|makefile|directory|include).*",
    "npm": r"-c|--call.*|--node-options.*|--script-shell.*|--prefix.*",
    "npx": r"-c|--call.*|-p.*|--package.*|--node-options.*",
    "pip": r"--(target|prefix|root|editable|index-url|extra-index-url|config|src|log).*|-[eti].*|git\+.*|https?:.*"
    r"|\..*|/.*",
    "go": r"-(exec|toolexec|vettool|overlay|ldflags|gcflags|o|C|modfile).*",
    "cargo": r"--(config|manifest-path|target-dir).*|-[ZC].*",
    "gcc": r"-(wrapper|B|fplugin|specs|o).*|@.*",
    "sort": r"-[A-Za-z]*[oT].*|--(o|c|t|f).*",
    "rg": r"--(pre|hostname|search-zip|file|ignore-file).*|-[A-Za-z]*[fz].*",
    "grep": r"-[A-Za-z]*f.*|--f.*",
    "find": r"-(delete|fprint.*|fls)",
    "fd": r"-[xX].*|--exec.*",
    "split": r"--filter.*",
    "tcpdump": r"-[A-Za-z]*[zwC].*",
    "docker": r"-(v|-volume|-mount|-privileged|-pid|-network).*",
    "pytest": r"-(c|p|o).*|--(rootdir|confcutdir|override-ini|config-file|basetemp|junit|import-mode).*",
    "xxd": r"-r.*",
    "date": r"-s.*|--s.*|-f.*",
    "terraform": r"-(chdir|plugin-dir|backend-config).*",
    "kubectl": r"--(kubeconfig|exec|filename).*|-f.*",
    "gh": r"alias|extension|api",
    "mount": r".*",
    "dd": r".*",
    "install": r".*",
}  # fmt: skip
_SAME_AS = {"pip3": "pip", "g++": "gcc", "clang": "gcc", "cc": "gcc", "gmake": "make", "gtar": "tar", "bsdtar": "tar",
            "bunx": "npx", "pnpx": "npx", "uvx": "npx", "pipx": "npx", "egrep": "grep", "fgrep": "grep",
            "podman": "docker", "pnpm": "npm", "yarn": "npm"}  # fmt: skip
_GIT_RUNNERS = frozenset(
    {"bisect", "submodule", "filter-branch", "difftool", "mergetool", "config", "send-email"}
)
_RUNNERS = {
    "uv": ("run",),
    "poetry": ("run",),
    "pipenv": ("run",),
    "hatch": ("run",),
    "pdm": ("run",),
    "rye": ("run",),
    "conda": ("run",),
    "npm": ("exec", "x"),
    "pnpm": ("exec", "dlx"),
    "yarn": ("exec", "dlx"),
    "bundle": ("exec",),
    "docker": ("exec", "run"),
    "podman": ("exec", "run"),
    "kubectl": ("exec", "run"),
    "mise": ("exec", "x"),
    "asdf": ("exec",),
    "direnv": ("exec",),
    "nix": ("run", "shell", "develop"),
}


def carries_code(words: Sequence[Word]) -> bool:
    """Tell whether a command's arguments hold code, or could once its expansions are known."""
    name = name_of(words[0])
    if name in SHELLS:
        return _is_inline(words, r"[-+].*")
    if _ALWAYS_CODE.fullmatch(name):
        return True
    for names, flags in _INTERPRETERS.items():
        if re.fullmatch(names, name):
            return _is_inline(words, flags)
    return _has_code_option(_SAME_AS.get(name, name), words) or _runs_code(name, words)


_HARMLESS = frozenset({"-u", "-B", "-E", "-s", "-S", "-I", "-O", "-OO", "-b", "-q", "-w", "-W0"})


def _is_inline(words: Sequence[Word], flags: str) -> bool:
    """Code stands in a flag, or may, or comes by standard input since no script is named."""
    for word in words[1:]:
        if not word.is_fixed or re.fullmatch(flags, word.text) or word.text.startswith("/dev/"):
            return True
        if word.text in {"-V", "--version", "--help", "-h", "-m"} or not word.text.startswith("-"):
            return False
        if word.text not in _HARMLESS:
            return True
    return True


def _has_code_option(name: str, words: Sequence[Word]) -> bool:
    if name == "git" and len(words) > 1 and not _GIT_RUNNERS.isdisjoint(word.text for word in words[1:3]):
        return True
    pattern = _OPTIONS.get(name)
    if pattern is None:
        return False
    return any(not word.is_fixed or re.fullmatch(pattern, word.text, re.DOTALL) for word in words[1:])


def _runs_code(name: str, words: Sequence[Word]) -> bool:
    if name not in _RUNNERS or len(words) < 3 or words[1].text not in _RUNNERS[name]:
        return False
    return any(carries_code(words[at:]) for at in range(2, len(words)) if _may_be_command(words[at]))


def _may_be_command(word: Word) -> bool:
    name = name_of(word)
    return name in SHELLS or any(re.fullmatch(names, name) for names in _INTERPRETERS)
