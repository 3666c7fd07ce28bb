"""What is wrong with a saved session, told line by line. Reads only."""

from pathlib import Path
from typing import NamedTuple

from bareagent.entries import MessageEntry
from bareagent.messages import calls, results
from bareagent.store.lines import Fault
from bareagent.store.log import Log
from bareagent.store.places import LOG_NAME


class Report(NamedTuple):
    """The state of a session's log; `faults` are in the order of their lines."""

    id: str
    n_lines: int
    n_entries: int
    faults: list[Fault]

    @property
    def is_sound(self) -> bool:
        """Nothing is wrong."""
        return not self.faults


def check(folder: Path) -> Report:
    """Return every fault of the session in a folder. Raises: SessionNotFound, SessionUnreadable."""
    log = Log.open(folder / LOG_NAME, is_read_only=True)
    try:
        n_entries = 0
        open_calls: set[str] = set()
        for entry in log.load():
            n_entries += 1
            if isinstance(entry, MessageEntry):
                open_calls |= {str(call.get("id")) for call in calls(entry.message)}
                open_calls -= {str(block.get("tool_use_id")) for block in results(entry.message)}
        n_lines = log.reading.count_lines()
        return Report(
            folder.name, n_lines, n_entries, [*log.reading.faults, *_at_the_end(log, n_lines, open_calls)]
        )
    finally:
        log.close()


def _at_the_end(log: Log, n_lines: int, open_calls: set[str]) -> list[Fault]:
    faults = []
    if log.reading.torn:
        faults.append(Fault(n_lines + 1, f"is cut off ({len(log.reading.torn)} bytes)"))
    if open_calls:
        faults.append(Fault(n_lines, f"ends with {len(open_calls)} calls that have no result"))
    if log.is_newer:
        faults.append(Fault(n_lines, "a newer version wrote into this log"))
    return faults
