"""Where saved sessions lie, and their list: the light part of `bareagent sessions`."""

import os
import shutil
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bareagent import folders
from bareagent.config_load import load
from bareagent.errors import UsageError
from bareagent.options import Options
from bareagent.repl.rows import session_lines
from bareagent.sanitize import clean
from bareagent.store.cards import Card
from bareagent.store.catalogue import Catalogue
from bareagent.store.places import project_root, sessions_folder

NO_SESSIONS = "No saved sessions."


class Place(NamedTuple):
    """Where this project's sessions lie; `redact` is `[session] redact`."""

    root: Path
    setting: str
    redact: bool

    @property
    def folder(self) -> Path:
        """The sessions folder."""
        return sessions_folder(self.root, folders.data_folder(), self.setting)


def place(options: Options) -> Place:
    """Return where sessions lie by settings and flags (a project's own file has no say). Raises: ConfigError."""
    flags = {"session.dir": str(options.transcripts.absolute())} if options.transcripts else {}
    user_file = options.config or folders.config_folder() / "config.toml"
    session = load(user_file, None, os.environ, flags).config.session
    try:
        root = project_root(Path.cwd())
    except FileNotFoundError:
        raise UsageError("The working directory no longer exists.", "cd to another one") from None
    return Place(root, session.dir, session.redact)


def list_saved(options: Options, *, is_all: bool, is_json: bool) -> None:
    """Print the list of sessions, newest change first."""
    cards = cards_of(place(options), is_all=is_all)
    if is_json:
        print_json([as_json(card) for card in cards])
    elif not cards:
        print_clean(NO_SESSIONS)
    else:
        write("\n".join(session_lines(cards, _width(), has_folder=is_all)) + "\n")  # rows are clean


def cards_of(where: Place, *, is_all: bool = False) -> list[Card]:
    """Return the cards of this project's sessions, or of all projects', newest change first."""
    with closing(Catalogue(folders.data_folder())) as catalogue:
        return catalogue.all_cards() if is_all else catalogue.cards(where.folder)


def as_json(card: Card) -> dict[str, Any]:
    """Return a card as `--json` prints it."""
    changed = datetime.fromtimestamp(card.changed_ns / 1e9, UTC).isoformat(timespec="milliseconds")
    data: dict[str, Any] = msgspec.to_builtins(card)
    data |= {"full_id": card.full_id, "changed": changed.replace("+00:00", "Z")}
    del data["changed_ns"]
    return data


def _width() -> int:
    return shutil.get_terminal_size((120, 24)).columns if sys.stdout.isatty() else 200


def print_clean(text: str) -> None:
    """Print for people: nothing in it can steer the terminal."""
    write(clean(text) + "\n")


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    write(msgspec.json.format(msgspec.json.encode(value)).decode() + "\n")


def write(text: str) -> None:
    """Write to stdout: as it is into a pipe or file, cleaned to a terminal; a closed pipe is no fault."""
    try:
        sys.stdout.write(clean(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer goes nowhere, so that the exit does not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
