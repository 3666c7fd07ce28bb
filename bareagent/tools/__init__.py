"""What the model can call: each tool a class with its parameters, its text in a `.md` file beside it."""

from bareagent.config import Config
from bareagent.seams import Tool
from bareagent.tools.ask import AskUser, ExitPlan
from bareagent.tools.background import BashKill, BashOutput
from bareagent.tools.compact import Compact
from bareagent.tools.edit import EditFile
from bareagent.tools.files import ReadFile, WriteFile
from bareagent.tools.recall import Recall
from bareagent.tools.search import Glob, Grep
from bareagent.tools.shell import Bash
from bareagent.tools.todo import TodoWrite


def standard_tools(_config: Config) -> list[Tool]:
    """Return the tools that need nothing but a session, always in this order."""
    return [
        Bash(),
        BashOutput(),
        BashKill(),
        ReadFile(),
        WriteFile(),
        EditFile(),
        Glob(),
        Grep(),
        TodoWrite(),
        AskUser(),
        ExitPlan(),
        Recall(),
        Compact(),
    ]
