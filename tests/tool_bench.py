"""A context for tools and a way to call them as the loop does: arguments decoded, result fitted."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from bareagent.config import Config
from bareagent.entries import CallOutput
from bareagent.seams import Answer, Heard, Output, Question, Tool
from bareagent.session import Session
from bareagent.tools import standard_tools
from bareagent.tools.background import Jobs
from bareagent.tools.base import ToolContext, decode, fit

TOOLS: dict[str, Tool] = {tool.name: tool for tool in standard_tools(Config())}


class Bench:
    """A workspace with a session, and what was heard and asked."""

    def __init__(
        self, root: Path, *, outputs: Path | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        self.heard: list[Heard] = []
        self.asked: list[Question] = []
        self.answers: list[Answer] = []
        self.config = Config()
        self.session = Session.in_memory(root)
        self.n_calls = 0
        self.ctx = ToolContext(
            session=self.session,
            config=self.config,
            cwd=root,
            root=root,
            emit=self.heard.append,
            ask=self.ask,
            jobs=Jobs(),
            outputs=outputs,
            environ=dict(os.environ) if environ is None else environ,
        )

    async def ask(self, question: Question, /) -> Answer:
        self.asked.append(question)
        return self.answers.pop(0) if self.answers else Answer(verdict="no", text="nobody is here")

    def of_call(self, name: str, arguments: dict[str, Any]) -> ToolContext:
        self.n_calls += 1
        call = {"type": "tool_use", "id": f"call{self.n_calls}", "name": name, "input": arguments}
        return self.ctx.for_call(call)

    async def output(self, name: str, /, **arguments: Any) -> Output:
        """Call a tool; an error it raises comes out."""
        tool = TOOLS[name]
        ctx = self.of_call(name, arguments)
        params = decode(tool, arguments)
        assert tool.needs(params, ctx), "a tool that declares nothing is asked for"
        return fit(ctx, await tool.run(params, ctx), f"r{self.n_calls}")

    async def text(self, name: str, /, **arguments: Any) -> str:
        return (await self.output(name, **arguments)).text

    def live(self) -> str:
        return "".join(heard.text for heard in self.heard if isinstance(heard, CallOutput))


def with_tools(config: Config, **changes: Any) -> Config:
    """Give settings with some of `[tools]` and `[tools.bash]` changed."""
    bash = msgspec.structs.replace(config.tools.bash, **changes.pop("bash", {}))
    tools = msgspec.structs.replace(config.tools, bash=bash, **changes)
    return msgspec.structs.replace(config, tools=tools)


def marked_processes(word: str) -> list[str]:
    """Return the command lines of living processes that hold a word (Linux)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue
            if word in line:
                found.append(line)
    return found


async def gone(word: str, within_s: float = 1.0) -> bool:
    """Tell whether no process with this word lives any more."""
    for _ in range(int(within_s / 0.05)):
        if not marked_processes(word):
            return True
        await asyncio.sleep(0.05)
    return not marked_processes(word)
