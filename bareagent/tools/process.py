"""Running a command: its own session, no terminal to ask on, no secrets, and nothing left alive behind it."""

import asyncio
import codecs
import fnmatch
import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from bareagent import platform
from bareagent.errors import BareAgentError
from bareagent.tools.capture import Capture
from bareagent.tools.family import Living, family, marked, started

READ_BYTES = 1 << 16
SMALL_BYTES = 1 << 14
PAUSE_S = 0.002
SETTLE_POLLS = 5
GRACE_S = 0.3
KILL_WAIT_S = 0.5
POLL_S = 0.02
LIVE_EVERY_S = 0.05
LIVE_BYTES = 1 << 14

_SECRET = re.compile(
    r"(^|_)(API|ACCESS|PRIVATE|SECRET|ENCRYPTION|SIGNING)?_?"
    r"(KEY|KEYS|TOKEN|TOKENS|SECRET|SECRETS|PASSWORD|PASSWD|PASSPHRASE|PASSWORDS|CREDENTIAL|CREDENTIALS)"
    r"(_(ID|BASE64|B64|JSON|VALUE))?$|(APIKEY|AUTHTOKEN|PASSWORD)$|^(ANTHROPIC|BAREAGENT)_",
    re.IGNORECASE,
)

# No command may wait for a person: editors end at once, pagers print, prompts fail.
QUIET = {
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
    "SSH_ASKPASS_REQUIRE": "never",
    "SUDO_ASKPASS": "false",
    "DEBIAN_FRONTEND": "noninteractive",
    "TERM": "dumb",
}


def child_environment(
    environ: Mapping[str, str], passed: Sequence[str] = (), hidden: Sequence[str] = ()
) -> dict[str, str]:
    """Return what a command inherits: no secrets but those `passed` (names or globs), nothing that waits.

    `hidden` names further variables that hold secrets.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if any(fnmatch.fnmatchcase(name, rule) for rule in passed)
        or not (_SECRET.search(name) or name in hidden)
    }
    return kept | QUIET


class NotStarted(BareAgentError):
    """A command could not be started: the shell or the working directory is missing."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended: `code` is negative for a signal, as the system has it.

    `survivors` were alive when the shell had exited, `unkillable` still are.
    """

    code: int
    duration_s: float
    is_timeout: bool = False
    survivors: list[Living] = []
    unkillable: list[Living] = []

    def told(self) -> str:
        """Return `exit code 0` or `killed by SIGTERM`."""
        if self.code >= 0:
            return f"exit code {self.code}"
        try:
            return f"killed by {signal.Signals(-self.code).name}"
        except ValueError:
            return f"killed by signal {-self.code}"


_running: "set[Process]" = set()


class Process:
    """A running command; `capture` grows while it runs, `on_text` hears it live."""

    def __init__(
        self, child: asyncio.subprocess.Process, mark: str, capture: Capture, on_text: Callable[[str], None]
    ) -> None:
        """Take a child that was just started by `start`."""
        self.pid = child.pid
        self.capture = capture
        self.began = time.monotonic()
        self.grew = asyncio.Event()
        self._child = child
        self._mark = marked(mark)
        self._known: set[int] = set()
        self._on_text = on_text
        self._live = _Live(on_text)
        self._pipe = -1
        self._is_over = False

    async def ended(self, timeout_s: float | None) -> Ended:
        """Wait until the shell exits or time is up; end what is left; return how it went.

        Cancelled: everything is ended first. Safe to call once.
        """
        is_timeout = False
        survivors: list[Living] = []
        try:
            await asyncio.wait_for(self._child.wait(), timeout_s)
            survivors = await self._settled()
        except TimeoutError:
            is_timeout = True
        finally:
            # Also on the way out of a cancellation; a second one falls through to the last resort.
            try:
                unkillable = await self._end_all(is_grace=is_timeout or bool(survivors))
                self._is_over = not unkillable
            finally:
                self._let_go()
        duration_s = time.monotonic() - self.began
        if self.capture.spill is not None:
            await asyncio.to_thread(self.capture.close)
        code = self._child.returncode
        return Ended(
            code=-signal.SIGKILL if code is None else code,
            duration_s=duration_s,
            is_timeout=is_timeout,
            survivors=survivors,
            unkillable=unkillable,
        )

    async def _settled(self) -> list[Living]:
        """Find what outlives the shell; a `tee` that is just finishing has a moment to do so."""
        for _ in range(SETTLE_POLLS):
            if not self._alive():
                return []
            await asyncio.sleep(POLL_S)
        return self._alive()

    async def _end_all(self, *, is_grace: bool) -> list[Living]:
        is_cancelled = self._child.returncode is None
        if not (is_grace or is_cancelled):
            return []
        await self.stop()
        return self._alive()

    async def _signal_until_gone(self, number: signal.Signals, wait_s: float) -> bool:
        """Signal all until none is left; those that appear meanwhile too."""
        told: set[int] = set()
        until = time.monotonic() + wait_s
        while time.monotonic() < until:
            alive = {survivor.pid for survivor in self._alive()}
            if not alive and self._child.returncode is not None:
                return True
            new = alive - told if number is signal.SIGTERM else alive
            platform.signal_all(sorted(new), number)
            platform.signal_all(sorted(new), signal.SIGCONT)
            told |= new
            await asyncio.sleep(POLL_S)
        return False

    async def stop(self) -> None:
        """End everything, from another task than the one that awaits `ended`."""
        if not await self._signal_until_gone(signal.SIGTERM, GRACE_S):
            await self._signal_until_gone(signal.SIGKILL, KILL_WAIT_S)

    def kill_now(self) -> None:
        """End everything at once, without waiting."""
        platform.signal_group(self.pid, signal.SIGKILL)
        platform.signal_all([survivor.pid for survivor in self._alive()], signal.SIGKILL)

    def _let_go(self) -> None:
        if not self._is_over:
            self.kill_now()
        self._drain()
        self._close_pipe()
        self._live.flush()
        self.grew.set()
        _running.discard(self)
        started.discard(self.pid)

    def _alive(self) -> list[Living]:
        """Find every living process of this command, those that left its group too."""
        found = family(self.pid, self._mark, self._known)
        self._known |= {survivor.pid for survivor in found}
        return found

    def watch(self, pipe: int) -> None:
        """Read the pipe whenever there is something to read."""
        self._pipe = pipe
        os.set_blocking(pipe, False)
        self._listen()

    def _listen(self) -> None:
        if self._pipe >= 0:
            asyncio.get_running_loop().add_reader(self._pipe, self._take)

    def _take(self) -> None:
        # Many small writes are worth a short pause: the writer goes on meanwhile, we wake less often.
        before = self.capture.total
        if self._read() and self.capture.total - before < SMALL_BYTES:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._pipe)
            loop.call_later(PAUSE_S, self._listen)

    def _read(self) -> bool:
        try:
            data = os.read(self._pipe, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._close_pipe()
            return False
        self.capture.feed(data)
        self._live.feed(data)
        self.grew.set()
        return True

    def _drain(self) -> None:
        # What stood in the pipe when the last writer went; bounded, should one have escaped.
        for _ in range(64):
            if self._pipe < 0 or not self._read():
                return

    def _close_pipe(self) -> None:
        if self._pipe >= 0:
            asyncio.get_running_loop().remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = -1


class _Live:
    """Passes on what comes, a few times a second, an endless writer's not whole."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = bytearray()
        self._n_skipped = 0
        self._timer: asyncio.TimerHandle | None = None

    def feed(self, data: bytes) -> None:
        room = LIVE_BYTES - len(self._pending)
        self._pending += data[:room]
        self._n_skipped += max(len(data) - room, 0)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LIVE_EVERY_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._pass_on(is_last=False)

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._pass_on(is_last=True)

    def _pass_on(self, *, is_last: bool) -> None:
        text = self._decoder.decode(bytes(self._pending), final=is_last or self._n_skipped > 0)
        self._pending.clear()
        if self._n_skipped:
            text += f"\n[... {self._n_skipped:,} bytes not shown ...]\n"
            self._n_skipped = 0
        if text:
            self._on_text(text.replace("\0", "\ufffd"))


