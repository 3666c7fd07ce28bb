"""Tables and pictures: they fit every width, add up, and say in words what they draw."""

from hypothesis import given
from hypothesis import strategies as st

from bareagent.cells import cells
from bareagent.context import Item, Picture, Preview
from bareagent.entries import Usage
from bareagent.provider.cost import Cost, EpochCost, Total
from bareagent.repl import charts
from bareagent.repl.styles import THEMES
from bareagent.sanitize import clean

PLAIN, DARK = THEMES["plain"], THEMES["dark"]
NAMES = ("system", "tools", "user", "assistant", "thinking", "results", "cleared")
widths = st.integers(8, 220)
sizes = st.integers(0, 300_000)


@st.composite
def pictures(draw: st.DrawFn) -> Picture:
    shares = {name: draw(sizes) for name in NAMES}
    size = sum(shares.values())
    window = draw(st.integers(1000, 1_000_000))
    return Picture(
        window=window,
        limit=window * 9 // 10,
        threshold=draw(st.none() | st.integers(64, 200_000)),
        size=size,
        plain=draw(st.integers(0, max(size, 1))),
        free=max(window - size, 0),
        cached=draw(st.integers(0, size)),
        shares=shares,
        largest=[
            Item(
                handle=draw(st.sampled_from(["", "r7", "r123.2"])), what=draw(st.text(max_size=40)), tokens=5
            )
            for _ in range(draw(st.integers(0, 10)))
        ],
        waits="3 old results, 4,000 tokens, can be cleared; it waits.",
        n_compactions=2,
        cost_usd=0.1234,
    )


def visible(row: str) -> str:
    """A row without the colours it was given."""
    for number in ("0", *vars_of(DARK)):
        row = row.replace(f"\x1b[{number}m", "")
    return row


def vars_of(styles: object) -> list[str]:
    return [getattr(styles, name) for name in type(styles).__dataclass_fields__]  # type: ignore[attr-defined]  # Styles is a dataclass


@given(pictures(), widths)
def test_the_picture_fits_and_colours_change_no_word(picture: Picture, width: int) -> None:
    for styles in (PLAIN, DARK):
        rows = charts.context_lines(picture, 0.01, width, styles)
        seen = [visible(row) for row in rows]
        assert all(cells(row) <= width for row in seen)
        assert all(clean(row) == row for row in seen)
        text = "\n".join(seen)
        assert f"{picture.size:,} of" in text or width < 40
        assert "saved by clearing" in " ".join(text.split()) or width < 40


@given(st.lists(sizes, min_size=7, max_size=7), sizes, st.integers(10, 120))
def test_the_bar_is_as_wide_as_it_is_told_and_shows_what_is_there(
    shares: list[int], free: int, width: int
) -> None:
    counts = charts.bar_cells(shares, free, width)
    assert sum(counts) == width
    assert min(counts) >= 0
    total = sum(shares) + free
    for size, count in zip([*shares, free], counts, strict=True):
        assert count >= (1 if size else 0) or not total
        assert size or not count or not total


def a_picture() -> Picture:
    shares = dict.fromkeys(NAMES, 0) | {"system": 1000, "tools": 3000, "user": 6000, "results": 30_000}
    return Picture(
        window=100_000,
        limit=80_000,
        threshold=25_000,
        size=40_000,
        plain=20_000,
        free=60_000,
        cached=20_000,
        shares=shares,
        largest=[Item(handle="r17", what="bash result", tokens=9000)],
        waits="Nothing can be cleared now.",
        n_compactions=1,
        cost_usd=0.5,
    )


def test_the_bar_marks_threshold_and_cache() -> None:
    rows = charts.context_lines(a_picture(), 0.25, 102, PLAIN)
    bar, hot = rows[1][2:], rows[2][2:]
    assert bar == "s" + "t" * 3 + "u" * 6 + "r" * 30 + "·" * 9 + "│" + "·" * 50
    assert hot == "▔" * 20
    # 4,000 stand still; 36,000 grow and are 20,000 by the estimate, of which 25,000 are allowed.
    assert charts.trigger_at(a_picture()) == 49_000
    text = "\n".join(rows)
    for words in (
        "40,000 of 100,000 tokens (40%)",
        "r17  bash result",
        "first 20,000 tokens",
        "threshold 25,000",
    ):
        assert words in text
    assert "Compactions so far: 1 · cost so far $0.5000 · saved by clearing $0.2500" in text


def a_cost() -> Cost:
    big = Usage(uncached=1000, cache_read=9000, cache_write=500, output=200, thinking=50)
    return Cost(
        models=[
            Total(name="claude-big", n_calls=3, usage=big, cost_usd=1.5),
            Total(name="\x1b[31mother", n_calls=1, usage=Usage(uncached=10), cost_usd=0.002),
        ],
        purposes=[Total(name="turn", n_calls=3), Total(name="summary", n_calls=1, cost_usd=0.002)],
        epochs=[
            EpochCost(
                n=7,
                at="2026-11-30T01:02:03.000Z",
                reason="cleared 3 results: rent",
                tokens=900,
                cost_usd=0.01,
            )
        ],
        total=Total(name="total", n_calls=4, usage=big, cost_usd=1.502),
        saved_by_caching_usd=0.3,
        saved_by_clearing_usd=-0.02,
    )


def test_the_bill() -> None:
    rows = charts.cost_lines(a_cost(), 100, PLAIN)
    assert rows[0].split()[:2] == ["model", "calls"]
    assert rows[1].split() == ["claude-big", "3", "1.0k", "9.0k", "500", "200", "50", "$1.50"]
    assert rows[2].startswith("other")
    assert rows[3].split()[0] == "total"
    text = "\n".join(rows)
    assert "for summaries: 1 call, $0.0020" in text
    assert "cache hit rate 86%" in text
    assert "saved by caching $0.3000, by clearing -$0.0200" in text
    assert charts.cost_lines(Cost(), 100, PLAIN) == ["Nothing was sent yet: $0.00"]


def test_epochs_are_listed_with_reason_and_price() -> None:
    rows = charts.epoch_lines(a_cost(), 100, PLAIN)
    assert rows[1].split() == [
        "cleared",
        "3",
        "results:",
        "rent",
        "7",
        "2026-11-30",
        "01:02",
        "900",
        "$0.0100",
    ]
    assert rows[-1] == "1 break of the cache, $0.0100 in all"


@given(widths)
def test_tables_fit_every_width(width: int) -> None:
    for rows in (charts.cost_lines(a_cost(), width, PLAIN), charts.epoch_lines(a_cost(), width, PLAIN)):
        assert all(cells(row) <= width for row in rows)
        assert all(clean(row) == row for row in rows)


def test_a_preview_shows_both_ends_of_what_goes() -> None:
    preview = Preview(
        is_possible=True,
        goes=[f"user: line {k}" for k in range(40)],
        stays=["user: the last"],
        tokens_before=40_000,
        tokens_after=9_000,
        cost_usd=0.05,
    )
    text = "\n".join(charts.preview_lines(preview, 80, PLAIN))
    for words in ("40,000 → about 9,000 tokens", "$0.0500", "line 0", "line 39", "32 more", "the last"):
        assert words in text
    assert "line 20" not in text
