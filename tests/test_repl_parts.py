"""The parts of the face that decide by themselves: pastes and keys, history, toolbar, questions, rows."""

import json
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bareagent.cells import cells
from bareagent.entries import CallEnded
from bareagent.messages import answer
from bareagent.repl import toolbar, view
from bareagent.repl.ansi import cut, wrapped
from bareagent.repl.history import SharedHistory
from bareagent.repl.paste import MAX_CHARS, MAX_LINES, Folds, cleaned
from bareagent.repl.questions import Panel
from bareagent.repl.styles import THEMES, Styles
from bareagent.repl.terminal import (
    PASTE_BEGIN,
    PASTE_END,
    Typed,
    copy_sequence,
    has_hyperlinks,
    is_usable,
    notify_sequence,
)
from bareagent.sanitize import clean
from bareagent.seams import Question
from bareagent.store.places import branch

STYLES = THEMES["dark"]
SGR = re.compile(r"\x1b\[[0-9;]*m")
TEXTS = st.text(max_size=400)


class FakeReader:
    closed = False

    def __init__(self, *pieces: str) -> None:
        self.pieces = list(pieces)

    def read(self, _count: int = 1024) -> str:
        return self.pieces.pop(0) if self.pieces else ""


@pytest.fixture(scope="module")
def quiet() -> Iterator[int]:
    """A descriptor on which nothing ever waits."""
    read_end, write_end = os.pipe()
    yield read_end
    os.close(read_end)
    os.close(write_end)


def keyed(quiet: int, *pieces: str) -> list[str]:
    typed = Typed(FakeReader(*pieces), quiet, lambda _: None)
    return [typed.read() for _ in pieces]


def test_enter_and_pastes(quiet: int) -> None:
    assert keyed(quiet, "\r") == ["\r"]
    assert keyed(quiet, "hello\r") == ["hello\r"]
    assert keyed(quiet, "\x1b\r") == ["\x1b\r"]
    assert keyed(quiet, "a\rb") == [f"{PASTE_BEGIN}a\rb{PASTE_END}"]
    assert keyed(quiet, "a\rb\r") == [f"{PASTE_BEGIN}a\rb\r{PASTE_END}"]
    whole = f"{PASTE_BEGIN}a\rb{PASTE_END}"
    assert keyed(quiet, whole) == [whole]
    assert keyed(quiet, "x\ry" + whole) == ["x\ny" + whole]
    split = [whole[:3], whole[3:9], whole[9:]]
    assert "".join(keyed(quiet, *split)) == whole
    assert keyed(quiet, "\x1b[13;2u") == ["\n"]
    assert keyed(quiet, "\udcff") == ["\ufffd"]


def test_keys_that_a_slow_line_gathers_behind_a_line_stay_keys(quiet: int) -> None:
    for keys in ("\x03", "\x04", "\x1b", "\x1b[A", "\x1b[A\x1b[B", "\x7f\x7f", "\x03\x03"):
        assert keyed(quiet, f"a line\r{keys}") == [f"a line\r{keys}"]
        assert keyed(quiet, f"a\rb{keys}") == [f"{PASTE_BEGIN}a\rb{PASTE_END}{keys}"]
    coloured = "\x1b[31ma\x1b[0m\rb\r\x1b[0m"
    assert keyed(quiet, coloured) == [f"{PASTE_BEGIN}a\rb\r{PASTE_END}"]


def test_what_no_key_sends_is_left_out(quiet: int) -> None:
    """Mouse and focus reports, key releases, answers; whole or in pieces, split behind the first two bytes."""
    for strange in (
        "\x1b[<0;10;20M",
        "\x1b[<0;1;2m",
        "\x1b[M !!",
        "\x1b[I",
        "\x1b[O",
        "\x1b[97;1:3u",
        "\x1b[?62;4c",
    ):
        assert keyed(quiet, f"a{strange}b") == ["ab"], strange
        for at in range(2, len(strange)):
            assert "".join(keyed(quiet, "a" + strange[:at], strange[at:] + "b")) == "ab", (strange, at)
    for known in ("\x1b[A", "\x1b[3~", "\x1b[1;5C", "\x1b[[A", "\x1b[Z", "\x1b[15~", "\x1bOA", "\x1bb"):
        assert keyed(quiet, known) == [known]
        assert "".join(keyed(quiet, known[:2], known[2:])) == known
    assert keyed(quiet, "\x1b") == ["\x1b"]
    assert keyed(quiet, "\n") == ["\n"]  # Ctrl-J
    assert keyed(quiet, "a\nb") == [f"{PASTE_BEGIN}a\nb{PASTE_END}"]


