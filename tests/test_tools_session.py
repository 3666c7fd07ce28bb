"""Tools that work on the session and the user: todo list, recall, compact, questions, plans."""

import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bareagent.entries import Mode, TodoItem
from bareagent.messages import user
from bareagent.seams import Answer
from bareagent.tools.base import BadArguments, ToolError
from tests.tool_bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, outputs=tmp_path / ".outputs")


def turn(bench: Bench, *pairs: tuple[str, dict[str, Any], str]) -> int:
    """Append a reply with calls and its results; give the entry number of the results."""
    uses = [
        {"type": "tool_use", "id": f"t{i}", "name": name, "input": arguments}
        for i, (name, arguments, _) in enumerate(pairs)
    ]
    answers = [
        {"type": "tool_result", "tool_use_id": f"t{i}", "content": [{"type": "text", "text": text}]}
        for i, (_, _, text) in enumerate(pairs)
    ]
    bench.session.append({"role": "assistant", "content": uses}, "reply")
    return bench.session.append({"role": "user", "content": answers}, "results").n


async def test_the_list_is_numbered_recorded_and_shown(bench: Bench) -> None:
    items = [{"text": "one", "status": "in_progress"}, {"text": " two\n", "priority": "high"}]
    output = await bench.output("todo_write", items=items)
    assert output.text == "- t1 [in_progress] (normal) one\n- t2 [pending] (high) two"
    assert output.shown_as == "todo"
    assert bench.session.view.todo == [
        TodoItem(id="t1", text="one", status="in_progress"),
        TodoItem(id="t2", text="two", priority="high"),
    ]
    await bench.text("todo_write", items=[{"id": "t2", "text": "two", "status": "completed"}])
    text = await bench.text("todo_write", items=[{"text": "three"}, {"id": "t2", "text": "two"}])
    assert text == "- t3 [pending] (normal) three\n- t2 [pending] (normal) two"
    assert await bench.text("todo_write", items=[]) == "The list is empty."
    assert await bench.text("todo_write", items=[{"text": "x"}]) == "- t4 [pending] (normal) x"


@pytest.mark.parametrize(
    ("items", "word"),
    [
        ([{"id": "t9", "text": "x"}], "Present ids: t1"),
        ([{"id": "t1", "text": "x"}, {"id": "t1", "text": "y"}], "Two items"),
        ([{"text": "  "}], "blank"),
        ([{"text": "x", "status": "in_progress"}, {"text": "y", "status": "in_progress"}], "Only one"),
        ([{"text": "x"}] * 51, "50"),
        ([{"text": "x", "id": "mine"}], "Leave the id"),
    ],
)
async def test_a_bad_list_changes_nothing(bench: Bench, items: list[dict[str, Any]], word: str) -> None:
    await bench.text("todo_write", items=[{"text": "kept"}])
    with pytest.raises(BadArguments, match=word):
        await bench.text("todo_write", items=items)
    assert [item.text for item in bench.session.view.todo] == ["kept"]


async def test_the_fifth_list_in_a_row_is_stopped_until_other_work_was_done(bench: Bench) -> None:
    outcomes = []
    for i in range(6):
        bench.session.append(
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t", "name": "todo_write", "input": {}}],
            }
        )
        output = await bench.output("todo_write", items=[{"text": f"plan {i}"}])
        outcomes.append(output.is_error)
        result = {
            "type": "tool_result",
            "tool_use_id": "t",
            "content": [{"type": "text", "text": output.text}],
        }
        bench.session.append({"role": "user", "content": [result]}, "results")
    assert outcomes == [False, False, False, False, True, True]
    turn(bench, ("bash", {}, "done"))
    bench.session.append({"role": "assistant", "content": [{"type": "text", "text": "next"}]})
    assert not (await bench.output("todo_write", items=[{"text": "again"}])).is_error


