"""Keys that `bareagent setup` stores: one file in the user's settings folder, readable by its owner only."""

import json
import os
from pathlib import Path

from bareagent.folders import config_folder
from bareagent.platform import make_private_folder, open_private


def path() -> Path:
    """Return the file's path."""
    return config_folder() / "keys.json"


def stored(provider: str) -> str:
    """Return a provider's stored key, "" if there is none."""
    return _read().get(provider, "")


def store(provider: str, key: str) -> Path:
    """Keep a key, an empty one to forget it; return the file."""
    keys = {**_read(), provider: key.strip()}
    file = path()
    make_private_folder(file.parent)
    fresh = file.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    descriptor = open_private(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        json.dump({name: value for name, value in sorted(keys.items()) if value}, out, indent=1)
        out.write("\n")
    fresh.replace(file)
    return file


def _read() -> dict[str, str]:
    try:
        keys = json.loads(path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(name): str(key) for name, key in keys.items()} if isinstance(keys, dict) else {}