def test_answers_of_the_terminal_are_no_keys(quiet: int) -> None:
    heard: list[bool] = []
    reply = "\x1b]11;rgb:ffff/ffff/ffff\x1b\\"
    for at in range(len(reply)):
        if at == 1:
            continue  # a lone escape is a key, and is passed on at once
        typed = Typed(FakeReader("a" + reply[:at], reply[at:] + "b"), quiet, heard.append)
        assert typed.read() + typed.read() == "ab", at
    assert heard == [True] * (len(reply) - 1)
    typed = Typed(FakeReader("\x1b]11;rgb:0000/1111/0000\x07"), quiet, heard.append)
    assert typed.read() == ""
    assert heard[-1] is False


@given(st.lists(TEXTS, max_size=6), TEXTS)
def test_folds_come_back_whole(pastes: list[str], between: str) -> None:
    folds = Folds()
    shown = between.join(folds.fold(text) for text in pastes)
    assert folds.unfold(shown) == between.join(map(cleaned, pastes)) or "[pasted" in between
    family = "👩\u200d👩"
    assert all(folds.fold(family[:n]) + folds.fold(family[n:]) == family for n in range(3))


@pytest.mark.parametrize("text", ["x" * (MAX_CHARS + 1), "\n".join("ab" * (MAX_LINES + 1)), "\n" * 500])
def test_long_pastes_fold(text: str) -> None:
    folds = Folds()
    fold = folds.fold(text)
    assert fold.startswith("[pasted ")
    assert folds.unfold(f"before {fold} after") == f"before {text} after"
    assert folds.end_of_fold(f"before {fold}") == len(fold)
    assert folds.end_of_fold(f"{fold} after") == 0
    assert folds.unfold("[pasted 3 lines #99]") == "[pasted 3 lines #99]"


@given(TEXTS, st.integers(1, 60))
def test_rows_fit_their_width(text: str, width: int) -> None:
    assert cells(cut(text, width)) <= width
    rows = wrapped(clean(text), max(width, 2))
    assert all(cells(row) <= max(width, 2) for row in rows)
    kept = re.sub(r"\s", "", "".join(rows))
    assert kept == re.sub(r"\s", "", clean(text).expandtabs(4))


@given(
    st.integers(1, 250),
    st.integers(0, 2_000_000),
    st.integers(0, 2_000_000),
    st.integers(0, 2_000_000),
    TEXTS,
    TEXTS,
)
def test_the_toolbar_fits(width: int, size: int, window: int, threshold: int, name: str, head: str) -> None:
    standing = toolbar.Standing(
        model=f"anthropic/{name}", mode="default", session=name, size=size, window=window,
        threshold=threshold, cost_usd=1.5, branch=head, n_queued=3,
    )  # fmt: skip
    row = SGR.sub("", toolbar.text(standing, width, STYLES))
    assert cells(row) <= width
    assert "\n" not in row
    assert "\x1b" not in row


def test_the_toolbar_marks_the_threshold(tmp_path: Path) -> None:
    assert toolbar.bar(0, 100, 0) == "░" * 10
    assert toolbar.bar(50, 100, 80) == "█████░░░╎░"
    assert toolbar.bar(500, 100, 0) == "█" * 10
    assert branch(tmp_path) == ""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/feature/x\n")
    assert branch(tmp_path) == "feature/x"


@given(st.text(max_size=2_000), st.integers(4, 120), st.integers(0, 10), st.booleans())
def test_results_fit_and_steer_nothing(text: str, width: int, n_lines: int, is_error: bool) -> None:
    call = {"type": "tool_use", "id": "x", "name": text[:50], "input": {"command": text}}
    ended = CallEnded(call=call, result=answer(call, text, is_error=is_error), duration_s=2.0)
    rows = view.ended_rows(ended, width, STYLES, n_lines)
    assert len(rows) <= n_lines + 3
    for row in rows:
        plain = SGR.sub("", row)
        assert clean(plain) == plain
        assert cells(plain) <= width


