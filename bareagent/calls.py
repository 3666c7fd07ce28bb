"""The one gate: each call of a reply gets exactly one result, in call order, and what it says is true."""

import asyncio
import dataclasses
import difflib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from bareagent.config import Config
from bareagent.entries import CallEnded, CallStarted, Grant, Interrupted, ToolSpec
from bareagent.messages import Block, Message, answer, calls, text_block
from bareagent.seams import Answer, Ask, Emit, Output, Question, Reply, Spawn, Tool
from bareagent.session import Session, handle_of
from bareagent.tools.background import Jobs
from bareagent.tools.base import BadArguments, Marks, Seen, ToolContext, ToolError, decode, fit
from bareagent.tools.permissions import Verdict, judge_in, places_of
from bareagent.tools.rules import Rules
from bareagent.tools.skills import Skill, in_force, may_use_skills, rules_of
from bareagent.toolspec import spec

MAX_SIDE_BY_SIDE = 8
MAX_REPEATS = 5
"""Equal calls in a row, of which the last one is not run any more."""


@dataclasses.dataclass(slots=True)
class Toolbox:
    """The tools of a session and what their calls share from one turn to the next.

    `program_paths` are the program's own folders (configuration, data): writing there always asks.
    `steered` are lines the user wants delivered after the present batch. `front` is the session the user
    talks to, where this is a subagent's: what is granted is granted there. `outputs` is where a session
    without a folder keeps what is too large for the view.
    """

    tools: list[Tool]
    cwd: Path
    root: Path
    jobs: Jobs
    spawn: Spawn | None = None
    purpose: Literal["turn", "subagent"] = "turn"
    front: Session | None = None
    outputs: Path | None = None
    program_paths: tuple[Path, ...] = ()
    free_paths: tuple[Path, ...] = ()
    environ: dict[str, str] | None = None
    skills: Callable[[], Sequence[Skill]] = tuple
    seen: dict[Path, Seen] = dataclasses.field(default_factory=dict)
    marks: Marks = dataclasses.field(default_factory=Marks)
    steered: list[str] = dataclasses.field(default_factory=list)
    last_call: str = ""
    n_repeats: int = 0
    asking: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)

    @classmethod
    def of(cls, tools: "Sequence[Tool] | Toolbox", session: Session) -> "Toolbox":
        """Return a toolbox as it is; plain tools get one in the session's working directory."""
        if isinstance(tools, Toolbox):
            return tools
        cwd = Path(session.cwd or ".").resolve()
        return cls(tools=list(tools), cwd=cwd, root=cwd, jobs=Jobs())

    def specs(self) -> list[ToolSpec]:
        """Return the tools as the model sees them, in their fixed order."""
        return [spec(tool) for tool in self.tools]

    def find(self, name: str) -> Tool | None:
        """Return the tool of this name."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def take_compact_mark(self) -> str | None:
        """Return the focus the compact tool left, once; None if it did not run."""
        focus, self.marks.compact_focus = self.marks.compact_focus, None
        return focus

    def take_steered(self) -> list[str]:
        """Return the lines to deliver now, once."""
        lines, self.steered = self.steered, []
        return lines

    def counts_repeat(self, call: Block) -> bool:
        """Count equal calls in a row and tell whether this one is one too many."""
        if call.get("name") == "bash_output":
            self.last_call = ""
            return False
        key = json.dumps([call.get("name"), call.get("input")], sort_keys=True, default=str)
        self.n_repeats = self.n_repeats + 1 if key == self.last_call else 1
        self.last_call = key
        return self.n_repeats >= MAX_REPEATS


class Refused(Exception):
    """A call that must not run; `str(error)` is its result."""


def not_run(message: Message, why: str) -> Message:
    """Return the results of a reply none of whose calls ran."""
    return {"role": "user", "content": [answer(call, why, is_error=True) for call in calls(message)]}


async def answer_calls(
    reply: Reply,
    session: Session,
    box: Toolbox,
    config: Config,
    emit: Emit,
    ask: Ask,
) -> None:
    """Run a whole reply's calls and append their results as one message.

    Read-only calls that stand side by side run side by side, the others one after another. When
    cancelled, each call still gets a truthful result before CancelledError goes on.
    """
    batch = _Batch(reply, session, box, config, emit, ask)
    try:
        await batch.run()
    except asyncio.CancelledError:
        batch.append()
        session.record(Interrupted(calls=batch.begun))
        raise
    batch.append()


class _Batch:
    """The calls of one reply on their way to results."""

    def __init__(
        self,
        reply: Reply,
        session: Session,
        box: Toolbox,
        config: Config,
        emit: Emit,
        ask: Ask,
    ) -> None:
        self.calls = calls(reply.message)
        self.begun: list[str] = []
        self._ran_at: dict[int, float] = {}
        self._broken = _broken_calls(reply)
        self._session = session
        self._box = box
        self._config = config
        self._emit = emit
        self._ask = ask
        self._outputs: list[Output | None] = [None] * len(self.calls)
        self._context = ToolContext(
            session=session,
            config=config,
            cwd=box.cwd,
            root=box.root,
            emit=emit,
            ask=ask,
            jobs=box.jobs,
            seen=box.seen,
            spawn=box.spawn,
            marks=box.marks,
            outputs=session.folder / "outputs" if session.folder else box.outputs,
        )
        if box.environ is not None:
            self._context.environ = box.environ

    async def run(self) -> None:
        for indexes in self._side_by_side():
            if len(indexes) == 1:
                await self._one(indexes[0])
                continue
            gate = asyncio.Semaphore(MAX_SIDE_BY_SIDE)
            async with asyncio.TaskGroup() as group:
                for index in indexes:
                    group.create_task(self._one(index, gate))

    def _side_by_side(self) -> Iterator[list[int]]:
        """Yield runs of neighbouring read-only calls; every other call alone."""
        run: list[int] = []
        for index, call in enumerate(self.calls):
            tool = self._box.find(str(call.get("name")))
            if tool is not None and tool.is_read_only:
                run.append(index)
                continue
            if run:
                yield run
            yield [index]
            run = []
        if run:
            yield run

    def append(self) -> None:
        """Append all results in call order; a call that never began says so."""
        message: Message = {"role": "user", "content": []}
        for index, call in enumerate(self.calls):
            output = self._outputs[index] or Output(
                text="not run: the user interrupted the run before this call began", is_error=True
            )
            handle = handle_of(self._session.log.last_n + 1, index + 1)
            message["content"].append(_result(call, fit(self._context, output, handle)))
        self._session.append(message, "results")

    async def _one(self, index: int, gate: asyncio.Semaphore | None = None) -> None:
        if gate is not None:
            async with gate:
                await self._one(index)
            return
        call = self.calls[index]
        ctx = self._context.for_call(call)
        try:
            self._outputs[index] = await self._outcome(call, ctx)
        except asyncio.CancelledError:
            self._outputs[index] = _interrupted(call, ctx, self._seconds(call), self.begun)
            raise
        finally:
            self._tell(call, self._outputs[index])

    def _seconds(self, call: Block) -> float:
        """How long a call has run; the time its question waited does not count."""
        now = time.monotonic()
        return now - self._ran_at.get(id(call), now)

    def _tell(self, call: Block, output: Output | None) -> None:
        if output is not None:
            self._emit(
                CallEnded(
                    call=call,
                    result=_result(call, output),
                    shown=output.shown,
                    shown_as=output.shown_as,
                    duration_s=self._seconds(call),
                )
            )

    async def _outcome(self, call: Block, ctx: ToolContext) -> Output:
        """Return a call's outcome: whatever goes wrong is one, but for a cancellation."""
        try:
            tool, params = self._checked(call)
            params, note = await self._permitted(tool, params, ctx)
            self._ran_at[id(call)] = time.monotonic()
            self._emit(CallStarted(call=call))
            self.begun.append(str(call.get("id")))
            if not tool.is_read_only:
                self._session.sync()
            output = await tool.run(params, ctx)
        except (Refused, ToolError) as error:
            return Output(text=str(error), is_error=True)
        except Exception as error:
            return Output(text=f"The tool failed: {type(error).__name__}: {error}", is_error=True)
        if note:
            output.text = f"{note}\n{output.text}"
        return output

    def _checked(self, call: Block) -> tuple[Tool, Any]:
        """Return the tool and its checked parameters. Raises: Refused, BadArguments."""
        name = str(call.get("name"))
        tool = self._box.find(name)
        if tool is None:
            known = [known.name for known in self._box.tools]
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
            raise Refused(f"not run: there is no tool {name!r}; {hint}")
        raw = self._broken.get(str(call.get("id")))
        if raw is not None:
            raise BadArguments(f"not run: the arguments of {name} were no whole JSON object: {raw[:200]}")
        params = decode(tool, call.get("input"))
        if self._box.counts_repeat(call):
            raise Refused(
                f"not run: this is the same call with the same arguments {MAX_REPEATS} times in a row; "
                "its result will not change. Do something else, or say what stands in the way."
            )
        return tool, params

    async def _permitted(self, tool: Tool, params: Any, ctx: ToolContext) -> tuple[Any, str]:
        """Return the parameters to run with and a note for the model. Raises: Refused."""
        ground = self._ground()
        verdict = await asyncio.to_thread(self._judge, tool, params, ctx, ground)
        if verdict.decision == "ask":
            async with self._box.asking:
                # An answer given meanwhile may cover this call too.
                if self._ground() != ground:
                    verdict = await asyncio.to_thread(self._judge, tool, params, ctx, self._ground())
                if verdict.decision == "ask":
                    return await self._asked(tool, params, ctx, verdict)
        if verdict.decision == "deny":
            raise Refused(f"not run: {verdict.reason or 'a rule forbids it'}")
        return params, ""

    def _ground(self) -> tuple[str, Rules]:
        """Return what a judgement stands on: the mode and the rules of this moment."""
        return self._mode(), self._rules()

    def _mode(self) -> str:
        """Return the mode; a subagent that may write follows the session in front."""
        usual, front = self._config.permissions.mode, self._box.front
        own = self._session.view.mode or usual
        return own if front is None or own == "plan" else front.view.mode or usual

    def _judge(self, tool: Tool, params: Any, ctx: ToolContext, ground: tuple[str, Rules]) -> Verdict:
        """Judge a call, in a thread: of a search through a folder it looks at every file's name."""
        mode, rules = ground
        places = places_of(
            ctx.root,
            Path.home(),
            session_folder=self._session.folder,
            program_paths=self._box.program_paths,
            free_paths=self._box.free_paths,
            cwd=ctx.marks.shell_cwd or ctx.cwd,
            search_path=ctx.environ.get("PATH"),
        )
        return judge_in(tool.needs(params, ctx), tool=tool.name, mode=mode, rules=rules, places=places)

    def _granting(self) -> Session:
        return self._box.front or self._session

    def _rules(self) -> Rules:
        """Return the rules of the settings, the session's grants, and of skills in use in this run."""
        settings, view = self._config.permissions, self._session.view
        allow, ask = list(settings.allow), list(settings.ask)
        begin = max((i for i, kind in enumerate(view.kinds) if kind == "line"), default=0)
        run = view.messages[begin:]
        skills = self._box.skills() if may_use_skills(run) else ()
        for skill in in_force(run, skills):
            more_allowed, more_asked = rules_of(skill, [tool.name for tool in self._box.tools])
            allow += more_allowed
            ask += more_asked
        return Rules.of(allow, ask, settings.deny, self._granting().view.grants)

    async def _asked(self, tool: Tool, params: Any, ctx: ToolContext, verdict: Verdict) -> tuple[Any, str]:
        reply = await self._ask(await _question(tool, params, ctx, verdict))
        match reply.verdict:
            case "yes":
                return params, ""
            case "always":
                if verdict.rule:
                    self._granting().record(Grant(rule=verdict.rule))
                return params, ""
            case "edit" if hasattr(params, "command") and reply.text.strip():
                return _edited(params, reply), f"[the user changed the command to: {reply.text}]"
        raise Refused(_refusal(reply))


