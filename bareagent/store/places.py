"""Where sessions lie: a project's root, its sessions' folder, ids, and the folders of all projects."""

import contextlib
import hashlib
import json
import os
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path

from bareagent import platform

ID = re.compile(r"\d{8}-\d{6}-[a-z2-7]{4}")
PROJECT_FOLDER = ".transcripts"
LOG_NAME = "log.jsonl"
LOCK_NAME = "lock"
PROJECTS_NAME = "projects.jsonl"
MAX_HEAD_BYTES = 4096
_GITIGNORE = "*\n!.gitignore\n"
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


def project_root(cwd: Path) -> Path:
    """Return the nearest folder upwards that holds `.git`, else `cwd`; symlinks resolved."""
    real = cwd.resolve()
    for folder in (real, *real.parents):
        if (folder / ".git").exists():
            return folder
    return real


def branch(root: Path) -> str:
    """Return the branch a project stands on, read from `.git/HEAD`; empty where there is none."""
    try:
        folder = root / ".git"
        if folder.is_file():
            folder = (
                root / folder.read_text(errors="replace")[:MAX_HEAD_BYTES].partition("gitdir:")[2].strip()
            )
        with (folder / "HEAD").open(errors="replace") as file:
            head = file.read(MAX_HEAD_BYTES).strip()
    except (OSError, ValueError):
        return ""
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref:") else head[:8]


def project_key(root: Path) -> str:
    """Return a file name that stands for one project only: a hash of its whole path and a readable end."""
    digest = hashlib.sha256(str(root).encode("utf-8", "surrogateescape")).hexdigest()[:20]
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", root.name)[:40].strip(".-")
    return f"{readable}-{digest}" if readable else digest


def sessions_folder(root: Path, user_dir: Path, setting: str) -> Path:
    """Return where a project's sessions lie by the setting: "project", "user" or a path."""
    if setting == "project":
        return root / PROJECT_FOLDER
    if setting == "user":
        return user_dir / "sessions" / project_key(root)
    return root / Path(setting).expanduser()


def new_id() -> str:
    """Return a fresh id: local time and four letters by chance."""
    stamp = datetime.now(UTC).astimezone().strftime("%Y%m%d-%H%M%S")
    return stamp + "-" + "".join(secrets.choice(_ALPHABET) for _ in range(4))


def make_home(home: Path) -> None:
    """Make a sessions folder that keeps itself out of repositories; one that is there already is left as it is."""
    if home.is_dir():
        return
    platform.make_private_folder(home)
    descriptor = platform.open_private(home / ".gitignore", os.O_WRONLY | os.O_CREAT)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(_GITIGNORE)


def remember_home(user_dir: Path, home: Path) -> None:
    """Note a sessions folder, once, in the user's data folder; what cannot be noted is let be."""
    if home in known_homes(user_dir):
        return
    with contextlib.suppress(OSError):
        if not user_dir.exists():
            platform.make_private_folder(user_dir)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with os.fdopen(platform.open_private(user_dir / PROJECTS_NAME, flags), "ab") as file:
            file.write(json.dumps(str(home)).encode() + b"\n")


def known_homes(user_dir: Path) -> list[Path]:
    """Return every sessions folder that was noted."""
    try:
        lines = (user_dir / PROJECTS_NAME).read_bytes().split(b"\n")
    except OSError:
        return []
    homes = []
    for line in lines:
        with contextlib.suppress(ValueError):
            homes.append(json.loads(line))
    return [Path(home) for home in dict.fromkeys(homes) if isinstance(home, str)]
