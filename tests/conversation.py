"""An agent put together in the test's own process, against the scripted server over real HTTP."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from bareagent.agent import Agent
from bareagent.calls import Toolbox
from bareagent.config import Config
from bareagent.entries import AnyDelta, AnyEntry
from bareagent.provider import make_provider
from bareagent.seams import Answer, Question
from bareagent.session import Session, fold
from bareagent.spawn import Spawner
from bareagent.store.transcripts import TranscriptManager
from bareagent.tools import standard_tools
from bareagent.tools.background import Jobs
from bareagent.tools.subagent import Subagent


class Served(Protocol):
    """A server of ours or another: the environment that points a program there."""

    @property
    def env(self) -> Mapping[str, str]: ...


class Head:
    """A fixed system prompt."""

    def text(self) -> str:
        return "You are a coding agent under test."

    def changed(self) -> str | None:
        return None


class Conversation:
    """An agent, what was heard of it, and the questions it asked."""

    def __init__(self, agent: Agent, heard: list[AnyEntry | AnyDelta], asked: list[Question]) -> None:
        self.agent = agent
        self.heard = heard
        self.asked = asked

    @property
    def session(self) -> Session:
        return self.agent.session

    def results(self) -> list[str]:
        """The texts of all results in the view, in order."""
        return [
            block["content"][0]["text"]
            for message in self.session.messages
            for block in message["content"]
            if block["type"] == "tool_result"
        ]

    def check(self) -> None:
        """The log folds to the view, byte for byte."""
        again = fold(self.session.entries())
        assert msgspec.json.encode(again.messages) == msgspec.json.encode(self.session.messages)


def config_of(**tables: object) -> Config:
    """Settings with quick retries and no questions asked, `tables` laid over."""
    base: dict[str, object] = {
        "retry": {"base_s": 0, "max_attempts": 3},
        "permissions": {"mode": "bypass"},
    }
    return msgspec.convert({**base, **tables}, Config)


@asynccontextmanager
async def conversation(
    server: Served,
    folder: Path,
    config: Config | None = None,
    answer: Callable[[Question], Answer] | None = None,
    resume: str = "",
) -> AsyncIterator[Conversation]:
    """Give a conversation in a folder; at its end the log must fold to the view."""
    config = config or config_of()
    heard: list[AnyEntry | AnyDelta] = []
    asked: list[Question] = []

    async def ask(question: Question, /) -> Answer:
        asked.append(question)
        return answer(question) if answer else Answer(verdict="no")

    provider = await make_provider(config, server.env)
    manager = TranscriptManager(folder, folder / "user")
    session = Session.open(manager, resume) if resume else Session.new(manager, folder)
    session.listeners.append(heard.append)
    box = Toolbox(tools=[*standard_tools(config), Subagent()], cwd=folder, root=folder, jobs=Jobs())
    box.spawn = Spawner(session, provider, box, config, heard.append, ask, Head())
    agent = Agent(session, provider, box, config, heard.append, ask, head=Head(), manager=manager)
    talk = Conversation(agent, heard, asked)
    try:
        yield talk
        talk.check()
    finally:
        await agent.close()