async def _question(tool: Tool, params: Any, ctx: ToolContext, verdict: Verdict) -> Question:
    command = getattr(params, "command", None)
    preview = getattr(tool, "preview", None)
    detail = command if command is not None else await preview(params, ctx) if preview else ""
    return Question(
        kind="permission",
        title=tool.name,
        detail=detail or _arguments(ctx.call.get("input")),
        detail_as="command" if command is not None else "diff" if detail else "text",
        rule=verdict.rule,
        reason=verdict.reason,
        is_background=getattr(params, "run_in_background", False) is True,
    )


def _arguments(given: object) -> str:
    """Return a call's arguments as a person reads them: a lone text as it is, others a line each."""
    if not isinstance(given, dict):
        return json.dumps(given, ensure_ascii=False)
    texts = {str(name): _argument(value) for name, value in given.items()}
    return next(iter(texts.values())) if len(texts) == 1 else "\n".join(map(": ".join, texts.items()))


def _argument(value: object) -> str:
    # A text of several lines stays quoted: none of them may look like another argument.
    is_plain = isinstance(value, str) and value.isprintable()
    return str(value) if is_plain else json.dumps(value, ensure_ascii=False)


def _edited(params: Any, reply: Answer) -> Any:
    fields = {name: getattr(params, name) for name in params.__struct_fields__}
    return type(params)(**{**fields, "command": reply.text})


def _refusal(reply: Answer) -> str:
    said = f" They said: {reply.text}" if reply.text else ""
    return f"not run: the user did not allow this call.{said}"


def _interrupted(call: Block, ctx: ToolContext, seconds: float, begun: list[str]) -> Output:
    if str(call.get("id")) not in begun:
        return Output(text="not run: the user interrupted the run", is_error=True)
    printed = f"\nIt had printed:\n{ctx.partial}" if ctx.partial.strip() else ""
    return Output(
        text=f"interrupted by the user after {seconds:.1f} s; it may have had effects.{printed}",
        is_error=True,
    )


def _result(call: Block, output: Output) -> Block:
    text = output.text if output.text.strip() else "(no output)"
    return answer(call, [text_block(text), *output.blocks], is_error=output.is_error)


def _broken_calls(reply: Reply) -> dict[str, str]:
    content = reply.message["content"]
    return {str(content[index].get("id")): raw for index, raw in reply.broken.items()}
