"""Markdown on the screen: what blocks look like, and what holds for every text and every cut."""

import random
import re
import time
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bareagent.cells import cells
from bareagent.repl.markdown import MarkdownStream, render
from bareagent.repl.styles import THEMES, Styles, styles

PLAIN = THEMES["plain"]
DARK = THEMES["dark"]
SGR = re.compile(r"\x1b\[[0-9;]+m")
LINK = re.compile(r"\x1b\]8;;[!-~]*\x1b\\")


def bare(text: str) -> str:
    return LINK.sub("", SGR.sub("", text))


def rows(text: str, width: int = 40, looks: Styles = PLAIN) -> list[str]:
    return render(text, width, looks).splitlines()


def streamed(pieces: list[str], width: int, looks: Styles, links: bool = False) -> list[str]:
    stream = MarkdownStream(width, looks, links)
    given_out = [row for piece in pieces for row in stream.feed(piece)]
    return given_out + stream.finish()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("one\ntwo\n\nthree", ["one two", "", "three"]),
        ("hard  \nbreak\\\nhere", ["hard", "break", "here"]),
        ("# A\ntext\n## B ##", ["# A", "", "text", "", "## B"]),
        ("Title\n===\nSub\n---\n", ["# Title", "", "## Sub"]),
        ("#no heading", ["#no heading"]),
        ("- a\n- b\n  - c\n    - d\n- e", ["• a", "• b", "  • c", "    • d", "• e"]),
        ("1. a\n1. b\n  - c\n10. d", ["1. a", "2. b", "   • c", "3. d"]),
        ("7) a\n8) b", ["7) a", "8) b"]),
        ("1. a\n\ntext\n\n1. b", ["1. a", "", "text", "", "1. b"]),
        ("- [ ] a\n- [x] b\n- [link]", ["☐ a", "☑ b", "• [link]"]),
        ("- a\n\n  second\n- b", ["• a", "", "  second", "• b"]),
        ("-\n- b", ["•", "• b"]),
        ("> a\n> b\nlazy\n\nc", ["│ a b lazy", "", "c"]),
        ("> a\n>\n> b", ["│ a", "│", "│ b"]),
        ("> - a\n> - b\n>   > c", ["│ • a", "│ • b", "│   │ c"]),
        ("a\n\n---\nb", ["a", "", "─" * 40, "", "b"]),
        ("```py\nx = 1\n\n  y\n```\nz", ["  x = 1", "", "    y", "", "z"]),
        ("~~~\n```\n~~~", ["  ```"]),
        ("- a\n  ```\n  x\n  ```\n- b", ["• a", "", "    x", "• b"]),
        ("```\nnever closed", ["  never closed"]),
        ("a\n\n    x\n\n      y\n\nb", ["a", "", "  x", "", "    y", "", "b"]),
        ("a *b* **c** ~~d~~ `e  f` _g_ h_i_j", ["a b c d e  f g h_i_j"]),
        ("[a](http://x.y) [http://x.y](http://x.y)", ["a (http://x.y) http://x.y"]),
        ("![alt](p.png)", ["[image: alt] p.png"]),
        ("<b>x</b> &amp; &lt;", ["<b>x</b> & <"]),
        (r"C:\Users\unicorn \*x\*", [r"C:\Users\unicorn *x*"]),
        ("[/red] [bold", ["[/red] [bold"]),
        ("| a | b |\n|---|--:|\n| 1 | 2 |\n\nx", ["a  │  b", "───┼───", "1  │  2", "", "x"]),
        ("| 名 | b |\n|:-:|---|\n| 你好 | `c\\|d` |", [" 名  │ b", "─────┼────", "你好 │ c|d"]),
        ("text\n| a | b |\n|---|---|\n| 1 | 2 | 3 |", ["text", "", "a  │ b", "───┼──────", "1  │ 2 | 3"]),
        ("| a |\n|---|\n| x<br>y |", ["a", "──", "x", "y"]),
        ("<div>\ntext *a*\n</div>", ["<div>", "text a", "</div>"]),
        ("<a@b.c>\nand more", ["a@b.c and more"]),
        (
            "| a b c d | longword |\n|---|---|\n" + "| e f g h i j k l m n o p q r s t u | x |\n" * 2,
            ["a b c d                       │ longword", "──────────────────────────────┼─────────"]
            + ["e f g h i j k l m n o p q r s │ x", "t u                           │ "] * 2,
        ),
        ("not | a table\nreally", ["not | a table really"]),
        ("a\tb\n\n\tcode", ["a b", "", "  code"]),
        ("", []),
        ("\n\n \n", []),
    ],
)
def test_blocks(source: str, expected: list[str]) -> None:
    assert rows(source) == expected


