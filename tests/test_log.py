"""The log: damaged, cut, locked, on a full disk. Real files, real processes."""

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bareagent.entries import AnyEntry, MessageEntry, Name, Pin, SessionStart
from bareagent.errors import SessionError, SessionLocked, SessionNotFound, SessionUnreadable
from bareagent.messages import text_of, user
from bareagent.session import Session, fold, load
from bareagent.store.lines import decode
from bareagent.store.log import Log, MemoryLog
from bareagent.store.transcripts import TranscriptManager
from tests.play import check_sendable, line, manager, thirty_entries, turn


@pytest.fixture(scope="module")
def shared_memory() -> Iterator[Path]:
    """A folder where fsync costs nothing, if this system has one: thousands of openings follow."""
    base = Path("/dev/shm")
    folder = Path(os.path.realpath(_new_folder(base if base.is_dir() else Path("/tmp"))))
    yield folder
    shutil.rmtree(folder)


def _new_folder(base: Path) -> Path:
    path = base / f"bareagent-log-{os.getpid()}"
    path.mkdir()
    return path


@pytest.fixture(scope="module")
def thirty(shared_memory: Path) -> tuple[TranscriptManager, str, bytes]:
    """A session of thirty mixed entries: its manager, its id, the bytes of its log."""
    home = manager(shared_memory)
    with contextlib.closing(Session.new(home, shared_memory)) as session:
        thirty_entries(session)
    path = home.folder / session.id / "log.jsonl"
    data = path.read_bytes()
    assert data.count(b"\n") == 30
    return home, session.id, data


def _entries(data: bytes) -> list[AnyEntry]:
    return [decode(line) for line in data.split(b"\n") if line]


def _go_on(home: TranscriptManager, name: str) -> Session:
    """Open a session, play one turn, close it; open it again and hold both views against each other."""
    with contextlib.closing(Session.open(home, name, cwd=home.root)) as session:
        check_sendable(session)
        turn(session, "after the crash", "output")
        check_sendable(session)
    with contextlib.closing(Session.open(home, name, cwd=home.root)) as again:
        assert again.view == session.view
        assert not again.log.repairs  # type: ignore[attr-defined]  # a log in a file
    return session


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.soak)])
def test_a_log_cut_at_any_byte_loses_at_most_the_line_being_written(
    thirty: tuple[TranscriptManager, str, bytes], step: int
) -> None:
    home, name, data = thirty
    path = home.folder / name / "log.jsonl"
    known = _entries(data)
    ends = [i + 1 for i, byte in enumerate(data) if byte == 10]
    for cut in range(0, len(data) + 1, step):
        path.write_bytes(data[:cut])
        n_whole = sum(1 for end in ends if end - 1 <= cut)
        session = _go_on(home, name)
        kept = path.read_bytes()
        assert kept.startswith(data[: ends[n_whole - 1] - 1] if n_whole else b"")
        entries = _entries(kept)
        assert entries[:n_whole] == known[:n_whole] or not n_whole
        assert [entry.n for entry in entries] == list(range(1, len(entries) + 1))
        assert fold(entries) == session.view
    path.with_name("log.jsonl.torn").unlink()


def test_a_log_cut_at_any_byte_is_read_up_to_there(thirty: tuple[TranscriptManager, str, bytes]) -> None:
    home, name, data = thirty
    path = home.folder / name / "log.jsonl"
    known = _entries(data)
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        with contextlib.closing(Log.open(path, is_read_only=True)) as log:
            entries = list(log.load())
        n_ended = data[:cut].count(b"\n")
        is_whole = data[cut : cut + 1] == b"\n"
        assert entries == known[: n_ended + is_whole]


