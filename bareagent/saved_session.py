"""One saved session, looked at, checked, repaired, removed or written as a document.

Logs are read without being locked or repaired, so another program may be writing them meanwhile.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from bareagent import folders
from bareagent.entries import AnyEntry
from bareagent.errors import SessionError, SessionNotFound, UsageError
from bareagent.fold import fold
from bareagent.options import Options
from bareagent.provider.replay import answered, replay
from bareagent.repl.rows import money
from bareagent.sanitize import counted
from bareagent.saved import NO_SESSIONS, Place, cards_of, place, print_clean, print_json, write
from bareagent.store.checks import Report
from bareagent.store.checks import check as check_log
from bareagent.store.export import document, write_new
from bareagent.store.forks import last_entry_of_generation
from bareagent.store.lines import Fault
from bareagent.store.log import Log
from bareagent.store.places import LOG_NAME
from bareagent.store.transcripts import Found, TranscriptManager
from bareagent.view import View

EXIT_UNREADABLE = 65
LIST = "`bareagent sessions list`"


class Read(NamedTuple):
    """A session as it was read: its id with the generation, its folded view, its entries."""

    full_id: str
    view: View
    entries: list[AnyEntry]
    folder: Path


def _manager(where: Place) -> TranscriptManager:
    return TranscriptManager(where.root, folders.data_folder(), where.setting, redact=where.redact)


def _find(where: Place, manager: TranscriptManager, text: str) -> Found:
    if not _is_row(text):
        return manager.find(text)
    ids = [card.id for card in cards_of(where)]
    if not 1 <= int(text) <= len(ids):
        raise SessionNotFound(f"The list has no row {text.strip()}.", f"{LIST} shows them, with row numbers")
    return manager.find(text, ids)


def _is_row(text: str) -> bool:
    return re.fullmatch(r"\d{1,2}", text.strip()) is not None


def read(options: Options, text: str) -> Read:
    """Read a session, or an older generation of one. Raises: SessionNotFound, SessionUnreadable."""
    where = place(options)
    found = _find(where, _manager(where), text)
    upto = None if found.generation is None else last_entry_of_generation(found.folder, found.generation)
    with closing(Log.open(found.folder / LOG_NAME, is_read_only=True)) as log:
        entries = [entry for entry in log.load() if upto is None or entry.n <= upto]
    view = fold(entries)
    full_id = f"{found.id}.{view.generation}" if view.generation else found.id
    return Read(full_id, view, entries, found.folder)


def show_saved(options: Options, text: str, *, is_json: bool) -> None:
    """Print what a session is, then all that was said in it."""
    session = read(options, text)
    if is_json:
        write("".join(document("json", session.full_id, session.view, session.entries)))
        return
    print_clean("\n".join(_about(session)))
    print_clean("".join(document("md", session.full_id, session.view, session.entries)))


def _about(session: Read) -> Iterator[str]:
    view, start = session.view, session.view.session
    yield f"session   {session.full_id}" + (f" · {' '.join(view.name.split())}" if view.name else "")
    yield f"folder    {session.folder}"
    if start is not None:
        parent = f" · fork of {start.parent.id}" if start.parent else ""
        yield f"begun     {start.created} in {start.cwd}{parent}"
    yield f"model     {view.model or 'none yet'}"
    counts = f"{counted(view.n_turns, 'turn')} · {counted(len(answered(session.entries)), 'request')}"
    yield f"so far    {counts} · {money(view.cost_usd)}"
    yield f"entries   {len(session.entries)} · {counted(len(view.compactions), 'compaction')} in force"


def show_request(options: Options, text: str, number: int) -> None:
    """Print a request of a session as it was sent; stderr says whether it is exact.

    Raises: SessionNotFound where there is none of this number.
    """
    session = read(options, text)
    made = replay(session.entries, number)
    verdict = (
        "exact" if made.is_exact else "NOT exact: what was sent differs (masked secrets are sent in full)"
    )
    sys.stderr.write(f"request {number} (reply: entry {made.n}), {len(made.body):,} bytes: {verdict}\n")
    write(made.body.decode("utf-8", "replace") + "\n")


def check_saved(options: Options, text: str, *, is_json: bool) -> int:
    """Print every fault of one session or of all, with its line; return the exit code."""
    where = place(options)
    manager = _manager(where)
    chosen = (
        [_find(where, manager, text)]
        if text
        else [Found(name, manager.folder / name) for name in manager.ids()]
    )
    reports = [_report(found) for found in chosen]
    if is_json:
        print_json([_as_json(report) for report in reports])
    elif not reports:
        print_clean(NO_SESSIONS)
    for report in () if is_json else reports:
        print_clean("\n".join(_told(report)))
    return 0 if all(report.is_sound for report in reports) else EXIT_UNREADABLE


def _report(found: Found) -> Report:
    try:
        return check_log(found.folder)
    except SessionError as error:
        return Report(found.id, 0, 0, [Fault(0, str(error))])


def _as_json(report: Report) -> dict[str, object]:
    faults = [fault._asdict() for fault in report.faults]
    return {**report._asdict(), "faults": faults, "is_sound": report.is_sound}


def _told(report: Report) -> Iterator[str]:
    state = "sound" if report.is_sound else counted(len(report.faults), "fault")
    yield f"{report.id}  {report.n_lines:,} lines, {report.n_entries:,} entries: {state}"
    for fault in report.faults:
        yield f"  line {fault.line}: {fault.reason}" if fault.line else f"  {fault.reason}"


def repair_saved(options: Options, text: str) -> None:
    """Copy what is sound of a session into a new one. Raises: SessionError."""
    where = place(options)
    manager = _manager(where)
    found = _find(where, manager, text)
    made = manager.repair(found)
    print_clean(f"Repaired into {made.id}; {found.id} stays as it is.")


def remove_saved(options: Options, text: str, *, is_sure: bool) -> int:
    """Delete a session, after asking in a terminal; return the exit code. Raises: SessionError, UsageError."""
    if _is_row(text):
        # The list is numbered anew at each call: a second `rm` by row would take another session than was seen.
        raise UsageError(f"rm takes no row of the list ({text.strip()}).", f"give the id: {LIST} shows it")
    where = place(options)
    manager = _manager(where)
    found = _find(where, manager, text)
    if found.generation is not None:
        raise UsageError(f"{text} is one generation of a session; only a whole session can be removed.")
    if not is_sure and not _agreed(found):
        print_clean("Nothing was deleted.")
        return 1
    manager.remove(found)
    print_clean(f"Deleted {found.id}.")
    return 0


def _agreed(found: Found) -> bool:
    if not sys.stdin.isatty():
        raise UsageError("rm asks before it deletes, and here nobody can be asked.", "--yes deletes unasked")
    sys.stderr.write(f"Delete session {found.id} for good? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def export_saved(options: Options, text: str, form: str, file: Path | None) -> None:
    """Write a session as a document to a new file or to stdout. Raises: SessionError, UsageError."""
    session = read(options, text)
    pieces = document(form, session.full_id, session.view, session.entries)
    if file is None:
        for piece in pieces:
            write(piece)
        return
    write_new(file, pieces)
    sys.stderr.write(f"Exported to {file}\n")
