"""Background commands: started by bash, read by bash_output, ended by bash_kill or with the program."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Coroutine, Iterator
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from bareagent.entries import JobsChanged
from bareagent.seams import Emit, Need, Output
from bareagent.tools import process, shell
from bareagent.tools.base import NOTHING, Params, ToolContext, ToolError, cap, text_for_model
from bareagent.tools.capture import Capture

WAIT_S = 10.0
NOTICE_CHARS = 500
ERRAND_BYTES = 1 << 20
KEPT_BYTES = 1 << 20


class Running(Protocol):
    """What a job watches: a command's process or a subagent's errand."""

    began: float
    capture: Capture
    grew: asyncio.Event

    async def ended(self, timeout_s: float | None, /) -> process.Ended:
        """Wait for the end and say how it was."""

    async def stop(self) -> None:
        """End it."""


class Errand:
    """A subagent at work in the background; its final text is its output."""

    def __init__(self, work: Coroutine[Any, Any, Output]) -> None:
        """Begin the work."""
        self.began = time.monotonic()
        self.capture = Capture(ERRAND_BYTES)
        self.grew = asyncio.Event()
        self._task = asyncio.create_task(work)

    async def ended(self, _timeout_s: float | None, /) -> process.Ended:
        """Wait for the final text; a failure's words stand in its place."""
        await asyncio.wait([self._task])
        text, code = _outcome(self._task)
        self.capture.feed(text.encode("utf-8", "replace"))
        return process.Ended(code=code, duration_s=time.monotonic() - self.began)

    async def stop(self) -> None:
        """Interrupt it."""
        self._task.cancel()
        await asyncio.wait([self._task])


def _outcome(task: "asyncio.Task[Output]") -> tuple[str, int]:
    if task.cancelled():
        return "", -signal.SIGTERM
    failure = task.exception()
    if failure is not None:
        return str(failure) or type(failure).__name__, 1
    return task.result().text, 1 if task.result().is_error else 0


class Job:
    """One background command or errand."""

    def __init__(self, id: str, command: str, running: Running) -> None:
        """Take what was just started."""
        self.id = id
        self.command = command
        self.running = running
        self.ended: process.Ended | None = None
        self.is_told = False
        self.task: asyncio.Task[None] | None = None

    @property
    def state(self) -> str:
        """`running`, `done (exit 0)` or `killed by SIGTERM`."""
        if self.ended is None:
            return f"running for {time.monotonic() - self.running.began:.0f} s"
        return f"done (exit {self.ended.code})" if self.ended.code >= 0 else self.ended.told()


class Jobs:
    """All background commands of a program."""

    def __init__(self) -> None:
        """Start without any."""
        self._emit: Emit = _unheard
        self._jobs: dict[str, Job] = {}

    @property
    def running(self) -> list[str]:
        """The ids of those that run."""
        return [job.id for job in self._jobs.values() if job.ended is None]

    def commands(self) -> dict[str, tuple[str, str]]:
        """Return command and state of every job, by id."""
        return {job.id: (job.command, job.state) for job in self._jobs.values()}

    async def start(self, command: str, ctx: ToolContext) -> Output:
        """Start a command and return at once."""
        capture = Capture(max(shell.kept_bytes(ctx.config), KEPT_BYTES))
        quiet = ctx.for_call(ctx.call)
        quiet.emit = _unheard
        running = await shell.begin(command, quiet, capture)
        job = self._watch(command, running, ctx.emit)
        return Output(text=f"Task {job.id} runs in the background (pid {running.pid}).")

    def send(self, task: str, work: Coroutine[Any, Any, Output], emit: Emit) -> Output:
        """Let a subagent work in the background and return at once."""
        job = self._watch(task, Errand(work), emit)
        return Output(
            text=f"Subagent {job.id} works in the background. Its end is told; bash_output reads its text."
        )

    def _watch(self, command: str, running: Running, emit: Emit) -> Job:
        job = Job(f"b{len(self._jobs) + 1}", command, running)
        self._jobs[job.id] = job
        self._emit = emit
        job.task = asyncio.create_task(self._follow(job), name=f"job {job.id}")
        self._tell()
        return job

    async def _follow(self, job: Job) -> None:
        job.ended = await job.running.ended(None)
        job.running.grew.set()
        self._tell()

    def _tell(self) -> None:
        self._emit(JobsChanged(running=self.running))

    def find(self, id: str) -> Job:
        """Return a job. Raises: ToolError for an unknown id."""
        if id not in self._jobs:
            raise ToolError(f"There is no task {id[:40]!r}. Known: {', '.join(self._jobs) or 'none'}.")
        return self._jobs[id]

    async def kill(self, id: str) -> Job:
        """End a job and all it started."""
        job = self.find(id)
        if job.ended is None and job.task is not None:
            await job.running.stop()
            await job.task
        job.is_told = True
        return job

    @property
    def has_news(self) -> bool:
        """A job has ended and nobody was told."""
        return any(self._untold())

    def _untold(self) -> Iterator[Job]:
        return (job for job in self._jobs.values() if job.ended is not None and not job.is_told)

    def notices(self) -> str:
        """Return the ends nobody was told of yet, each once; empty if there are none."""
        ended = list(self._untold())
        if not ended:
            return ""
        for job in ended:
            job.is_told = True
        lines = [f"- Task {job.id}: {job.state} - {_last_words(job)}" for job in ended]
        return "\n".join(["<background-notifications>", *lines, "</background-notifications>"])

    async def end_all(self) -> None:
        """End every job, as the program's end does."""
        await asyncio.gather(*map(self.kill, self.running))


def _unheard(_heard: object, /) -> None:
    """Take what a background command prints: it is read by bash_output, not streamed."""


def _last_words(job: Job) -> str:
    text = job.running.capture.text().strip()[-NOTICE_CHARS:].strip()
    # The notice's own closing tag cannot come from a command's output.
    return text.replace("</background-notifications>", "<\\/background-notifications>") or "(no output)"


class OutputParams(Params):
    """Which task, and from where in its output."""

    id: Annotated[str, Meta(min_length=1)]
    since: Annotated[int, Meta(ge=0, description="position an earlier bash_output gave")] = 0


class BashOutput:
    """Shows what a background command has printed."""

    name = "bash_output"
    description = text_for_model("bash_output")
    params: type[msgspec.Struct] = OutputParams
    is_read_only = True

    def needs(self, _params: OutputParams, _ctx: ToolContext) -> list[Need]:
        """Touch nothing: the command was judged when it was started."""
        return NOTHING

    async def run(self, params: OutputParams, ctx: ToolContext) -> Output:
        """Return what is new; with nothing new, wait a while for some."""
        job = ctx.jobs.find(params.id)
        until = time.monotonic() + WAIT_S
        while not _has_news(job, params.since) and time.monotonic() < until:
            job.running.grew.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(job.running.grew.wait(), until - time.monotonic())
        text, position = job.running.capture.since(params.since)
        if job.ended is not None:
            job.is_told = True
        text = cap(text, ctx.config.tools.max_result_chars - 200, None) if text else "(nothing new)"
        ending = "" if text.endswith("\n") else "\n"
        return Output(text=f"{text}{ending}[task {job.id}: {job.state}; read on with since={position}]")


def _has_news(job: Job, since: int) -> bool:
    return job.ended is not None or job.running.capture.total > since


class KillParams(Params):
    """Which task."""

    id: Annotated[str, Meta(min_length=1)]


class BashKill:
    """Ends a background command."""

    name = "bash_kill"
    description = text_for_model("bash_kill")
    params: type[msgspec.Struct] = KillParams
    is_read_only = False

    def needs(self, _params: KillParams, _ctx: ToolContext) -> list[Need]:
        """Touch nothing but what the model itself started."""
        return NOTHING

    async def run(self, params: KillParams, ctx: ToolContext) -> Output:
        """End the command and all it started."""
        was_running = ctx.jobs.find(params.id).ended is None
        job = await ctx.jobs.kill(params.id)
        what = "ended" if was_running else "had ended before"
        return Output(text=f"Task {job.id} {what}: {job.state}.\n{_last_words(job)}")
