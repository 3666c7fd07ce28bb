"""edit_file against a plain-string model, and its errors."""

import asyncio
import contextlib
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bareagent.tools.base import BadArguments, ToolError
from tests.tool_bench import Bench

WORDS = ["a", "b", "aa", "ab", " ", "é", "你", "\U0001f600", "(", "\\", "$1", "\t"]
LINES = st.lists(st.lists(st.sampled_from(WORDS), max_size=4).map("".join), min_size=1, max_size=8)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def n_places(text: str, part: str) -> int:
    return sum(text.startswith(part, i) for i in range(len(text)))


@settings(max_examples=60, deadline=None)
@given(
    lines=LINES,
    end=st.sampled_from(["\n", "\r\n"]),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    is_closed=st.booleans(),
    edits=st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 12), LINES, st.booleans()), min_size=1, max_size=3
    ),
)
def test_random_edits_do_what_they_do_to_a_plain_string(
    lines: list[str],
    end: str,
    mark: bytes,
    is_closed: bool,
    edits: list[tuple[int, int, list[str], bool]],
) -> None:
    model = "\n".join(lines) + ("\n" if is_closed else "")
    before = model
    asked = []
    is_wrong = False
    for start, length, new_lines, is_all in edits:
        old, new = model[start : start + length], "\n".join(new_lines)
        assume(old and old != new)
        asked.append({"old_text": old, "new_text": new, "replace_all": is_all})
        is_wrong = is_wrong or (not is_all and n_places(model, old) != 1)
        model = model.replace(old, new, -1 if is_all else 1)
    expected = before if is_wrong else model
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder).resolve() / "f.txt"
        path.write_bytes(mark + before.replace("\n", end).encode())
        bench = Bench(path.parent)
        outcome = asyncio.run(_tried(bench, asked))
        assert (outcome == "") != is_wrong
        # A file whose only line end went has nothing left that tells which kind it had.
        assert path.read_bytes() in {mark + expected.replace("\n", end).encode()} | (
            {mark + expected.encode()} if "\n" not in before or len(asked) > 1 else set()
        )


async def _tried(bench: Bench, edits: list[dict[str, object]]) -> str:
    try:
        await bench.text("edit_file", file_path="f.txt", edits=edits)
    except ToolError as error:
        return str(error)
    return ""


async def test_mixed_line_ends_stay_but_where_text_was_replaced(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one\r\ntwo\nthree\r\nfour\nfive")
    await bench.text("edit_file", file_path="a", old_text="three", new_text="3\n3b")
    await bench.text("edit_file", file_path="a", old_text="two\n", new_text="2\n2b\n")
    await bench.text("edit_file", file_path="a", old_text="four\nfive", new_text="4\n5")
    assert path.read_bytes() == b"one\r\n2\n2b\n3\r\n3b\r\n4\n5"


async def test_several_places_are_named(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x = 1\ny = 2\nx = 1\n")
    with pytest.raises(ToolError, match=r"stands 2 times in a: lines 1, 3\..*replace_all"):
        await bench.text("edit_file", file_path="a", old_text="x = 1", new_text="x = 2")
    (tmp_path / "b").write_text("aaa\n")
    with pytest.raises(ToolError, match="2 times"):
        await bench.text("edit_file", file_path="b", old_text="aa", new_text="b")
    text = await bench.text("edit_file", file_path="a", old_text="x = 1", new_text="x = 2", replace_all=True)
    assert "2 replacements" in text
    assert (tmp_path / "a").read_text() == "x = 2\ny = 2\nx = 2\n"


NEAR = [
    ("say “hello”\n", 'say "hello"', ["1: say “hello”", "U+201C"]),
    ("a\u00a0b = 1\n", "a b = 1", ["1: a\u00a0b", "U+00A0 no-break space"]),
    ("x\n    if a:\n        b()\n", "if a:\n    b()", ["2:     if a:", "indentation"]),
    ("（一）\n", "(一)", ["1: （一）"]),
    ("it's\n", "it’s", ["1: it's", "without U+2019"]),
    (
        "def compute_total(items, tax):\n    pass\n",
        "def compute_totals(items):\n    pass",
        ["1: def compute_total"],
    ),
]


@pytest.mark.parametrize(("content", "old", "words"), NEAR)
async def test_a_text_not_found_names_the_nearest(
    bench: Bench, tmp_path: Path, content: str, old: str, words: list[str]
) -> None:
    (tmp_path / "a").write_text(content)
    with pytest.raises(ToolError) as caught:
        await bench.text("edit_file", file_path="a", old_text=old, new_text="new")
    for word in ["does not stand in a", *words]:
        assert word in str(caught.value)
    assert (tmp_path / "a").read_text() == content


async def test_nothing_near_is_told_briefly_even_of_a_large_file(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(f"line number {i}\n" for i in range(200_000)))
    started = time.monotonic()
    with pytest.raises(ToolError) as caught:
        await bench.text("edit_file", file_path="a", old_text="qqqqqqqqqqqqqqqqq\nzzzz", new_text="x")
    assert str(caught.value) == "old_text does not stand in a."
    assert time.monotonic() - started < 10


async def test_edits_of_one_call_are_made_all_or_none(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one two\n")
    edits = [{"old_text": "one", "new_text": "1"}, {"old_text": "three", "new_text": "3"}]
    with pytest.raises(ToolError, match="Edit 2 of 2: old_text does not stand"):
        await bench.text("edit_file", file_path="a", edits=edits)
    assert (tmp_path / "a").read_text() == "one two\n"
    edits[1]["old_text"] = "1 two"
    output = await bench.output("edit_file", file_path="a", edits=edits)
    assert (tmp_path / "a").read_text() == "3\n"
    assert output.shown == "@@ -1 +1 @@\n-one two\n+3"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"old_text": "", "new_text": "x"}, "empty"),
        ({}, "empty"),
        ({"old_text": "a", "new_text": "a"}, "same"),
        ({"old_text": "a", "new_text": "b", "edits": [{"old_text": "a", "new_text": "b"}]}, "not both"),
    ],
)
async def test_edits_that_say_nothing_are_refused(
    bench: Bench, tmp_path: Path, arguments: dict[str, object], word: str
) -> None:
    (tmp_path / "f").write_text("a")
    with pytest.raises((ToolError, BadArguments), match=word):
        await bench.text("edit_file", file_path="f", **arguments)


