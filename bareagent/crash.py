"""A report of our own fault: one file, one line that says where it is."""

import os
import platform as system
import sys
import time
import traceback
from pathlib import Path

from bareagent import __version__, folders
from bareagent.platform import make_private_folder, open_private
from bareagent.sanitize import clean


def report(error: BaseException) -> str:
    """Write a crash report and return the line for the user; where none can be written, the line says so."""
    what = clean(f"{type(error).__name__}: {error}").replace("\n", " ")[:300]
    try:
        path = _write(error)
    except OSError as failure:
        return f"bareagent: a fault of its own: {what} (no report could be written: {failure.strerror})"
    return f"bareagent: a fault of its own: {what}\n  Please report it and attach {path}"


def _write(error: BaseException) -> Path:
    folder = folders.log_folder()
    make_private_folder(folder)
    path = folder / time.strftime("crash-%Y%m%d-%H%M%S.txt")
    lines = [
        f"bareagent {__version__}, Python {sys.version.split()[0]}, {system.platform()}",
        "",
        *traceback.format_exception(error),
    ]
    with os.fdopen(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w") as file:
        file.write("\n".join(lines))
    return path
