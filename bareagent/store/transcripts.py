"""The saved sessions of one project: made, found, listed, forked, removed."""

import os
import re
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bareagent import __version__, platform
from bareagent.entries import Parent, SessionStart
from bareagent.errors import SessionError, SessionLocked, SessionNotFound
from bareagent.sanitize import one_line
from bareagent.store.cards import Card, read_card
from bareagent.store.forks import copy_log, last_entry_of_generation
from bareagent.store.lines import now
from bareagent.store.log import Log
from bareagent.store.places import (
    ID,
    LOCK_NAME,
    LOG_NAME,
    PROJECT_FOLDER,
    make_home,
    new_id,
    project_root,
    remember_home,
    sessions_folder,
)
from bareagent.store.redact import Redactor

_LEAST_PREFIX = 4


class Found(NamedTuple):
    """A session that was asked for; `generation` is None where the newest state is meant."""

    id: str
    folder: Path
    generation: int | None = None


class TranscriptManager:
    """The sessions of the project at `root`; `setting` is `[session] dir` or a folder's path.

    `keys` are the program's own keys: masked whatever their shape.
    """

    def __init__(
        self,
        root: Path,
        user_dir: Path,
        setting: str = "project",
        *,
        redact: bool = True,
        keys: Sequence[str] = (),
    ) -> None:
        """Look at nothing yet."""
        self.root = root
        self.user_dir = user_dir
        self.folder = sessions_folder(root, user_dir, setting)
        self.is_elsewhere = setting not in {"project", "user"} and self.folder.name != PROJECT_FOLDER
        self.redact = redact
        self.keys = list(keys)

    def redactor(self) -> Redactor:
        """Return a fresh redactor that knows the program's own keys."""
        redactor = Redactor(is_on=self.redact)
        for key in self.keys:
            redactor.register(key)
        return redactor

    def create(self) -> Found:
        """Make the folder of a new session. Raises: SessionError where that cannot be."""
        try:
            self._make_home()
            return self._make_folder()
        except OSError as error:
            raise SessionError(f"Sessions cannot be saved in {self.folder}: {error.strerror}.") from error

    def _make_home(self) -> None:
        # A folder that is there already may be anyone's: its mode and files are left alone.
        make_home(self.folder)
        remember_home(self.user_dir, self.folder)

    def _make_folder(self) -> Found:
        while True:
            found = self._found(new_id())
            try:
                platform.make_private_folder(found.folder, is_new=True)
            except FileExistsError:
                continue
            return found

    def ids(self) -> list[str]:
        """Return the ids of all sessions here, newest first by their making."""
        try:
            names = [entry.name for entry in os.scandir(self.folder)]
        except OSError:
            return []
        return sorted(filter(ID.fullmatch, names), reverse=True)

    def cards(self) -> list[Card]:
        """Return the cards of all sessions here, newest change first, empty ones left out."""
        known = map(read_card, (self.folder / name for name in self.ids()))
        cards = [card for card in known if card and not card.is_empty]
        return sorted(cards, key=lambda card: (card.changed_ns, card.id), reverse=True)

    def newest(self) -> Found | None:
        """Return this project's session that changed last, empty ones left out."""
        for name in sorted(self.ids(), key=self._changed_ns, reverse=True):
            card = read_card(self.folder / name)
            if card and not card.is_empty and self._is_ours(card):
                return self._found(name)
        return None

    def _is_ours(self, card: Card) -> bool:
        """What lies in a project's own folder is the project's, wherever it was moved; others may be shared."""
        is_shared = self.is_elsewhere and not self.folder.is_relative_to(self.root)
        return not is_shared or not card.cwd or project_root(Path(card.cwd)) == self.root

    def _changed_ns(self, id: str) -> int:
        try:
            return (self.folder / id / LOG_NAME).stat().st_mtime_ns
        except OSError:
            return 0

    def find(self, text: str, rows: Sequence[str] = ()) -> Found:
        """Return the session a user means.

        That is an id, a prefix of at least four characters, a row of the last list (one or two digits,
        from 1), `ID.N`, a name, or a session's folder. Raises: SessionNotFound, with near ones.
        """
        text = text.strip()
        if re.fullmatch(r"\d{1,2}", text) and 1 <= int(text) <= len(rows):
            return self._found(rows[int(text) - 1])
        if re.fullmatch(r"\d{1,2}", text):
            raise SessionNotFound(
                f"The last list has no row {text}.",
                "/sessions lists them; in a shell, `bareagent sessions list`",
            )
        if os.sep in text:
            return _found_by_path(text)
        start, dot, generation = text.partition(".")
        matches = self._matches(start)
        if len(matches) == 1 and (not dot or re.fullmatch(r"\d{1,9}", generation)):
            return self._found(matches[0], int(generation) if dot else None)
        return self._named(text, matches)

    def _found(self, id: str, generation: int | None = None) -> Found:
        return Found(id, self.folder / id, generation)

    def _matches(self, id: str) -> list[str]:
        ids = self.ids()
        if id in ids:
            return [id]
        return [known for known in ids if known.startswith(id)] if len(id) >= _LEAST_PREFIX else []

    def _named(self, text: str, matches: list[str]) -> Found:
        cards = self.cards()
        named = [card for card in cards if text and card.name.casefold() == text.casefold()]
        if len(named) == 1:
            return self._found(named[0].id)
        if len(named) > 1:
            ids = ", ".join(card.id for card in named[:5])
            raise SessionNotFound(f"{len(named)} sessions are named {text!r}.", f"Say which: {ids}")
        near = matches[:5] or _near(text, cards)
        raise SessionNotFound(
            f"There is no session {text!r}.", f"Near ones: {', '.join(near)}" if near else ""
        )

    def fork(self, found: Found, upto: int | None = None, generation: int = 0) -> Found:
        """Make a new session whose log is that of `found`, up to entry `upto`. Raises: SessionError."""
        if not (found.folder / LOG_NAME).is_file():
            raise SessionNotFound(f"Session {found.id} cannot be copied: {found.folder} is gone.")
        fork = self.create()
        parent = Parent(id=found.id, generation=generation, n=upto or 0)
        start = SessionStart(
            id=fork.id, cwd=str(self.root), created=now(), program=__version__, parent=parent
        )
        try:
            copy_log(found.folder, fork.folder, start, upto)
        except (OSError, SessionError) as error:
            shutil.rmtree(fork.folder, ignore_errors=True)
            why = error.strerror if isinstance(error, OSError) else str(error).rstrip(".")
            raise SessionError(f"Session {found.id} cannot be copied: {why}.") from error
        return fork

    def resolved(self, found: Found) -> Found:
        """Return the session to go on with: for an older generation, a fork that ends with it.

        Raises: SessionNotFound for a generation that never was, SessionError.
        """
        if found.generation is None:
            return found
        upto = last_entry_of_generation(found.folder, found.generation)
        return found if upto is None else self.fork(found, upto, found.generation)

    def repair(self, found: Found) -> Found:
        """Copy all that is sound of a session into a new one; the old one stays. Raises: SessionError."""
        return self.fork(found)

    def remove(self, found: Found) -> None:
        """Delete a session for good. Raises: SessionLocked while another program writes it."""
        if found.folder.is_symlink() or not ID.fullmatch(found.folder.name):
            raise SessionError(f"{found.folder} is no folder of a session.")
        if (found.folder / LOG_NAME).exists():
            try:
                Log.open(found.folder / LOG_NAME).close()
            except SessionLocked as error:
                raise SessionLocked(str(error), holder(found.folder)) from None
        try:
            shutil.rmtree(found.folder)
        except OSError as error:
            raise SessionError(f"Session {found.id} cannot be removed: {error.strerror}.") from error


