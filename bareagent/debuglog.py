"""`--debug`: a log file of what happens, secrets masked, rotated at one megabyte."""

import logging
import logging.handlers
from collections.abc import Iterable
from pathlib import Path

import msgspec

from bareagent import folders
from bareagent.entries import AnyDelta, AnyEntry, InputDelta, TextDelta, ThinkingDelta
from bareagent.platform import make_private_folder
from bareagent.seams import Emit
from bareagent.store.redact import Redactor

MAX_BYTES = 1 << 20
N_KEPT = 3
MAX_LINE_CHARS = 2_000
LOGGERS = ("bareagent", "anthropic", "httpx2")


class _Masked(logging.Formatter):
    """Masks secrets and cuts long lines."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        """Return the line for the file."""
        return self._redactor.mask(super().format(record))[:MAX_LINE_CHARS]


def start(keys: Iterable[str]) -> Path | None:
    """Begin to write the log and return its path; None where it cannot be written."""
    redactor = Redactor(is_on=True)
    for key in keys:
        redactor.register(key)
    path = folders.log_folder() / "debug.log"
    try:
        make_private_folder(path.parent)
        path.touch(mode=0o600)
        handler = logging.handlers.RotatingFileHandler(
            path, maxBytes=MAX_BYTES, backupCount=N_KEPT, encoding="utf-8", errors="replace"
        )
    except OSError:
        return None
    handler.setFormatter(_Masked(redactor))
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(handler)
    return path


def heard_by(emit: Emit) -> Emit:
    """Return an `Emit` that also logs what it hears, the pieces of a stream left out."""
    logger = logging.getLogger("bareagent")

    def both(heard: AnyEntry | AnyDelta, /) -> None:
        if not isinstance(heard, TextDelta | ThinkingDelta | InputDelta):
            logger.debug("%s", msgspec.json.encode(heard).decode())
        emit(heard)

    return both
