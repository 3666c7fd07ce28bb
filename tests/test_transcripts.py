"""Saved sessions: where they lie, how they are found, listed, checked, repaired, exported, removed."""

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bareagent.entries import Compaction, Name
from bareagent.errors import SessionError, SessionNotFound, SessionUnreadable
from bareagent.messages import text_block, user
from bareagent.session import Session, fold
from bareagent.store.cards import Card, read_card
from bareagent.store.catalogue import FILE_NAME, Catalogue
from bareagent.store.checks import check
from bareagent.store.export import exported
from bareagent.store.places import ID, known_homes, new_id, project_key, project_root, sessions_folder
from bareagent.store.transcripts import TranscriptManager
from tests.fakes import call, result
from tests.fakes import results as answered
from tests.play import line, manager, reply, thirty_entries, turn


def _saved(
    home: TranscriptManager, text: str = "a line", play: Callable[[Session], object] | None = None
) -> str:
    with contextlib.closing(Session.new(home, home.root)) as session:
        if play:
            play(session)
        turn(session, text)
        session.record(session.card(tokens=7, branch="main"))
    return session.id


@pytest.fixture
def home(tmp_path: Path) -> TranscriptManager:
    return manager(tmp_path)


def test_ids_have_their_form_and_do_not_repeat() -> None:
    ids = [new_id() for _ in range(500)]
    assert all(ID.fullmatch(one) for one in ids)
    assert len(set(ids)) > 495


def test_the_root_is_the_nearest_folder_with_git_through_symlinks(tmp_path: Path) -> None:
    project = tmp_path / "real" / "project"
    inner = project / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "alias").symlink_to(project / "a")
    assert project_root(inner) == inner
    (project / ".git").write_text("gitdir: elsewhere\n")
    assert project_root(inner) == project_root(tmp_path / "alias" / "b") == project
    (inner / ".git").mkdir()
    assert project_root(inner) == inner


def test_projects_never_share_a_folder_however_alike_their_paths(tmp_path: Path) -> None:
    long = "x" * 220
    paths = [
        "/a/b",
        "/a_b",
        "/a-b",
        "/a.b",
        "/a b",
        "/a/b/",
        "/A/b",
        f"/{long}1",
        f"/{long}2",
        "/中文",
        "/日本",
        "/",
    ]
    keys = {project_key(Path(path)) for path in paths}
    assert len(keys) == len(paths) - 1  # a final slash is no difference
    assert all(len(key) < 100 and "/" not in key and not key.startswith(".") for key in keys)
    user_dir = tmp_path / "data"
    folders = {sessions_folder(Path(path), user_dir, "user") for path in paths}
    assert len(folders) == len(keys)
    assert all(folder.parent == user_dir / "sessions" for folder in folders)


def test_the_setting_says_where_sessions_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    root = tmp_path / "p"
    assert sessions_folder(root, tmp_path, "project") == root / ".transcripts"
    assert sessions_folder(root, tmp_path, "notes/sessions") == root / "notes" / "sessions"
    assert sessions_folder(root, tmp_path, str(tmp_path / "all")) == tmp_path / "all"
    assert sessions_folder(root, tmp_path, "~/all") == tmp_path / "home" / "all"


def test_only_a_folder_of_our_making_gets_a_gitignore_and_our_modes(tmp_path: Path) -> None:
    own = manager(tmp_path)
    own.create()
    assert (own.folder / ".gitignore").read_text() == "*\n!.gitignore\n"
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o755)
    found = manager(tmp_path, setting=str(theirs)).create()
    assert found.folder.parent == theirs
    assert not (theirs / ".gitignore").exists()
    assert theirs.stat().st_mode & 0o777 == 0o755


def test_long_and_moved_projects_keep_their_sessions(tmp_path: Path) -> None:
    root = tmp_path / ("d" * 120) / ("e" * 120)
    root.mkdir(parents=True)
    name = _saved(manager(root))
    moved = tmp_path / "moved"
    root.rename(moved)
    with contextlib.closing(Session.open(manager(moved), name, cwd=moved)) as session:
        assert session.cwd == moved
        assert len(session.messages) == 2
    assert manager(root).ids() == []
    assert manager(root).newest() is None


def _renamed(home: TranscriptManager, old: str, new: str) -> str:
    (home.folder / old).rename(home.folder / new)
    return new