def _found_by_path(text: str) -> Found:
    folder = Path(text).expanduser()
    if not ID.fullmatch(folder.name) or not (folder / LOG_NAME).is_file():
        raise SessionNotFound(f"{text} is no folder of a session.")
    return Found(folder.name, folder)


def _near(text: str, cards: list[Card]) -> list[str]:
    """Ids that begin alike, and those whose name or first line holds the text."""
    wanted = text.casefold()
    by_words = [card.id for card in cards if wanted and wanted in card.title.casefold()]
    by_start = sorted((card.id for card in cards), key=lambda known: -_n_alike(known, text))
    return list(dict.fromkeys([*by_words, *by_start]))[:5]


def _n_alike(one: str, other: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(other))


def note_holder(folder: Path) -> None:
    """Write who has the lock, for others to read; the lock itself is the log's."""
    text = f"pid {os.getpid()} on {socket.gethostname()} since {now()}\n"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(platform.open_private(folder / LOCK_NAME, flags), "w", encoding="utf-8") as file:
        file.write(text)


def holder(folder: Path) -> str:
    """Return one line about who has the lock, as the holder noted it."""
    try:
        text = (folder / LOCK_NAME).read_bytes()[:500].decode("utf-8", "replace")
    except OSError:
        return "It is not known which one."
    return f"Its writer: {one_line(text, 160)}."
