"""Commands about the context: compact it, look at it, what it costs, what it must keep."""

import re

from bareagent import __version__
from bareagent.errors import UsageError
from bareagent.messages import text_of
from bareagent.provider.cost import Cost, account
from bareagent.repl import charts
from bareagent.repl.face import Face
from bareagent.repl.pickers import price_of
from bareagent.repl.rows import money
from bareagent.repl.table import ANY, command
from bareagent.repl.view import todo_rows, wrapped
from bareagent.sanitize import clean, counted, one_line
from bareagent.session import Session


@command("compact", "[focus]", words=("preview", "undo", "--facts"), safe=("preview",))
async def compact(face: Face, argument: str) -> None:
    """Compact the conversation now; preview, undo and --facts too.

    A focus says what the summary must keep. Alone as the whole argument, preview shows what would go
    and changes nothing; undo takes the newest compaction back, twice goes
    back one more; --facts compacts without a summary, by facts alone. Any other text is the focus.
    """
    agent = face.agent
    match argument:
        case "undo":
            agent.undo()
        case "preview":
            face.show(charts.preview_lines(agent.preview(), face.width, face.styles))
        case "--facts":
            await agent.compact(facts_only=True)
        case _:
            await agent.compact(argument)


@command("context", safe=ANY)
async def context(face: Face, _argument: str) -> None:
    """Show what fills the window, and what could be cleared."""
    picture = face.agent.picture()
    saved = bill(face).saved_by_clearing_usd
    face.show(charts.context_lines(picture, saved, face.width, face.styles))


def bill(face: Face) -> Cost:
    """Return the account of the session."""
    return account(face.agent.session.entries(), lambda name: price_of(face.agent, name))


@command("cost", "[--cache]", words=("--cache",), safe=ANY)
async def cost(face: Face, argument: str) -> None:
    """Show what this session cost; --cache: each break of the cache.

    By model: calls, input, cache reads and writes, output, thinking, money; what summaries and subagents
    took of it; what caching and clearing saved. --cache lists every break of the cache with its price.
    """
    if argument not in {"", "--cache"}:
        raise UsageError(f"/cost does not know {one_line(argument, 40)}.", "/cost or /cost --cache")
    draw = charts.epoch_lines if argument else charts.cost_lines
    face.show(draw(bill(face), face.width, face.styles))


@command("status", safe=ANY)
async def status(face: Face, _argument: str) -> None:
    """Show session, model, mode, context and masked secrets."""
    face.say(
        "\n".join(f"{name:10} {one_line(value, max(face.width - 12, 8))}" for name, value in _facts(face))
    )


def _facts(face: Face) -> list[tuple[str, str]]:
    agent = face.agent
    session, view, model = agent.session, agent.session.view, agent.provider.model
    size = agent.context_tokens()
    so_far = (
        counted(view.n_turns, "turn"),
        counted(len(view.compactions), "compaction"),
        money(view.cost_usd),
    )
    facts = [
        ("bareagent", __version__),
        ("session", session.full_id + (f" · {view.name}" if view.name else "") + _state(session)),
        ("saved in", str(session.folder) if session.folder else "nowhere: it lives in memory only"),
        (
            "model",
            f"{agent.provider.name}/{model.name}" + ("" if model.is_known else " (its facts are guessed)"),
        ),
        ("mode", agent.mode + (f" · {counted(len(view.grants), 'rule')} granted" if view.grants else "")),
        ("folder", str(agent.box.cwd)),
        ("context", f"{size:,} of {model.window:,} tokens ({size / max(model.window, 1):.0%})"),
        ("so far", " · ".join(so_far)),
        (
            "secrets",
            f"{view.n_masked} masked" if agent.config.session.redact else "not masked (session.redact)",
        ),
    ]
    running = agent.box.jobs.running
    return facts + ([("background", ", ".join(running))] if running else [])


def _state(session: Session) -> str:
    return " · read only" if session.is_read_only else ""


@command("todo", safe=ANY)
async def todo(face: Face, _argument: str) -> None:
    """Show the todo list."""
    items = face.agent.session.view.todo
    if not items:
        face.say("There is no todo list.")
        return
    face.show(todo_rows(items, face.width, face.styles))


@command("pin", "text | last", words=("last",))
async def pin(face: Face, argument: str) -> None:
    """Keep a text or the last answer over all compactions."""
    text = argument
    if not argument:
        raise UsageError("What is to be kept?", "/pin TEXT keeps a text, /pin last the last answer")
    if argument == "last":
        text = last_answer(face.agent.session)
        if not text:
            raise UsageError("There is no answer to pin yet.")
    face.agent.pin(text)
    n = len(face.agent.session.view.pins)
    face.say(f"Pin {n}: {one_line(text, max(face.width - 10, 10))}")


def last_answer(session: Session, nth: int = 1) -> str:
    """Return the text of the last answer, or of the nth from the end; empty if there is none."""
    answers = (
        text_of(message).strip() for message in reversed(session.messages) if message["role"] == "assistant"
    )
    found = [text for text in answers if text]
    return found[nth - 1] if 1 <= nth <= len(found) else ""


@command("pins", safe=ANY)
async def pins(face: Face, _argument: str) -> None:
    """List what is pinned."""
    kept = face.agent.session.view.pins
    if not kept:
        face.say("Nothing is pinned. /pin TEXT keeps a text over all compactions.")
    for row, text in enumerate(kept, 1):
        first, *more = wrapped(clean(text), max(face.width - 4, 8))
        face.say("\n".join([f"{row:<2}  {first}", *(f"    {line}" for line in more)]))


@command("unpin", "N")
async def unpin(face: Face, argument: str) -> None:
    """Take a pin away, by its number in /pins."""
    if not re.fullmatch(r"\d{1,4}", argument):
        raise UsageError("Which pin? Give its number.", "/pins lists them")
    text = face.agent.unpin(int(argument))
    face.say(f"Unpinned: {one_line(text, max(face.width - 12, 10))}")