async def test_compact_only_marks(bench: Bench) -> None:
    assert await bench.text("compact", focus="the parser") == "Compressing..."
    assert bench.ctx.marks.compact_focus == "the parser"


async def test_recall_finds_what_a_placeholder_says(bench: Bench) -> None:
    old, new = "old " * 301, "new " * 301
    n = turn(bench, ("bash", {"command": "cat a"}, old), ("read_file", {"file_path": "x"}, "y" * 1204))
    m = turn(bench, ("bash", {"command": "cat b"}, new))
    bench.session.clear([f"r{n}", f"r{n}.2", f"r{m}"])
    assert (
        bench.session.messages[1]["content"][0]["content"][0]["text"]
        == "[truncated: bash result, 1204 chars]"
    )
    text = await bench.text("recall", tool="bash", chars=1204)
    assert text.endswith(f"\n{new}")
    assert f"nth=2 r{n} bash" in text
    assert "cat a" in text
    assert (await bench.text("recall", tool="bash", chars=1204, nth=2)).endswith(f"\n{old}")
    assert (await bench.text("recall", handle=f"r{n}.2")).endswith("\n" + "y" * 1204)
    with pytest.raises(ToolError, match="only 2 such results"):
        await bench.text("recall", tool="bash", chars=1204, nth=3)
    with pytest.raises(ToolError, match=rf"Nearest: r{m} bash.*\(1204 chars\)"):
        await bench.text("recall", tool="bash", chars=1205)
    with pytest.raises(ToolError, match="no result 'r99'"):
        await bench.text("recall", handle="r99")
    with pytest.raises(BadArguments, match="Give one of"):
        await bench.text("recall", tool="bash", query="x")
    with pytest.raises(BadArguments, match="Give one of"):
        await bench.text("recall")


async def test_recall_gives_slices_that_make_the_whole(bench: Bench) -> None:
    whole = "".join(f"{i} 你\n" for i in range(9000))
    n = turn(bench, ("bash", {"command": "x"}, whole))
    parts: list[str] = []
    offset = 0
    while offset >= 0:
        text = await bench.text("recall", handle=f"r{n}", offset=offset, limit=40_000)
        body = text.partition("\n")[2]
        body, bracket, note = body.rpartition("\n[characters ")
        parts.append(body if bracket else note)
        offset = int(note.partition("offset=")[2].split()[0]) if bracket else -1
        assert len(text) < 28_300
    assert "".join(parts) == whole
    with pytest.raises(ToolError, match="has only"):
        await bench.text("recall", handle=f"r{n}", offset=10**6)


async def test_recall_of_a_capped_result_reads_the_stored_whole(bench: Bench) -> None:
    whole = "".join(chr(0x4E00 + i % 5000) for i in range(2_000_000))
    folder = bench.ctx.outputs
    assert folder is not None
    folder.mkdir()
    n = turn(bench, ("bash", {"command": "x"}, "head ... tail"))
    (folder / f"r{n}.txt").write_text(whole)
    text = await bench.text("recall", handle=f"r{n}", offset=1_500_000, limit=100)
    assert f"\n{whole[1_500_000:1_500_100]}\n[characters" in text
    with pytest.raises(ToolError, match="ends before"):
        await bench.text("recall", handle=f"r{n}", offset=2_000_001)


async def test_recall_searches_words_in_everything_that_was_said(bench: Bench) -> None:
    n = bench.session.append(user("Please keep the ZEBRA setting"), "line").n
    m = turn(bench, ("bash", {"command": "grep zebra"}, "x " * 500 + "zebra crossing at 9" + " y" * 500))
    text = await bench.text("recall", query="Zebra")
    assert text.index(f"r{m} bash") < text.index(f"m{n} user: Please keep")
    assert "zebra crossing" in text
    assert len(text) < 700
    assert await bench.text("recall", handle=f"m{n}") == "Please keep the ZEBRA setting"
    assert (await bench.text("recall", query="zebra crossing")).count("zebra") < (text.count("zebra") + 1)
    assert f"r{m} bash" in await bench.text("recall", query="grep zebra")  # words of a call count too
    assert "Nothing" in await bench.text("recall", query="giraffe")


