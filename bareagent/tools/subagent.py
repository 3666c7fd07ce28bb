"""The subagent tool and the table of types: what each may use and what it is told.

Running one is the loop's (`ctx.spawn`): a fresh session with its own todo list and compaction.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bareagent import prompts
from bareagent.seams import Need, Output, Tool
from bareagent.tools.base import NOTHING, Params, ToolContext, ToolError, text_for_model

MAX_DEPTH = 3
"""A subagent may start others down to this depth; the session in front is depth 0."""
COMPACTION_THRESHOLD = 50_000

Type = Literal["general-purpose", "explore", "plan", "review"]

_LOOKING = frozenset({"read_file", "glob", "grep", "bash", "recall", "load_skill", "todo_write"})
_NEVER = frozenset({"ask_user", "exit_plan", "compact"})


class AgentType(msgspec.Struct, frozen=True, kw_only=True):
    """One type: its tools (None: all) and whether it may write.

    One that may not runs in plan mode: the gate refuses all but commands known to only read.
    """

    name: str
    tools: frozenset[str] | None = None
    can_write: bool = False

    @property
    def prompt(self) -> str:
        """What the type is told of its job, behind the common part."""
        return prompts.text(f"agent_{self.name}")


TYPES: dict[str, AgentType] = {
    "general-purpose": AgentType(name="general-purpose", can_write=True),
    "explore": AgentType(name="explore", tools=_LOOKING),
    "plan": AgentType(name="plan", tools=_LOOKING),
    "review": AgentType(name="review", tools=_LOOKING),
}


def tools_for(type: str, tools: Sequence[Tool], depth: int) -> list[Tool]:
    """Return what a subagent of this type at this depth (1 is the first) may call, in the same order."""
    allowed = TYPES[type].tools
    left_out = _NEVER | ({"subagent"} if depth >= MAX_DEPTH else set())
    return [tool for tool in tools if tool.name not in left_out and (allowed is None or tool.name in allowed)]


def mode_for(type: str, mode: str) -> str:
    """Return the permission mode of a subagent in a session of this mode."""
    return mode if TYPES[type].can_write else "plan"


def system_prompt(type: str, head: str) -> str:
    """Return a subagent's system prompt: the parent's, then what its type adds."""
    return f"{head}\n\n{prompts.text('agent')}\n\n{TYPES[type].prompt}"


class SubagentParams(Params):
    """A task and who does it."""

    task: Annotated[str, Meta(min_length=1, description="everything the helper must know and give back")]
    type: Type = "general-purpose"
    run_in_background: bool = False


class Subagent:
    """Runs a helper to its end and returns its final text.

    It counts as read-only so that several run side by side; what each does passes the gate by itself.
    """

    name = "subagent"
    description = text_for_model("subagent")
    params: type[msgspec.Struct] = SubagentParams
    is_read_only = True

    def needs(self, _params: SubagentParams, _ctx: ToolContext) -> list[Need]:
        """Touch nothing: each call of the helper is judged by itself."""
        return NOTHING

    async def run(self, params: SubagentParams, ctx: ToolContext) -> Output:
        """Wait for the final text, or return at once. Raises: ToolError where no helper can be started."""
        if ctx.spawn is None:
            raise ToolError("No subagent can be started here: do the task yourself.")
        if not params.task.strip():
            raise ToolError("The task is blank.")
        work = ctx.spawn(params.task, type=params.type)
        return ctx.jobs.send(params.task, work, ctx.emit) if params.run_in_background else await work