def test_sessions_are_found_by_id_prefix_row_generation_name_and_folder(home: TranscriptManager) -> None:
    one = _renamed(home, _saved(home, "one"), "20261130-010101-aaaa")
    two = _renamed(home, _saved(home, "two"), "20261130-010102-bbbb")
    three = _renamed(
        home, _saved(home, "three", lambda s: s.record(Name(name="My Name"))), "20261201-000000-cccc"
    )
    assert home.ids() == [three, two, one]
    for text, expected in [
        (one, (one, None)),
        (f" {two} ", (two, None)),
        ("202612", (three, None)),
        ("20261130-010102", (two, None)),
        (f"{one}.0", (one, 0)),
        ("202612.12", (three, 12)),
        ("my name", (three, None)),
        (str(home.folder / two), (two, None)),
    ]:
        found = home.find(text)
        assert (found.id, found.generation) == expected
    assert home.find("2", rows=[two, one]).id == one
    assert home.find("20261130-010101", rows=[two]).id == one


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "2026",
            "202",
            "1",
            "99",
            "nothing",
            "20261130",
            "README.md",
            "./README.md",
            "/",
            "..",
            "%",
            "1.x",
        ),
        *(
            "20261130-010101-aaaa.x",
            "20261130-010101-aaaa.",
            "20261130-010101-aaaa/../..",
            "*",
            "同名",
            "\x1b[2J",
        ),
    ],
)
def test_an_unknown_id_names_near_ones_and_touches_nothing(home: TranscriptManager, text: str) -> None:
    one = _renamed(home, _saved(home, "one"), "20261130-010101-aaaa")
    _renamed(home, _saved(home, "two about nothing"), "20261130-010102-bbbb")
    (home.root / "README.md").write_text("precious")
    with pytest.raises(SessionNotFound) as refused:
        home.find(text)
    assert refused.value.exit_code == 66
    if text in {"1", "99"}:
        assert refused.value.hint.startswith("/sessions lists them")
    elif not text.startswith((".", "/")) and "/" not in text:
        assert one in refused.value.hint
    assert (home.root / "README.md").read_text() == "precious"


def test_two_sessions_of_one_name_are_not_guessed_between(home: TranscriptManager) -> None:
    ids = {_saved(home, "x", lambda s: s.record(Name(name="same"))) for _ in range(2)}
    with pytest.raises(SessionNotFound) as refused:
        home.find("same")
    assert all(one in refused.value.hint for one in ids)


def test_cards_say_what_lists_show(home: TranscriptManager) -> None:
    name = _saved(home, "second line", thirty_entries)
    (card,) = home.cards()
    assert card == read_card(home.folder / name)
    assert card.full_id == f"{name}.1"
    assert (card.name, card.first_line) == ("a name", "read the configuration\u2028please")
    assert (card.turns, card.tokens, card.branch, card.model) == (8, 7, "main", "claude-test")
    assert card.cwd == str(home.root)
    assert card.created.endswith("Z")


def test_a_name_given_long_before_the_end_is_in_the_card(home: TranscriptManager) -> None:
    with contextlib.closing(Session.new(home, home.root)) as session:
        line(session, "first")
        session.record(session.card())
        session.record(Name(name="given"))
        for _ in range(20):
            turn(session, "x" * 60_000)
        session.record(session.card())
        for _ in range(3):
            turn(session, "x" * 60_000)
    card = read_card(session.folder) if session.folder else None
    assert card is not None
    assert (card.name, card.first_line) == ("given", "first")


@pytest.mark.parametrize(
    "damage", [b"", b"garbage\n", b"\0" * 70_000, b'{"v":1,"n":1,"at":"","type":"turn_end"']
)
def test_a_damaged_log_never_breaks_a_list(home: TranscriptManager, damage: bytes) -> None:
    good, bad = _saved(home, "good"), _saved(home, "bad")
    path = home.folder / bad / "log.jsonl"
    path.write_bytes(damage)
    assert [card.id for card in home.cards()] == [good]
    path.write_bytes(damage + b"\n" + (home.folder / good / "log.jsonl").read_bytes() + damage)
    assert {card.id for card in home.cards()} == {good, bad}
    path.unlink()
    path.mkdir()
    (home.folder / "20200101-000000-aaaa").write_text("a file")
    (home.folder / "notes").mkdir()
    assert [card.id for card in home.cards()] == [good]


def test_a_folder_that_projects_share_gives_each_its_own_newest(tmp_path: Path) -> None:
    roots = [tmp_path / name for name in ("one", "two", "three")]
    for root in roots:
        (root / ".git").mkdir(parents=True)
    one, two, three = (TranscriptManager(root, tmp_path / "user", str(tmp_path / "all")) for root in roots)
    first, second = _saved(one), _saved(two)
    assert one.folder == two.folder
    found = one.newest(), two.newest()
    assert [each.id for each in found if each] == [first, second]
    assert three.newest() is None


