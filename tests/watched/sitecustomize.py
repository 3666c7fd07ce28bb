"""Loaded by the program under test at its start: notes each socket it reaches for, refuses all but those allowed.

It notes the programs that are started too.

An audit hook sees what Python does below every library, asyncio and the SDK's transport included. It is
inherited by each Python child, for PYTHONPATH is.
"""

import os
import pathlib
import sys

ALLOWED = set(os.environ.get("WATCHED_ALLOWED", "").split())
NOTES = os.environ.get("WATCHED_NOTES", "")
# Reaching out, or asking a name server: a name's look-up tells the world what is wanted.
REACHES = {"socket.connect", "socket.sendto", "socket.sendmsg"}
LOOKS_UP = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}


def _target(event: str, args: "tuple[object, ...]") -> str:
    if event in LOOKS_UP:
        host, port = args[0], args[1] if len(args) > 1 else ""
        return f"{host.decode() if isinstance(host, bytes) else host}:{port}"
    address = args[1]
    if isinstance(address, tuple):
        return f"{address[0]}:{address[1]}"
    return str(address)


def _note(event: str, what: object) -> None:
    with pathlib.Path(NOTES).open("a", encoding="utf-8") as notes:
        notes.write(f"{event} {what}\n")


def _watch(event: str, args: "tuple[object, ...]") -> None:
    if event == "subprocess.Popen":
        _note(event, args[0])
    if event not in REACHES | LOOKS_UP:
        return
    target = _target(event, args)
    _note(event, target)
    if target not in ALLOWED:
        raise PermissionError(f"no socket but the test server's: {target}")


if NOTES:
    sys.addaudithook(_watch)
