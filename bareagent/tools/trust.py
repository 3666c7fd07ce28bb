"""Which project folders the user has said may steer the program by their own files."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bareagent import platform
from bareagent.tools import instructions
from bareagent.tools.sensitive import real

STORE = "trusted.json"
STEERING = (".bareagent/config.toml", ".bareagent/skills")


def steering_files(cwd: Path, root: Path) -> list[Path]:
    """Return what of a project would be used: instructions, settings, skills; empty asks for nothing."""
    own = [root / name for name in STEERING if (root / name).exists()]
    return [*instructions.files(cwd, root), *own]


def is_trusted(root: Path, data_folder: Path) -> bool:
    """Tell whether the user has trusted this folder; a store that cannot be read trusts none."""
    return bool(_folders(data_folder).get(_key(root)))


def is_answered(root: Path, data_folder: Path) -> bool:
    """Tell whether the user was asked about this folder, whatever the answer was."""
    return _key(root) in _folders(data_folder)


def remember(root: Path, data_folder: Path, *, is_trusted: bool) -> None:
    """Keep the user's answer about a folder. Raises: OSError where it cannot be kept."""
    folders = {**_folders(data_folder), _key(root): is_trusted}
    platform.make_private_folder(data_folder)
    text = json.dumps({"v": 1, "folders": dict(sorted(folders.items()))}, indent=1)
    new = data_folder / f"{STORE}.{os.getpid()}.new"
    with os.fdopen(platform.open_private(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(data_folder / STORE)


def forget(root: Path, data_folder: Path) -> None:
    """Take an answer back: the folder is asked about again. Raises: OSError."""
    path = data_folder / STORE
    folders = {key: value for key, value in _folders(data_folder).items() if key != _key(root)}
    if path.exists():
        path.write_text(json.dumps({"v": 1, "folders": folders}, indent=1) + "\n", encoding="utf-8")


def _key(root: Path) -> str:
    return str(real(root) or root)


def _folders(data_folder: Path) -> Mapping[str, bool]:
    try:
        kept: Any = json.loads((data_folder / STORE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    folders = kept.get("folders") if isinstance(kept, dict) else None
    if not isinstance(folders, dict):
        return {}
    return {str(key): value for key, value in folders.items() if isinstance(value, bool)}
