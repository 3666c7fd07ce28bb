"""The way in and out of the live screen: the first prompt at once, the program behind it, the terminal restored.

Light on purpose: what a conversation needs is loaded while the user can already type.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

from bareagent.repl import terminal
from bareagent.repl.first import Hands
from bareagent.repl.history import SharedHistory, history_path
from bareagent.repl.screen import Screen
from bareagent.repl.styles import themed

EXITS = {"SIGTERM": 143, "SIGHUP": 129}
LOADING_SWITCH_S = 0.001
"""While much is imported in a thread, the keyboard's turn comes this often."""


class Opened(Protocol):
    """A conversation behind the prompt."""

    async def close(self) -> list[str]:
        """End all that runs and save; return the last lines to print."""


Behind = Callable[["Door"], Awaitable[None]]
"""Loads the program and sets `door.opened`. Raises: BareAgentError, which ends the screen."""


def can_open(env: Mapping[str, str] = os.environ) -> bool:
    """Tell whether this terminal can show the live screen."""
    return terminal.is_usable(sys.stdin, sys.stdout, env)


class Door:
    """One screen from its first prompt to the last line."""

    def __init__(self, root: Path, mode: str, theme: str, *, is_vi: bool, has_colour: bool) -> None:
        """Build the screen; nothing is drawn yet."""
        self.opened: Opened | None = None
        self.exit_code = 0
        self._loader: asyncio.Task[None] | None = None
        self._guard = terminal.Guard(sys.stdin, sys.stdout)
        self.history = SharedHistory(history_path(root))
        self.screen = Screen(self.history, sys.stdin, sys.stdout, is_vi=is_vi)
        self.hands = Hands(self.screen, themed(theme, has_colour=has_colour), mode)
        self.screen.hands = self.hands

    async def run(self, behind: Behind) -> int:
        """Draw the prompt, load what stands behind it, talk until the end; return the exit code.

        Raises: BareAgentError where the program cannot be put together.
        """
        self._on_signals()
        is_fine = False
        try:
            await self.screen.app.run_async(pre_run=lambda: self._drawn(behind), set_exception_handler=False)
            is_fine = True
        except EOFError:
            # The terminal is gone.
            self.exit_code = self.exit_code or EXITS["SIGHUP"]
            is_fine = True
        finally:
            await self._close(is_fine=is_fine)
        return self.exit_code

    def _drawn(self, behind: Behind) -> None:
        self.screen.watch_size()
        self._loader = asyncio.get_running_loop().create_task(self._load(behind))
        self._loader.add_done_callback(self._loaded)

    async def _load(self, behind: Behind) -> None:
        interval = sys.getswitchinterval()
        sys.setswitchinterval(LOADING_SWITCH_S)
        try:
            await behind(self)
        finally:
            sys.setswitchinterval(interval)

    def _loaded(self, loader: "asyncio.Task[None]") -> None:
        if not loader.cancelled() and (error := loader.exception()) is not None:
            self.screen.leave(error)

    def _on_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for name, code in EXITS.items():
            if hasattr(signal, name):
                loop.add_signal_handler(getattr(signal, name), self._told_to_go, code)

    def _told_to_go(self, code: int) -> None:
        self.exit_code = code
        self.screen.outside.end()
        self.screen.leave()

    async def _close(self, *, is_fine: bool) -> None:
        lines: list[str] = []
        if self._loader is not None and not self._loader.done():
            self._loader.cancel()
            await asyncio.wait([self._loader])
        try:
            if self.opened is not None:
                lines = await self.opened.close()
        finally:
            self.screen.flush()
            self._guard.restore()
        if is_fine:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.write("".join(f"{line}\n" for line in ("Exiting BareAgent.", *lines)))
                sys.stdout.flush()
        self._guard.drain()
