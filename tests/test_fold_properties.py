"""What must hold for every order of events: the fold of the log is the live view, and nothing is lost."""

import contextlib
import copy
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bareagent.entries import Compaction, MessageEntry, Name, Pin, Rewound, Todo, TodoItem
from bareagent.errors import SessionError
from bareagent.messages import results, system, text_of, user
from bareagent.session import Session, View, fold, load
from bareagent.store.log import Log
from tests.play import boxes, check_sendable, line, manager, reply, round_of

TEXTS = st.text(st.characters(exclude_categories=[]), max_size=12).map(lambda text: text + "!")
STEPS = st.sampled_from(
    [
        "line",
        "round",
        "round",
        "answer",
        "reminder",
        "clear",
        "compact",
        "undo",
        "rewind",
        "todo",
        "pin",
        "name",
    ]
)


class Player:
    """Plays steps on a session and keeps what the view was before each entry."""

    def __init__(self, session: Session, draw: Any) -> None:
        self.session = session
        self.draw = draw
        self.before: dict[int, list[Any]] = {}
        self.lines: dict[int, str] = {}

    def play(self, step: str) -> None:
        self.before[self.session.log.last_n + 1] = copy.deepcopy(self.session.messages)
        getattr(self, step)()

    def line(self) -> None:
        text = self.draw(TEXTS)
        self.lines[line(self.session, text)] = text

    def round(self) -> None:
        self.line()
        round_of(self.session, *self.draw(st.lists(TEXTS, min_size=1, max_size=3)))

    def answer(self) -> None:
        if self.session.messages and self.session.messages[-1]["role"] == "user":
            reply(self.session, "an answer")

    def reminder(self) -> None:
        if self.session.messages and self.session.messages[-1]["role"] == "user":
            self.session.append(system("a reminder"), "reminder")

    def clear(self) -> None:
        handles = [
            self.session.handle(index, k + 1)
            for index, message in enumerate(self.session.messages)
            for k in range(len(results(message)))
        ]
        if handles:
            self.session.clear(self.draw(st.lists(st.sampled_from(handles), max_size=4)))

    def compact(self) -> None:
        session = self.session
        first = self.draw(st.integers(0, len(session.messages)))
        while first < len(session.messages) and results(session.messages[first]):
            first += 1
        kept = session.view.ids[first:]
        is_reply_first = bool(kept) and session.messages[first]["role"] == "assistant"
        old = list(session.messages)
        session.compact(
            Compaction(
                summary=self.draw(TEXTS),
                generation=0,
                first_kept_entry_id=kept[0] if kept else 0,
                acknowledgement="" if is_reply_first else "Understood.",
            )
        )
        assert not _inner(old) & _inner(session.messages)

    def undo(self) -> None:
        if not self.session.view.compactions:
            with pytest.raises(SessionError):
                self.session.undo()
        else:
            self.session.undo()

    def rewind(self) -> None:
        view = self.session.view
        places = [n for n, kind in zip(view.ids, view.kinds, strict=True) if kind == "line"]
        if places:
            n = self.draw(st.sampled_from(places))
            self.session.rewind(n)
            assert self.session.messages == self.before[n]

    def todo(self) -> None:
        items = [TodoItem(id=f"t{k}", text=self.draw(TEXTS)) for k in range(self.draw(st.integers(0, 2)))]
        self.session.record(Todo(items=items, next_id=len(items) + 1))

    def pin(self) -> None:
        self.session.record(Pin(pins=[self.draw(TEXTS)]))

    def name(self) -> None:
        self.session.record(Name(name=self.draw(TEXTS), is_automatic=self.draw(st.booleans())))


def _inner(messages: list[Any]) -> set[int]:
    return set().union(*map(boxes, messages))


def _bytes(view: View) -> bytes:
    return msgspec.json.encode(view.messages)


def _assert_nothing_lost(player: Player) -> None:
    """Every line stands in the log as it was typed, lone surrogates apart."""
    kept = {e.n: e.message for e in player.session.entries() if isinstance(e, MessageEntry)}
    for n, text in player.lines.items():
        assert text_of(kept[n]) == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@settings(max_examples=70, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.lists(STEPS, max_size=25))
