"""Sessions: the view after each kind of entry, snapshots, opening again, rebinding."""

import contextlib
import copy
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from bareagent.entries import (
    AnyEntry,
    Cleared,
    Compaction,
    Grant,
    MessageEntry,
    Mode,
    Model,
    Name,
    Pin,
    Prompt,
    Todo,
    TodoItem,
    TurnEnd,
    Undone,
    Usage,
    UsageEntry,
)
from bareagent.errors import SessionError, SessionLocked, SessionNotFound
from bareagent.messages import Message, system, text_block, text_of, user
from bareagent.session import ENDED_TEXT, Session, View, apply, fold
from bareagent.store.transcripts import TranscriptManager
from tests.fakes import call, result, said
from tests.fakes import results as answered
from tests.play import check_sendable, line, manager, reply, round_of, thirty_entries, turn


@pytest.fixture
def home(tmp_path: Path) -> TranscriptManager:
    return manager(tmp_path)


def _memory() -> Session:
    return Session.in_memory(Path("/"))


def _cleared(*blocks: dict[str, Any], call_name: str = "read_file") -> dict[str, Any]:
    session = _memory()
    line(session)
    reply(session, call(call_name, id="t1"))
    content = list(blocks)
    made: dict[str, Any] = {"type": "tool_result", "tool_use_id": "t1", "content": content, "is_error": True}
    n = session.append({"role": "user", "content": [made]}, "results").n
    session.clear([f"r{n}"], "because")
    return session.find(f"r{n}")[1]


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0"}}


@pytest.mark.parametrize(
    ("blocks", "text"),
    [
        ([text_block("x" * 1204)], "[truncated: read_file result, 1204 chars]"),
        ([text_block("é\U0001f600\u2028")], "[truncated: read_file result, 3 chars]"),
        ([IMAGE], "[truncated: read_file result, 0 chars, 1 image]"),
        ([text_block("ab"), IMAGE, IMAGE], "[truncated: read_file result, 2 chars, 2 images]"),
    ],
)
def test_a_cleared_result_is_its_placeholder_and_keeps_id_and_error(
    blocks: list[dict[str, Any]], text: str
) -> None:
    made = _cleared(*blocks)
    assert made == {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [text_block(text)],
        "is_error": True,
    }


def test_clearing_twice_or_what_is_gone_changes_nothing_more() -> None:
    session = _memory()
    line(session)
    n = round_of(session, "x" * 500, "y" * 500)
    session.clear([f"r{n}.2"])
    once = copy.deepcopy(session.messages)
    session.clear([f"r{n}.2", "r999", f"r{n}.3", "r1", "nonsense", "r", f"r{n}.0"])
    assert session.messages == once
    assert session.view.cleared == {f"r{n}.2"}
    assert text_of(session.original(f"r{n}.2")) == "y" * 500
    assert session.handle(2, 2) == f"r{n}.2"
    assert session.find(f"r{n}")[0] == 2


def test_a_result_belongs_to_the_reply_before_it_whatever_ids_repeat() -> None:
    session = _memory()
    numbers = []
    for name in ("grep", "bash"):
        line(session)
        reply(session, call(name, id="same"))
        numbers.append(session.append(answered(result("text", id="same")), "results").n)
    orphan = session.append(answered(result("text", id="other")), "results").n
    session.clear([f"r{n}" for n in (*numbers, orphan)])
    texts = [text_of(session.find(f"r{n}")[1]) for n in (*numbers, orphan)]
    assert [text.split()[1] for text in texts] == ["grep", "bash", "unknown"]


def test_clearing_drops_the_reminders_behind_it_but_the_newest() -> None:
    session = _memory()
    session.append(system("before"), "reminder")
    line(session)
    first = round_of(session, "x" * 500)
    session.append(system("old"), "reminder")
    second = round_of(session, "y" * 500)
    session.append(system("notice"), "notice")
    session.append(user("as a user's"), "reminder")
    reply(session, "ok")
    session.append(system("newest"), "reminder")
    session.clear([f"r{second}"])
    assert [text_of(m) for m in session.messages if m["role"] == "system"] == [
        "before",
        "old",
        "notice",
        "newest",
    ]
    session.clear([f"r{first}"])
    assert [text_of(m) for m in session.messages if m["role"] == "system"] == ["before", "notice", "newest"]
    assert "as a user's" in [text_of(m) for m in session.messages]


