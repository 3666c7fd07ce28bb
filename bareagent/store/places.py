"""Where sessions lie: a project's root, its sessions' folder, ids. Looks at the disk, writes nothing."""

import hashlib
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path

ID = re.compile(r"\d{8}-\d{6}-[a-z2-7]{4}")
LOG_NAME = "log.jsonl"
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


def project_root(cwd: Path) -> Path:
    """Return the nearest folder upwards that holds `.git`, else `cwd`; symlinks resolved."""
    real = cwd.resolve()
    for folder in (real, *real.parents):
        if (folder / ".git").exists():
            return folder
    return real


def project_key(root: Path) -> str:
    """Return a file name that stands for one project only: a hash of its whole path and a readable end."""
    digest = hashlib.sha256(str(root).encode("utf-8", "surrogateescape")).hexdigest()[:20]
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", root.name)[:40].strip(".-")
    return f"{readable}-{digest}" if readable else digest


def sessions_folder(root: Path, user_dir: Path, setting: str) -> Path:
    """Return where a project's sessions lie by the setting: "project", "user" or a path."""
    if setting == "project":
        return root / ".transcripts"
    if setting == "user":
        return user_dir / "sessions" / project_key(root)
    return root / Path(setting).expanduser()


def new_id() -> str:
    """Return a fresh id: local time and four letters by chance."""
    stamp = datetime.now(UTC).astimezone().strftime("%Y%m%d-%H%M%S")
    return stamp + "-" + "".join(secrets.choice(_ALPHABET) for _ in range(4))
