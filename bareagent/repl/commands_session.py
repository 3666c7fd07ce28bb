"""Commands about sessions: begin, go on, list, name, go back, fork, save elsewhere."""

import re
from pathlib import Path

from bareagent.errors import SessionLocked, UsageError
from bareagent.repl import start
from bareagent.repl.face import Face, Row
from bareagent.repl.pickers import (
    cards_here,
    pick_line,
    pick_session,
    wanted_session,
)
from bareagent.repl.recap import Line, changed_since, changed_text, lines_of, recap_rows
from bareagent.repl.rows import session_lines
from bareagent.repl.table import ANY, SHOWN, command
from bareagent.sanitize import clean, one_line
from bareagent.store.export import FORMATS, document, write_new

_LOCKED_CHOICES = (
    Row(key="fork", text="fork", detail="go on in a copy of your own"),
    Row(key="read", text="read only", detail="look at it, say nothing in it"),
    Row(key="wait", text="wait", detail="go on once the other program is done; Esc gives up"),
)


@command("new", "[name]")
async def new(face: Face, argument: str) -> None:
    """Begin a new conversation; the present one stays saved."""
    face.agent.new(argument)


@command("clear", "[name]")
async def clear(face: Face, argument: str) -> None:
    """Begin a new conversation and clear the screen."""
    face.clear_screen()
    face.agent.new(argument)


@command("sessions", safe=ANY)
async def sessions(face: Face, _argument: str) -> None:
    """List this project's saved sessions; /resume takes a row."""
    cards = cards_here(face.agent)
    face.agent.listed = [card.id for card in cards]
    if not cards:
        face.say("No saved sessions.")
        return
    face.show(session_lines(cards, face.width, current=face.agent.session.id))


@command("resume", "[session]", argument="session")
async def resume(face: Face, argument: str) -> None:
    """Go on with a saved session: chosen, or named.

    A session is a row of the last list (one or two digits), an id or its beginning (four characters
    or more), ID.N, or a name. An older generation (ID.N) goes on as a fork that begins with it.
    Shown are the last exchanges, what was repaired, files that changed since, and the price of going on.
    """
    wanted = await wanted_session(face, argument) if argument else await pick_session(face)
    if wanted:
        await _go_on(face, wanted)
    elif not argument and not face.is_terminal:
        await sessions(face, "")


async def _go_on(face: Face, wanted: str) -> None:
    agent = face.agent
    try:
        agent.resume(wanted, agent.listed)
    except SessionLocked as error:
        if not face.is_terminal or not await _go_on_locked(face, wanted, error):
            raise
    await agent.follow_model()
    face.show(start.past(agent, face.width, face.styles))
    for note in agent.session.notes:
        face.say(note, "warning")
    face.show(await recap_rows(agent, face.width, face.styles))


async def _go_on_locked(face: Face, wanted: str, error: SessionLocked) -> bool:
    """Offer what can be done with a session that another program writes; False if nothing was done."""
    title = f"{error} {error.hint}"
    picked = await face.pick(one_line(title, 200), lambda _: _LOCKED_CHOICES)
    agent = face.agent
    match picked.key if picked else "":
        case "fork":
            agent.fork_saved(wanted, agent.listed)
        case "read":
            agent.resume(wanted, agent.listed, is_read_only=True)
        case "wait":
            face.say("Waiting for the other program to end …", "dim")
            return await agent.resume_when_free(wanted, agent.listed)
        case _:
            return False
    return True


@command("name", "[text]", safe=SHOWN)
async def name(face: Face, argument: str) -> None:
    """Name this session; /resume finds it by its name."""
    if argument:
        face.say(f"Session name: {face.agent.name(argument)}")
        return
    face.say(f"Session name: {one_line(face.agent.session.view.name, 200) or '(none yet)'}")


async def _line_meant(face: Face, argument: str, title: str) -> Line | None:
    """Return the line that a number (1: the newest) or the picker means."""
    lines = lines_of(face.agent.session)
    if not lines:
        raise UsageError("There is no line to go back to.")
    if argument:
        if not re.fullmatch(r"\d{1,6}", argument) or not 1 <= int(argument) <= len(lines):
            raise UsageError(f"Give a number from 1 (the newest line) to {len(lines)}.")
        return lines[int(argument) - 1]
    if face.is_terminal:
        return await pick_line(face, lines, title)
    face.say(
        "\n".join(f"{k}  {one_line(line.text, max(face.width - 6, 8))}" for k, line in enumerate(lines, 1))
    )
    return None


@command("rewind", "[N]")
async def rewind(face: Face, argument: str) -> None:
    """Go back to before a line of yours; it becomes the draft.

    N counts from the newest line, which is 1. Files are not touched: the ones that the session changed
    since are named. The log keeps what was taken back.
    """
    line = await _line_meant(face, argument, "Go back to before")
    if line is None:
        return
    changed = changed_text(changed_since(face.agent.session, line.n))
    face.set_draft(face.agent.rewind(line.n))
    face.say(f"Back to before: {one_line(line.text, max(face.width - 17, 20))}")
    if changed:
        face.say(changed, "warning")


@command("fork", "[N]")
async def fork(face: Face, argument: str) -> None:
    """Go on in a copy of this session.

    With N the copy ends before a line, counted from the newest, which is 1; the line becomes the draft.
    This session stays as it is.
    """
    if not argument:
        face.agent.fork()
        return
    line = await _line_meant(face, argument, "Fork before")
    if line is not None:
        face.agent.fork(line.n)
        face.set_draft(line.text)


@command("export", "[form] [file]", words=FORMATS)
async def export(face: Face, argument: str) -> None:
    """Write the conversation into a file: md, json or jsonl.

    Without a form the file's ending decides; without a file it is named after the session. A name alone
    has a dot or a slash. A file that exists is not overwritten.
    """
    session = face.agent.session
    first, _, rest = argument.partition(" ")
    form, file = (first, rest.strip()) if first in FORMATS else ("", argument)
    if file and not form and not re.search(r"[./\\]", file):
        raise UsageError(
            f"/export writes md, json or jsonl, not {one_line(file, 40)}.",
            "/export md, or a file's name with its ending: /export talk.md",
        )
    form = form or next((each for each in FORMATS if file.endswith(f".{each}")), "md")
    path = session.cwd / Path(file or f"bareagent-{session.full_id}.{form}").expanduser()
    write_new(path, document(form, session.full_id, session.view, session.entries()))
    face.say(f"Exported to {clean(str(path))}")


@command("transcript", safe=ANY)
async def transcript(face: Face, _argument: str) -> None:
    """Read the whole conversation in a pager."""
    session = face.agent.session
    if not session.messages:
        face.say("Nothing was said yet.")
        return
    await face.page(
        "".join(document("md", session.full_id, session.view, session.entries())), session.full_id
    )