def test_old_messages_are_not_changed_but_replaced() -> None:
    session = _memory()
    line(session)
    n = round_of(session, "x" * 500)
    old = list(session.messages)
    before = copy.deepcopy(old)
    session.clear([f"r{n}"])
    assert old == before
    assert old[0] is session.messages[0]
    assert old[2] is not session.messages[2]


def _compaction(**more: Any) -> Compaction:
    return Compaction(**{"summary": "the summary", "generation": 0, **more})


def test_a_compacted_view_is_items_header_acknowledgement_and_tail() -> None:
    session = _memory()
    kept = session.append(system("an instruction"), "instructions").n
    session.append(system("reminder"), "reminder")
    turn(session, "first", "output")
    last = turn(session, "second", "x" * 900)
    session.append(system("reminder 2"), "reminder")
    reminder = session.log.last_n
    pending = line(session, "pending")
    made = session.compact(
        _compaction(
            first_kept_entry_id=last,
            facts="facts",
            snapshot=".transcripts/x/snapshots/0001-auto.jsonl",
            acknowledgement="Understood.",
            system_items=[kept],
            dropped=[reminder],
            capped={f"r{last + 2}": 100},
            generation=77,
        )
    )
    assert made.generation == 1
    assert session.full_id == "memory.1"
    assert session.messages[:3] == [
        system("an instruction"),
        user(
            "[Context Compressed]\nthe summary\n\nfacts\n\n"
            "The whole conversation before this point: .transcripts/x/snapshots/0001-auto.jsonl"
        ),
        {"role": "assistant", "content": [text_block("Understood.")]},
    ]
    assert session.view.ids == [kept, made.n, made.n, last, last + 1, last + 2, last + 3, pending]
    text = text_of(session.messages[5])
    assert text.startswith("x" * 50 + "\n[800 characters left out")
    assert text.endswith("x" * 50)
    assert text_of(session.original(f"r{last + 2}")) == "x" * 900
    session.clear([f"r{last + 2}"])
    assert text_of(session.messages[5]) == "[truncated: bash result, 900 chars]"
    check_sendable(session)
    assert fold(session.entries()) == session.view


def test_without_facts_no_path_is_named_and_without_a_tail_nothing_is_kept() -> None:
    session = _memory()
    turn(session)
    session.compact(_compaction(snapshot="somewhere"))
    assert session.messages == [user("[Context Compressed]\nthe summary")]


def test_a_second_compaction_takes_the_first_ones_header_away() -> None:
    session = _memory()
    turn(session, "one")
    session.compact(_compaction(acknowledgement="ok"))
    n = turn(session, "two")
    session.compact(_compaction(summary="second", first_kept_entry_id=n, acknowledgement="ok"))
    assert [text_of(m) for m in session.messages] == [
        "[Context Compressed]\nsecond",
        "ok",
        "two",
        "done",
    ]
    assert [c.summary for c in session.view.compactions] == ["the summary", "second"]


def test_plain_values_follow_their_newest_entry() -> None:
    session = _memory()
    session.record(Mode(mode="auto"))
    session.record(Model(model="m1", provider="p"))
    session.record(Model(model="m2"))
    session.record(Grant(rule="a"))
    session.record(Grant(rule="b"))
    session.record(Grant(rule="a", is_removed=True))
    session.record(Pin(pins=["x"]))
    session.record(Todo(items=[TodoItem(id="t1", text="one")], next_id=2))
    session.record(Prompt(system="s"))
    view = session.view
    assert (view.mode, view.model, view.provider, view.grants) == ("auto", "m2", "p", ["b"])
    assert (view.pins, view.next_todo, view.todo[0].text) == (["x"], 2, "one")
    assert view.prompt is not None
    assert view.prompt.system == "s"


def test_an_automatic_name_gives_way_and_never_replaces_a_given_one() -> None:
    session = _memory()
    for name, is_automatic, expected in [
        ("auto", True, "auto"),
        ("better", True, "better"),
        ("mine", False, "mine"),
        ("auto again", True, "mine"),
        ("other", False, "other"),
    ]:
        session.record(Name(name=name, is_automatic=is_automatic))
        assert session.view.name == expected


