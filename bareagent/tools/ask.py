"""Tools that turn to the user: a question, and a plan to approve."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bareagent.entries import Mode
from bareagent.seams import Need, Output, Question
from bareagent.tools.base import NOTHING, Params, ToolContext, ToolError, text_for_model


class AskParams(Params):
    """A question with or without set answers."""

    question: Annotated[str, Meta(min_length=1)]
    options: Annotated[list[str], Meta(max_length=9)] = msgspec.field(default_factory=list)


class AskUser:
    """Asks the user and returns the answer."""

    name = "ask_user"
    description = text_for_model("ask_user")
    params: type[msgspec.Struct] = AskParams
    is_read_only = False

    def needs(self, _params: AskParams, _ctx: ToolContext) -> list[Need]:
        """Touch nothing."""
        return NOTHING

    async def run(self, params: AskParams, ctx: ToolContext) -> Output:
        """Wait for the answer."""
        if not params.question.strip():
            raise ToolError("The question is blank.")
        options = tuple(option for option in params.options if option.strip())
        reply = await ctx.ask(Question(kind="choice", title=params.question, options=options))
        if reply.verdict == "no":
            return Output(text=f"The user did not answer. {reply.text}".strip(), is_error=True)
        return Output(text=f"The user answered: {reply.text}" if reply.text else "The user said yes.")


class PlanParams(Params):
    """The plan as Markdown."""

    plan: Annotated[str, Meta(min_length=1)]


class ExitPlan:
    """Shows a plan; where the user approves it, plan mode ends."""

    name = "exit_plan"
    description = text_for_model("exit_plan")
    params: type[msgspec.Struct] = PlanParams
    is_read_only = False

    def needs(self, _params: PlanParams, _ctx: ToolContext) -> list[Need]:
        """Touch nothing: the user is asked here, about the plan itself."""
        return NOTHING

    async def run(self, params: PlanParams, ctx: ToolContext) -> Output:
        """Wait for the user's word on the plan."""
        if _mode(ctx) != "plan":
            raise ToolError("Plan mode is not on: just do the work.")
        reply = await ctx.ask(
            Question(kind="plan", title="Carry out this plan?", detail=params.plan, detail_as="markdown")
        )
        if reply.verdict == "no":
            said = f" They said: {reply.text}" if reply.text else ""
            return Output(text=f"The user did not approve the plan; plan mode goes on.{said}", is_error=True)
        mode = _next_mode(reply.verdict)
        ctx.session.record(Mode(mode=mode))
        said = f" They added: {reply.text}" if reply.text else ""
        return Output(text=f"The user approved the plan; plan mode is off (mode {mode}).{said}")


def _mode(ctx: ToolContext) -> str:
    return ctx.session.view.mode or ctx.config.permissions.mode


def _next_mode(verdict: str) -> Literal["auto", "default"]:
    return "auto" if verdict == "always" else "default"
