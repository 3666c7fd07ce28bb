"""What can be chosen: saved sessions, lines to go back to, models, modes; and what a choice costs."""

import os
from collections.abc import Sequence
from contextlib import closing
from typing import Protocol, runtime_checkable

from bareagent.agent import Agent
from bareagent.config import MODES
from bareagent.errors import BareAgentError, SessionNotFound
from bareagent.provider import models
from bareagent.repl.face import Face, Picked, Row
from bareagent.repl.recap import Line
from bareagent.repl.rows import age, facts_of, money, place_of, title_of
from bareagent.repl.view import tokens
from bareagent.sanitize import one_line
from bareagent.seams import ModelInfo, Price
from bareagent.store.cards import Card
from bareagent.store.catalogue import Catalogue

MODE_HELP = {
    "plan": "reads and plans, changes nothing",
    "default": "asks before anything is changed or run",
    "auto": "edits inside the project run, commands ask",
    "bypass": "asks nothing; only deny rules hold",
}
_TITLE_CELLS = 200
_PLACE_CELLS = 20


@runtime_checkable
class ListsModels(Protocol):
    """A provider that can tell which models its server has."""

    async def list_models(self) -> list[str]:
        """Return their names."""


def cards_here(agent: Agent) -> list[Card]:
    """Return the cards of this project's sessions, newest change first."""
    manager = agent.manager
    if manager is None:
        return []
    with closing(Catalogue(manager.user_dir)) as catalogue:
        return catalogue.cards(manager.folder)


def cards_everywhere(agent: Agent) -> list[Card]:
    """Return the cards of all projects' sessions, newest change first."""
    if agent.manager is None:
        return []
    with closing(Catalogue(agent.manager.user_dir)) as catalogue:
        return catalogue.all_cards()


def session_row(card: Card, home: str = "") -> Row:
    """Return a session as a row of the picker; `home`: the present project's sessions folder.

    The key of another project's session is its folder.
    """
    is_here = not home or card.folder.startswith(home + os.sep)
    first = one_line(card.first_line, _TITLE_CELLS)
    preview = [card.full_id + (f" · {one_line(card.model, 40)}" if card.model else "")]
    preview += [] if is_here else [f"in {place_of(card, 70)}"]
    preview += [f"> {first}"] if first else []
    where = [] if is_here else [place_of(card, _PLACE_CELLS)]
    return Row(
        key=card.id if is_here else card.folder,
        text=title_of(card),
        detail=" · ".join([age(card.changed_ns), *where, *facts_of(card)]),
        preview="\n".join(preview),
    )


async def pick_session(face: Face) -> str:
    """Let the user choose a session to go on with; empty if they leave. Renames and deletes on the way."""
    agent = face.agent
    home = str(agent.manager.folder) if agent.manager is not None else ""

    def rows(is_all: bool) -> list[Row]:
        cards = cards_everywhere(agent) if is_all else cards_here(agent)
        return [session_row(card, home) for card in cards if card.id != agent.session.id]

    if not face.is_terminal:
        return ""
    if not rows(True) and not rows(False):
        face.say("No saved sessions.")
        return ""
    is_all = False
    while picked := await face.pick("Resume a session", rows, has_all=True, can_edit=True, is_all=is_all):
        if picked.action == "choose":
            return picked.key
        is_all = picked.is_all
        _edit(face, picked)
    return ""


def _edit(face: Face, picked: Picked) -> None:
    """Rename or delete a saved session; what cannot be done is said, and the list comes back."""
    try:
        if picked.action == "rename":
            face.agent.rename(picked.key, picked.text)
        else:
            face.agent.remove(picked.key)
    except BareAgentError as error:
        face.say(f"{error} {error.hint}".strip(), "warning")


async def wanted_session(face: Face, text: str) -> str:
    """Return what to look for: a name that several sessions have, or one elsewhere, is asked about.

    Empty if the user leaves. Raises: SessionNotFound where nobody can be asked.
    """
    agent = face.agent
    named = [c for c in cards_everywhere(agent) if text.casefold() in {c.name.casefold(), c.id}]
    home = str(agent.manager.folder) if agent.manager is not None else ""
    named = [card for card in named if card.id != agent.session.id]
    rows = [session_row(card, home) for card in named]
    is_elsewhere = any(os.sep in row.key for row in rows)
    if not is_elsewhere and (len(rows) < 2 or not face.is_terminal):
        return text
    if not face.is_terminal:
        keys = ", ".join(row.key for row in rows[:5])
        raise SessionNotFound(
            f"{len(rows)} sessions are named {text!r}, not all of this project.", f"Say which: {keys}"
        )
    if len(rows) > 1:
        picked = await face.pick(f"{len(rows)} sessions have this name", lambda _: rows)
        return picked.key if picked else ""
    where = place_of(named[0], 100)
    return (
        rows[0].key
        if await face.confirm(f"This session is of another project, {where}. Go on with it?")
        else ""
    )


async def pick_line(face: Face, lines: Sequence[Line], title: str) -> Line | None:
    """Let the user choose one of their lines."""
    rows = [_line_row(k, line) for k, line in enumerate(lines, 1)]
    picked = await face.pick(title, lambda _: rows)
    return lines[int(picked.key) - 1] if picked else None


def _line_row(number: int, line: Line) -> Row:
    text = one_line(line.text, _TITLE_CELLS)
    preview = line.text[:1000] if line.text != text else ""
    return Row(key=str(number), text=text, detail=f"{number}", preview=preview)


def model_of(agent: Agent, name: str) -> ModelInfo:
    """Return what is known of a model without asking anyone."""
    present = agent.provider.model
    return present if name == present.name else models.look_up(name, agent.config.models)


def price_of(agent: Agent, name: str) -> Price:
    """Return a model's prices."""
    return model_of(agent, name).price


def switch_cost(agent: Agent, info: ModelInfo) -> str:
    """Return what changing to another model costs: the cache goes cold; empty where nothing is lost."""
    size = agent.context_tokens()
    if not agent.session.messages or info.name == agent.provider.model.name:
        return ""
    price = info.price.cache_write or info.price.input
    dollars = f" ≈ {money(size * price / 1e6)}" if price else ""
    return f"The cache goes cold: the next call sends {size:,} tokens anew{dollars}."


async def pick_model(face: Face) -> str:
    """Let the user choose a model; empty if they leave."""
    if not face.is_terminal:
        return ""
    agent = face.agent
    lists = agent.provider
    listed = await lists.list_models() if isinstance(lists, ListsModels) else []
    names = dict.fromkeys([agent.provider.model.name, *listed, *agent.config.models])
    rows = [model_row(agent, name) for name in names]
    picked = await face.pick("Choose a model", lambda _: rows)
    return picked.key if picked else ""


def model_row(agent: Agent, name: str) -> Row:
    """Return a model as a row: window, prices, and what changing to it costs."""
    info = model_of(agent, name)
    detail = f"{tokens(info.window)} window"
    if info.price.input:
        detail += f" · ${info.price.input:g} in, ${info.price.output:g} out per M"
    if name == agent.provider.model.name:
        detail += " · in use"
    return Row(key=name, text=one_line(name, 80), detail=detail, preview=switch_cost(agent, info))


async def pick_mode(face: Face) -> str:
    """Let the user choose a permission mode; empty if they leave."""
    rows = [
        Row(key=name, text=name, detail=MODE_HELP[name] + (" · in use" if name == face.agent.mode else ""))
        for name in MODES
    ]
    picked = await face.pick("Choose a permission mode", lambda _: rows)
    return picked.key if picked else ""
