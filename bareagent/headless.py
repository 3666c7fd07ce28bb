"""Print mode: one text in, one answer out; stdout holds the answer alone, everything else goes to stderr."""

import asyncio
import json
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

import msgspec

from bareagent.agent import Agent
from bareagent.entries import AnyDelta, AnyEntry, Delta, Retrying, Said, Usage
from bareagent.errors import BareAgentError, LimitReached, ProviderError, UsageError
from bareagent.sanitize import clean, one_line
from bareagent.seams import Answer, Question
from bareagent.turn import Stop

EXIT_CODES = {
    "end_turn": 0,
    "refusal": 1,
    "error": 1,
    "max_turns": 4,
    "max_cost": 4,
    "max_tokens": 4,
    "interrupted": 130,
}
SIGNALS = {"SIGHUP": 129, "SIGINT": 130, "SIGQUIT": 131, "SIGTERM": 143}
NO_ONE_TO_ASK = (
    "nobody can be asked in print mode. Allow it by a rule in the settings or by --mode, "
    "or find a way that needs no permission"
)
STDIN_PATIENCE_S = 3.0
MAX_ASKED_CELLS = 160


class Printer:
    """Hears what happens and writes it where `--output` says.

    text: warnings and errors to stderr; stream-json: every entry and delta as a line on stdout.
    """

    def __init__(self, output: str, out: TextIO, err: TextIO) -> None:
        """Write to these two streams."""
        self._output = output
        self._out = out
        self._err = err

    def __call__(self, heard: AnyEntry | AnyDelta, /) -> None:
        """Take one entry or delta; a closed pipe is no fault of the run."""
        if self._output == "stream-json":
            self.line(msgspec.json.encode(heard).decode())
        elif isinstance(heard, Delta):
            self._note(heard)

    def _note(self, heard: Any) -> None:
        match heard:
            case Said(level="warning" | "error"):
                self.note(heard.text)
            case Retrying():
                self.note(
                    f"{heard.reason}; attempt {heard.attempt} of {heard.max_attempts} "
                    f"in {heard.delay_s:.0f} s"
                )

    async def refuse(self, question: Question, /) -> Answer:
        """Answer a question with no: the model hears why, the user what was asked."""
        about = question.detail if question.detail_as == "command" else question.reason
        asker = f"subagent {question.agent}: " if question.agent else ""
        asked = one_line(f"{asker}{question.title} {about}", MAX_ASKED_CELLS)
        self.note(f"Nobody can be asked in print mode, so not allowed: {asked}")
        return Answer(verdict="no", text=NO_ONE_TO_ASK)

    def line(self, text: str) -> None:
        """Write a line to stdout."""
        _write(self._out, text)

    def note(self, text: str) -> None:
        """Write a line to stderr, cleaned."""
        _write(self._err, f"bareagent: {clean(text)}")


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text + "\n")
        stream.flush()
    except UnicodeEncodeError:
        stream.write(text.encode("ascii", "backslashreplace").decode() + "\n")
    except (BrokenPipeError, ValueError):
        return


def prompt_text(text: str, stdin: TextIO | None) -> str:
    """Return what to send: the text, and what is piped in behind it. Raises: UsageError if both are empty."""
    piped = "" if stdin is None else _piped(stdin, is_all=text == "-")
    parts = [part for part in ("" if text == "-" else text, piped) if part.strip()]
    if not parts:
        raise UsageError("There is no text to answer.", 'bareagent -p "your question"')
    return "\n\n".join(parts)


def _piped(stdin: TextIO, *, is_all: bool) -> str:
    try:
        kind = stdin.fileno()
    except (OSError, ValueError):
        return ""
    if is_all:
        return stdin.read()
    mode = os.fstat(kind).st_mode
    if stat.S_ISREG(mode):
        return stdin.read()
    if stat.S_ISFIFO(mode) and select.select([kind], [], [], STDIN_PATIENCE_S)[0]:
        return stdin.read()
    return ""


async def answer_once(agent: Agent, text: str, output: str, printer: Printer) -> int:
    """Run one text to its end, print the outcome and return the exit code."""
    started = time.monotonic()
    signals = _Signals(agent)
    error: BareAgentError | None = None
    try:
        with signals:
            stop = await _run(agent, text)
    except LimitReached as limit:
        error, stop = limit, Stop(reason="max_cost", detail=str(limit))
    except BareAgentError as failure:
        error, stop = failure, Stop(reason="error", detail=str(failure))
    code = signals.code or (error.exit_code if error else EXIT_CODES[stop.reason])
    _report(agent, stop, error, output, printer, time.monotonic() - started, code)
    return code


async def _run(agent: Agent, text: str) -> Stop:
    """Run a text; an answer cut at its token limit goes on once by itself."""
    stop = await agent.run(text)
    # Replies cut inside calls have had their tries: there the view ends with results.
    if stop.reason != "max_tokens" or agent.session.messages[-1]["role"] != "assistant":
        return stop
    more = await agent.retry()
    return msgspec.structs.replace(more, text=stop.text + more.text, turns=stop.turns + more.turns)


def _report(
    agent: Agent,
    stop: Stop,
    error: BareAgentError | None,
    output: str,
    printer: Printer,
    seconds: float,
    code: int,
) -> None:
    if error is not None:
        printer.note(str(error))
        hint = error.hint or _way_on(agent, error)
        if hint:
            printer.note(hint)
    if output == "text":
        if stop.text:
            printer.line(clean(stop.text))
        return
    printer.line(_result(agent, stop, error, seconds, is_error=code != 0))


def _way_on(agent: Agent, error: BareAgentError) -> str:
    """Return how to go on after a failure that may pass; empty where nothing was saved."""
    may_pass = isinstance(error, ProviderError) and error.is_retryable
    return "--continue goes on with this session." if may_pass and agent.session.folder else ""


def _result(
    agent: Agent | None, stop: Stop, error: BareAgentError | None, seconds: float, *, is_error: bool
) -> str:
    view = agent.session.view if agent else None
    result = {
        "type": "result",
        "session_id": agent.session.full_id if agent else "",
        "result": stop.text,
        "stop": stop.reason,
        "is_error": is_error,
        "error": str(error) if error else stop.detail or None,
        "turns": stop.turns,
        "usage": msgspec.to_builtins(_total(view.usage.values() if view else ())),
        "cost_usd": round(view.cost_usd, 6) if view else 0.0,
        "duration_s": round(seconds, 3),
    }
    return json.dumps(result, ensure_ascii=False)


def report_failure(error: BareAgentError, output: str, printer: Printer) -> None:
    """Print the result object of a run that could not begin; its text goes to stderr elsewhere."""
    if output != "text":
        printer.line(_result(None, Stop(reason="error"), error, 0.0, is_error=True))


def _total(usages: Any) -> Usage:
    names = Usage.__struct_fields__
    sums = dict.fromkeys(names, 0)
    for usage in usages:
        for name in names:
            sums[name] += getattr(usage, name)
    return Usage(**sums)


class _Signals:
    """Turns the signals of `SIGNALS` into an interrupt of the run; `code` is the exit code then."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.code = 0

    def __enter__(self) -> None:
        self._each(self._add)

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        self._each(loop.remove_signal_handler)

    def _each(self, act: Callable[[int], object]) -> None:
        for name in SIGNALS:
            number = getattr(signal, name, None)
            if number is not None and sys.platform != "win32":
                act(number)

    def _add(self, number: int) -> None:
        asyncio.get_running_loop().add_signal_handler(number, self._stop, number)

    def _stop(self, number: int) -> None:
        self.code = SIGNALS[signal.Signals(number).name]
        self._agent.interrupt()
