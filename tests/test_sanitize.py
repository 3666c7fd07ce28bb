"""What passes the door for untrusted text, in one piece and in many."""

import json
import re
import time
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bareagent.cells import cells, fit, fit_right, graphemes
from bareagent.sanitize import Cleaner, clean, one_line, scrub, valid_unicode

FORBIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b\ufeff\ud800-\udfff]")

EMOJI = "👨\u200d👩\u200d👧 ❤\ufe0f\u200d🔥 1\ufe0f\u20e3 👍🏽 🇩🇪"
SPLINTERS = st.sampled_from(
    [
        *"\x1b[]()\\;:?0mHJ\x07\x9b\x9c\x9d\x90\x18\x1a\r\n\t\x85 ab1",
        "\x1b[",
        "\x1b]",
        "\x1bP",
        "\x1b\\",
        "\u202e",
        "\u2066",
        "\u200b",
        "\u200c",
        "\u200d",
        "\ufe0f",
        "\xad",
        "\ufeff",
        "\ud83d",
        "\ude00",
        "👩",
        "中",
        "é",
        "e\u0301",
        "\U000e0041",
        "\u2028",
    ]
)
HOSTILE = st.lists(SPLINTERS | st.text(max_size=3), max_size=40).map("".join)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[?1049hx\x1b[2Jy\x1b[10;10Hz", "xyz"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]0;title\x1b\\x", "x"),
        ("\x1b]52;c;aGk=\x9cx", "x"),
        ("\x9d0;title\x9cx", "x"),
        ("\x1b]8;;http://e.x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0;2~~\x1b\\x", "x"),
        ("\x1b_apc\x1b\\\x1b^pm\x1b\\\x1bXsos\x1b\\x", "x"),
        ("\x9b31mred", "red"),
        ("\x1bcreset\x1b7\x1b8\x1b(B\x1b#8x", "resetx"),
        ("open \x1b]0;never closed\nnext line", "open \nnext line"),
        ("\x1b]0;a\x1b[31mb", "b"),
        ("a\x00b\x07c\x08d\x7fe\x0ef", "abcdef"),
        ("one\r\ntwo\rthree\r\r\nfour", "one\ntwo\nthree\nfour"),
        ("10%\r20%\r100%\n", "10%\n20%\n100%\n"),
        ("a\x0bb\x0cc\x85d\u2028e", "a\nb\nc\nd\ne"),
        ("\u202etxt.exe\u202c \u2066x\u2069", "txt.exe x"),
        ("pay\u200bload\ufeff\xad\u2060", "payload"),
        ("pass\u200dword\ufe0f\ufe0f", "password\ufe0f"),
        ("hi\U000e0068\U000e0069\U000e0100", "hi"),
        (EMOJI, EMOJI),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("\ud83d\ude00 \ud83d! \udc80", "😀 \ufffd! \ufffd"),
        ("[/red] [bold", "[/red] [bold"),
    ],
)
def test_clean(raw: str, shown: str) -> None:
    assert clean(raw) == shown


@given(HOSTILE)
def test_nothing_that_steers_or_hides_passes_and_twice_is_once(text: str) -> None:
    result = clean(text)
    assert not FORBIDDEN.search(result)
    assert clean(result) == result
    assert not [char for char in result if unicodedata.category(char) == "Cc" and char not in "\n\t"]


@given(HOSTILE, st.lists(st.integers(0, 60), max_size=8))
def test_a_stream_is_cleaned_like_its_whole(text: str, cuts: list[int]) -> None:
    cleaner = Cleaner()
    bounds = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [cleaner.feed(text[a:b]) for a, b in pairwise(bounds)]
    assert not any(FORBIDDEN.search(piece) for piece in pieces)
    assert "".join(pieces) + cleaner.finish() == clean(text)


@given(HOSTILE)
def test_a_stream_of_single_characters_is_cleaned_like_its_whole(text: str) -> None:
    cleaner = Cleaner()
    assert "".join(map(cleaner.feed, text)) + cleaner.finish() == clean(text)


@given(st.text(alphabet=st.characters(exclude_categories=["C"]) | st.sampled_from("\n\t"), max_size=60))
def test_visible_text_passes_whole(text: str) -> None:
    visible = [char for char in text if char not in "\u034f\u2028\u2029" and not _is_selector(char)]
    assert [char for char in clean(text) if not _is_selector(char)] == _as_newlines(visible, text)


