"""The table of commands: what `/name` does, its help, what its argument may be.

Dispatch, `/help`, completion and the README's list are read off this table and nothing else.
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from bareagent.repl.face import Face

Action = Callable[[Face, str], Awaitable[None]]
Argument = Literal["", "command", "session", "model", "mode", "theme", "word"]
"""What Tab completes behind a command; `word` is one of the command's own `words`."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command; `usage` shows its argument, `help` is one sentence, `more` the rest of its help.

    `safe`: the arguments with which it may answer during a run, since it then changes neither the view
    nor the log's order; None: any.
    """

    name: str
    action: Action
    help: str
    more: str = ""
    usage: str = ""
    argument: Argument = ""
    words: tuple[str, ...] = ()
    safe: tuple[str, ...] | None = ()

    def is_safe(self, argument: str) -> bool:
        """Tell whether it may answer during a run."""
        return self.safe is None or argument in self.safe

    @property
    def title(self) -> str:
        """The command as it is typed: `/name [argument]`."""
        return f"/{self.name} {self.usage}".rstrip()


COMMANDS: dict[str, Command] = {}
ANY = None
"""`safe` with whatever argument."""
SHOWN = ("",)
"""`safe` without an argument: then it only shows."""


def command(
    name: str,
    usage: str = "",
    *,
    argument: Argument = "",
    words: tuple[str, ...] = (),
    safe: tuple[str, ...] | None = (),
) -> Callable[[Action], Action]:
    """Put a function into the table; its docstring's first line is the help, the rest the long help."""

    def register(action: Action) -> Action:
        first, _, rest = inspect.cleandoc(action.__doc__ or "").partition("\n")
        COMMANDS[name] = Command(
            name=name,
            action=action,
            help=first.rstrip("."),
            more=rest.strip(),
            usage=usage,
            argument="word" if words and not argument else argument,
            words=words,
            safe=safe,
        )
        return action

    return register
