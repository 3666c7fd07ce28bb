"""Commands that run other commands: what stands inside `env`, `xargs`, `find -exec`, `sudo`, `sh -c`."""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

import msgspec

from bareagent.tools.shellparse import ANY_WORD, Word

Words = tuple[Word, ...]

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish"})

HIDERS = frozenset(
    {
        "sudo", "doas", "su", "runuser", "pkexec", "chroot", "unshare", "nsenter", "busybox", "toybox",
        "exec", "builtin", "eval", "source", ".", "trap", "alias", "coproc", "setsid", "watch", "entr",
        "parallel", "script", "flock", "strace", "ltrace", "gdb", "valgrind", "perf", "tmux", "screen",
        "at", "batch", "crontab", "systemd-run", "ssh", "caffeinate", "chrt", "taskset", "unbuffer", "expect",
        "enable", "hash", "bind", "complete", "mapfile", "readarray", "read", "let", "declare", "local",
        "export", "unset", "set", "shopt", "ulimit", "umask", "pushd", "popd", "wait", "fc", "rlwrap",
        "dbus-run-session", "xvfb-run", "torsocks", "proxychains", "firejail", "bwrap", "run-parts",
        "start-stop-daemon", "daemonize", "nix-shell", "fakeroot", "setarch", "linux32", "linux64",
    }
)  # fmt: skip
"""Commands that run others, or change what names mean, in ways not looked through."""


class _Options(msgspec.Struct, frozen=True):
    """Flags of a wrapper: without and with a value, and how many operands stand before the command."""

    plain: frozenset[str]
    valued: frozenset[str] = frozenset()
    n_operands: int = 0


def _options(plain: str, valued: str = "", n_operands: int = 0) -> _Options:
    return _Options(frozenset(plain.split()), frozenset(valued.split()), n_operands)


_WRAPPERS = {
    "env": _options("-i -0 --ignore-environment", "-u --unset"),
    "nice": _options("", "-n --adjustment"),
    "nohup": _options(""),
    "time": _options("-p"),
    "timeout": _options("--foreground --preserve-status -v --verbose", "-k -s --kill-after --signal", 1),
    "stdbuf": _options("", "-i -o -e"),
    "ionice": _options("-t", "-c -n"),
    "command": _options("-p"),
    "xargs": _options(
        "-0 -r -t -x --null --no-run-if-empty --verbose", "-n -L -P -I -d -s --max-args --max-procs"
    ),
}
_ATTACHED = re.compile(r"-[A-Za-z]\S+|--[a-z-]+=.*|-\d+")
_EXEC = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


class Inside(msgspec.Struct, frozen=True, kw_only=True):
    """What a command runs: other commands, shell texts; `fault` where that cannot be told.

    `is_wrapper`: the outer command is nothing to be judged for itself. `is_opaque`: what it runs cannot
    even be measured against what is denied.
    """

    commands: tuple[Words, ...] = ()
    scripts: tuple[str, ...] = ()
    fault: str = ""
    is_wrapper: bool = False
    is_opaque: bool = False


def name_of(word: Word) -> str:
    """Return the program a command word names, without its folder."""
    return PurePosixPath(word.text).name if word.text else ""


def inside(words: Words) -> Inside:
    """Look into a command one level deep."""
    name = name_of(words[0])
    if name in SHELLS:
        return _shell(words)
    if name in HIDERS:
        return _hider(name, words)
    if name in {"find", "fd"}:
        return _find(words)
    if name == "command" and any(word.text in {"-v", "-V"} for word in words[1:2]):
        return Inside()
    if name in _WRAPPERS:
        return _unwrapped(name, words)
    return Inside()


def _hider(name: str, words: Words) -> Inside:
    """What is hidden is still looked at for what is denied: every rest of it may be the command."""
    rests = tuple(words[at:] for at in range(1, len(words)))
    scripts = (" ".join(word.text for word in words[1:]),) if name in {"eval", "trap"} else ()
    return Inside(commands=rests, scripts=scripts, fault=f"{name} may run anything", is_opaque=name == "eval")


def _shell(words: Words) -> Inside:
    if len(words) > 2 and words[1].text == "-c" and words[2].is_fixed and not words[2].has_glob:
        return Inside(scripts=(words[2].text,), is_wrapper=True)
    flags = [word for word in words[1:] if not word.is_fixed or word.text.startswith(("-", "+"))]
    scripts = tuple(word.text for word in words[1:] if " " in word.text)
    if flags or len(words) < 2:
        return Inside(
            scripts=scripts,
            fault=f"{name_of(words[0])} is given code that a rule cannot cover",
            is_opaque=True,
        )
    return Inside()


def _unwrapped(name: str, words: Words) -> Inside:
    options = _WRAPPERS[name]
    at = 1
    while at < len(words) and words[at].text.startswith("-") and words[at].text != "--":
        step = _step(words[at], options)
        if not step:
            return Inside(
                commands=_rests(words, at),
                scripts=tuple(word.text for word in words[at:] if " " in word.text),
                fault=f"{name} is given an option that is not looked through",
                is_opaque=True,
            )
        at += step
    at += at < len(words) and words[at].text == "--"
    at += options.n_operands
    fault = ""
    while name == "env" and at < len(words) and "=" in words[at].text:
        fault, at = "it sets a variable for the command", at + 1
    return _wrapped(name, words[at:], fault)


def _rests(words: Words, start: int) -> tuple[Words, ...]:
    return tuple(words[at:] for at in range(start, len(words)))


def _wrapped(name: str, rest: Words, fault: str) -> Inside:
    if not rest:
        # `xargs` alone echoes; `env` alone shows the environment, which is a deed of its own.
        return Inside(fault=fault, is_wrapper=name == "xargs")
    if not rest[0].is_fixed:
        return Inside(fault="its command word is only known when it runs", is_wrapper=True, is_opaque=True)
    return Inside(commands=((*rest, ANY_WORD) if name == "xargs" else rest,), fault=fault, is_wrapper=True)


def _step(word: Word, options: _Options) -> int:
    """Return how many words an option takes; 0 for one that is not known."""
    if not word.is_fixed:
        return 0
    if word.text in options.plain:
        return 1
    if word.text in options.valued:
        return 2
    is_attached = _ATTACHED.fullmatch(word.text) and any(
        word.text.startswith(flag) for flag in options.valued
    )
    return 1 if is_attached or (options.valued and re.fullmatch(r"-\d+", word.text)) else 0


def _find(words: Words) -> Inside:
    found: list[Words] = []
    for at, word in enumerate(words):
        if word.text in _EXEC or (
            name_of(words[0]) == "fd" and word.text in {"-x", "-X", "--exec", "--exec-batch"}
        ):
            found.append(_exec_words(words[at + 1 :]))
    if not found:
        return Inside()
    fault = (
        ""
        if all(each and each[0].is_fixed and "{}" not in each[0].text for each in found)
        else "find runs what it finds"
    )
    return Inside(commands=tuple(each for each in found if each), fault=fault)


def _exec_words(words: Sequence[Word]) -> Words:
    taken: list[Word] = []
    for word in words:
        if word.text in {";", "+"} and word.is_fixed:
            break
        taken.append(ANY_WORD if taken and "{}" in word.text else word)
    return tuple(taken)
