"""The saved sessions of one project: made, found, listed, forked, checked, removed."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bareagent import platform
from bareagent.errors import SessionError, SessionNotFound
from bareagent.store.places import ID, LOG_NAME, new_id, sessions_folder

_GITIGNORE = "*\n!.gitignore\n"


class Found(NamedTuple):
    """A session that was asked for; `generation` is None where the newest state is meant."""

    id: str
    folder: Path
    generation: int | None = None


class TranscriptManager:
    """The sessions of the project at `root`; `setting` is `[session] dir` or a folder's path."""

    def __init__(self, root: Path, user_dir: Path, setting: str = "project") -> None:
        """Look at nothing yet."""
        self.root = root
        self.user_dir = user_dir
        self.folder = sessions_folder(root, user_dir, setting)

    def create(self) -> Found:
        """Make the folder of a new session. Raises: SessionError where that cannot be."""
        try:
            self._make_home()
            return self._make_folder()
        except OSError as error:
            raise SessionError(f"Sessions cannot be saved in {self.folder}: {error.strerror}.") from error

    def _make_home(self) -> None:
        platform.make_private_folder(self.folder)
        ignore = self.folder / ".gitignore"
        if not ignore.exists():
            descriptor = platform.open_private(ignore, os.O_WRONLY | os.O_CREAT)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(_GITIGNORE)

    def _make_folder(self) -> Found:
        while True:
            id = new_id()
            try:
                platform.make_private_folder(self.folder / id, is_new=True)
            except FileExistsError:
                continue
            return Found(id, self.folder / id)

    def ids(self) -> list[str]:
        """Return the ids of all sessions here, newest first."""
        try:
            names = os.listdir(self.folder)
        except OSError:
            return []
        return sorted((name for name in names if ID.fullmatch(name)), reverse=True)

    def find(self, text: str, rows: Sequence[str] = ()) -> Found:
        """Return the session a user means: an id, a prefix of at least four characters, a row of the last
        list (one or two digits, from 1), `ID.N`. Raises: SessionNotFound."""
        text = text.strip()
        id, _, generation = text.partition(".")
        if re.fullmatch(r"\d{1,2}", text) and 1 <= int(text) <= len(rows):
            id, generation = rows[int(text) - 1], ""
        ids = self.ids()
        matches = [id] if id in ids else [known for known in ids if len(id) >= 4 and known.startswith(id)]
        if len(matches) != 1 or (generation and not generation.isdigit()):
            near = ", ".join((matches or ids)[:5])
            raise SessionNotFound(f"There is no session {text!r}.", f"Near ones: {near}" if near else "")
        return Found(matches[0], self.folder / matches[0], int(generation) if generation else None)

    def log_path(self, id: str) -> Path:
        """Return where a session's log lies."""
        return self.folder / id / LOG_NAME
