"""The moving rows: whatever becomes final or moves, a terminal shows each finished row once, then what moves."""

import itertools
import re
from collections.abc import Sequence
from typing import Any

import pyte
from hypothesis import given, settings
from hypothesis import strategies as st

from bareagent.cells import cells
from bareagent.repl.markdown import MarkdownStream, render
from bareagent.repl.strip import Place, Strip, clipped, plain
from bareagent.repl.styles import THEMES

COLUMNS, ROWS = 24, 10
BELOW = ["> draft", "foot"]

words = st.sampled_from(
    ["word", "and", "世界", "é", "\x1b[1mbold\x1b[0m", "\x1b[38;5;75ma b\x1b[0m", "⠋", "⠙"]
)
row = st.lists(words, max_size=6).map(" ".join).filter(lambda text: cells(plain(text)) <= COLUMNS)
step = st.tuples(st.lists(row, max_size=3), st.lists(row, max_size=5))


class Below:
    """A screen whose last rows are drawn once, as the input line is; the strip has to move them."""

    def __init__(self, below: Sequence[str] = BELOW, n_above: int = 0) -> None:
        self.screen = pyte.HistoryScreen(COLUMNS, ROWS, history=10_000, ratio=0.5)
        self._stream = pyte.Stream(self.screen)
        up = f"\x1b[{len(below) - 1}A" if len(below) > 1 else ""
        self.write("\r\n" * n_above + "\r\n".join(below) + up + "\r\x1b[2C")

    def write(self, text: str) -> None:
        self._stream.feed(text)
        for y in range(ROWS):
            self.screen.buffer[y]  # pyte leaves what stood there where a row it has not made yet is moved

    def rows(self) -> list[str]:
        above = ["".join(line[x].data for x in range(COLUMNS)).rstrip() for line in self.screen.history.top]
        shown = [*above, *(line.rstrip() for line in self.screen.display)]
        while shown and not shown[-1]:
            shown.pop()
        return shown


def texts(rows: list[str]) -> list[str]:
    return [plain(text).rstrip() for text in rows]


@settings(deadline=None, max_examples=80)
@given(st.lists(step, max_size=12))
def test_each_row_stands_once(steps: list[tuple[list[str], list[str]]]) -> None:
    terminal = Below()
    strip = Strip(terminal.write)
    place = Place(x=2, y=0, n_below=2, columns=COLUMNS, rows=ROWS)
    final: list[str] = []
    for more, moving in steps:
        assert strip.draw(more, moving, place)
        final += more
        assert terminal.rows() == [*texts(final), *texts(moving), *BELOW]
        assert (terminal.screen.cursor.x, terminal.screen.display[terminal.screen.cursor.y].rstrip()) == (
            2,
            BELOW[0],
        )


@settings(deadline=None, max_examples=80)
@given(st.lists(step, max_size=12))
def test_no_row_is_overwritten_where_the_row_below_the_cursor_is_gone(
    steps: list[tuple[list[str], list[str]]],
) -> None:
    """A terminal that shrinks takes the rows below the cursor away, and tells so only later."""
    terminal = Below(["> draft"], n_above=ROWS - 1)
    strip = Strip(terminal.write)
    place = Place(x=2, y=0, n_below=2, columns=COLUMNS, rows=ROWS)
    final: list[str] = []
    for more, moving in steps:
        assert strip.draw(more, moving, place)
        final += more
        assert terminal.rows()[ROWS - 1 :] == [*texts(final), *texts(moving), "> draft"]


BLOCKS = st.sampled_from(
    [
        "W W W W W W W W W W W\n\n",
        "# W W\n",
        "- W W W W W W\n  - W **W W** `W`\n- W\n\n",
        "7. W [W](W) W W W W\n8. W\n\n",
        "```py\nW = W\n\n  W\n```\n",
        "> W W W W W\n> - W\n\n",
        "| W | W |\n|---|--:|\n| W W W | W |\n| 世界 | `W` |\n\n",
        "---\n",
        "W  \nW\\\nW *W\n\n",
        "<div>\nW\n</div>\n\n",
        "```\nW W",
    ]
)


def numbered(blocks: list[str]) -> str:
    """Each W a word of its own, so that one that stands twice is seen."""
    numbers = itertools.count()
    return re.sub("W", lambda _: f"w{next(numbers)}", "".join(blocks))


@settings(deadline=None, max_examples=120)
@given(st.lists(BLOCKS, max_size=9).map(numbered), st.lists(st.integers(1, 40), min_size=1, max_size=9))
def test_an_answer_stands_as_if_it_had_come_whole(text: str, sizes: list[int]) -> None:
    """However it is cut and whenever it is drawn: what is left on the screen is one rendering of it all."""
    terminal = Below()
    strip = Strip(terminal.write)
    place = Place(x=2, y=0, n_below=2, columns=COLUMNS, rows=ROWS)
    stream = MarkdownStream(COLUMNS, THEMES["dark"])
    lengths = itertools.cycle(sizes)
    at = 0
    while at < len(text):
        size = next(lengths)
        final, at = stream.feed(text[at : at + size]), at + size
        if len(final) > 3:
            for row in final:
                assert strip.draw([row], [], place)
            final = []
        assert strip.draw(final, [*stream.tail(3), "", "status"], place)
    for row in stream.finish():
        assert strip.draw([row], [], place)
    strip.draw([], [], place)
    whole = render(text, COLUMNS, THEMES["dark"]).splitlines()
    assert terminal.rows() == [*texts(whole), *BELOW]


def test_a_standing_row_is_not_sent_again() -> None:
    sent: list[str] = []
    strip = Strip(sent.append)
    long = "a row that is finished"
    strip.draw([], [long, "and one that"], Place(columns=COLUMNS))
    sent.clear()
    strip.draw([long], ["and one that grows"], Place(columns=COLUMNS))
    assert "finished" not in "".join(sent)
    assert "and one" not in "".join(sent)
    assert " grows" in "".join(sent)


def test_what_has_no_room_is_left_to_others() -> None:
    sent: list[str] = []
    strip = Strip(sent.append)
    place = Place(columns=10, rows=4)
    for final in (["wider than ten"], ["1", "2", "3", "4"], ["a\tb"]):
        assert not strip.draw(final, [], place)
    assert sent == []


@given(st.lists(words, max_size=12).map(" ".join), st.integers(1, 30))
def test_a_row_is_cut_to_its_columns(text: str, columns: int) -> None:
    cut: Any = clipped(text, columns)
    assert cells(plain(cut)) <= columns
    assert plain(text).startswith(plain(cut))
