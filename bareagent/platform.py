"""What differs by operating system: locks, process trees, file modes, the shell, the clipboard.

The only place that imports `fcntl`, `pwd`, `resource` or `termios`; all are optional at import.
"""

import contextlib
import importlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import IO

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
PR_SET_CHILD_SUBREAPER = 36
CALL_VARIABLE = "BAREAGENT_CALL"
"""In the environment of whatever the program starts in a session of its own: whose child it is."""
OWN_CHILD = {CALL_VARIABLE: "own"}


def _optional(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_fcntl = _optional("fcntl")
_termios = _optional("termios")
_resource = _optional("resource")


def can_lock() -> bool:
    """Tell whether this system has advisory file locks."""
    return _fcntl is not None


def try_lock(file: IO[bytes]) -> bool:
    """Take the exclusive lock on an open file without waiting; False if another holds it.

    The lock belongs to the open file: hard links and symlinks do not go around it, and the system
    frees it when the holder dies.
    """
    if _fcntl is None:
        return True
    try:
        _fcntl.flock(file.fileno(), _fcntl.LOCK_EX | _fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(file: IO[bytes]) -> None:
    """Free a lock taken by `try_lock`."""
    if _fcntl is not None:
        with contextlib.suppress(OSError, ValueError):
            _fcntl.flock(file.fileno(), _fcntl.LOCK_UN)


def open_private(path: Path, flags: int) -> int:
    """Open a file as 0600 whatever the umask and return its descriptor."""
    descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0), PRIVATE_FILE)
    with contextlib.suppress(OSError, AttributeError):
        if flags & os.O_CREAT:
            os.fchmod(descriptor, PRIVATE_FILE)
    return descriptor


def make_private_folder(path: Path, *, is_new: bool = False) -> None:
    """Make a folder as 0700 whatever the umask, parents too; `is_new`: it must not exist yet."""
    for parent in reversed(path.parents):
        if not parent.exists():
            parent.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    path.mkdir(mode=PRIVATE_FOLDER, exist_ok=not is_new)
    with contextlib.suppress(OSError):
        path.chmod(PRIVATE_FOLDER)


def sync_folder(path: Path) -> None:
    """Make a new name in a folder durable, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def shell() -> list[str]:
    """Return the argv that runs a command text behind it."""
    if os.name == "nt":
        return [os.environ.get("COMSPEC", "cmd.exe"), "/c"]
    return [shutil.which("bash") or "/bin/sh", "-c"]


def peak_memory_bytes() -> int:
    """Return the largest resident size of this process so far; 0 where unknown."""
    if _resource is None:
        return 0
    peak: int = _resource.getrusage(_resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def terminal_state(descriptor: int) -> list[object] | None:
    """Return the terminal's modes, to be given back by `restore_terminal`; None without a terminal."""
    if _termios is None:
        return None
    try:
        state: list[object] = _termios.tcgetattr(descriptor)
    except (OSError, _termios.error):
        return None
    return state


def restore_terminal(descriptor: int, state: list[object] | None) -> None:
    """Set the terminal's modes back."""
    if _termios is None or state is None:
        return
    with contextlib.suppress(OSError, _termios.error):
        _termios.tcsetattr(descriptor, _termios.TCSADRAIN, state)


def discard_input(descriptor: int) -> None:
    """Throw away what was typed into a terminal and not read: it was not meant for who reads next."""
    if _termios is None:
        return
    with contextlib.suppress(OSError, _termios.error):
        _termios.tcflush(descriptor, _termios.TCIFLUSH)


def descendants(pid: int) -> list[int]:
    """Return the process ids below a process, found by parent."""
    children = _children_by_parent()
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _children_by_parent() -> dict[int, list[int]]:
    table: dict[int, list[int]] = {}
    for child, parent in _process_table():
        table.setdefault(parent, []).append(child)
    return table


def _process_table() -> list[tuple[int, int]]:
    proc = Path("/proc")
    if proc.is_dir():
        pairs = [_pid_and_parent(entry.name) for entry in proc.iterdir() if entry.name.isdigit()]
        return [pair for pair in pairs if pair is not None]
    listing = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=False).stdout
    return [(int(pid), int(parent)) for pid, parent in map(str.split, listing.splitlines())]


def _pid_and_parent(name: str) -> tuple[int, int] | None:
    try:
        stat = Path("/proc", name, "stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 1 :].split()
    return int(name), int(fields[1])


def adopt_orphans() -> None:
    """Let descendants whose parent has ended become this process's children, where the system can.

    So a daemon that cut every tie to the command that made it is still found.
    """
    ctypes = _optional("ctypes")
    if ctypes is not None and sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs (or is not ours to see)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def signal_all(pids: list[int], number: int = signal.SIGTERM) -> None:
    """Send a signal to each process, those that are gone left out."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def signal_group(group: int, number: int = signal.SIGTERM) -> None:
    """Send a signal to a process group, never to our own."""
    if os.name == "nt" or group == os.getpgrp():
        return
    with contextlib.suppress(OSError):
        os.killpg(group, number)
