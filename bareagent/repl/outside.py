"""Programs that own the terminal for a while: a pager, an editor. Ctrl-C is theirs, and they end with us."""

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bareagent import platform

GRACE_S = 0.5
EDITORS = ("/usr/bin/editor", "/usr/bin/nano", "/usr/bin/pico", "/usr/bin/vi", "/usr/bin/emacs")
_MAIN_SCREEN = b"\x1b[?1049l"


class Outside:
    """One such program at a time; `run` waits for it in a thread, `end` ends it from the event loop."""

    def __init__(self) -> None:
        """Nothing runs."""
        self._running: tuple[subprocess.Popen[bytes], str] | None = None
        self._is_over = False

    def run(self, words: Sequence[str], env: Mapping[str, str] = os.environ) -> int:
        """Run a program to its end; return its exit code. Raises: OSError."""
        if self._is_over:
            return 1
        mark = os.urandom(8).hex()
        child = subprocess.Popen(words, env={**env, platform.CALL_VARIABLE: mark})
        self._running = child, mark
        if self._is_over:
            child.terminate()
        try:
            return child.wait()
        finally:
            self._running = None

    def edit(self, text: str) -> str | None:
        """Let the user edit a text; None where the editor failed or there is none."""
        with tempfile.TemporaryDirectory(prefix="bareagent-") as folder:
            path = Path(folder) / "draft"
            path.write_text(text, encoding="utf-8", errors="replace")
            for editor in (os.environ.get("VISUAL"), os.environ.get("EDITOR"), *EDITORS):
                code = self._edited(editor, path) if editor else None
                if code is not None:
                    is_good = code == 0 and path.is_file()
                    return (
                        path.read_text(encoding="utf-8", errors="replace").removesuffix("\n")
                        if is_good
                        else None
                    )
        return None

    def _edited(self, editor: str, path: Path) -> int | None:
        try:
            return self.run([*shlex.split(editor), str(path)])
        except (OSError, ValueError):
            return None

    def end(self) -> None:
        """End what runs and all it has started; nothing starts any more."""
        self._is_over = True
        if self._running is not None:
            self._signal(self._running, signal.SIGTERM)
            asyncio.get_running_loop().call_later(GRACE_S, self._kill, self._running)

    def _kill(self, running: tuple[subprocess.Popen[bytes], str]) -> None:
        if self._running is running:
            self._signal(running, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.write(1, _MAIN_SCREEN)

    def _signal(self, running: tuple[subprocess.Popen[bytes], str], number: signal.Signals) -> None:
        from bareagent.tools.family import family, marked  # late: only where one is ended from outside

        child, mark = running
        platform.signal_all([living.pid for living in family(child.pid, marked(mark), set())], number)