async def test_recall_leaves_out_what_a_rewind_took_back(bench: Bench) -> None:
    bench.session.append(user("first"), "line")
    n = bench.session.append(user("wrong way"), "line").n
    turn(bench, ("bash", {}, "abandoned"))
    bench.session.rewind(n)
    assert "Nothing" in await bench.text("recall", query="abandoned")


async def test_recall_says_when_a_file_is_newer_than_its_reading(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    os.utime(path, (1, 1))
    n = turn(bench, ("read_file", {"file_path": "a.txt"}, "1: one"))
    assert "changed on disk" not in await bench.text("recall", handle=f"r{n}")
    os.utime(path, (time.time() + 5, time.time() + 5))
    assert "a.txt changed on disk since" in await bench.text("recall", handle=f"r{n}")
    path.unlink()
    assert "gone from disk" in await bench.text("recall", handle=f"r{n}")


async def test_recall_gives_images_back(bench: Bench) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    use = {"type": "tool_use", "id": "t", "name": "read_file", "input": {"file_path": "a.png"}}
    bench.session.append({"role": "assistant", "content": [use]}, "reply")
    result = {"type": "tool_result", "tool_use_id": "t", "content": [image]}
    n = bench.session.append({"role": "user", "content": [result]}, "results").n
    output = await bench.output("recall", handle=f"r{n}")
    assert output.blocks == [image]


async def test_recall_survives_calls_of_any_shape(bench: Bench) -> None:
    odds: list[Any] = [None, 5, [], {"file_path": 5}, {"file_path": None}]
    for odd in odds:
        use = {"type": "tool_use", "id": "t", "name": "read_file", "input": odd}
        bench.session.append({"role": "assistant", "content": [use]}, "reply")
        result = {
            "type": "tool_result",
            "tool_use_id": "t",
            "content": [{"type": "text", "text": "same text"}],
        }
        n = bench.session.append({"role": "user", "content": [result]}, "results").n
        assert "same text" in await bench.text("recall", handle=f"r{n}")
    assert "same text" in await bench.text("recall", tool="read_file", chars=9)
    assert "same text" in await bench.text("recall", query="same")


async def test_a_question_waits_for_the_users_answer(bench: Bench) -> None:
    bench.answers = [
        Answer(verdict="yes", text="blue"),
        Answer(verdict="no", text="No one can answer in print mode."),
    ]
    assert (
        await bench.text("ask_user", question="Which?", options=["red", "blue"]) == "The user answered: blue"
    )
    assert bench.asked[0].options == ("red", "blue")
    refused = await bench.output("ask_user", question="And now?")
    assert refused.is_error
    assert "print mode" in refused.text


@pytest.mark.parametrize(
    ("answer", "mode", "word"),
    [
        (Answer(verdict="yes"), "default", "approved"),
        (Answer(verdict="always", text="go on"), "auto", "go on"),
        (Answer(verdict="no", text="shorter"), "plan", "shorter"),
    ],
)
async def test_an_approved_plan_ends_plan_mode(bench: Bench, answer: Answer, mode: str, word: str) -> None:
    with pytest.raises(ToolError, match="Plan mode is not on"):
        await bench.text("exit_plan", plan="1. do")
    bench.session.record(Mode(mode="plan"))
    bench.answers = [answer]
    assert word in await bench.text("exit_plan", plan="1. do")
    assert bench.asked[0].kind == "plan"
    assert bench.asked[0].detail == "1. do"
    assert bench.session.view.mode == mode


async def test_entries_of_the_tools_are_what_the_log_can_hold(bench: Bench) -> None:
    await bench.text("todo_write", items=[{"text": "a\ud800b"}])
    assert msgspec.json.encode(bench.session.view.todo)
