"""Background commands: started, read, ended, told of once."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from bareagent.entries import JobsChanged
from bareagent.tools import process
from bareagent.tools.base import ToolError
from tests.tool_bench import Bench, gone, marked_processes


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, outputs=tmp_path / ".outputs")


async def ended(bench: Bench, id: str) -> None:
    for _ in range(500):
        if id not in bench.ctx.jobs.running:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{id} did not end")


async def test_a_task_is_read_in_steps_and_its_end_is_told_once(bench: Bench) -> None:
    gate = "until [ -e {} ]; do sleep 0.05; done".format
    command = f"echo one; {gate('one')}; echo two; {gate('two')}; exit 3"
    text = await bench.text("bash", command=command, run_in_background=True)
    assert text.startswith("Task b1 runs in the background")
    first = await bench.text("bash_output", id="b1")
    assert first.startswith("one\n[task b1: running")
    assert first.endswith("read on with since=4]")
    assert bench.ctx.jobs.notices() == ""
    (bench.ctx.cwd / "one").touch()
    assert (await bench.text("bash_output", id="b1", since=4)).startswith("two\n[task b1: running")
    (bench.ctx.cwd / "two").touch()
    await ended(bench, "b1")
    assert bench.ctx.jobs.notices() == (
        "<background-notifications>\n- Task b1: done (exit 3) - one\ntwo\n</background-notifications>"
    )
    assert bench.ctx.jobs.notices() == ""
    assert "(nothing new)\n[task b1: done (exit 3)" in await bench.text("bash_output", id="b1", since=8)
    changes = [heard.running for heard in bench.heard if isinstance(heard, JobsChanged)]
    assert changes == [["b1"], []]
    assert bench.live() == ""


async def test_a_notice_holds_the_last_500_characters_and_no_false_end(bench: Bench) -> None:
    command = "seq 1 1000; echo '</background-notifications>'"
    await bench.text("bash", command=command, run_in_background=True)
    await bench.text("bash", command="true", run_in_background=True)
    await ended(bench, "b1")
    await ended(bench, "b2")
    notice = bench.ctx.jobs.notices()
    assert notice.count("</background-notifications>") == 1
    assert notice.splitlines()[-2] == "- Task b2: done (exit 0) - (no output)"
    assert 450 < len(notice.partition(" - ")[2].partition("\n- Task b2")[0]) <= 510


async def test_reading_waits_for_something_new(bench: Bench) -> None:
    await bench.text("bash", command="sleep 0.5; echo late; sleep 20", run_in_background=True)
    started = time.monotonic()
    assert (await bench.text("bash_output", id="b1")).startswith("late\n")
    assert 0.2 < time.monotonic() - started < 5
    await bench.ctx.jobs.end_all()


async def test_a_killed_task_leaves_nothing_alive(bench: Bench) -> None:
    mark = f"3004.{os.getpid()}"
    command = f"trap '' TERM; setsid sleep {mark} & sleep {mark}; sleep {mark}"
    await bench.text("bash", command=command, run_in_background=True)
    await asyncio.sleep(0.2)
    started = time.monotonic()
    text = await bench.text("bash_kill", id="b1")
    assert text.startswith("Task b1 ended: killed by SIG")
    assert time.monotonic() - started < 4
    assert await gone(mark)
    assert bench.ctx.jobs.notices() == "", "the model knows already"
    assert "had ended before" in await bench.text("bash_kill", id="b1")
    for tool in ["bash_kill", "bash_output"]:
        with pytest.raises(ToolError, match="Known: b1"):
            await bench.text(tool, id="b7")


async def test_all_end_with_the_program(bench: Bench) -> None:
    mark = f"3005.{os.getpid()}"
    for _ in range(3):
        await bench.text("bash", command=f"(setsid sleep {mark} &) ; sleep {mark}", run_in_background=True)
    assert bench.ctx.jobs.running == ["b1", "b2", "b3"]
    await asyncio.sleep(0.2)
    assert marked_processes(mark)
    await bench.ctx.jobs.end_all()
    assert bench.ctx.jobs.running == []
    assert await gone(mark)
    await bench.text("bash", command=f"sleep {mark}", run_in_background=True)
    process.kill_all()
    assert await gone(mark)
    await ended(bench, "b4")


async def test_an_endless_task_is_bounded_and_read_from_its_place(bench: Bench) -> None:
    await bench.text("bash", command="yes 0123456789", run_in_background=True)
    await asyncio.sleep(0.5)
    text = await bench.text("bash_output", id="b1", since=11)
    assert len(text) <= 30_000
    assert text.startswith("0123456789\n")
    assert "left out" in text
    await bench.text("bash_kill", id="b1")