def _damaged(data: bytes, place: int, kind: str) -> bytes:
    before, after = data[:place], data[place:]
    if kind == "nul":
        return before + b"\0" * 500 + b"\n" + after
    if kind == "nul glued":
        return before + b"\0" * 500 + after
    if kind == "garbage":
        return before + b"}{ this is no record \xff\xfe\n" + after
    if kind == "glued":
        end = before.rfind(b"\n", 0, -1) + 1
        return before + before[end : end + (len(before) - end) // 2] + after
    if kind == "repeated":
        return before + before[before.rfind(b"\n", 0, -1) + 1 :] + after
    if kind == "crlf":
        return before[:-1] + b"\r\n" + after
    if kind == "bom":
        return before + b"\xef\xbb\xbf" + after
    if kind == "cut utf-8":
        return before + '{"v":1,"n":99,"type":"name","name":"é'.encode()[:-1] + b"\n" + after
    raise AssertionError(kind)


@pytest.mark.parametrize(
    "kind", ["nul", "nul glued", "garbage", "glued", "repeated", "crlf", "bom", "cut utf-8"]
)
def test_damage_at_any_border_costs_no_sound_entry(
    thirty: tuple[TranscriptManager, str, bytes], kind: str
) -> None:
    home, name, data = thirty
    path = home.folder / name / "log.jsonl"
    places = [i + 1 for i, byte in enumerate(data) if byte == 10][:-1]
    for number, place in enumerate(places, 2):
        path.write_bytes(_damaged(data, place, kind))
        with contextlib.closing(Session.open(home, name, cwd=home.root, is_read_only=True)) as session:
            assert list(session.entries()) == _entries(data)
            faults = session.log.reading.faults  # type: ignore[attr-defined]  # a log in a file
            assert [fault.line for fault in faults] == [number - (kind == "crlf")]
            assert "1 fault" in session.notes[0]
        _go_on(home, name)
        assert path.read_bytes().startswith(_damaged(data, place, kind))


def test_a_lost_line_anywhere_leaves_a_conversation_that_can_be_sent(
    thirty: tuple[TranscriptManager, str, bytes],
) -> None:
    home, name, data = thirty
    lines = data.split(b"\n")[:-1]
    for place in range(30):
        rest = [*lines[:place], b"\0" * len(lines[place]), *lines[place + 1 :]]
        (home.folder / name / "log.jsonl").write_bytes(b"\n".join(rest) + b"\n")
        session = _go_on(home, name)
        assert session.log.last_n >= 33
        with contextlib.closing(Log.open(home.folder / name / "log.jsonl", is_read_only=True)) as log:
            sound = [decode(line) for line in rest if line.strip(b"\0")]
            assert list(log.load())[:29] == sound


def test_foreign_lines_are_read_or_kept_and_skipped(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(
        b'{"v":1,"n":1,"at":"x","type":"session","id":"a"}\n'
        b'{ "v": 1, "n": 2, "type": "message", "message": {"role":"user","content":"plain \\ud83d string"} }\n'
        b'{"v":1,"n":3,"at":"x","type":"from_the_future","what":{"ever":NaN}}\n'
        b'{"v":1,"n":4,"at":"x","type":"message","message":{"role":"robot","content":[]}}\n'
        b'{"v":1,"n":5,"at":"x","type":"name","name":5}\n'
        b'{"v":1,"n":6,"at":"x","type":"name","name":"ok","new_field":[1]}\n'
    )
    with contextlib.closing(Log.open(path)) as log:
        view = load(log)
        assert view.messages == [user("plain \ufffd string")]
        assert view.name == "ok"
        assert [fault.line for fault in log.reading.faults] == [4, 5, 6]
        assert log.append(Name(name="next")).n == 7
        with pytest.raises(KeyError):
            log.read(3)
    assert b"from_the_future" in path.read_bytes()


def test_a_newer_version_opens_for_reading_only(tmp_path: Path) -> None:
    home = manager(tmp_path)
    with contextlib.closing(Session.new(home, tmp_path)) as session:
        line(session, "hello")
    path = home.folder / session.id / "log.jsonl"
    newer = path.read_bytes() + b'{"v":2,"n":3,"at":"x","type":"message","message":"another shape"}\n'
    path.write_bytes(newer + b'{"v":2,"n":4,"torn')
    before = path.read_bytes()
    with contextlib.closing(Session.open(home, session.id)) as session:
        assert session.is_read_only
        assert "newer version" in session.notes[-1]
        assert session.messages == [user("hello")]
        with pytest.raises(SessionError):
            line(session)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"# A README\nwith text\n", b"one line", b"\0" * 4096, b'{"a": 1}\n'])