def test_the_newest_session_is_the_one_that_changed_last(home: TranscriptManager) -> None:
    old, new = _saved(home, "one"), _saved(home, "two")
    os.utime(home.folder / old / "log.jsonl")
    os.utime(home.folder / new / "log.jsonl", (1, 1))
    home.create()  # an empty folder, as a crash leaves it
    newest = home.newest()
    assert newest is not None
    assert newest.id == old


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    base = Catalogue(tmp_path / "user-data")
    yield base
    base.close()


def test_the_catalogue_gives_what_the_logs_say_and_follows_them(
    home: TranscriptManager, catalogue: Catalogue
) -> None:
    ids = [_saved(home, f"line {k}") for k in range(3)]
    assert catalogue.cards(home.folder) == home.cards()
    with contextlib.closing(Session.open(home, ids[0])) as session:
        session.record(Name(name="renamed"))
    home.remove(home.find(ids[1]))
    cards = catalogue.cards(home.folder)
    assert cards == home.cards()
    assert (cards[0].id, cards[0].name) == (ids[0], "renamed")
    assert {card.id for card in cards} == {ids[0], ids[2]}


def test_the_catalogue_reads_no_log_that_did_not_change(
    home: TranscriptManager, catalogue: Catalogue
) -> None:
    name = _saved(home, "as it was")
    catalogue.cards(home.folder)
    path = home.folder / name / "log.jsonl"
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"as it was", b"AS IT WAS"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [card.first_line for card in catalogue.cards(home.folder)] == ["as it was"]
    os.utime(path)
    assert [card.first_line for card in catalogue.cards(home.folder)] == ["AS IT WAS"]


def test_all_projects_are_known_and_a_lost_or_broken_catalogue_is_made_anew(tmp_path: Path) -> None:
    homes = [TranscriptManager(tmp_path / name, tmp_path / "data") for name in ("p\u00e4 \n1", "p2", "gone")]
    ids = {_saved(one) for one in homes[:2]}
    homes[2].create()
    homes[2].folder.rename(tmp_path / "elsewhere")
    assert known_homes(tmp_path / "data") == [one.folder for one in homes]
    for damage in (None, b"this is no database at all " * 100, b""):
        if damage is not None:
            (tmp_path / "data" / FILE_NAME).write_bytes(damage)
        with contextlib.closing(Catalogue(tmp_path / "data")) as catalogue:
            assert {card.id for card in catalogue.all_cards()} == ids
            assert {card.id for card in catalogue.all_cards()} == ids
    (tmp_path / "data" / FILE_NAME).unlink()
    with contextlib.closing(Catalogue(tmp_path / "data")) as catalogue:
        assert {card.id for card in catalogue.all_cards()} == ids


def test_without_a_place_for_the_catalogue_lists_work(home: TranscriptManager, tmp_path: Path) -> None:
    name = _saved(home)
    (tmp_path / "file").write_text("")
    with contextlib.closing(Catalogue(tmp_path / "file" / "x")) as catalogue:
        assert [card.id for card in catalogue.cards(home.folder)] == [name]


def test_two_programs_may_use_the_catalogue_at_once(home: TranscriptManager, tmp_path: Path) -> None:
    _saved(home)
    path = tmp_path / "user-data" / FILE_NAME
    with contextlib.closing(Catalogue(tmp_path / "user-data")) as one:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        assert len(one.cards(home.folder)) == 1
        other.execute("COMMIT")
        other.close()
        assert len(one.cards(home.folder)) == 1