def test_looks_are_sgr_and_nothing_else() -> None:
    assert render("a **b** `c`", 40, THEMES["ansi"]) == "a \x1b[1mb\x1b[0m \x1b[33mc\x1b[0m\n"
    assert render("# **x**", 40, THEMES["ansi"]) == "\x1b[1;36;1mx\x1b[0m\n"


def test_links_open_where_the_terminal_takes_them_and_never_hide_where_they_lead() -> None:
    def shown(text: str) -> str:
        return render(text, 80, PLAIN, hyperlinks=True)

    assert shown("[a](http://x.y)") == "\x1b]8;;http://x.y\x1b\\a\x1b]8;;\x1b\\\n"
    assert bare(shown("[http://good.com](http://evil.com)")) == "http://good.com (http://evil.com)\n"
    assert shown("see http://x.y/z.") == "see \x1b]8;;http://x.y/z\x1b\\http://x.y/z\x1b]8;;\x1b\\.\n"
    assert "\x1b" not in shown("[a](javascript:alert(1)) [b](docs/x.md) [c](file:///etc/passwd)")


@pytest.mark.parametrize(
    "hostile",
    [
        "\x1b[2J",
        "\x1b]0;t\x07",
        "\x1b]52;c;aGk=\x1b\\",
        "\x9b31m",
        "&#27;[2J",
        "&#x1b;]52;c;aGk=&#7;",
        "&#x9b;31m",
        "&#x202e;",
        "[a](http://x.y/&#27;]0;t&#7;)",
        "[a](<http://x.y/\x1b\\>)",
        "```\x1b[2J\n\x1b[31m\n```",
        "| \x1b[2J |\n|---|\n| &#27;[2J |",
        "![&#27;c](&#27;c)",
        "`&#27;[2J\x1b[2J`",
        "<http://x.y/\x07>",
        "```&#27;\nx",
    ],
)
def test_no_escape_of_the_text_passes(hostile: str) -> None:
    for piece_size in (1, 1000):
        pieces = [hostile[at : at + piece_size] for at in range(0, len(hostile), piece_size)]
        shown = bare("".join(streamed(pieces, 40, DARK, links=True)))
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", shown)


FRAGMENTS = st.sampled_from(
    [
        *["# ", "## ", "- ", "1. ", "2) ", "> ", "```", "```py\n", "~~~", "    ", "  ", "\n", "\n\n", "| "],
        *[" | ", "|---|---|\n", "|:-:|\n", "---", "===", "***", "**", "*", "_", "`", "``", "~~", "[", "]("],
        *[")", "<br>", "http://x.y/z", "[a](http://b.c)", "\\", "&amp;", "&#27;", "\x1b[31m", "\x1b]0;"],
        *["\x07", "\r", "\t", "你好", "，。", "👨\u200d👩\u200d👧", "e\u0301", "\u200d", "word ", "\ud800"],
        *["a longer run of words ", "x" * 50, "def f(x):", "/* ", " */", '"""', "- [ ] ", "  - ", "> > "],
        *["|", "!", "w " * 200, "|a" * 90, "y" * 300],
    ]
)
DOCUMENTS = st.lists(FRAGMENTS | st.text(max_size=4), max_size=60).map("".join)


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS, st.integers(1, 60), st.lists(st.integers(0, 400), max_size=12), st.booleans())
@example("| a |\n" * 500, 30, [7], False)
def test_any_cut_gives_the_same_rows_and_none_too_wide(
    text: str, width: int, cuts: list[int], links: bool
) -> None:
    whole = streamed([text], width, DARK, links)
    bounds = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    assert streamed([text[a:b] for a, b in pairwise(bounds)], width, DARK, links) == whole
    assert streamed(list(text), width, DARK, links) == whole
    for row in whole:
        assert cells(bare(row)) <= max(width, 4)
        assert not re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", bare(row))


@settings(max_examples=80, deadline=None)
@given(DOCUMENTS, st.integers(4, 60), st.integers(0, 6))
def test_a_tail_changes_nothing_and_keeps_to_its_bounds(text: str, width: int, max_rows: int) -> None:
    stream = MarkdownStream(width, DARK)
    shown = []
    for at in range(0, len(text), 9):
        shown += stream.feed(text[at : at + 9])
        tail = stream.tail(max_rows)
        assert len(tail) <= max_rows
        assert all(cells(bare(row)) <= width for row in tail)
        assert not any("\x1b" in bare(row) for row in tail)
    assert shown + stream.finish() == streamed([text], width, DARK)