def test_money_and_tokens_are_summed_by_model() -> None:
    session = _memory()
    line(session)
    for model, cost in (("a", 0.5), ("b", 0.25), ("a", 0.5)):
        made = said(
            "x", usage=Usage(uncached=1, cache_read=2, cache_write=3, cache_write_1h=1, output=4, thinking=5)
        )
        made.model, made.cost_usd = model, cost
        session.append(made.message, "reply", made)
    session.record(UsageEntry(usage=Usage(output=7), model="b", cost_usd=1.0))
    session.compact(_compaction(usage=Usage(uncached=9), model="c", cost_usd=2.0))
    view = session.view
    assert view.cost_usd == 4.25
    assert view.usage["a"] == Usage(
        uncached=2, cache_read=4, cache_write=6, cache_write_1h=2, output=8, thinking=10
    )
    assert view.usage["b"].output == 11
    assert view.usage["c"].uncached == 9


def test_rounds_are_counted_since_the_list_was_last_seen() -> None:
    session = _memory()
    line(session)
    counts = []
    for event in (None, None, Todo(items=[]), None, "reminder", None, _compaction(), None):
        if event == "reminder":
            session.append(system("r"), "reminder")
        elif isinstance(event, Todo | Compaction):
            session.record(event)
        else:
            round_of(session, "x")
        counts.append(session.view.rounds_since_todo)
    assert counts == [1, 2, 0, 1, 0, 1, 0, 1]
    reply(session, "no calls")
    assert session.view.rounds_since_todo == 1


@pytest.mark.parametrize(
    ("blocks", "kept"),
    [
        ([{"type": "thinking", "thinking": "cut", "signature": ""}, text_block("a")], [text_block("a")]),
        ([{"type": "thinking", "thinking": "cut"}], None),
        ([], None),
        ([{"type": "redacted_thinking", "data": "x"}], [{"type": "redacted_thinking", "data": "x"}]),
    ],
)
def test_cut_thinking_and_empty_replies_are_left_out(blocks: list[Any], kept: list[Any] | None) -> None:
    session = _memory()
    line(session)
    session.append({"role": "assistant", "content": blocks}, "reply")
    assert [m["content"] for m in session.messages[1:]] == ([] if kept is None else [kept])
    assert session.original_message(session.log.last_n)["content"] == blocks


def test_entries_reach_the_file_before_view_and_listeners(home: TranscriptManager, tmp_path: Path) -> None:
    seen = []
    with contextlib.closing(Session.new(home, tmp_path)) as session:
        path = home.folder / session.id / "log.jsonl"

        def listen(entry: object) -> None:
            seen.append((path.read_bytes().count(b"\n"), len(session.messages), entry))

        session.listeners.append(listen)
        made = session.append(user("hello"), "line")
    assert seen == [(2, 1, made)]
    assert (made.n, made.v, made.at[-1]) == (2, 1, "Z")


def test_snapshots_hold_prompt_and_originals_and_are_numbered(
    home: TranscriptManager, tmp_path: Path
) -> None:
    with contextlib.closing(Session.new(home, tmp_path)) as session:
        assert session.snapshot_if_new("new") is None
        session.record(Prompt(system="You help.\u2028"))
        turn(session, "one", "x" * 500)
        whole = copy.deepcopy(session.messages)
        session.clear(["r5"])
        first = session.snapshot("compact")
        assert first == home.folder / session.id / "snapshots" / "0001-compact.jsonl"
        lines = first.read_bytes().split(b"\n")[:-1]
        assert [json.loads(one) for one in lines] == [system("You help.\u2028"), *whole]
        assert session.snapshot_if_new("new") is None
        line(session, "two")
        assert str(session.snapshot_if_new("new")).endswith("0002-new.jsonl")
    with contextlib.closing(Session.open(home, session.id)) as session:
        assert session.snapshot_if_new("resume") is None
        turn(session, "three", "x" * 500)
        session.compact(
            _compaction(first_kept_entry_id=session.view.ids[-3], capped={f"r{session.log.last_n - 1}": 10})
        )
        third = session.snapshot("compacted")
        assert third is not None
        assert third.name == "0003-compacted.jsonl"
        assert "x" * 500 in third.read_text()


