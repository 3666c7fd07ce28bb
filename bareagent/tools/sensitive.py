"""Where a path really leads, and which places ask even when a rule allows them.

Only looks paths up; nothing here decides what happens to a call.
"""

import itertools
import os
import re
import stat
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

_KEY_FOLDERS = frozenset(
    {".ssh", ".aws", ".gnupg", ".kube", ".azure", ".gcloud", ".password-store", "keychains"}
)
_KEY_FOLDERS_OF_CONFIG = frozenset({"gcloud", "gh", "op", "doctl"})
_KEY_ENDINGS = (".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk", ".env")
_KEY_NAMES = frozenset(
    {
        ".env", ".envrc", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".my.cnf", ".htpasswd",
        ".git-credentials", ".vault-token", ".dockercfg", "credentials", "credentials.json",
        "secrets.json", "secrets.yml", "secrets.yaml", "secrets.toml", "authorized_keys",
    }
)  # fmt: skip
_KEY_PATTERN = re.compile(
    r"id_[^.]*|id_(rsa|dsa|ecdsa|ed25519|xmss).*(?<!\.pub)"
    r"|\.env\.(?!(example|sample|template|dist|defaults)$).*|service-account.*\.json"
)
_STARTUP_NAMES = frozenset(
    {
        ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile",
        ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".mkshrc", ".cshrc",
        ".tcshrc", ".login", ".logout", ".inputrc", ".xprofile", ".xinitrc", ".xsession",
        ".xsessionrc", "config.fish", ".gitconfig", ".pythonrc.py", "crontab",
    }
)  # fmt: skip
_STARTUP_FOLDERS = frozenset({"autostart", "systemd", "fish", "git", "environment.d"})
_EDITOR_FOLDERS = frozenset({".vscode", ".idea", ".husky"})
_FREE_DEVICES = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/zero"})
_MANY_ENTRIES = 20_000


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """What paths are measured against; all but `cwd` are real paths.

    `free` are folders that are read without asking (the present session's snapshots and outputs, the
    skills); `program` the program's own files.
    """

    root: Path
    home: Path
    cwd: Path
    free: Sequence[Path] = ()
    program: Sequence[Path] = ()
    search_path: str = ""


def real(path: str | Path) -> Path | None:
    """Return where a path leads with every link followed; None where it leads nowhere (a loop, a NUL).

    What does not exist yet leads where it would be made, behind dangling links too.
    """
    try:
        found = os.path.realpath(path)
        mode = os.lstat(found).st_mode
    except FileNotFoundError:
        return Path(os.path.realpath(path))
    except NotADirectoryError:
        return Path(os.path.realpath(path))
    except (OSError, ValueError):
        return None
    return None if stat.S_ISLNK(mode) else Path(found)


def expanded(target: str, places: Places, base: Path | None = None) -> Path:
    """Return a path as written, `~` and the working directory put in, links not followed."""
    if target == "~" or target.startswith("~/"):
        return places.home / target[2:]
    if target.startswith("~"):  # `~name` is that user's home for some readers: judged as it leads away
        return _home_of_another(target) or places.home
    return (base or places.cwd) / target


def _home_of_another(target: str) -> Path | None:
    try:
        return Path(target).expanduser()
    except RuntimeError:
        return None


def is_inside(path: Path, folder: Path) -> bool:
    """Tell whether a real path is a folder or in it."""
    return path == folder or folder in path.parents


def is_free_device(target: str) -> bool:
    """Tell whether a path is a device that holds and keeps nothing."""
    return target in _FREE_DEVICES


def plain(name: str) -> str:
    """Return a name as a file system that ignores case, width and invisible letters would read it."""
    visible = "".join(letter for letter in name if unicodedata.category(letter) != "Cf")
    return unicodedata.normalize("NFKC", visible).casefold()


def is_key_name(name: str) -> bool:
    """Tell whether a file of this name holds keys or passwords, by custom."""
    name = plain(name)
    return name in _KEY_NAMES or name.endswith(_KEY_ENDINGS) or bool(_KEY_PATTERN.fullmatch(name))