def _is_selector(char: str) -> bool:
    return "\ufe00" <= char <= "\ufe0f" or "\u180b" <= char <= "\u180f" or char >= "\U000e0000"


def _as_newlines(visible: list[str], text: str) -> list[str]:
    if not set("\u2028\u2029") & set(text):
        return visible
    kept = ["\n" if char in "\u2028\u2029" else char for char in text if char != "\u034f"]
    return [char for char in kept if not _is_selector(char)]


@pytest.mark.parametrize(
    "unit", ["\x1b]a", "\x1b[1", "\x1b", "\x9b;", "\r", "\u200d", "❤\ufe0f", "\ud83d", "\u202ea", "\x1bP\x1b"]
)
def test_time_is_linear_in_the_length(unit: str) -> None:
    def seconds(n_chars: int) -> float:
        text = unit * (n_chars // len(unit))
        began = time.process_time()
        cleaner = Cleaner()
        for start in range(0, len(text), 50):
            cleaner.feed(text[start : start + 50])
        clean(text)
        clean(text[0] + text[1:2] * n_chars)
        return time.process_time() - began

    small = min(seconds(20_000) for _ in range(3))
    assert seconds(200_000) < 40 * small + 0.05


def test_scrub_reaches_every_string_and_leaves_its_argument_alone() -> None:
    value = {"a\ud800": ["x\udfff", {"b": "\ud83d\ude00"}], "n": 1, "none": None, "t": True, "f": 1.5}
    assert scrub(value) == {"a\ufffd": ["x\ufffd", {"b": "😀"}], "n": 1, "none": None, "t": True, "f": 1.5}
    assert "a\ud800" in value
    json.dumps(scrub(value), ensure_ascii=False).encode()


def test_scrub_takes_any_depth() -> None:
    value: list[object] = ["\ud800"]
    for _ in range(50_000):
        value = [value]
    result = scrub(value)
    while isinstance(result[0], list):
        result = result[0]
    assert result == ["\ufffd"]


@given(st.text(alphabet=st.characters() | st.characters(categories=["Cs"])))
def test_valid_unicode_can_be_encoded_and_changes_nothing_else(text: str) -> None:
    result = valid_unicode(text)
    assert result.encode().decode() == result
    if not any("\ud800" <= char <= "\udfff" for char in text):
        assert result == text


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("short", 10, "short"),
        ("exactly", 7, "exactly"),
        ("one\ntwo\t three", 20, "one two three"),
        ("a longer title", 9, "a longer…"),
        ("a longer title", 1, "…"),
        ("a longer title", 0, ""),
        ("你好世界你好世界", 16, "你好世界你好世界"),
        ("你好世界你好世界", 8, "你好世…"),
        ("e\u0301e\u0301e\u0301e\u0301", 3, "e\u0301e\u0301…"),
        ("[/red] \x1b[31mx", 20, "[/red] x"),
        ("  ", 5, ""),
    ],
)
def test_one_line(text: str, width: int, shown: str) -> None:
    assert one_line(text, width) == shown


@given(HOSTILE, st.integers(0, 30))
def test_one_line_is_one_line_that_fits(text: str, width: int) -> None:
    result = one_line(text, width)
    assert cells(result) <= width
    assert not set(result) & set("\n\t")


def test_one_line_never_cuts_a_family_apart() -> None:
    family = "👨\u200d👩\u200d👧"
    for width in range(20):
        shown = one_line(family * 4, width).removesuffix("…")
        assert shown == family * (len(shown) // len(family))


def test_one_line_is_quick_for_a_huge_title() -> None:
    began = time.process_time()
    one_line("漢" * 10_000_000, 40)
    assert time.process_time() - began < 0.5


@given(st.text(max_size=30).map(clean), st.integers(0, 20))
def test_fit_cuts_between_graphemes_and_within_the_width(text: str, width: int) -> None:
    end, start = fit(text, width), fit_right(text, width)
    assert cells(text[:end]) <= width
    assert cells(text[start:]) <= width
    assert list(graphemes(text[:end])) + list(graphemes(text[end:])) == list(graphemes(text))