def test_a_call_that_ran_when_the_program_ended_gets_a_truthful_result(
    home: TranscriptManager, tmp_path: Path
) -> None:
    with contextlib.closing(Session.new(home, tmp_path)) as session:
        line(session)
        reply(session, call("bash", id="t1"), call("grep", id="t2"))
    with contextlib.closing(Session.open(home, session.id)) as session:
        assert session.messages[-1] == {
            "role": "user",
            "content": [
                result(ENDED_TEXT, id="t1", is_error=True),
                result(ENDED_TEXT, id="t2", is_error=True),
            ],
        }
        assert "bash, grep" in session.notes[0]
        check_sendable(session, with_line=False)
        assert fold(session.entries()) == session.view
        n = session.log.last_n
    with contextlib.closing(Session.open(home, session.id)) as session:
        assert session.log.last_n == n
        assert not session.notes


def test_closing_and_opening_ten_times_changes_nothing(home: TranscriptManager, tmp_path: Path) -> None:
    with contextlib.closing(Session.new(home, tmp_path)) as session:
        thirty_entries(session)
    data = (home.folder / session.id / "log.jsonl").read_bytes()
    for _ in range(10):
        with contextlib.closing(Session.open(home, session.id)) as again:
            assert again.view == session.view
    assert (home.folder / session.id / "log.jsonl").read_bytes() == data


def test_an_older_generation_goes_on_in_a_fork(home: TranscriptManager, tmp_path: Path) -> None:
    with contextlib.closing(Session.new(home, tmp_path)) as session:
        views: list[list[Message]] = []
        for k in range(3):
            n = turn(session, f"turn {k}", "output " * 50)
            session.clear([f"r{n + 2}"])
            views.append(copy.deepcopy(session.messages))
            session.compact(_compaction(summary=f"summary {k}"))
        outputs = home.folder / session.id / "outputs"
        outputs.mkdir()
        for name in ("r4.txt", "r999.2.txt"):
            (outputs / name).write_text(name)
        data = (home.folder / session.id / "log.jsonl").read_bytes()
        for generation in range(3):
            with contextlib.closing(Session.open(home, f"{session.id}.{generation}")) as fork:
                assert fork.id != session.id
                assert fork.messages == views[generation]
                assert fork.generation == generation
                assert fork.view.session is not None
                assert fork.view.session.parent is not None
                assert fork.view.session.parent.id == session.id
                assert fork.full_id in fork.notes[0]
                assert [p.name for p in (home.folder / fork.id / "outputs").iterdir()] == ["r4.txt"]
                turn(fork, "another way")
                check_sendable(fork)
        assert (home.folder / session.id / "log.jsonl").read_bytes() == data
        with pytest.raises(SessionLocked):
            Session.open(home, f"{session.id}.3")
        with pytest.raises(SessionNotFound):
            Session.open(home, f"{session.id}.4")
    with contextlib.closing(Session.open(home, f"{session.id}.3")) as again:
        assert again.id == session.id


def test_rebind_moves_everything_and_frees_the_old_one(home: TranscriptManager, tmp_path: Path) -> None:
    heard: list[object] = []
    with contextlib.closing(Session.new(home, tmp_path)) as session:
        turn(session, "old")
        old, messages, view = session.id, session.messages, session.view
        session.listeners.append(heard.append)
        session.working["meter"] = 1
        session.rebind(Session.new(home, tmp_path))
        assert session.messages is messages
        assert session.view is view
        assert (messages, session.working) == ([], {})
        with contextlib.closing(Session.open(home, old)) as other:
            assert len(other.messages) == 2
        made = line(session, "new")
        assert [getattr(h, "n", None) for h in heard] == [made]
        path = session.snapshot("compact")
        assert path is not None
        assert path.parts[-3] == session.id != old
        shutil.rmtree(home.folder / session.id)
        line(session, "said to the right listeners")
        assert any(getattr(h, "level", "") == "warning" for h in heard)


def test_a_session_in_which_nothing_was_said_leaves_nothing(home: TranscriptManager, tmp_path: Path) -> None:
    with contextlib.closing(Session.new(home, tmp_path)) as session:
        session.record(Mode(mode="auto"))
    assert home.ids() == []
    with contextlib.closing(Session.new(home, tmp_path)) as session:
        n = line(session)
        session.rewind(n)
    assert home.ids() == [session.id]


def test_an_unwritable_place_is_an_error_and_memory_always_works(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SessionError):
        Session.new(manager(tmp_path / "file"), tmp_path)
    session = _memory()
    thirty_entries(session)
    assert fold(session.entries()) == session.view
    assert session.snapshot("new") is session.snapshot_if_new("new") is None
    session.sync()
    session.close()