def document(seed: int, n_blocks: int) -> str:
    """A document of every kind of block, whose words w0 w1 w2 … are all different."""
    chance = random.Random(seed)
    n_words = 0

    def words(most: int) -> str:
        nonlocal n_words
        first, n_words = n_words, n_words + chance.randint(1, most)
        return " ".join(f"w{n}" for n in range(first, n_words))

    def block() -> str:
        makers = [
            lambda: words(200),
            lambda: f"# {words(4)}",
            lambda: "\n".join(f"{chance.choice(['', '  '])}- {words(9)}" for _ in range(4)),
            lambda: "\n".join(f"{n}. **{words(3)}** {words(30)}" for n in range(1, 4)),
            lambda: "```python\n" + "\n".join(f"{words(3)} = {words(1)}" for _ in range(9)) + "\n```",
            lambda: "> " + words(40),
            lambda: "| a | b |\n|---|---|\n" + "\n".join(f"| {words(3)} | {words(2)} |" for _ in range(30)),
        ]
        return chance.choice(makers)()

    return "\n\n".join(block() for _ in range(n_blocks))


@pytest.mark.parametrize("seed", range(12))
def test_no_word_is_lost_or_doubled_at_any_moment(seed: int) -> None:
    text = document(seed, 12)
    n_words = len(re.findall(r"w\d+", text))
    stream = MarkdownStream(50, DARK)
    shown: list[str] = []
    for at in range(0, len(text), 5):
        shown += stream.feed(text[at : at + 5])
        if at % 35 == 0:
            seen = _numbers(shown + stream.tail(10_000))
            complete = [int(n) for n in re.findall(r"w(\d+)\b(?!\Z)", text[: at + 5])]
            partly = re.findall(r"w(\d+)\Z", text[: at + 5])
            assert seen in (complete, sorted(complete + [int(n) for n in partly]))
    assert _numbers(shown + stream.finish()) == list(range(n_words))


def _numbers(shown: list[str]) -> list[int]:
    found = re.findall(r"\bw(\d+)\b", " ".join(map(bare, shown)))
    # Cells of a table's row stand side by side: a wrapped row mixes them.
    return sorted(map(int, found))


def test_a_block_is_out_as_soon_as_it_is_complete() -> None:
    stream = MarkdownStream(40, PLAIN)
    assert stream.feed("first paragraph\n\n") == ["first paragraph"]
    assert stream.feed("- item\n- ne") == [""]
    assert stream.tail(9) == ["• item", "• ne"]
    assert stream.feed("xt\n\n```py\nx = 1\ny") == ["• item", "• next", "", "  x = 1"]
    assert stream.tail(9) == ["  y"]
    assert stream.feed("\n```\n") == ["  y"]
    assert stream.tail(9) == []


def test_what_is_unfinished_looks_right() -> None:
    def tail(text: str) -> list[str]:
        stream = MarkdownStream(40, PLAIN)
        stream.feed(text)
        return stream.tail(9)

    assert tail("text\n``") == ["text"]
    assert tail("text\n```py") == ["text", ""]
    assert tail("```\na\n``") == []
    assert tail("| a | b |") == ["a  │ b", "───┼───"]
    assert tail("| a | b |\n|--") == ["a  │ b", "───┼───"]
    assert tail("| a | b |\n|---|---|\n| 1") == ["a  │ b", "───┼───", "1  │ "]
    assert tail("para\n-") == ["para"]
    assert tail("> quo") == ["│ quo"]
    assert tail("> ```\n> a\n> ``") == []
    assert tail("| a |\n|---|\n| `co") == ["a", "──", "co"]
    assert tail("8. a\n   1. ") == ["8. a"]
    assert tail("- a\n- [ ] ") == ["• a"]
    for link in ("[the docs", "[the docs]", "[the docs](http://exa", '[the docs](http://exa "Its ti'):
        assert tail(f"see {link}") == ["see the docs"]
    assert tail("see <http://exa") == ["see http://exa"]
    stream = MarkdownStream(40, THEMES["ansi"])
    stream.feed("so **bo")
    assert stream.tail(9) == ["so \x1b[1mbo\x1b[0m"]
    stream.feed("ld** and `co")
    assert stream.tail(9) == ["so \x1b[1mbold\x1b[0m and \x1b[33mco\x1b[0m"]


def test_code_keeps_its_colours_over_lines() -> None:
    looks = THEMES["ansi"]
    shown = render('```python\ndef f():\n    """one\n    two"""\n    return 1\n```', 60, looks).splitlines()
    assert f"\x1b[{looks.string}m" in shown[2]
    assert f"\x1b[{looks.keyword}mreturn\x1b[0m" in shown[3]
    shown = render("```js\n/* one\ntwo */ let x\n```", 60, looks).splitlines()
    assert shown[:1] == [f"  \x1b[{looks.comment}m/* one\x1b[0m"]
    assert f"\x1b[{looks.comment}mtwo */\x1b[0m" in shown[1]
    assert f"\x1b[{looks.keyword}mlet\x1b[0m" in shown[1]
    assert f"\x1b[{looks.inserted}m+a\x1b[0m" in render("```diff\n+a\n-b\n```", 60, looks)
    assert bare(render("```nosuchlanguage\nx = 1\n```", 60, looks)) == "  x = 1\n"


