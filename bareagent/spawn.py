"""Runs subagents: a fresh session each, its own todo list and compaction, one progress line, one final text."""

import json
from typing import Protocol

import msgspec

from bareagent import __version__
from bareagent.calls import Toolbox
from bareagent.config import Config
from bareagent.context.purse import purse_of
from bareagent.entries import (
    AnyDelta,
    AnyEntry,
    CallStarted,
    Mode,
    Prompt,
    Retrying,
    Said,
    SessionStart,
    SubagentProgress,
    UsageEntry,
)
from bareagent.loop import agent_loop
from bareagent.messages import Block, user
from bareagent.platform import make_private_folder
from bareagent.sanitize import one_line
from bareagent.seams import Answer, Ask, Emit, Output, Provider, Question
from bareagent.session import Session, View
from bareagent.store.log import Log
from bareagent.store.places import LOG_NAME
from bareagent.tools.subagent import COMPACTION_THRESHOLD, mode_for, system_prompt, tools_for

PROGRESS_CELLS = 80
TASK_CELLS = 40


class Head(Protocol):
    """Makes a system prompt."""

    def text(self) -> str:
        """Return it."""


class Spawner:
    """Starts subagents for one session; `depth` counts how deep that session stands (0: in front).

    What a subagent costs is counted in the session that started it, and both spend from one purse; an
    interrupt reaches it, since it runs inside its call. Instructions and granted rules are those of the
    session in front.
    """

    def __init__(
        self,
        parent: Session,
        provider: Provider,
        box: Toolbox,
        config: Config,
        emit: Emit,
        ask: Ask,
        head: Head,
        depth: int = 0,
    ) -> None:
        """Hold what every subagent shares with its parent."""
        self._parent = parent
        self._front = box.front or parent
        self._provider = provider
        self._box = box
        self._config = config
        self._emit = emit
        self._ask = ask
        self._head = head
        self._depth = depth
        self._n_started = 0

    async def __call__(self, task: str, *, type: str) -> Output:
        """Run a task to its end and return the final text."""
        name = self._next_name()
        session = self._session(name, type, task)
        emit, ask = _Progress(self._emit, name), _Asking(self._ask, f"{name} ({one_line(task, TASK_CELLS)})")
        config = self._settings()
        box = self._toolbox(session, type, name)
        box.spawn = Spawner(session, self._provider, box, config, emit, ask, self._head, self._depth + 1)
        with purse_of(self._parent).shared_with(session):
            try:
                stop = await agent_loop(session, self._provider, box, config, emit, ask)
            finally:
                emit.end()
                await box.jobs.end_all()
                self._bill(session)
                session.close()
        text = stop.text.strip() or stop.detail or "(the subagent gave no text)"
        if stop.reason != "end_turn":
            text = f"[the subagent ended early: {stop.detail or stop.reason}]\n{text}"
        return Output(text=text, is_error=stop.reason != "end_turn")

    def _next_name(self) -> str:
        """Return a1, a2 …, past those whose files a resumed session still has."""
        while True:
            self._n_started += 1
            name = f"a{self._n_started}"
            folder = self._parent.folder
            kept = [folder / "agents" / name, folder / "outputs" / name] if folder else []
            if not any(path.exists() for path in kept):
                return name

    def _session(self, name: str, type: str, task: str) -> Session:
        session = self._empty_session(name)
        tools = tools_for(type, self._box.tools, self._depth + 1)
        session.record(
            Prompt(system=system_prompt(type, self._instructed()), tools=Toolbox.of(tools, session).specs())
        )
        front = self._front.view
        for message, kind in zip(front.messages, front.kinds, strict=True):
            if kind == "instructions":
                session.append(message, kind)
        mode = self._parent.view.mode or self._config.permissions.mode
        session.record(Mode(mode=mode_for(type, mode)))
        session.append(user(task), "line")
        return session

    def _instructed(self) -> str:
        """Return the system prompt of the session in front."""
        # Made anew it would count a change on disk as told, and the session in front would never hear of it.
        prompt = self._front.view.prompt
        return prompt.system if prompt is not None else self._head.text()

    def _empty_session(self, name: str) -> Session:
        parent = self._parent
        full_name = f"{parent.id}/{name}"
        if not self._config.subagent.keep_log or parent.folder is None:
            session = Session.in_memory(parent.cwd, full_name)
            session.redactor = parent.redactor  # its large results are stored on disk
            return session
        folder = parent.folder / "agents" / name
        make_private_folder(folder)
        log = Log.create(folder / LOG_NAME, parent.redactor.mask_body)
        # Without a folder of its own it writes no snapshots.
        session = Session(log, full_name, None, View(), parent.cwd, parent.redactor)
        session.record(SessionStart(id=full_name, cwd=str(parent.cwd), program=__version__))
        return session

    def _toolbox(self, session: Session, type: str, name: str) -> Toolbox:
        box = Toolbox.of(tools_for(type, self._box.tools, self._depth + 1), session)
        box.cwd, box.root = self._box.cwd, self._box.root
        box.program_paths, box.free_paths = self._box.program_paths, self._box.free_paths
        box.environ, box.skills = self._box.environ, self._box.skills
        box.asking = self._box.asking
        box.purpose = "subagent"
        box.front = self._front
        outputs = self._parent.folder / "outputs" if self._parent.folder else self._box.outputs
        if outputs is not None:
            box.outputs = outputs / name
            box.free_paths += (outputs,)
        return box

    def _settings(self) -> Config:
        compaction = msgspec.structs.replace(
            self._config.compaction, threshold=COMPACTION_THRESHOLD, exit_after_tool=False
        )
        return msgspec.structs.replace(self._config, compaction=compaction)

    def _bill(self, session: Session) -> None:
        cost_usd = session.view.cost_usd
        for model, usage in session.view.usage.items():
            self._parent.record(UsageEntry(usage=usage, model=model, purpose="subagent", cost_usd=cost_usd))
            cost_usd = 0.0


class _Asking:
    """Lets a question say which subagent asks."""

    def __init__(self, ask: Ask, name: str) -> None:
        self._ask = ask
        self._name = name

    async def __call__(self, question: Question, /) -> Answer:
        inner = f", {question.agent}" if question.agent else ""
        return await self._ask(msgspec.structs.replace(question, agent=self._name + inner))


class _Progress:
    """Lets through of a subagent only one progress line, its warnings and its retries."""

    def __init__(self, emit: Emit, name: str) -> None:
        self._emit = emit
        self._name = name

    def __call__(self, heard: AnyEntry | AnyDelta, /) -> None:
        match heard:
            case CallStarted():
                self._tell(_telling(heard.call))
            case Said(level="warning" | "error") | Retrying():
                self._emit(msgspec.structs.replace(heard, agent=self._name))
            case SubagentProgress() if heard.text:
                self._tell(f"{heard.agent}: {heard.text}")

    def _tell(self, text: str) -> None:
        self._emit(SubagentProgress(agent=self._name, text=one_line(text, PROGRESS_CELLS)))

    def end(self) -> None:
        """End the progress line."""
        self._emit(SubagentProgress(agent=self._name))


def _telling(call: Block) -> str:
    """Return a call as one line: the tool and its first argument."""
    values = list((call.get("input") or {}).values())
    first = values[0] if values else ""
    shown = first if isinstance(first, str) else json.dumps(first, ensure_ascii=False)
    return f"{call.get('name')} {shown}"
