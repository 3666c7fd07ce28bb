"""What a line that begins with a slash does: the commands of the program itself, and their dispatch."""

import difflib
import re
from collections.abc import Sequence

from bareagent.errors import UsageError
from bareagent.repl import commands_context, commands_program, commands_session
from bareagent.repl.face import Face
from bareagent.repl.skills import skills_of
from bareagent.repl.table import ANY, COMMANDS, Command, command
from bareagent.repl.view import cut, wrapped
from bareagent.sanitize import one_line
from bareagent.tools.base import ToolError
from bareagent.tools.skills import Skill, invocation

__all__ = ["COMMANDS", "Command", "dispatch", "help_lines", "is_safe", "mistyped", "ordered"]

_WORD = re.compile(r"/([A-Za-z][^\s/]*)(?:\s+(.*))?", re.DOTALL)
_ORDER = (
    *("help", "compact", "context", "cost", "status", "new", "clear", "resume", "sessions", "name"),
    *("rewind", "fork", "export", "retry", "model", "mode", "default", "auto", "plan", "bypass"),
    *("todo", "pin", "pins", "unpin", "tools", "skills", "config", "theme", "copy", "transcript", "exit"),
)
_MEANT = {
    "quit": "exit",
    "q": "exit",
    "usage": "cost",
    "undo": "compact",
    "memory": "pins",
    "history": "sessions",
}
_SLASHES = "; a line that begins with // is sent with one slash"
_ALONE = {
    "/": ("A slash begins a command.", "/help lists all commands; Tab completes one."),
    "!": (
        "! runs a command of the shell: !ls",
        "The model reads what it printed; !!ls keeps it from the model.",
    ),
}
NEAR = 0.65
"""A name less like what was typed is not offered (difflib's ratio)."""
_PARTS = (commands_context, commands_program, commands_session)


def ordered() -> list[Command]:
    """Return all commands in the order in which `/help` and the README list them."""
    place = {name: index for index, name in enumerate(_ORDER)}
    return sorted(COMMANDS.values(), key=lambda each: (place.get(each.name, len(_ORDER)), each.name))


def is_safe(line: str) -> bool:
    """Tell whether a line is a command that may be answered while a run goes on."""
    match = _WORD.fullmatch(line.strip())
    known = COMMANDS.get(match[1].lower()) if match else None
    return known is not None and match is not None and known.is_safe((match[2] or "").strip())


async def dispatch(face: Face, line: str) -> bool:
    """Do what a line asks for; False if it is no command, so that it goes to the model.

    `//text` sends `/text`; a path (`/usr/lib is full`) is no command. Raises: BareAgentError.
    """
    line = line.strip()
    if line.startswith("//"):
        await face.submit(line[1:])
        return True
    if error := mistyped(face, line):
        raise error
    match = _WORD.fullmatch(line)
    if match is None:
        return False
    await _run(face, match[1], (match[2] or "").strip())
    return True


async def _run(face: Face, name: str, argument: str) -> None:
    known = COMMANDS.get(name.lower())
    if known is not None:
        await known.action(face, argument)
        return
    skill = next(each for each in skills_of(face) if each.name == name)
    await face.submit(_called(skill, argument))


def mistyped(face: Face, line: str) -> UsageError | None:
    """Return what is to be said of a line that is no command though it is written like one; None for others."""
    line = line.strip()
    if line in _ALONE:
        return UsageError(*_ALONE[line])
    match = _WORD.fullmatch(line)
    if match is None or match[1].lower() in COMMANDS:
        return None
    names = [skill.name for skill in skills_of(face)]
    return None if match[1] in names else unknown(match[1], [*COMMANDS, *names], _SLASHES)


def _called(skill: Skill, argument: str) -> str:
    try:
        return invocation(skill, argument)
    except ToolError as error:
        raise UsageError(f"Skill {skill.name} cannot be read: {error}") from None


def unknown(name: str, names: Sequence[str], more: str = "") -> UsageError:
    """Return the error that names the nearest command; `more` goes on with its hint."""
    meant = _MEANT.get(name.lower())
    begins = [each for each in names if each.startswith(name.lower())]
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=NEAR)
    nearest = meant or next(iter(begins + near), "")
    hint = f"/help lists all commands{more}."
    told = f" The nearest is /{nearest}." if nearest else ""
    return UsageError(f"There is no command /{one_line(name, 40)}.{told}", hint)


@command("help", "[command]", argument="command", safe=ANY)
async def show_help(face: Face, argument: str) -> None:
    """List the commands, or explain one."""
    name = argument.removeprefix("/").lower()
    if not name:
        face.say("\n".join(help_lines(face)))
        return
    known = COMMANDS.get(name)
    if known is None:
        raise unknown(name, list(COMMANDS))
    face.say(f"{known.title}\n  {known.help}.")
    for part in known.more.split("\n\n") if known.more else ():
        rows = wrapped(" ".join(part.split()), max(face.width - 2, 8))
        face.say("\n".join(f"  {row}" for row in rows), "dim")


def help_lines(face: Face) -> list[str]:
    """Return the list that `/help` shows, one line a command, skills behind them."""
    rows = [(each.title, each.help) for each in ordered()]
    rows += [(f"/{skill.name}", skill.description) for skill in skills_of(face)]
    width = min(max(len(title) for title, _ in rows), 30)
    lines = [f"  {title:{width}}  {text}" for title, text in rows]
    tail = "A line that begins with // is sent with one slash; !command runs a shell command."
    return [*(cut(line, face.width) for line in lines), tail]


@command("exit")
async def leave(face: Face, _argument: str) -> None:
    """Leave the program; the session is saved."""
    face.leave()