def why_sensitive(path: Path, places: Places, *, is_write: bool) -> str:
    """Return why a real path asks even when a rule allows it; empty if it does not."""
    if not is_write and any(is_inside(path, folder) for folder in places.free):
        return ""
    parts = [plain(part) for part in path.parts]
    return (
        _why_key(path, parts)
        or _why_program(path, parts, places, is_write=is_write)
        or _why_startup(parts)
        or _why_git(parts, is_write=is_write)
        or _why_linked(path, places, is_write=is_write)
    )


def _why_key(path: Path, parts: list[str]) -> str:
    if (
        _is_in_config(parts, _KEY_FOLDERS_OF_CONFIG)
        or not _KEY_FOLDERS.isdisjoint(parts)
        or parts[-2:] == [".docker", "config.json"]
    ):
        return "it is where keys are kept"
    # A folder of such a name holds sources as a rule (`src/id_map`), not a key.
    return "it may hold keys or passwords" if is_key_name(path.name) and not path.is_dir() else ""


def _is_in_config(parts: list[str], folders: frozenset[str]) -> bool:
    return any(first == ".config" and second in folders for first, second in itertools.pairwise(parts))


def _why_program(path: Path, parts: list[str], places: Places, *, is_write: bool) -> str:
    if any(is_inside(path, folder) for folder in places.program):
        return "it is a file of this program"
    if ".transcripts" in parts:
        return "it holds transcripts of sessions"
    if ".bareagent" in parts and (is_write or parts[-1] in {".bareagent", "config.toml"}):
        return "it steers this program"
    return ""


def _why_startup(parts: list[str]) -> str:
    in_config = _is_in_config(parts, _STARTUP_FOLDERS)
    if parts[-1] in _STARTUP_NAMES or in_config or "launchagents" in parts:
        return "it is read when a shell, a session or git starts"
    return ""


def _why_git(parts: list[str], *, is_write: bool) -> str:
    if is_write and not _EDITOR_FOLDERS.isdisjoint(parts):
        return "it names commands that run by themselves"
    if ".git" not in parts:
        return ""
    below = parts[parts.index(".git") + 1 :]
    if is_write or "hooks" in below or below[-1:] in (["config"], ["config.worktree"]):
        return "it steers git"
    return ""


def _why_linked(path: Path, places: Places, *, is_write: bool) -> str:
    """Hard links are other names of one file: what another name protects, this one must not give."""
    try:
        status = path.stat()
    except OSError:
        return ""
    if not stat.S_ISREG(status.st_mode) or status.st_nlink < 2:
        return ""
    if is_write:
        return "the file has other names (hard links)"
    twin = (status.st_dev, status.st_ino)
    return "it is a hard link to a key or start-up file" if twin in _protected_twins(places.home) else ""


def _protected_twins(home: Path) -> set[tuple[int, int]]:
    near = [home / name for name in (*_KEY_NAMES, *_STARTUP_NAMES)]
    kept = [child for folder in _KEY_FOLDERS for child in _children(home / folder)]
    return {twin for twin in map(_twin, (*near, *kept)) if twin}


def _children(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _twin(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def holds_keys(folder: Path, *, with_hidden: bool) -> bool:
    """Tell whether a folder holds key files at any depth; True too where it is too large to know."""
    for n_seen, entry in enumerate(_walk(folder, with_hidden=with_hidden)):
        if n_seen >= _MANY_ENTRIES or (is_key_name(entry.name) and not entry.is_dir()):
            return True
    return False


def _walk(folder: Path, *, with_hidden: bool) -> Iterator[os.DirEntry[str]]:
    waiting = [str(folder)]
    while waiting:
        entries = _entries(waiting.pop())
        for entry in entries:
            if entry.name == ".git" or (not with_hidden and entry.name.startswith(".")):
                continue
            yield entry
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []
