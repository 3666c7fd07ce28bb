"""The bash tool: one command, its output and how it ended."""

import asyncio
import os
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from bareagent.config import Config
from bareagent.entries import CallOutput
from bareagent.seams import Need, Output
from bareagent.tools import process
from bareagent.tools.base import Params, ToolContext, ToolError, text_for_model
from bareagent.tools.capture import Capture
from bareagent.tools.family import Living

MAX_TIMEOUT_S = 86_400
DEFAULT_TIMEOUT_S = 120
LEAST_KEPT_BYTES = 1 << 16
MAX_NAMED = 5


class BashParams(Params):
    """A command and how to run it."""

    command: Annotated[str, Meta(min_length=1)]
    timeout_s: Annotated[float, Meta(gt=0, le=MAX_TIMEOUT_S)] = DEFAULT_TIMEOUT_S
    run_in_background: bool = False
    description: Annotated[str, Meta(description="what it does, in a few words")] = ""


class Bash:
    """Runs a shell command."""

    name = "bash"
    description = text_for_model("bash")
    params: type[msgspec.Struct] = BashParams
    is_read_only = False

    def needs(self, params: BashParams, _ctx: ToolContext) -> list[Need]:
        """Need leave to run the command."""
        return [Need(kind="run", target=params.command)]

    async def run(self, params: BashParams, ctx: ToolContext) -> Output:
        """Run the command to its end, or start it in the background."""
        if "\0" in params.command:
            raise ToolError("A command cannot hold a NUL character.")
        if params.run_in_background:
            return await ctx.jobs.start(params.command, ctx)
        return await _in_front(params, ctx)


async def _in_front(params: BashParams, ctx: ToolContext) -> Output:
    session = ctx.session
    mask = session.mask if session.redactor.is_on else None
    capture = Capture(kept_bytes(ctx.config), ctx.outputs, mask)
    cwd_pipe = os.pipe() if ctx.config.tools.bash.keep_cwd else None
    try:
        running = await begin(_command(params.command, cwd_pipe), ctx, capture, cwd_pipe)
        ended = await running.ended(_timeout_s(params, ctx.config))
        _keep_cwd(ctx, cwd_pipe)
    except asyncio.CancelledError:
        ctx.partial = capture.text()
        capture.discard()
        raise
    finally:
        for descriptor in cwd_pipe or ():
            os.close(descriptor)
    return report(capture, ended)


def _timeout_s(params: BashParams, config: Config) -> float:
    is_default = params.timeout_s == DEFAULT_TIMEOUT_S
    return config.tools.bash.timeout_s if is_default else params.timeout_s


def kept_bytes(config: Config) -> int:
    """Return how much of a command's output is held in memory at either end."""
    return max(LEAST_KEPT_BYTES, 2 * config.tools.max_result_chars)


async def begin(
    command: str, ctx: ToolContext, capture: Capture, cwd_pipe: tuple[int, int] | None = None
) -> process.Process:
    """Start a command for a call. Raises: ToolError where the shell or the folder is missing."""
    cwd = ctx.marks.shell_cwd or ctx.cwd
    call_id = str(ctx.call.get("id", ""))
    try:
        return await process.start(
            command,
            cwd=cwd,
            environment=environment(ctx),
            capture=capture,
            on_text=lambda text: ctx.emit(CallOutput(call_id=call_id, text=text)),
            pass_fds=cwd_pipe[1:] if cwd_pipe else (),
        )
    except process.NotStarted as error:
        ctx.marks.shell_cwd = None
        raise ToolError(str(error)) from error


def environment(ctx: ToolContext) -> dict[str, str]:
    """Return the environment of a command: the program's own without its secrets."""
    config = ctx.config
    hidden = [entry.api_key_env for entry in config.providers.values()]
    return process.child_environment(
        ctx.environ, config.tools.bash.env_pass, [*hidden, config.provider.api_key_env]
    )


def _command(command: str, cwd_pipe: tuple[int, int] | None) -> str:
    if cwd_pipe is None:
        return command
    return f"trap 'pwd -P >&{cwd_pipe[1]}' EXIT\n{command}"


def _keep_cwd(ctx: ToolContext, cwd_pipe: tuple[int, int] | None) -> None:
    if cwd_pipe is None:
        return
    os.set_blocking(cwd_pipe[0], False)
    try:
        line = os.read(cwd_pipe[0], 1 << 16)
    except BlockingIOError:
        return
    path = Path(os.fsdecode(line.rstrip(b"\n")))
    if path.is_absolute() and path.is_dir():
        ctx.marks.shell_cwd = path


def report(capture: Capture, ended: process.Ended) -> Output:
    """Return what a command printed and, on the last lines, how it ended."""
    text = capture.text()
    if not text.strip():
        text = "(no output)"
    if not text.endswith("\n"):
        text += "\n"
    return Output(
        text=text + "\n".join(_ending(ended)),
        is_error=ended.code != 0 or ended.is_timeout,
        full=str(capture.spill or ""),
        full_size=capture.total if capture.spill else 0,
    )


def _ending(ended: process.Ended) -> list[str]:
    how = f"timed out, {ended.told()}" if ended.is_timeout else ended.told()
    lines = [f"[{how}, {ended.duration_s:.1f} s]"]
    if ended.is_timeout:
        lines.append("[Ended with all it had started. Give a longer timeout_s, or run_in_background=true.]")
    if ended.survivors:
        lines.append(
            f"[Ended when the shell exited: {_named(ended.survivors)}. "
            "What must go on belongs in run_in_background=true.]"
        )
    if ended.unkillable:
        lines.append(f"[Still alive, could not be ended: {_named(ended.unkillable)}.]")
    return lines


def _named(survivors: list[Living]) -> str:
    names = [f"{survivor.name} (pid {survivor.pid})" for survivor in survivors[:MAX_NAMED]]
    more = len(survivors) - MAX_NAMED
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")