async def start(
    command: str,
    *,
    cwd: Path,
    environment: Mapping[str, str],
    capture: Capture,
    on_text: Callable[[str], None],
    pass_fds: Sequence[int] = (),
) -> Process:
    """Start a command in the shell. Raises: NotStarted."""
    platform.adopt_orphans()
    mark = os.urandom(8).hex()
    read_end, write_end = os.pipe()
    starting = asyncio.create_subprocess_exec(
        *platform.shell(),
        command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=write_end,
        stderr=write_end,
        cwd=cwd,
        env={**environment, platform.CALL_VARIABLE: mark},
        start_new_session=True,
        pass_fds=pass_fds,
    )
    try:
        child = await _whole(asyncio.ensure_future(starting))
    except BaseException as error:
        os.close(read_end)
        if isinstance(error, OSError):
            raise NotStarted(_why_not(error, cwd)) from error
        raise
    finally:
        os.close(write_end)
    started.add(child.pid)
    process = Process(child, mark, capture, on_text)
    process.watch(read_end)
    _running.add(process)
    return process


def _why_not(error: OSError, cwd: Path) -> str:
    place = f" (the working directory {cwd} is gone)" if not cwd.is_dir() else ""
    return f"The command could not be started: {error.strerror or error}{place}."


async def _whole(starting: asyncio.Future[asyncio.subprocess.Process]) -> asyncio.subprocess.Process:
    """Wait for the child; a cancellation meanwhile comes at the next wait, when all can be ended."""
    task = asyncio.current_task()
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        child = await starting
        if task is not None:
            task.uncancel()
            task.cancel()
        return child


def kill_all() -> None:
    """End every command that still runs, at once: the last act of a program that is told to go."""
    for process in list(_running):
        process.kill_now()
