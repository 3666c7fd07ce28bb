"""A terminal without a terminal: commands are driven through it, and what they showed is read off it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bareagent.agent import Agent
from bareagent.calls import Toolbox
from bareagent.config import Config
from bareagent.entries import Said
from bareagent.errors import BareAgentError
from bareagent.repl.commands import dispatch
from bareagent.repl.face import Level, Picked, Row
from bareagent.repl.styles import Styles
from bareagent.seams import Answer, Heard, Provider, Question
from bareagent.session import Session
from bareagent.store.transcripts import TranscriptManager
from bareagent.tools import standard_tools
from bareagent.tools.background import Jobs
from tests.fakes import FakeProvider


class FakeHead:
    """A short system prompt."""

    def text(self) -> str:
        return "You help."

    def changed(self) -> str | None:
        return None


async def say_no(_question: Question, /) -> Answer:
    return Answer(verdict="no")


class FakeFace:
    """Keeps what was said, shown, sent; picks what `picks` holds, in order, and confirms as told."""

    def __init__(self, agent: Agent, *, width: int = 100, is_terminal: bool = True) -> None:
        self.agent = agent
        self.styles = Styles()
        self.width = width
        self.is_terminal = is_terminal
        self.lines: list[str] = []
        self.sent: list[str] = []
        self.offered: list[list[Row]] = []
        self.picks: list[Picked | int | None] = []
        self.agrees = True
        self.questions: list[str] = []
        self.paged = ""
        self.draft = ""
        self.copied = ""
        self.themes: list[str] = []
        self.n_cleared = self.n_retried = 0
        self.has_left = False

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def hear(self, heard: Heard, /) -> None:
        if isinstance(heard, Said):
            self.say(heard.text, heard.level)

    def say(self, text: str, level: Level = "info") -> None:
        assert level in {"info", "dim", "warning", "error"}
        self.lines += text.split("\n")

    def show(self, lines: Sequence[str]) -> None:
        self.lines += lines

    async def pick(
        self,
        title: str,
        rows: Callable[[bool], Sequence[Row]],
        *,
        has_all: bool = False,
        can_edit: bool = False,
        is_all: bool = False,
    ) -> Picked | None:
        assert title
        self.offered.append(list(rows(is_all)))
        if has_all:
            self.offered.append(list(rows(True)))
        picked = self.picks.pop(0) if self.picks else None
        if isinstance(picked, int):
            return Picked(key=rows(is_all)[picked].key)
        assert can_edit or picked is None or picked.action == "choose"
        return picked

    async def confirm(self, question: str) -> bool:
        self.questions.append(question)
        return self.agrees

    async def page(self, text: str, title: str = "") -> None:
        self.paged = f"{title}\n{text}"

    async def submit(self, line: str) -> None:
        self.sent.append(line)

    async def retry(self) -> None:
        self.n_retried += 1

    def set_draft(self, text: str) -> None:
        self.draft = text

    def clear_screen(self) -> None:
        self.n_cleared += 1

    def sample(self, theme: str, text: str) -> tuple[str, ...]:
        return (theme, text)

    @property
    def theme(self) -> str:
        return self.themes[-1] if self.themes else "auto"

    def use_theme(self, name: str) -> None:
        self.themes.append(name)

    def copy(self, text: str) -> bool:
        self.copied = text
        return self.is_terminal

    def leave(self) -> None:
        self.has_left = True

    async def type(self, line: str) -> str:
        """Give a command and return what it showed, as the border of the real faces tells errors."""
        self.lines.clear()
        try:
            assert await dispatch(self, line)
        except BareAgentError as error:
            self.say(str(error), "error")
            if error.hint:
                self.say(error.hint, "dim")
        return self.text


FaceMaker = Callable[..., FakeFace]


@contextmanager
def faces_in(tmp_path: Path) -> Iterator[FaceMaker]:
    """Give what makes faces, each with a session of its own in a project's folder; all end together."""
    faces: list[FakeFace] = []

    def make(provider: Provider | None = None, **more: Any) -> FakeFace:
        faces.append(_face(tmp_path, provider or FakeProvider(), **more))
        return faces[-1]

    try:
        yield make
    finally:
        for face in faces:
            face.agent.session.close()


def _face(
    tmp_path: Path,
    provider: Provider,
    *,
    project: str = "p",
    config: Config | None = None,
    is_saved: bool = True,
    width: int = 100,
    is_terminal: bool = True,
) -> FakeFace:
    folder = tmp_path / project
    folder.mkdir(exist_ok=True)
    config = config or Config()
    manager = TranscriptManager(folder, tmp_path / "user-data")
    session = Session.new(manager, folder) if is_saved else Session.in_memory(folder)
    heard: list[Callable[[Heard], None]] = []

    def emit(what: Heard, /) -> None:
        for listener in heard:
            listener(what)

    box = Toolbox(tools=list(standard_tools(config)), cwd=folder, root=folder, jobs=Jobs())
    agent = Agent(session, provider, box, config, emit, say_no, head=FakeHead(), manager=manager)
    face = FakeFace(agent, width=width, is_terminal=is_terminal)
    heard.append(face.hear)
    return face
