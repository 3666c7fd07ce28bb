"""The first lines of a conversation: what runs, what was found, what can be gone on with."""

import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bareagent import folders
from bareagent.agent import Agent
from bareagent.context import estimate_tokens
from bareagent.messages import Message, calls, text_of, user
from bareagent.provider.embedded import EmbeddedProvider, demo_weights_label
from bareagent.repl import view
from bareagent.repl.face import Level
from bareagent.repl.markdown import plan_rows, render
from bareagent.repl.pickers import cards_here
from bareagent.repl.rows import age, title_of
from bareagent.repl.styles import Styles
from bareagent.sanitize import counted, one_line
from bareagent.tools import instructions

NAME = "bareagent"
DAY_S = 86_400
N_EXCHANGES = 3
MAX_LOOKED_AT = 100
MAX_PAST_ROWS = 120
Line = tuple[str, Level]


def model_name(agent: Agent) -> str:
    """Return provider and model as the start line and the toolbar call them."""
    provider = agent.provider
    if isinstance(provider, EmbeddedProvider):
        return f"{provider.name}/{demo_weights_label(provider.weights)}"
    return f"{provider.name}/{provider.model.name}"


def title(agent: Agent) -> str:
    """Return the first line of all."""
    return f"BareAgent REPL ({model_name(agent)})"


def lines(agent: Agent, notes: Sequence[str], *, is_trusted: bool = True) -> list[Line]:
    """Return what stands below it: notes, the mode, project instructions and what they take."""
    shown: list[Line] = [(note, "warning") for note in notes]
    shown.append((f"Mode: {agent.mode} (Shift-Tab changes it). /help lists the commands.", "dim"))
    cwd, root = agent.box.cwd, agent.box.root
    found = instructions.load(cwd, root, user_folder=folders.config_folder(), is_trusted=is_trusted)
    if found.sources:
        names = ", ".join(_short(source.path, root) for source in found.sources)
        size = estimate_tokens([user(instructions.as_text(found))])
        shown.append((f"Instructions: {names} (about {size:,} tokens)", "dim"))
    return shown


def _short(path: Path, root: Path) -> str:
    text = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
    return one_line(text, 80)


def resume_line(agent: Agent) -> str:
    """Return the hint at the last session here, if it is under a day old; empty if not."""
    if agent.session.messages:
        return ""
    card = next((card for card in cards_here(agent) if card.id != agent.session.id and card.turns), None)
    if card is None or time.time() - card.changed_ns / 1e9 > DAY_S:
        return ""
    return f"Last session, {age(card.changed_ns)}: {title_of(card)} (/resume {card.id} goes on with it)"


def farewell(agent: Agent) -> list[str]:
    """Return the last lines: how to go on with this session, if it was saved."""
    session = agent.session
    if session.folder is None or not session.messages:
        return []
    if not session.log.is_saved and not session.is_read_only:
        return ["The end of this session could not be saved and is lost."]
    return [f"Go on with: {own_command()} --resume {session.full_id}"]


def own_command(argv0: str = "", env_path: str | None = None) -> str:
    """Return how this program is started again: by its name where the shell finds it, else as it was started."""
    argv0 = argv0 or sys.argv[0]
    if Path(argv0).name == "__main__.py":
        python = sys.orig_argv[0] if sys.orig_argv else sys.executable
        return f"{shlex.quote(python)} -m {NAME}"
    found = shutil.which(NAME, path=env_path)
    is_found = found is not None and Path(argv0).exists() and Path(found).samefile(argv0)
    is_own = Path(argv0).name == NAME and Path(argv0).exists()
    return shlex.quote(argv0) if is_own and not is_found else NAME


def past(agent: Agent, width: int, look: Styles) -> list[str]:
    """Return the last exchanges of a resumed conversation, however long it is."""
    messages = agent.session.messages
    if not messages:
        return []
    kinds = agent.session.view.kinds
    shown: list[list[str]] = []
    n_lines = 0
    for at in range(len(messages) - 1, max(len(messages) - MAX_LOOKED_AT, -1), -1):
        rows = _message_rows(messages[at], kinds[at], width, look)
        n_lines += kinds[at] == "line"
        if rows:
            shown.append(rows)
        if n_lines >= N_EXCHANGES or sum(map(len, shown)) > MAX_PAST_ROWS:
            break
    rows = [row for part in reversed(shown) for row in ["", *part]]
    before = view.paint(f"… {counted(len(messages), 'message')} in all; the last exchanges:", look.faint)
    return ["", before, *rows[-MAX_PAST_ROWS:], ""]


def _message_rows(message: Message, kind: str, width: int, look: Styles) -> list[str]:
    if kind == "line":
        return view.line_rows(text_of(message), width, look)
    if kind != "reply":
        return []
    text = "\n\n".join(str(b["text"]) for b in message["content"] if b.get("type") == "text")
    rows = render(text, width, look).splitlines() if text.strip() else []
    has_calls = False
    for call in calls(message):
        plan = plan_rows(call, width, look)
        if rows and (plan or not has_calls):
            rows.append("")
        has_calls = True
        rows += [*plan, *([""] if plan else []), view.call_row(call, width, look, look=look.good)]
    return rows
