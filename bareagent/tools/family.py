"""Which processes belong to a command, those that left its group, its session or their parent too."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from bareagent import platform

_MARK_NAME = f"{platform.CALL_VARIABLE}=".encode()

started: set[int] = set()
"""Shells of ours that run now: the only children in sessions of their own that are not adopted."""


class Living(msgspec.Struct, frozen=True):
    """A living process."""

    pid: int
    name: str


class Row(msgspec.Struct, frozen=True):
    """A line of the process table; `session` is 0 where the system does not tell it."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    session: int = 0


def marked(mark: str) -> bytes:
    """Return a call's mark as it stands in the environment of its processes."""
    return _MARK_NAME + mark.encode()


def family(shell: int, mark: bytes, known: set[int]) -> list[Living]:
    """Return the living processes of a command: `shell` is its first, `known` were found before."""
    rows = rows_of_proc(shell) if sys.platform == "linux" else rows_of_ps()
    members = {
        pid for pid, row in rows.items() if shell in {pid, row.session, row.group} or _is_marked(row, mark)
    }
    members |= known & rows.keys()
    _add_children(members, rows)
    _reap(row for row in rows.values() if row.state == "Z" and _is_adopted(row))
    return [Living(pid, rows[pid].name) for pid in sorted(members) if rows[pid].state not in "ZX"]


def _is_marked(row: Row, mark: bytes) -> bool:
    """Tell whether a process bears this call's mark, or none at all though a command of ours made it."""
    if row.state in "ZX":
        return False
    try:
        variables = Path(f"/proc/{row.pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    if mark in variables:
        return True
    return _is_adopted(row) and not any(variable.startswith(_MARK_NAME) for variable in variables)


def _is_adopted(row: Row) -> bool:
    """Tell whether a child of ours was made by another: what we start keeps our session or is known."""
    is_ours = row.session in {0, os.getsid(0)} or row.pid in started
    return row.parent == os.getpid() and not is_ours


def _reap(rows: Iterable[Row]) -> None:
    for row in rows:
        with contextlib.suppress(OSError):
            os.waitpid(row.pid, os.WNOHANG)


def _add_children(members: set[int], rows: Mapping[int, Row]) -> None:
    n_before = -1
    while n_before != len(members):
        n_before = len(members)
        members |= {pid for pid, row in rows.items() if row.parent in members}


def rows_of_proc(oldest: int = 0) -> dict[int, Row]:
    """Return the processes that can be younger than `oldest`, from /proc (Linux)."""
    return {row.pid: row for row in map(_row, _young_pids(oldest)) if row is not None}


def _young_pids(oldest: int) -> list[int]:
    """Numbers go up until they wrap; after a wrap all processes count."""
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    with contextlib.suppress(OSError, ValueError, IndexError):
        newest = int(Path("/proc/loadavg").read_bytes().split()[-1])
        if newest >= oldest:
            return [pid for pid in pids if pid >= oldest]
    return pids


def _row(pid: int) -> Row | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    end = stat.rindex(b")")
    state, parent, group, session = stat[end + 2 :].split(maxsplit=4)[:4]
    name = stat[stat.index(b"(") + 1 : end].decode("utf-8", "replace")
    return Row(pid, name, state.decode(), int(parent), int(group), int(session))


def rows_of_ps() -> dict[int, Row]:
    """Return all processes, from `ps` (macOS and others)."""
    listing = subprocess.run(
        ["ps", "-axo", "pid=,ppid=,pgid=,state=,comm="], capture_output=True, text=True, check=False
    ).stdout
    rows = (_row_of_ps(line.split(maxsplit=4)) for line in listing.splitlines())
    return {row.pid: row for row in rows if row is not None}


def _row_of_ps(fields: list[str]) -> Row | None:
    if len(fields) < 5:
        return None
    pid, parent, group, state, command = fields
    return Row(int(pid), command.rpartition("/")[2], state[0], int(parent), int(group))
