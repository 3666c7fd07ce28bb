"""What Tab offers: commands with their help, their arguments, and `@path` of the project's files.

Nothing here blocks: files are listed by a process of its own, sessions are read in a thread, and what takes
too long is dropped as soon as another key is pressed.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from bareagent.config import MODES
from bareagent.provider import models
from bareagent.repl.commands import COMMANDS, ordered
from bareagent.repl.commands_program import THEME_NAMES
from bareagent.repl.face import Face
from bareagent.repl.pickers import MODE_HELP, ListsModels, cards_here
from bareagent.repl.rows import age, title_of
from bareagent.repl.skills import skills_of
from bareagent.repl.table import Command
from bareagent.sanitize import clean, one_line
from bareagent.tools.search import list_files

MAX_FILES = 20_000
MAX_SHOWN = 50
FRESH_S = 10.0
_CHUNK = 2_000
_SHOWN_CELLS = 60
_LEAST_SEARCHED = 3
_COMMAND = re.compile(r"/([^\s/]*)")
_ARGUMENT = re.compile(r"/([^\s/]+)\s+(\S*)")
_PATH = re.compile(r'(?:^|(?<=\s))@(?:"([^"\n]*)|([^\s"]*))$')


class Offer(NamedTuple):
    """One candidate: what is inserted, and what is said beside it."""

    text: str
    about: str = ""


class Completions(Completer):
    """Completes the draft of a face; the face's agent is asked for when it is needed."""

    def __init__(self, face: Face) -> None:
        """Know no file yet."""
        self._face = face
        self._files: list[str] = []
        self._listed_at = 0.0
        self._listing: asyncio.Task[list[str]] | None = None
        self._models: list[str] = []

    def get_completions(self, document: Document, _event: CompleteEvent) -> Iterable[Completion]:
        """Give what needs no waiting: commands and words of arguments."""
        text = document.text_before_cursor
        if match := _COMMAND.fullmatch(text):
            return _shown(self._commands(match[1]), len(match[0]))
        if (match := _ARGUMENT.fullmatch(text)) and match[1] in COMMANDS:
            return _shown(_fitting(self._words(COMMANDS[match[1]]), match[2]), len(match[2]))
        return ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Give all candidates, the best first."""
        text = document.text_before_cursor
        if match := _PATH.search(text):
            wanted = match[1] if match[1] is not None else match[2]
            for path in await self._paths(wanted):
                yield _completion(Offer(_reference(path)), len(match[0]), path)
            return
        if (match := _ARGUMENT.fullmatch(text)) and match[1] in COMMANDS:
            offers = await self._slow_words(COMMANDS[match[1]])
            for made in _shown(_fitting(offers, match[2]), len(match[2])):
                yield made
        for made in self.get_completions(document, complete_event):
            yield made

    def _commands(self, begun: str) -> list[Offer]:
        offers = [Offer(f"/{each.name}", each.help) for each in ordered()]
        offers += [Offer(f"/{skill.name}", skill.description) for skill in skills_of(self._face)]
        return _fitting(offers, f"/{begun}")

    def _words(self, command: Command) -> list[Offer]:
        match command.argument:
            case "command":
                return [Offer(each.name, each.help) for each in ordered()]
            case "mode":
                return [Offer(name, MODE_HELP[name]) for name in MODES]
            case "theme":
                return [Offer(name) for name in THEME_NAMES]
        return [Offer(word) for word in command.words]

    async def _slow_words(self, command: Command) -> list[Offer]:
        match command.argument:
            case "session":
                return await asyncio.to_thread(self._sessions)
            case "model":
                return [Offer(name) for name in await self._model_names()]
        return []

    def _sessions(self) -> list[Offer]:
        agent = self._face.agent
        cards = [card for card in cards_here(agent) if card.id != agent.session.id]
        return [Offer(card.id, f"{age(card.changed_ns)} · {title_of(card)}") for card in cards]

    async def _model_names(self) -> list[str]:
        provider = self._face.agent.provider
        if not self._models:
            listed = await provider.list_models() if isinstance(provider, ListsModels) else models.names()
            own = self._face.agent.config.models
            self._models = list(dict.fromkeys([provider.model.name, *own, *listed]))
        return self._models

    async def _paths(self, wanted: str) -> list[str]:
        """Return the project's paths that fit, the best first."""
        return await ranked(await self._known_files(), wanted)

    async def _known_files(self) -> list[str]:
        if not self._files or time.monotonic() - self._listed_at > FRESH_S:
            # The listing goes on if the next key drops this completion: it is asked for again at once.
            if self._listing is None or self._listing.done():
                self._listing = asyncio.create_task(with_folders(self._face.agent.box.cwd))
            self._files = await asyncio.shield(self._listing)
            self._listed_at = time.monotonic()
        return self._files


def _fitting(offers: Sequence[Offer], begun: str) -> list[Offer]:
    """Return those that begin with what is typed; where none does, those that hold it, in their help too."""
    wanted = begun.casefold()
    first = [each for each in offers if each.text.casefold().startswith(wanted)]
    if first or len(wanted) < _LEAST_SEARCHED:
        return first[:MAX_SHOWN]
    words = wanted.removeprefix("/")
    return [each for each in offers if words in f"{each.text} {each.about}".casefold()][:MAX_SHOWN]


def _shown(offers: Iterable[Offer], n_typed: int) -> Iterator[Completion]:
    return (_completion(offer, n_typed, offer.text) for offer in offers)


def _completion(offer: Offer, n_typed: int, shown: str) -> Completion:
    return Completion(
        clean(offer.text),
        start_position=-n_typed,
        display=one_line(shown, _SHOWN_CELLS),
        display_meta=one_line(offer.about, 2 * _SHOWN_CELLS),
    )


def _reference(path: str) -> str:
    """Return how a path stands in a line: `@path`, in quotes where it holds blanks."""
    return f'@"{path}" ' if re.search(r"\s", path) else f"@{path}" + ("" if path.endswith("/") else " ")


async def with_folders(top: Path) -> list[str]:
    """Return the paths of a project's files and folders (these end in `/`), ignored ones left out."""
    files = [path for path in await list_files(top, MAX_FILES) if not path.startswith(".transcripts/")]
    folders = {f"{parent}/" for path in files for parent in map(str, Path(path).parents) if parent != "."}
    # A name that could steer the terminal cannot be typed either: it is not offered.
    return sorted(
        path for path in {*files, *folders} if clean(path) == path and '"' not in path and "\n" not in path
    )


async def ranked(paths: Sequence[str], wanted: str) -> list[str]:
    """Return the paths that hold the typed characters in order, the best first, capped."""
    pattern = re.compile(".*?".join(map(re.escape, wanted)), re.IGNORECASE)
    found: list[tuple[tuple[int, int, int, str], str]] = []
    for start in range(0, len(paths), _CHUNK):
        await asyncio.sleep(0)  # keys go first
        found += [
            (_rank(path, wanted, match), path)
            for path in paths[start : start + _CHUNK]
            if (match := pattern.search(path))
        ]
    return [path for _, path in sorted(found)[:MAX_SHOWN]]


def _rank(path: str, wanted: str, match: re.Match[str]) -> tuple[int, int, int, str]:
    low, begun = path.casefold(), wanted.casefold()
    name = low.rstrip("/").rpartition("/")[2]
    kind = (
        0
        if low.startswith(begun) or name.startswith(begun)
        else 1
        if begun in name
        else 2
        if begun in low
        else 3
    )
    return kind, match.end() - match.start(), len(path), path