CODE = """x = 'a' # hi
<b c="d">
/* one
two

  key: <<EOF
`un ''' closed
((((((((((((((((((((((((((((((((((((
#{ ${ %> ?>"""
LANGUAGES = "python yaml ruby html php js c++ go rust sql sh console css perl latex nosuch"


@pytest.mark.parametrize("language", re.findall(r"\S+", LANGUAGES))
def test_colours_never_change_code(language: str) -> None:
    shown = bare(render(f"```{language}\n{CODE}\n```", 120, DARK)).splitlines()
    assert [row.removeprefix("  ") for row in shown] == CODE.split("\n")


def test_long_emphasis_and_links_survive_the_parts_of_a_long_paragraph() -> None:
    text = (
        "word " * 100 + "**" + "bold " * 120 + "end** " + "word " * 50 + "[" + "a " * 90 + "](http://x.y) z"
    )
    shown = render(text, 60, THEMES["ansi"])
    assert "*" not in shown
    assert "[a" not in bare(shown)
    assert len(re.findall("\x1b\\[1m", shown)) >= 10


@pytest.mark.parametrize("n_words", range(30))
def test_breaks_and_links_survive_wherever_a_long_paragraph_is_parted(n_words: int) -> None:
    before = "word " * n_words
    for mark in ("  \n", "\\\n", "   \n"):
        shown = rows(f"{before}end{mark}next " + "more " * 30, 400)
        assert [row.split()[0] for row in shown] == ["word" if n_words else "end", "next"]
        assert shown[0].endswith("end")
    for target in ('x.md "a longer title"', "<a b>", "x.md 'it (is)'", "a_(b)"):
        whole = render(f"{before}see [some words]({target}) and " + "more " * 30, 400, PLAIN)
        assert "[" not in whole
        assert "title" not in whole


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=30), st.sampled_from(["  \n", "\\\n"]))
def test_every_hard_break_ends_a_row(lengths: list[int], mark: str) -> None:
    lines = [" ".join(["word"] * length) for length in lengths]
    assert rows(mark.join(lines), 200) == lines


def test_a_narrow_screen_turns_a_table_into_records() -> None:
    text = "| Name | Kind | Size | Note |\n|---|---|---|---|\n| a | b | c | d |\n| e | f | g | h |"
    assert rows(text, 12)[:5] == ["Name: a", "Kind: b", "Size: c", "Note: d", "────────"]
    assert max(map(cells, rows(text, 12))) <= 12


def test_wide_text_breaks_between_characters_but_punctuation_clings() -> None:
    assert rows("你好世界，你好。", 8) == ["你好世", "界，你", "好。"]
    assert rows("**你好**世界你好", 8) == ["你好世界", "你好"]


def test_styles_follow_the_theme_and_no_color() -> None:
    assert styles("dark", {}) == DARK
    assert styles("nosuch", {}) == THEMES["ansi"]
    assert styles("dark", {"NO_COLOR": "1"}) == THEMES["mono"]
    assert styles("dark", {"NO_COLOR": "1", "FORCE_COLOR": "1"}) == DARK
    shown = render("# a\n**b** `c`\n```py\nx = 'a'\n```\n- d\n> e", 40, THEMES["mono"])
    assert not re.search(r"\x1b\[[0-9;]*[34][0-9]", shown)


@pytest.mark.parametrize(
    "unit",
    [
        "word **bold** and `code` in one line, ",
        "[ ",
        "**a ",
        "x",
        "`",
        "| a ",
        "> ",
        "- a\n",
        "> a\n",
        "| a |\n",
        "```\nx\n```\n",
        "a\n\n",
        "line\n",
        "&#27;",
        "![",
        "<http:",
        "<http://a",
    ],
)
def test_time_is_linear_in_the_length(unit: str) -> None:
    def seconds(n_chars: int) -> float:
        text = unit * (n_chars // len(unit))
        began = time.process_time()
        stream = MarkdownStream(80, DARK)
        for at in range(0, len(text), 50):
            stream.feed(text[at : at + 50])
            if at % 2000 == 0:
                stream.tail(20)
        stream.finish()
        return time.process_time() - began

    small = min(seconds(8_000) for _ in range(2))
    assert seconds(64_000) < 24 * small + 0.1
