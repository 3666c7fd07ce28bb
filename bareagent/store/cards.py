"""What a list shows of a session, read off the head and the tail of its log only."""

import os
from pathlib import Path

import msgspec

from bareagent.entries import AnyEntry, Compaction, MessageEntry, Model, Name, SessionStart, TurnEnd
from bareagent.messages import text_of
from bareagent.store.lines import parse
from bareagent.store.places import LOG_NAME, PROJECT_FOLDER

FIRST_LINE_CHARS = 200
_TAIL_BYTES = 16_384
_FAR_TAIL_BYTES = 262_144
_HEAD_BYTES = 4_096
_FAR_HEAD_BYTES = 65_536


class Card(msgspec.Struct, kw_only=True):
    """A session in a list. `turns`, `tokens` and `cost_usd` are those of its last whole run."""

    id: str
    folder: str
    cwd: str = ""
    created: str = ""
    parent: str = ""
    name: str = ""
    first_line: str = ""
    turns: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    generation: int = 0
    model: str = ""
    branch: str = ""
    size_bytes: int = 0
    changed_ns: int = 0

    @property
    def full_id(self) -> str:
        """`ID`, from the first full compaction on `ID.N`."""
        return f"{self.id}.{self.generation}" if self.generation else self.id

    @property
    def title(self) -> str:
        """The name, else the first line, else nothing."""
        return self.name or self.first_line

    @property
    def place(self) -> str:
        """Where it was held; where its project was moved since, the project's folder as it is now."""
        home = Path(self.folder).parent
        is_moved = home.name == PROJECT_FOLDER and not Path(self.cwd).is_relative_to(home.parent)
        return str(home.parent) if is_moved else self.cwd

    @property
    def is_empty(self) -> bool:
        """Nothing was ever said in it."""
        return not self.first_line and not self.turns


def read_card(folder: Path) -> Card | None:
    """Return the card of the session in a folder; None where it has no readable log."""
    try:
        descriptor = os.open(folder / LOG_NAME, os.O_RDONLY)
    except OSError:
        return None
    try:
        return _read(descriptor, folder)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _read(descriptor: int, folder: Path) -> Card:
    status = os.fstat(descriptor)
    card = Card(id=folder.name, folder=str(folder), size_bytes=status.st_size, changed_ns=status.st_mtime_ns)
    is_known = _read_tail(descriptor, card, _TAIL_BYTES) or _read_tail(descriptor, card, _FAR_TAIL_BYTES)
    _read_head(descriptor, card, _HEAD_BYTES if is_known else _FAR_HEAD_BYTES)
    return card


def _read_tail(descriptor: int, card: Card, size: int) -> bool:
    """Let the last run's end and what stands behind it fill the card; False where none is in reach."""
    place = max(0, card.size_bytes - size)
    block = os.pread(descriptor, size, place)
    at = block.rfind(b'"type":"turn_end"')
    start = block.rfind(b"\n", 0, max(at, 0)) + 1
    if at < 0 or (start == 0 and place > 0):
        start = block.find(b"\n") + 1 if place else 0
    for line in block[start:].split(b"\n"):
        entry = parse(line).entry
        if entry is not None:
            _note(entry, card)
    return at >= 0


def _read_head(descriptor: int, card: Card, size: int) -> None:
    for line in os.pread(descriptor, size, 0).split(b"\n")[:-1]:
        entry = parse(line).entry
        if isinstance(entry, SessionStart):
            card.cwd, card.created = entry.cwd, entry.created
            card.parent = entry.parent.id if entry.parent else ""
        elif isinstance(entry, MessageEntry) and entry.kind == "line" and not card.first_line:
            card.first_line = text_of(entry.message).strip()[:FIRST_LINE_CHARS]
        elif isinstance(entry, Name) and not card.name:
            card.name = entry.name
        if card.created and card.first_line:
            return


def _note(entry: AnyEntry, card: Card) -> None:
    match entry:
        case TurnEnd():
            card.name, card.first_line = entry.name, entry.first_line or card.first_line
            card.turns, card.tokens, card.cost_usd = entry.turns, entry.tokens, entry.cost_usd
            card.generation, card.model, card.branch = entry.generation, entry.model, entry.branch
        case Name():
            card.name = entry.name
        case Model():
            card.model = entry.model
        case Compaction():
            card.generation = max(card.generation, entry.generation)
        case _:
            pass
