"""What a user should know of a session when going on with it or going back in it: read, never changed."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from bareagent import context
from bareagent.agent import Agent
from bareagent.context.plan import Wishes
from bareagent.context.show import compacting_cost
from bareagent.context.working import measure_gently
from bareagent.entries import MessageEntry
from bareagent.messages import Block, Message, calls, results, text_of
from bareagent.repl.rows import money
from bareagent.repl.styles import Styles
from bareagent.repl.view import paint, wrapped
from bareagent.sanitize import clean, counted, one_line
from bareagent.session import Session

FILE_TOOLS = frozenset({"read_file", "edit_file", "write_file"})
CHANGING_TOOLS = frozenset({"edit_file", "write_file"})
N_NAMES = 8
_CLOCK_SLACK_S = 1.0


class Line(NamedTuple):
    """A line of the user's that still stands in the view, with its entry's number."""

    n: int
    text: str


class Changed(NamedTuple):
    """What a session did since a line: files its tools changed, and how many commands ran."""

    files: list[str]
    n_commands: int


def lines_of(session: Session) -> list[Line]:
    """Return the user's lines that one can go back to, newest first."""
    view = session.view
    found = [
        Line(view.ids[index], text_of(message).strip())
        for index, message in enumerate(view.messages)
        if view.kinds[index] == "line" and not view.is_header(view.ids[index])
    ]
    return found[::-1]


def changed_since(session: Session, n: int) -> Changed:
    """Return what the session's tools changed since entry `n`, lines taken back meanwhile included."""
    files: dict[str, None] = {}
    n_commands = 0
    for call in _calls_done(session, n):
        if call.get("name") in CHANGING_TOOLS and _path_of(call):
            files[_path_of(call)] = None
        elif call.get("name") == "bash":
            n_commands += 1
    return Changed(list(files), n_commands)


def _calls_done(session: Session, first: int) -> Iterator[Block]:
    """Yield the calls that did not fail, from entry `first` to the log's end."""
    last: Message | None = None
    for n in range(first, session.log.last_n + 1):
        try:
            entry = session.log.read(n)
        except KeyError:
            continue
        if not isinstance(entry, MessageEntry):
            continue
        if entry.message["role"] == "assistant":
            last = entry.message
        elif last is not None:
            yield from _succeeded(last, entry.message)


def _succeeded(reply: Message, answer: Message) -> list[Block]:
    good = {block.get("tool_use_id") for block in results(answer) if not block.get("is_error")}
    return [call for call in calls(reply) if call.get("id") in good]


def _path_of(call: Block) -> str:
    given = call.get("input")
    path = given.get("file_path") if isinstance(given, dict) else None
    return path if isinstance(path, str) else ""


def changed_text(changed: Changed) -> str:
    """Return the sentence that says what a rewind does not take back; empty where there is nothing."""
    parts = []
    if changed.files:
        parts.append(f"Files changed since, left as they are: {names(changed.files)}.")
    if changed.n_commands:
        n = changed.n_commands
        parts.append(f"{counted(n, 'command')} ran since; what they did stays.")
    return " ".join(parts)


def names(paths: list[str]) -> str:
    """Return a list of paths on one line, long ones cut, many ones counted."""
    shown = ", ".join(one_line(path, 80) for path in paths[:N_NAMES])
    return shown + (f" and {len(paths) - N_NAMES} more" if len(paths) > N_NAMES else "")


def stale_files(session: Session) -> list[str]:
    """Return the files the view shows that changed on disk, or went, since the session last touched them."""
    touched: dict[str, int] = {}
    last: Message | None = None
    for n, message in zip(session.view.ids, session.messages, strict=True):
        if message["role"] == "assistant":
            last = message
        elif last is not None:
            seen = [call for call in _succeeded(last, message) if call.get("name") in FILE_TOOLS]
            touched |= {_path_of(call): n for call in seen if _path_of(call)}
    return [path for path, n in touched.items() if _is_newer(session, path, n)]


def _is_newer(session: Session, path: str, n: int) -> bool:
    try:
        at = datetime.fromisoformat(session.log.read(n).at).timestamp()
        return (session.cwd / Path(path).expanduser()).stat().st_mtime > at + _CLOCK_SLACK_S
    except FileNotFoundError:
        return True
    except (OSError, ValueError, KeyError, RuntimeError):
        return False


def price_line(agent: Agent) -> str:
    """Return the price of going on: `as is ≈ $0.42 (cache cold) · after /compact ≈ $0.06`."""
    given = agent.session, agent.provider, agent.box.tools, agent.config
    plan = context.planned(*given, Wishes(forced="manual"))
    price, full = agent.provider.model.price, plan.full
    if not price.input:
        after = f" · after /compact ≈ {round(full.after):,} tokens" if full else ""
        return f"as is ≈ {round(plan.load.size):,} tokens{after}"
    line = f"as is ≈ {money(context.next_cost(*given))} (cache {'cold' if plan.is_cold else 'warm'})"
    if full is None:
        return line
    after_usd = full.after * (price.cache_write or price.input) / 1e6
    once_usd = compacting_cost(full, agent.config, (price.input, price.output))
    return f"{line} · after /compact ≈ {money(after_usd)} (compacting ≈ {money(once_usd)})"


async def recap_rows(agent: Agent, width: int, styles: Styles) -> list[str]:
    """Return what to know before going on with a resumed session: stale files, the price."""
    session = agent.session
    await measure_gently(session, agent.provider)
    rows: list[str] = []
    if session.is_read_only:
        rows += _told("Open for reading only: /fork goes on in a copy of it.", width, styles.warning)
    stale = stale_files(session)
    if stale:
        rows += _told(f"Changed on disk since the session saw them: {names(stale)}", width, styles.warning)
    if session.messages:
        rows += _told(f"Next call: {price_line(agent)}", width, styles.faint)
    return rows


def _told(text: str, width: int, style: str) -> list[str]:
    return [paint(row, style) for row in wrapped(clean(text), max(width, 4))]