def test_what_tells_a_call() -> None:
    def told(name: str, **given: object) -> str:
        return view.telling({"type": "tool_use", "name": name, "input": given})

    assert told("read_file", file_path="a.py") == "a.py"
    assert told("read_file", file_path="a.py", offset=3, limit=10) == "a.py:3-12"
    assert told("grep", pattern="x", path="src") == "x  in src"
    assert told("unknown", some="text") == "text"
    assert view.telling({"type": "tool_use", "name": "bash", "input": "broken"}) == ""


def test_questions_default_to_no() -> None:
    question = Question(
        kind="permission", title="bash", detail="rm x", detail_as="command", rule="bash(rm x)"
    )
    for key, verdict in {"y": "yes", "a": "always", "n": "no", "\r": "no"}.items():
        answered = Panel(question).key(key)
        assert answered is not None
        assert answered.verdict == verdict
    for key in ("x", " ", "\x1b", "1", "Y", "tab", ""):
        assert Panel(question).key(key) is None
    no_rule = Question(kind="permission", title="bash", detail="rm x", detail_as="command")
    assert Panel(no_rule).key("a") is None
    panel = Panel(question)
    assert panel.key("e") is None
    assert (panel.writing, panel.start_text()) == ("edit", "rm x")
    assert panel.written("rm y").verdict == "edit"
    assert panel.written("  ").verdict == "no"
    stays = Question(kind="permission", title="bash", detail="x", detail_as="command", is_background=True)
    assert Panel(stays).plain().startswith("May bash run and stay in the background?")


@given(TEXTS, TEXTS, st.integers(4, 120), st.integers(1, 40))
def test_panels_fit(title: str, detail: str, width: int, max_rows: int) -> None:
    question = Question(kind="permission", title=title, detail=detail, rule=title, reason=detail)
    rows = Panel(question).rows(width, max_rows, Styles())
    assert 0 < len(rows) <= max(max_rows, 1)
    assert all(cells(row) <= width and clean(row) == row for row in rows)


def test_the_history_is_written_once_by_each(tmp_path: Path) -> None:
    path = tmp_path / "history" / "h.jsonl"
    histories = [SharedHistory(path) for _ in range(4)]

    def write(history: SharedHistory, who: int) -> None:
        history.keep(lambda text: text.replace("secret", "[masked]"))
        for n in range(50):
            history.append_string(f"{who}-{n}\nmore")

    threads = [threading.Thread(target=write, args=pair) for pair in zip(histories, range(4), strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    histories[0].append_string("a secret")
    histories[0].append_string("lone \ud83d")
    lines = [json.loads(row) for row in path.read_text().splitlines()]
    assert sorted(lines[:-1]) == sorted(f"{who}-{n}\nmore" for who in range(4) for n in range(50))
    assert lines[-1] == "lone \ufffd"
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    path.write_bytes(path.read_bytes() + b'{"broken\n[1]\n\xff\n')
    assert next(iter(SharedHistory(path).load_history_strings())) == "lone \ufffd"


def test_a_history_that_cannot_be_written_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = SharedHistory(tmp_path / "file" / "h.jsonl")
    history.keep(lambda text: text)
    history.append_string("x")
    assert history.get_strings() == ["x"]


def test_what_terminals_can() -> None:
    assert copy_sequence("hi", {}) == "\x1b]52;c;aGk=\x07"
    assert copy_sequence("x" * 200_000, {}) == ""
    assert notify_sequence("a", "b", {"TERM_PROGRAM": "iTerm.app"}) == "\x07\x1b]9;a: b\x07"
    assert notify_sequence("a", "b", {"VTE_VERSION": "7402"}) == "\x07\x1b]777;notify;a;b\x07"
    assert notify_sequence("a", "b", {"TERM": "xterm"}) == "\x07"
    assert has_hyperlinks({"TERM_PROGRAM": "WezTerm"})
    assert has_hyperlinks({"VTE_VERSION": "7402"})
    assert not has_hyperlinks({"TERM": "xterm-256color", "VTE_VERSION": "odd"})
    assert not is_usable(None, None, {"TERM": "xterm"})