def test_the_conversation_is_all_that_was_not_taken_back() -> None:
    session = _memory()
    turn(session, "one")
    session.compact(_compaction())
    turn(session, "two")
    session.rewind(turn(session, "mistake"))
    line(session, "three")
    assert [text_of(e.message) for e in session.conversation()] == ["one", "done", "two", "done", "three"]


def test_the_card_says_what_lists_show(home: TranscriptManager, tmp_path: Path) -> None:
    with contextlib.closing(Session.new(home, tmp_path)) as session:
        thirty_entries(session)
        card = session.record(session.card(tokens=123, branch="main"))
        assert card == TurnEnd(
            n=31,
            v=1,
            at=session.last_at(),
            name="a name",
            first_line="read the configuration\u2028please",
            turns=7,
            tokens=123,
            cost_usd=card.cost_usd,
            generation=1,
            model="claude-test",
            branch="main",
        )


def test_apply_alone_does_what_a_session_does() -> None:
    session = _memory()
    thirty_entries(session)
    entries = [e for e in session.entries() if e.n < 18]
    view = View()
    for entry in entries:
        apply(entry, view)
    assert view == fold(entries)
    assert isinstance(entries[15], Cleared)
    apply(Undone(compaction=1), view)
    apply(MessageEntry(message=user("without a number")), view)
    assert view.messages[-1] == user("without a number")


LOGS = Path(__file__).parent / "logs"
DOCS = Path(__file__).parents[1] / "docs" / "sessions.md"


def _saved_log(home: TranscriptManager, data: bytes) -> str:
    found = home.create()
    (found.folder / "log.jsonl").write_bytes(data)
    return found.id


def test_a_log_of_the_first_version_opens_for_ever(home: TranscriptManager) -> None:
    data = (LOGS / "v1.jsonl").read_bytes()
    name = _saved_log(home, data)
    with contextlib.closing(Session.open(home, name, is_read_only=True)) as session:
        view = session.view
        assert session.full_id == f"{name}.1"
        assert session.notes == []
        assert view.ids == [5, 7, 9, 11, 12, 14, 16, 28]
        assert [text_of(block) for block in session.messages[2]["content"]] == [
            "[truncated: bash result, 221 chars]",
            "[truncated: bash result, 10 chars, 1 image]",
        ]
        assert text_of(session.original("r9.2")) == "clean\u2028tree"
        assert (view.name, view.mode, view.provider, view.grants) == (
            "engine tests",
            "default",
            "anthropic",
            ["bash(make test:*)"],
        )
        assert (view.pins, view.next_todo, len(view.todo)) == (["Never touch vendor/."], 3, 2)
        assert round(view.cost_usd, 4) == 0.0289
        assert view.usage["claude-sonnet-4-5"].output == 96 + 12 + 4 + 40 + 180 + 5
        assert (view.compactions, view.n_masked, view.n_turns) == ([], 1, 4)
        check_sendable(session, with_line=False)
        known = {entry.__struct_config__.tag for entry in session.entries()}
        assert len(known) == 17
    with contextlib.closing(Session.open(home, name)) as session:
        turn(session, "still writable")
    assert (home.folder / name / "log.jsonl").read_bytes().startswith(data)


def test_the_documented_example_is_a_log(home: TranscriptManager) -> None:
    example = DOCS.read_text().split("```jsonl\n")[1].split("```")[0].encode()
    name = _saved_log(home, example)
    with contextlib.closing(Session.open(home, name)) as session:
        assert session.notes == []
        assert session.messages == [user("[Context Compressed]\nAda asked for the number of files: 42.")]
        assert text_of(session.original("r4")) == "42"
        assert session.view.cost_usd == pytest.approx(0.0033)
        session.undo()
        assert text_of(session.messages[2]) == "[truncated: bash result, 2 chars]"
        line(session)
        check_sendable(session, with_line=False)


def test_every_type_and_field_of_an_entry_is_documented() -> None:
    table = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", DOCS.read_text().split("### Types")[1], re.MULTILINE))
    types = {str(struct.__struct_config__.tag): struct for struct in AnyEntry.__args__}
    assert table.keys() == types.keys()
    for name, struct in types.items():
        fields = set(struct.__struct_encode_fields__) - {"v", "n", "at"}
        assert fields <= set(re.findall(r"`(\w+)`", table[name])), name