async def test_a_file_changed_since_it_was_read_must_be_read_again(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one\n")
    await bench.text("read_file", file_path="a")
    path.write_text("one\ntwo\n")
    with pytest.raises(ToolError, match="changed since"):
        await bench.text("edit_file", file_path="a", old_text="one", new_text="1")
    await bench.text("read_file", file_path="a")
    await bench.text("edit_file", file_path="a", old_text="one", new_text="1")
    await bench.text("edit_file", file_path="a", old_text="two", new_text="2")
    assert path.read_text() == "1\n2\n"


async def test_edits_made_side_by_side_do_not_undo_each_other(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("".join(f"item {i};\n" for i in range(40)))
    await asyncio.gather(
        *(
            Bench(tmp_path).text("edit_file", file_path="a", old_text=f"item {i};", new_text=f"done {i};")
            for i in range(40)
        )
    )
    assert path.read_text() == "".join(f"done {i};\n" for i in range(40))


async def test_a_file_that_changes_all_the_time_is_never_mixed_up(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("count 0\n")
    seen: set[str] = set()

    async def theirs() -> None:
        for i in range(40):
            new = tmp_path / "new"
            new.write_text(f"count {i}\n" * (i + 1))
            new.replace(path)
            await asyncio.sleep(0.001)

    task = asyncio.create_task(theirs())
    while not task.done():
        with contextlib.suppress(ToolError):
            await bench.text("edit_file", file_path="a", old_text="count", new_text="Count", replace_all=True)
        seen.add(path.read_text())
        bench.ctx.seen.clear()
    await task
    whole = {f"{word} {i}\n" * (i + 1) for i in range(40) for word in ("count", "Count")}
    assert seen <= whole
    assert len(seen) > 1


async def test_bytes_that_are_no_text_survive_an_edit(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"name = gr\xfcn\nsize = 1\n")
    await bench.text("edit_file", file_path="a", old_text="size = 1", new_text="size = 2\udcff")
    assert path.read_bytes() == b"name = gr\xfcn\nsize = 2\xef\xbf\xbd\n"
    path.write_bytes(b"\xff\xfe" + "one\r\ntwo".encode("utf-16-le"))
    bench.ctx.seen.clear()
    await bench.text("edit_file", file_path="a", old_text="two", new_text="zwei\n你")
    assert path.read_bytes() == b"\xff\xfe" + "one\r\nzwei\r\n你".encode("utf-16-le")


async def test_paths_with_backslashes_are_taken_as_they_are(bench: Bench, tmp_path: Path) -> None:
    name = r"C:\Users\unicorn\new"
    await bench.text("write_file", file_path=name, content=r"\u0041 \n")
    assert (tmp_path / name).read_text() == r"\u0041 \n"


async def test_the_preview_is_the_diff_and_writes_nothing(bench: Bench, tmp_path: Path) -> None:
    from tests.tool_bench import TOOLS

    (tmp_path / "a").write_text("one\n")
    tool = TOOLS["edit_file"]
    params = tool.params(file_path="a", old_text="one", new_text="1")
    preview = await tool.preview(params, bench.of_call("edit_file", {}))  # type: ignore[attr-defined]  # not every tool has one
    assert preview == "@@ -1 +1 @@\n-one\n+1"
    assert (tmp_path / "a").read_text() == "one\n"