def test_the_fold_is_the_live_view(data: st.DataObject, steps: list[str]) -> None:
    session = Session.in_memory(Path("/"))
    messages = session.messages
    player = Player(session, data.draw)
    for step in steps:
        player.play(step)
    view = fold(session.entries())
    assert view == session.view
    assert _bytes(view) == _bytes(session.view)
    assert session.messages is messages
    assert len(view.ids) == len(view.kinds) == len(view.messages)
    _assert_nothing_lost(player)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.lists(STEPS, max_size=20), st.lists(STEPS, max_size=10))
def test_a_session_opened_again_goes_on_as_if_never_closed(
    data: st.DataObject, before: list[str], after: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = manager(Path(folder))
        with contextlib.closing(Session.new(home, Path(folder))) as session:
            session.record(Name(name="kept"))
            player = Player(session, data.draw)
            for step in before:
                player.play(step)
            live = copy.deepcopy(session.view)
        with contextlib.closing(Session.open(home, session.id, cwd=Path(folder))) as session:
            player.session = session
            if session.log.last_n == live.n:  # nothing had to be answered
                assert session.view == live
            for step in after:
                player.play(step)
            check_sendable(session)
            _assert_nothing_lost(player)
        with contextlib.closing(Log.open(home.folder / session.id / "log.jsonl", is_read_only=True)) as log:
            assert load(log) == session.view


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.lists(STEPS, min_size=5, max_size=25))
def test_generations_are_never_reused_and_numbers_never_skip(data: st.DataObject, steps: list[str]) -> None:
    session = Session.in_memory(Path("/"))
    player = Player(session, data.draw)
    newest = 0
    for step in steps:
        player.play(step)
        assert session.generation >= newest
        newest = session.generation
    entries = list(session.entries())
    assert [entry.n for entry in entries] == list(range(1, len(entries) + 1))
    given_out = [entry.generation for entry in entries if isinstance(entry, Compaction)]
    assert given_out == list(range(1, len(given_out) + 1))


def test_undo_gives_the_whole_conversation_back() -> None:
    session = Session.in_memory(Path("/"))
    for k in range(4):
        line(session, f"line {k}")
        round_of(session, f"output {k} " * 30)
        reply(session, f"answer {k}")
    first = session.view.ids[-4]
    whole = copy.deepcopy(session.messages)
    session.compact(Compaction(summary="s", generation=0, first_kept_entry_id=first, acknowledgement="ok"))
    assert len(session.messages) == 6
    line(session, "after")
    session.undo()
    assert session.messages == [*whole, user("after")]
    assert session.full_id == "memory.1"


def test_an_undone_compaction_behind_another_leaves_the_older_one() -> None:
    session = Session.in_memory(Path("/"))
    line(session, "one")
    reply(session, "1")
    session.compact(Compaction(summary="first", generation=0))
    after_first = copy.deepcopy(session.messages)
    line(session, "two")
    session.compact(Compaction(summary="second", generation=0))
    session.undo()
    assert session.messages == [*after_first, user("two")]
    session.undo()
    assert session.messages == [user("one"), session.messages[1], user("two")]
    with pytest.raises(SessionError):
        session.undo()
    session.compact(Compaction(summary="third", generation=0))
    assert session.full_id == "memory.3"


def test_rewind_takes_back_clears_compactions_pins_todo_and_undos_but_not_name_mode_and_money() -> None:
    session = Session.in_memory(Path("/"))
    line(session, "one")
    cleared = round_of(session, "x" * 500)
    reply(session, "1")
    session.record(Pin(pins=["old"]))
    session.compact(Compaction(summary="s", generation=0))
    n = line(session, "two")
    before = copy.deepcopy(fold(e for e in session.entries() if e.n < n))
    session.undo()
    session.clear([f"r{cleared}"])
    session.record(Pin(pins=["new"]))
    session.record(Todo(items=[TodoItem(id="t1", text="do")]))
    session.record(Name(name="kept"))
    reply(session, "2")
    assert isinstance(session.rewind(n), Rewound)
    assert session.messages == before.messages
    assert (session.view.pins, session.view.todo, session.view.cleared) == (["old"], [], set())
    assert session.view.name == "kept"
    assert session.view.cost_usd == 0.75
    assert session.view.n_turns == 3


def test_rewind_goes_to_lines_of_the_view_only() -> None:
    session = Session.in_memory(Path("/"))
    n = line(session, "one")
    answered = round_of(session, "x")
    for bad in (answered, answered - 1, 1, 999):
        with pytest.raises(SessionError):
            session.rewind(bad)
    session.compact(Compaction(summary="s", generation=0))
    for bad in (n, session.log.last_n):
        with pytest.raises(SessionError):
            session.rewind(bad)