def test_check_tells_every_fault_with_its_line_and_repair_makes_a_sound_copy(home: TranscriptManager) -> None:
    with contextlib.closing(Session.new(home, home.root)) as session:
        thirty_entries(session)
        line(session)
        reply(session, call("bash", id="t1"))
    folder = home.folder / session.id
    path = folder / "log.jsonl"
    data = path.read_bytes()
    sound = check(folder)
    assert [fault.reason for fault in sound.faults] == ["ends with 1 calls that have no result"]
    assert (sound.n_lines, sound.n_entries) == (32, 32)
    lines = data.split(b"\n")[:-1]
    lines[3] = b"\0" * 40
    lines[8] = lines[8][:30] + lines[8]
    lines[12] += b"\r"
    lines[15] = b"\xef\xbb\xbf" + lines[15]
    lines.insert(20, lines[19])
    damaged = b"\n".join(lines) + b"\n" + b'{"v":1,"n":33,"cut'
    path.write_bytes(damaged)
    report = check(folder)
    assert [fault.line for fault in report.faults] == [4, 5, 9, 13, 16, 21, 34, 33]
    assert not report.is_sound
    assert path.read_bytes() == damaged
    copy = home.repair(home.find(session.id))
    assert path.read_bytes() == damaged
    mended = check(copy.folder)
    assert [(fault.line, fault.reason[:7]) for fault in mended.faults] == [(4, "entry 4"), (31, "ends wi")]
    with (
        contextlib.closing(Session.open(home, copy.id)) as repaired,
        contextlib.closing(Session.open(home, session.id)) as original,
    ):
        assert repaired.messages == original.messages
        assert repaired.view.session is not None
        assert repaired.view.session.parent is not None
        assert repaired.view.session.parent.id == session.id
    assert check(copy.folder).faults == mended.faults[:1]


def test_what_cannot_be_read_cannot_be_repaired_and_leaves_nothing(home: TranscriptManager) -> None:
    name = _saved(home)
    (home.folder / name / "log.jsonl").write_bytes(b"nothing here\n")
    with pytest.raises(SessionUnreadable):
        check(home.folder / name)
    with pytest.raises(SessionError):
        home.repair(home.find(name))
    assert home.ids() == [name]


def test_a_fork_at_a_line_has_all_before_it(home: TranscriptManager) -> None:
    with contextlib.closing(Session.new(home, home.root)) as session:
        turn(session, "one", "x")
        n = turn(session, "two", "y")
        session.compact(Compaction(summary="s", generation=0))
        entries = [entry for entry in session.entries() if 1 < entry.n < n]
        fork = home.fork(home.find(session.id), n - 1)
    with contextlib.closing(Session.open(home, fork.id)) as forked:
        assert [entry for entry in forked.entries() if entry.n > 1] == entries
        assert forked.messages == fold(entries).messages
        assert line(forked, "another way") == n


def test_removing_removes_a_session_and_nothing_else(home: TranscriptManager, tmp_path: Path) -> None:
    name, other = _saved(home), _saved(home)
    home.remove(home.find(name))
    assert home.ids() == [other]
    link = home.folder / "20200101-000000-aaaa"
    link.symlink_to(tmp_path / "precious")
    (tmp_path / "precious").mkdir()
    with pytest.raises(SessionError):
        home.remove(home.find(link.name))
    assert (tmp_path / "precious").exists()
    assert home.ids() == [other, link.name]


def test_exports_hold_the_whole_conversation(home: TranscriptManager) -> None:
    with contextlib.closing(Session.new(home, home.root)) as session:
        session.record(Name(name="a\nname"))
        line(session, "look at ``` this")
        reply(session, "I will", call("bash", id="t1", command="ls"))
        session.append(answered(result("```\nfenced\n````", id="t1", is_error=True)), "results")
        reply(
            session,
            {"type": "thinking", "thinking": "x", "signature": "s"},
            text_block("done"),
            {"type": "odd"},
        )
        session.compact(Compaction(summary="s", generation=0))
        line(session, "after")
        text = {
            form: "".join(exported(form, session.full_id, session.view, session.conversation()))
            for form in ("md", "json", "jsonl")
        }
        full_id = session.full_id
    markdown = text["md"]
    assert markdown.startswith(f"# a name\n\nsession {full_id} · 20")
    assert markdown.count("\n## You\n") == 2
    assert markdown.count("\n## Assistant\n") == 1
    assert "\n`````\n```\nfenced\n````\n`````\n" in markdown
    assert '```json\n{\n  "command": "ls"\n}\n```' in markdown
    whole = json.loads(text["json"])
    assert whole["id"] == full_id
    assert [message["kind"] for message in whole["messages"]] == ["line", "reply", "results", "reply", "line"]
    lines = [json.loads(one) for one in text["jsonl"].split("\n")[:-1]]
    assert lines[0] == user("look at ``` this")
    assert len(lines) == 5


def test_cards_are_ordered_by_change(home: TranscriptManager, catalogue: Catalogue) -> None:
    ids = [_saved(home, str(k)) for k in range(4)]
    for age, name in enumerate(ids):
        os.utime(home.folder / name / "log.jsonl", (1000 - age, 1000 - age))
    assert [card.id for card in home.cards()] == ids
    cards: list[Card] = catalogue.cards(home.folder)
    assert [card.id for card in cards] == ids
