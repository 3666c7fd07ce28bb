"""Cards of all known sessions, kept in one SQLite file so that lists need not read logs.

Wholly derived: a card counts as long as its log has the size and time it had, and the file is made anew
when it is missing or broken. `projects.jsonl` beside it names every sessions folder ever used.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bareagent import platform
from bareagent.store.cards import Card, read_card
from bareagent.store.places import ID, LOG_NAME, known_homes, remember_home

FILE_NAME = "catalogue.sqlite3"
_TABLE = "CREATE TABLE IF NOT EXISTS cards (folder TEXT PRIMARY KEY, home TEXT, card BLOB) WITHOUT ROWID"
_INDEX = "CREATE INDEX IF NOT EXISTS by_home ON cards (home)"


class Catalogue:
    """Lists sessions, reading only the logs that changed since the last time."""

    def __init__(self, user_dir: Path) -> None:
        """Open the file in the user's data folder, or do without where that cannot be."""
        self._user_dir = user_dir
        self._path = user_dir / FILE_NAME
        self._base = self._opened()

    def _opened(self) -> sqlite3.Connection:
        try:
            if not self._user_dir.is_dir():
                platform.make_private_folder(self._user_dir)
            # SQLite would make it by the umask; it holds names and first lines.
            os.close(platform.open_private(self._path, os.O_RDWR | os.O_CREAT))
            return _connected(str(self._path))
        except sqlite3.OperationalError:
            return _connected(":memory:")
        except sqlite3.DatabaseError:
            self._path.unlink(missing_ok=True)
            return _connected(str(self._path))
        except OSError:
            return _connected(":memory:")

    def cards(self, home: Path) -> list[Card]:
        """Return the cards of one sessions folder, newest change first, empty sessions left out.

        From now on `all_cards` knows the folder too: a project that was moved is found in its new place.
        """
        cards = self._cards(home)
        if cards:
            remember_home(self._user_dir, home)
        return cards

    def _cards(self, home: Path) -> list[Card]:
        known = self._known(home)
        cards: list[Card] = []
        fresh: list[Card] = []
        for folder, status in _logs(home):
            card = known.pop(folder, None)
            if card is None or (card.size_bytes, card.changed_ns) != (status.st_size, status.st_mtime_ns):
                card = read_card(Path(folder))
                fresh += [card] if card else []
            if card is not None and not card.is_empty:
                cards.append(card)
        self._keep(home, fresh, gone=list(known))
        return sorted(cards, key=lambda card: (card.changed_ns, card.id), reverse=True)

    def all_cards(self) -> list[Card]:
        """Return the cards of every project known, newest change first."""
        cards = [card for home in known_homes(self._user_dir) for card in self._cards(home)]
        return sorted(cards, key=lambda card: (card.changed_ns, card.id), reverse=True)

    def close(self) -> None:
        """Let go of the file."""
        self._base.close()

    def _known(self, home: Path) -> dict[str, Card]:
        try:
            rows = self._base.execute("SELECT folder, card FROM cards WHERE home = ?", (str(home),))
            return {folder: _decoder.decode(card) for folder, card in rows}
        except (sqlite3.Error, msgspec.MsgspecError):
            return {}

    def _keep(self, home: Path, fresh: list[Card], gone: list[str]) -> None:
        if not fresh and not gone:
            return
        rows = [(card.folder, str(home), msgspec.json.encode(card)) for card in fresh]
        with contextlib.suppress(sqlite3.Error), self._base:
            self._base.executemany("INSERT OR REPLACE INTO cards VALUES (?, ?, ?)", rows)
            self._base.executemany("DELETE FROM cards WHERE folder = ?", [(folder,) for folder in gone])


_decoder = msgspec.json.Decoder(Card)


def _connected(name: str) -> sqlite3.Connection:
    base = sqlite3.connect(name, timeout=1.0)
    try:
        base.execute(_TABLE)
        base.execute(_INDEX)
    except sqlite3.Error:
        base.close()
        raise
    return base


def _logs(home: Path) -> Iterator[tuple[str, os.stat_result]]:
    try:
        descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        for name in [entry.name for entry in os.scandir(descriptor) if ID.fullmatch(entry.name)]:
            # From the open folder on: thousands of whole paths cost more than the looks themselves.
            try:
                status = os.stat(f"{name}/{LOG_NAME}", dir_fd=descriptor)
            except OSError:
                continue
            yield f"{home}/{name}", status
    finally:
        os.close(descriptor)
