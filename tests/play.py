"""Sessions played in this process: a script of mixed steps, and the checks every view must pass."""

from pathlib import Path
from typing import Any

from bareagent.entries import (
    Compaction,
    Epoch,
    Grant,
    Interrupted,
    Mode,
    Model,
    Name,
    Pin,
    Prompt,
    Todo,
    TodoItem,
    ToolSpec,
    Usage,
    UsageEntry,
)
from bareagent.messages import system, user
from bareagent.provider.lower import lower
from bareagent.provider.validate import check
from bareagent.seams import ModelInfo
from bareagent.session import Session
from bareagent.store.transcripts import TranscriptManager
from tests.fakes import call, result, said
from tests.fakes import results as answered

MODEL = ModelInfo(name="claude-test")


def manager(tmp_path: Path, **more: Any) -> TranscriptManager:
    return TranscriptManager(tmp_path, tmp_path / "user-data", **more)


def line(session: Session, text: str = "a line") -> int:
    return session.append(user(text), "line").n


def reply(session: Session, *blocks: Any) -> int:
    made = said(*blocks, usage=Usage(uncached=10, output=3))
    made.cost_usd = 0.25
    return session.append(made.message, "reply", made).n


def round_of(session: Session, *texts: str) -> int:
    """A reply with one call a text, and the message with their results; returns the latter's number."""
    calls = [call("bash", id=f"t{session.log.last_n}_{k}", command="run") for k in range(len(texts))]
    reply(session, "let me look", *calls)
    blocks = [result(text, id=made["id"]) for made, text in zip(calls, texts, strict=True)]
    return session.append(answered(*blocks), "results").n


def turn(session: Session, text: str = "a line", *outputs: str) -> int:
    n = line(session, text)
    if outputs:
        round_of(session, *outputs)
    reply(session, "done")
    return n


def thirty_entries(session: Session) -> None:
    """Thirty entries with one of nearly every type (the session's own is the first)."""
    session.record(
        Prompt(system="You help.", tools=[ToolSpec(name="bash", description="d", input_schema={})])
    )
    session.record(Model(model="claude-test", provider="test"))
    session.record(Mode(mode="auto"))
    turn(session, "read the configuration\u2028please", "x" * 300, "é" * 200)  # 5 to 8
    session.record(Name(name="a name", is_automatic=True))
    session.record(Todo(items=[TodoItem(id="t1", text="first")], next_id=2))
    round_in_line = line(session, "and go on \U0001f600")  # 11
    round_of(session, "second output " * 20)  # 12, 13
    session.append(system("reminder: t1 is open"), "reminder")  # 14
    reply(session, {"type": "thinking", "thinking": "hm", "signature": "c2ln"}, "well")  # 15
    session.clear(["r7", "r7.2"], "cold")  # 16
    session.record(UsageEntry(usage=Usage(uncached=5), purpose="summary"))
    session.compact(
        Compaction(summary="what was done", generation=0, first_kept_entry_id=round_in_line, facts="- a fact")
    )  # 18
    turn(session, "third")  # 19, 20
    session.record(Pin(pins=["keep this"]))
    session.undo()  # 22
    back = turn(session, "a mistake")  # 23, 24
    session.rewind(back)  # 25
    session.record(Grant(rule="bash(git status:*)"))
    session.record(Epoch(reason="thinking off"))
    line(session, "last")  # 28
    session.record(Interrupted())
    reply(session, "the last answer")  # 30


def check_sendable(session: Session, *, with_line: bool = True) -> None:
    """Raises InvalidRequest where the view (and one more line) cannot be sent."""
    more = [user("and now?")] if with_line else []
    lowered = lower([*session.messages, *more], MODEL)
    check(lowered.messages)
    assert lowered.n_mended == 0


def boxes(value: Any) -> set[int]:
    """The identities of all lists and dicts inside a value."""
    if isinstance(value, dict):
        return {id(value)}.union(*map(boxes, value.values()))
    if isinstance(value, list):
        return {id(value)}.union(*map(boxes, value))
    return set()
