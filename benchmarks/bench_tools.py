"""Tools: an endless writer, grep beside rg, what a call costs us, many edits of one file.

Baselines are measured in the same run: `rg` itself with the same flags, half as many edits.
"""

import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bareagent.calls import Toolbox, answer_calls
from bareagent.config import Config, Permissions
from bareagent.entries import Usage
from bareagent.messages import Block, user
from bareagent.seams import Answer, Question, Reply
from bareagent.session import Session
from bareagent.tools import search, standard_tools
from bareagent.tools.background import Jobs
from bareagent.tools.base import ToolContext, decode, fit

TOOLS = {tool.name: tool for tool in standard_tools(Config())}
ALL_ALLOWED = Config(permissions=Permissions(mode="bypass"))
LIMIT_S = 10.0
N_FILES = 100_000
MIB = 1 << 20


async def nobody(_question: Question, /) -> Answer:
    return Answer(verdict="no")


def context(root: Path) -> ToolContext:
    return ToolContext(
        session=Session.in_memory(root),
        config=Config(),
        cwd=root,
        root=root,
        emit=lambda _heard: None,
        ask=nobody,
        jobs=Jobs(),
        outputs=root / ".outputs",
    )


async def call(ctx: ToolContext, name: str, **arguments: Any) -> str:
    tool = TOOLS[name]
    ctx = ctx.for_call({"type": "tool_use", "id": "c1", "name": name, "input": arguments})
    params = decode(tool, arguments)
    tool.needs(params, ctx)
    return fit(ctx, await tool.run(params, ctx), "r1").text


def memory_bytes(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    return 0


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


async def endless_writer(root: Path, command: str) -> dict[str, Any]:
    """A writer of far more than 1 GB, cut at its limit."""
    ctx = context(root)
    await call(ctx, "bash", command="true")
    reset_peak()
    before = memory_bytes("VmRSS")
    began = time.perf_counter()
    text = await call(ctx, "bash", command=command, timeout_s=LIMIT_S)
    seconds = time.perf_counter() - began
    peak = memory_bytes("VmHWM")
    stored = root / ".outputs" / "r1.txt"
    size = stored.read_bytes().partition(b"\n[... ")[2].partition(b" bytes")[0].replace(b",", b"")
    return {
        "command": command,
        "written_gb": round((int(size or 0) + 64 * MIB) / 1e9, 2),
        "over_limit_s": round(seconds - LIMIT_S, 3),
        "memory_above_start_mib": round((peak - before) / MIB, 1),
        "result_chars": len(text),
        "stored_mib": round(stored.stat().st_size / MIB, 1),
    }


def make_files(root: Path, count: int) -> None:
    line = "the quick brown fox jumps over the lazy dog; value = {}\n"
    for i in range(count):
        folder = root / f"d{i % 317}" / f"e{i % 7}"
        if i < 317 * 7:
            folder.mkdir(parents=True, exist_ok=True)
        body = "".join(line.format(i * k) for k in range(12))
        (folder / f"f{i}.py").write_text(body + ("needle here\n" if i % 100 == 0 else ""))


async def median_s(work: Callable[[], Awaitable[object]], times: int = 5) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        await work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


async def beside_rg(root: Path, count: int) -> dict[str, Any]:
    rg = shutil.which("rg") or shutil.which("rg", path=str(Path(sys.executable).parent))
    make_files(root, count)
    ctx = context(root)
    ctx.environ = {**os.environ, "BAREAGENT_RG": "none"}
    began = time.perf_counter()
    plain = await call(ctx, "grep", pattern="needle")
    figures: dict[str, Any] = {"files": count, "python_s": round(time.perf_counter() - began, 2)}
    if not rg:
        return figures | {"rg": "not here"}
    ctx.environ = {**os.environ, "BAREAGENT_RG": rg}
    assert await call(ctx, "grep", pattern="needle") == plain
    params = search.GrepParams(pattern="needle")
    flags = search.rg_argv(rg, params, "./")

    async def alone() -> None:
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(*flags, cwd=root, stdout=pipe)
        await child.communicate()

    ours, theirs = [], []
    for _ in range(5):
        ours.append(await median_s(lambda: call(ctx, "grep", pattern="needle"), 1))
        theirs.append(await median_s(alone, 1))
    mine, base = statistics.median(ours), statistics.median(theirs)
    return figures | {"grep_s": round(mine, 3), "rg_s": round(base, 3), "ratio": round(mine / base, 3)}


async def no_op(root: Path) -> dict[str, Any]:
    """Our CPU for the smallest calls: arguments checked, run, fitted."""
    ctx = context(root)
    (root / "small.txt").write_text("x\n")
    calls: dict[str, dict[str, Any]] = {
        "read_file": {"file_path": "small.txt"},
        "bash": {"command": ":"},
        "compact": {},
        "todo_write": {"items": []},
    }
    figures = {}
    for name, arguments in calls.items():
        await call(ctx, name, **arguments)
        before = time.process_time()
        for _ in range(50):
            await call(ctx, name, **arguments)
        figures[f"{name}_ms"] = round((time.process_time() - before) / 50 * 1000, 3)
    return figures


async def through_the_gate(root: Path) -> dict[str, float]:
    """Our CPU for a call from reply to result: checked, judged, run, fitted, logged in memory."""
    session = Session.in_memory(root)
    box = Toolbox.of(list(TOOLS.values()), session)
    figures = {}
    for name in ("read_file", "bash"):
        before, count = 0.0, 50
        for i in range(count + 1):
            before = before or (time.process_time() if i else 0.0)  # the first one loads the parser
            # Five equal calls in a row would be stopped.
            given = (
                {"file_path": "small.txt", "limit": i + 1} if name == "read_file" else {"command": f": {i}"}
            )
            call: Block = {"type": "tool_use", "id": "c1", "name": name, "input": given}
            session.append(user("go"), "line")
            reply = Reply(
                message={"role": "assistant", "content": [call]}, stop_reason="tool_use", usage=Usage()
            )
            session.append(reply.message, "reply", reply)
            await answer_calls(reply, session, box, ALL_ALLOWED, lambda _heard: None, nobody)
        figures[f"{name}_ms"] = round((time.process_time() - before) / count * 1000, 3)
    return figures


async def many_edits(root: Path, count: int) -> float:
    """Seconds for `count` edits of one file, each on its own line."""
    ctx = context(root)
    path = root / "edited.txt"
    path.write_text("".join(f"line {i};\n" for i in range(1000)))
    began = time.perf_counter()
    for i in range(count):
        await call(ctx, "edit_file", file_path="edited.txt", old_text=f"line {i};", new_text=f"done {i};")
    return time.perf_counter() - began


async def measured(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        first, second = root / "a", root / "b"
        for one in (first, second):
            one.mkdir()
        writers = [
            await endless_writer(first, "yes"),
            await endless_writer(first, "tr '\\0' x </dev/zero"),
        ]
        small = await no_op(first) | {"through_the_gate": await through_the_gate(first)}
        half, whole = await many_edits(first, 500), await many_edits(first, 1000)
        edits = {
            "edits_500_s": round(half, 3),
            "edits_1000_s": round(whole, 3),
            "growth": round(whole / half, 3),
        }
        grep = await beside_rg(second, count)
    return {"endless_writer": writers, "no_op": small, "edits": edits, "grep": grep}


if __name__ == "__main__":
    n_files = int(sys.argv[1]) if len(sys.argv) > 1 else N_FILES
    print(json.dumps(asyncio.run(measured(n_files)), indent=1))