def test_a_file_that_is_no_log_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    home = manager(tmp_path)
    with contextlib.closing(Session.new(home, tmp_path)) as session:
        line(session)
    path = home.folder / session.id / "log.jsonl"
    path.write_bytes(content)
    with pytest.raises(SessionUnreadable):
        Session.open(home, session.id)
    assert path.read_bytes() == content


TEXTS = st.text(st.characters(exclude_categories=[]), max_size=60)
SEPARATORS = "\u2028\u2029\u0085\r\n\r\x00\x0b\x0c\x1c\x1d\x1e\ufeff\U0001f600"


@settings(max_examples=80, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=4), st.booleans())
def test_every_text_comes_back_as_it_was(texts: list[str], is_key: bool) -> None:
    log = MemoryLog()
    call = {"type": "tool_use", "id": "t", "name": "x", "input": {texts[0] if is_key else "k": texts}}
    log.append(MessageEntry(message={"role": "assistant", "content": [call]}))
    (entry,) = log.entries()
    assert isinstance(entry, MessageEntry)
    (given,) = entry.message["content"][0]["input"].values()
    assert given == [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts]


@pytest.mark.parametrize("size", [1, 1 << 20, (1 << 20) + 7, 5_000_000])
def test_separators_and_megabyte_lines_round_trip_through_a_file(tmp_path: Path, size: int) -> None:
    texts = [SEPARATORS, SEPARATORS * (size // len(SEPARATORS)), "x" * size, "é" * size, "after"]
    path = tmp_path / "log.jsonl"
    with contextlib.closing(Log.create(path)) as log:
        numbers = [log.append(MessageEntry(message=user(text))).n for text in texts]
        assert [text_of(log.read(n).message) for n in numbers] == texts  # type: ignore[union-attr]  # all are messages
    assert path.read_bytes().count(b"\n") == len(texts)
    with contextlib.closing(Log.open(path, is_read_only=True)) as log:
        assert [text_of(message) for message in load(log).messages] == texts
        assert [text_of(log.read(n).message) for n in numbers] == texts  # type: ignore[union-attr]  # all are messages
        assert not log.reading.faults


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        home = manager(tmp_path)
        with contextlib.closing(Session.new(home, tmp_path)) as session:
            line(session)
            session.snapshot("new")
            modes = {p: stat.S_IMODE(p.stat().st_mode) for p in [home.folder, *home.folder.rglob("*")]}
    finally:
        os.umask(before)
    for path, mode in modes.items():
        assert mode == (0o700 if path.is_dir() else 0o600), path
    assert len(modes) == 7


def _python(code: str, *arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


HOLD = """
    import sys
    from pathlib import Path
    from bareagent.session import Session
    from tests.play import line, manager
    root, name = Path(sys.argv[1]), sys.argv[2]
    session = Session.open(manager(root), name, cwd=root)
    line(session, "held")
    print("held", flush=True)
    sys.stdin.readline()
    session.close()
"""


def _say(process: "subprocess.Popen[str]", text: str = "") -> None:
    assert process.stdin is not None
    process.stdin.write(text + "\n")
    process.stdin.flush()


def _hear(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_two_processes_never_write_one_session(tmp_path: Path) -> None:
    home = manager(tmp_path)
    with contextlib.closing(Session.new(home, tmp_path)) as session:
        line(session, "first")
    name = session.id
    (tmp_path / "link").symlink_to(home.folder)
    with _python(HOLD, tmp_path, name) as process:
        assert _hear(process) == "held"
        alias = manager(tmp_path, setting=str(tmp_path / "link"))
        hard = home.folder / "20200101-000000-aaaa"
        hard.mkdir()
        (hard / "log.jsonl").hardlink_to(home.folder / name / "log.jsonl")
        for other, wanted in ((home, name), (alias, name), (home, hard.name)):
            with pytest.raises(SessionLocked) as refused:
                Session.open(other, wanted)
            assert refused.value.exit_code == 75
            assert f"pid {process.pid} on " in refused.value.hint or wanted == hard.name
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(SessionLocked):
            Session.open(home, name)
        with pytest.raises(SessionLocked):
            home.remove(home.find(name))
        with contextlib.closing(Session.open(home, name, is_read_only=True)) as reader:
            assert [text_of(message) for message in reader.messages] == ["first", "held"]
        process.kill()
        process.wait()
    with contextlib.closing(Session.open(home, name)) as session:
        assert not session.is_read_only
        assert f"pid {os.getpid()} " in (home.folder / name / "lock").read_text()
    assert not (home.folder / name / "lock").exists()


def test_kill_loses_nothing_that_was_appended(tmp_path: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        from bareagent.session import Session
        from tests.play import line, manager
        root = Path(sys.argv[1])
        session = Session.new(manager(root), root)
        print(session.id, flush=True)
        while True:
            print(line(session, "x" * 3000), flush=True)
    """
    for n_lines in (1, 40, 300):
        with _python(code, tmp_path) as process:
            name = _hear(process)
            numbers = [int(_hear(process)) for _ in range(n_lines)]
            process.kill()
            process.wait()
        with contextlib.closing(Session.open(manager(tmp_path), name)) as session:
            assert session.view.ids[:n_lines] == numbers
            assert len(session.messages) <= n_lines + 50


def test_a_full_disk_is_told_once_and_nothing_is_lost_or_damaged(tmp_path: Path) -> None:
    # The size limit of a process makes real writes fail, in the middle of a line at first.
    code = """
        import resource, sys
        from pathlib import Path
        from bareagent.session import Session, fold
        from tests.play import line, manager
        root = Path(sys.argv[1])
        session = Session.new(manager(root), root)
        heard = []
        session.listeners.append(lambda entry: heard.append(getattr(entry, "text", "")))
        size = session.folder.joinpath("log.jsonl").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5000, resource.RLIM_INFINITY))
        for k in range(10):
            line(session, f"{k}" * 900)
        session.sync()
        assert fold(session.entries()) == session.view
        assert session.snapshot("new") is None
        assert not session.log.is_saved
        assert not any("the log has all" in text for text in heard)
        print(sum("cannot be saved" in text for text in heard), len(session.messages), flush=True)
        sys.stdin.readline()
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        line(session, "again")
        assert session.log.is_saved
        assert fold(session.entries()) == session.view
        assert all(session.original_message(n) for n in session.view.ids)
        print(session.id, sum("saved again" in text for text in heard), flush=True)
        session.close()
    """
    with _python(code, tmp_path) as process:
        assert _hear(process) == "1 10"
        (path,) = tmp_path.glob(".transcripts/*/log.jsonl")
        full = path.read_bytes()
        assert full.endswith(b"\n")
        assert len(_entries(full)) < 7
        _say(process)
        assert _hear(process) == f"{path.parent.name} 1"
    assert process.returncode == 0
    assert path.read_bytes().startswith(full)
    with contextlib.closing(Session.open(manager(tmp_path), path.parent.name)) as session:
        assert [text_of(m)[:1] for m in session.messages] == [*"0123456789", "a"]
        assert not session.notes


def test_a_deleted_folder_is_written_anew(tmp_path: Path) -> None:
    home = manager(tmp_path / "project")
    heard: list[object] = []
    with contextlib.closing(Session.new(home, tmp_path)) as session:
        session.listeners.append(heard.append)
        line(session, "one")
        shutil.rmtree(home.folder)
        line(session, "two")
        line(session, "three")
        session.sync()
        assert [getattr(h, "level", "") for h in heard].count("warning") == 1  # gone, and written again
        with pytest.raises(SessionLocked):
            Session.open(home, session.id)
    with contextlib.closing(Session.open(home, session.id)) as again:
        assert [text_of(m) for m in again.messages] == ["one", "two", "three"]
        assert again.log.last_n == session.log.last_n


def test_where_the_folder_cannot_be_made_again_the_session_goes_on_in_memory(tmp_path: Path) -> None:
    root = tmp_path / "project"
    home = manager(root)
    heard: list[object] = []
    with contextlib.closing(Session.new(home, root)) as session:
        session.listeners.append(heard.append)
        line(session, "one")
        shutil.rmtree(root)
        root.write_text("a file stands in the way")
        for k in range(5):
            turn(session, f"line {k}", "output")
        assert fold(session.entries()) == session.view
        assert [getattr(h, "level", "") for h in heard].count("warning") == 1
        root.unlink()
        line(session, "last")
    with contextlib.closing(Session.open(home, session.id)) as again:
        assert again.view == session.view


def test_reading_never_repairs(thirty: tuple[TranscriptManager, str, bytes]) -> None:
    home, name, data = thirty
    path = home.folder / name / "log.jsonl"
    path.write_bytes(data[:-20])
    with contextlib.closing(Session.open(home, name, is_read_only=True)) as session:
        assert len(list(session.entries())) == 29
    assert path.read_bytes() == data[:-20]
    assert not path.with_name("log.jsonl.torn").exists()


def test_what_is_cut_off_is_kept(thirty: tuple[TranscriptManager, str, bytes]) -> None:
    home, name, data = thirty
    path = home.folder / name / "log.jsonl"
    path.write_bytes(data[:-20])
    with contextlib.closing(Session.open(home, name)) as session:
        assert "cut off" in session.notes[0]
    torn = path.with_name("log.jsonl.torn").read_bytes()
    assert torn == data[:-20].split(b"\n")[-1] + b"\n"


def test_numbers_reach_any_entry_however_it_came(thirty: tuple[TranscriptManager, str, bytes]) -> None:
    home, name, data = thirty
    (home.folder / name / "log.jsonl").write_bytes(data.replace(b"\n", b"\r\n", 3))
    with contextlib.closing(Session.open(home, name)) as session:
        line(session, "more")
        for entry in list(session.entries()):
            assert session.log.read(entry.n) == entry
        for bad in (0, -1, session.log.last_n + 1):
            with pytest.raises(KeyError):
                session.log.read(bad)


def test_no_log_no_session(tmp_path: Path) -> None:
    with pytest.raises(SessionNotFound):
        Log.open(tmp_path / "log.jsonl")
    with pytest.raises(SessionUnreadable):
        Log.open(tmp_path)


def test_an_entry_is_what_the_file_says(tmp_path: Path) -> None:
    with contextlib.closing(Log.create(tmp_path / "log.jsonl")) as log:
        given = {"role": "user", "content": [{"type": "text", "text": "x", "odd": (1, 2)}]}
        kept = log.append(MessageEntry(message=given))  # type: ignore[arg-type]  # a tuple inside
        log.append(Pin(pins=["a"]))
        log.append(SessionStart(id="x"))
    lines = (tmp_path / "log.jsonl").read_bytes().split(b"\n")
    assert lines[0].startswith(b'{"v":1,"n":1,"at":"20')
    assert msgspec.json.decode(lines[0])["message"] == kept.message  # type: ignore[union-attr]  # it is a message


@pytest.mark.parametrize("left", [0, 200])
def test_a_log_cut_short_is_written_from_memory(tmp_path: Path, left: int) -> None:
    home = manager(tmp_path / "project")
    heard: list[object] = []
    with contextlib.closing(Session.new(home, tmp_path)) as session:
        session.listeners.append(heard.append)
        turn(session, "one", "output")
        first = line(session, "two")
        path = home.folder / session.id / "log.jsonl"
        os.truncate(path, left)
        line(session, "three")
        session.sync()
        os.truncate(path, left)
        assert text_of(session.original_message(first)) == "two"
        session.rewind(first)
        line(session, "four")
        assert [getattr(h, "level", "") for h in heard].count("warning") == 2
        assert fold(session.entries()).messages == session.messages
        assert path.with_name("log.jsonl.torn").exists() == bool(left)
    with contextlib.closing(Session.open(home, session.id)) as again:
        assert again.messages == session.messages
        assert text_of(again.messages[-1]) == "four"
