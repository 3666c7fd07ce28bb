"""Keeps what a server said of its models for a day, in the user's cache folder; failures are silent."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bareagent import platform
from bareagent.folders import cache_folder

FRESH_S = 86_400.0


class ModelCache:
    """One server's models: name → fields in the words of models.toml."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._entry: dict[str, Any] | None = None

    def get(self, name: str) -> Mapping[str, Any] | None:
        """Return what the server said of a model, None where it was not asked or the answer is old."""
        return self.all().get(name)

    def all(self) -> Mapping[str, Mapping[str, Any]]:
        """Return all that the server said within a day."""
        models = self._read().get("models", {}) if self.is_fresh() else {}
        return {name: fields for name, fields in models.items() if isinstance(fields, dict)}

    def is_fresh(self) -> bool:
        """Tell whether the whole list was asked for within a day."""
        at = self._read().get("at", 0)
        return isinstance(at, int | float) and 0 <= time.time() - at < FRESH_S

    def put(self, models: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep the whole list."""
        self._entry = {"at": time.time(), "models": {name: dict(fields) for name, fields in models.items()}}
        self._write()

    def add(self, name: str, fields: Mapping[str, Any]) -> None:
        """Keep one answer for this process."""
        known = self._read()["models"] if self.is_fresh() else {}
        at = self._read()["at"] if self.is_fresh() else time.time()
        self._entry = {"at": at, "models": {**known, name: dict(fields)}}

    def _read(self) -> dict[str, Any]:
        if self._entry is None:
            entry = _all().get(self._server)
            self._entry = entry if isinstance(entry, dict) and isinstance(entry.get("models"), dict) else {}
        return self._entry

    def _write(self) -> None:
        everything = {**_all(), self._server: self._entry}
        try:
            if not _path().parent.exists():
                platform.make_private_folder(_path().parent)
            fresh = _path().with_suffix(".new")
            descriptor = platform.open_private(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(everything, file)
            fresh.replace(_path())
        except OSError:
            return  # a cache that cannot be written is asked again next time


def _path() -> Path:
    return cache_folder() / "models.json"


def _all() -> dict[str, Any]:
    try:
        value = json.loads(_path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
