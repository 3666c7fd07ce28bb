"""How fast and in how much memory a large log becomes a view again.

Each log of about 100 MB is opened and folded in a process of its own; the baselines run in others, turn
by turn. All take the same lines. The limit counts against `json_loads_s`, the plain loop one would write:
`[json.loads(line) for line in open(path, "rb")]`; what it gives is kept, for a conversation that is thrown away cannot
be gone on with. Three harder ones stand beside it: `buffered` reads with a buffer fitted to long lines, `dropped` does
so and keeps nothing, `in_memory` is handed the lines and keeps nothing. The last two never ask for fresh memory, which
the system hands out in pages of 4 KiB: of a log of large results that is half of the fold's time, as of any reader's
that keeps texts. There the fold comes to about 0.6 of the first of the three and to more of the other two.
(A text decoded late would put the cost off to the first request, and to prove at load that its line is sound takes as
long as decoding it.)

Times are processor seconds of the whole process (user and system), the best of seven, since other work on
the machine counts less there; wall seconds stand beside them. The view's size is given as compact JSON and
as it is in memory.
"""

import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bareagent import platform
from bareagent.entries import AnyEntry, MessageEntry, SessionStart, Usage
from bareagent.messages import Message, text_block
from bareagent.session import load
from bareagent.store.lines import encode_body, encode_line
from bareagent.store.log import Log

N_RUNS = 7
AT = "2026-11-30T01:48:53.120Z"
USAGE = Usage(uncached=3, cache_read=41_000, cache_write=600, output=150)


def small_entries(n: int) -> Iterator[AnyEntry]:
    """Turns of four short entries: a line, a call, its result, an answer."""
    filler = "The quick brown fox jumps over the lazy dog. " * 7
    for i in range(n // 4):
        call = {"type": "tool_use", "id": f"toolu_{i:020}", "name": "bash", "input": {"command": filler}}
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": [text_block(filler)]}
        messages: list[tuple[Message, str]] = [
            ({"role": "user", "content": [text_block(f"line {i}: {filler}")]}, "line"),
            ({"role": "assistant", "content": [call]}, "reply"),
            ({"role": "user", "content": [result]}, "results"),
            ({"role": "assistant", "content": [text_block(filler)]}, "reply"),
        ]
        for message, kind in messages:
            is_reply = kind == "reply"
            yield MessageEntry(
                message=message,
                kind=kind,  # type: ignore[arg-type]  # the literals above
                usage=USAGE if is_reply else None,
                model="claude-sonnet-4-5" if is_reply else "",
                stop_reason="end_turn" if is_reply else None,
            )


def large_entries(n: int) -> Iterator[AnyEntry]:
    """Calls and their results of 50 KB."""
    for i in range(n):
        call = {"type": "tool_use", "id": f"toolu_{i:020}", "name": "bash", "input": {"command": "ls -la"}}
        text = f"{i:07}: the output of a command, line after line\n" * 926
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": [text_block(text)]}
        yield MessageEntry(message={"role": "assistant", "content": [call]}, kind="reply", usage=USAGE)
        yield MessageEntry(message={"role": "user", "content": [result]}, kind="results")


def write(path: Path, entries: Iterator[AnyEntry]) -> None:
    """Write a log, its first entry the session's."""
    first = SessionStart(id="20261130-014853-k3f7", cwd="/", created=AT, program="0")
    with path.open("wb") as file:
        file.write(encode_line(encode_body(first), 1, AT))
        for n, entry in enumerate(entries, 2):
            file.write(encode_line(encode_body(entry), n, AT))


def measured_fold(path: Path) -> dict[str, float]:
    """Open and fold once; run in a fresh process."""
    before = platform.peak_memory_bytes()
    wall, start = time.perf_counter(), time.process_time()
    log = Log.open(path, is_read_only=True)
    view = load(log)
    seconds, wall = time.process_time() - start, time.perf_counter() - wall
    peak = platform.peak_memory_bytes() - before
    size = sum(len(msgspec.json.encode(message)) for message in view.messages)
    log.close()
    return {
        "seconds": seconds,
        "wall": wall,
        "peak_mb": peak / 1e6,
        "view_mb": size / 1e6,
        "memory_mb": size_in_memory(view.messages) / 1e6,
    }


def size_in_memory(value: object) -> int:
    """Return what a JSON value takes in memory, shared keys counted once."""
    size = 0
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        size += sys.getsizeof(item)
        if isinstance(item, dict):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            waiting += item
    return size


def measured_baseline(path: Path) -> dict[str, float]:
    """Time `json.loads` over the lines of the file, all results kept."""
    return _kept(path, -1)


def measured_buffered(path: Path) -> dict[str, float]:
    """Do the same with a buffer that holds several long lines."""
    return _kept(path, 1 << 18)


def _kept(path: Path, buffering: int) -> dict[str, float]:
    wall, start = time.perf_counter(), time.process_time()
    with path.open("rb", buffering) as file:
        kept = [json.loads(line) for line in file]
    seconds, wall = time.process_time() - start, time.perf_counter() - wall
    return {"seconds": seconds, "wall": wall, "n": len(kept)}


def measured_dropped(path: Path) -> dict[str, float]:
    """Time `json.loads` over the lines of the file, no result kept."""
    wall, start = time.perf_counter(), time.process_time()
    with path.open("rb", buffering=1 << 18) as file:
        for line in file:
            json.loads(line)
    return {"seconds": time.process_time() - start, "wall": time.perf_counter() - wall}


def measured_in_memory(path: Path) -> dict[str, float]:
    """Time `json.loads` over lines that stand in memory, no result kept."""
    lines = path.read_bytes().splitlines()
    wall, start = time.perf_counter(), time.process_time()
    for line in lines:
        json.loads(line)
    return {"seconds": time.process_time() - start, "wall": time.perf_counter() - wall}


MEASURES = {
    "fold": measured_fold,
    "kept": measured_baseline,
    "buffered": measured_buffered,
    "dropped": measured_dropped,
    "in_memory": measured_in_memory,
}
VARIANTS = ("buffered", "dropped", "in_memory")


def in_fresh_process(what: str, path: Path) -> dict[str, float]:
    """Run one measurement in a process of its own, the collector of garbage off as in the fold."""
    command = [sys.executable, "-m", "benchmarks.bench_resume", what, str(path)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    measured: dict[str, float] = json.loads(output)
    return measured


def measure(path: Path) -> dict[str, object]:
    """Compare the fold of one log with its baseline."""
    runs = [{what: in_fresh_process(what, path) for what in MEASURES} for _ in range(N_RUNS)]
    best = {what: min(run[what]["seconds"] for run in runs) for what in MEASURES}
    wall = {what: min(run[what]["wall"] for run in runs) for what in MEASURES}
    folds = [run["fold"] for run in runs]
    peak_mb = max(run["peak_mb"] for run in folds)
    return {
        "log_mb": round(path.stat().st_size / 1e6, 1),
        "fold_s": round(best["fold"], 3),
        "json_loads_s": round(best["kept"], 3),
        "ratio": round(best["fold"] / best["kept"], 3),
        "ratio_allowed": 0.6,
        "json_loads_s_by_variant": {what: round(best[what], 3) for what in VARIANTS},
        "ratio_by_variant": {what: round(best["fold"] / best[what], 3) for what in VARIANTS},
        "fold_wall_s": round(wall["fold"], 3),
        "json_loads_wall_s": round(wall["kept"], 3),
        "peak_mb": round(peak_mb, 1),
        "view_mb": round(folds[0]["view_mb"], 1),
        "view_in_memory_mb": round(folds[0]["memory_mb"], 1),
        "peak_over_view_in_memory": round((peak_mb - 24) / folds[0]["memory_mb"], 2),
        "peak_over_view_in_memory_allowed": 2.5,
    }


def main() -> None:
    if len(sys.argv) == 3:
        gc.disable()
        print(json.dumps(MEASURES[sys.argv[1]](Path(sys.argv[2]))))
        return
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder, "small.jsonl"), Path(folder, "large.jsonl")
        write(small, small_entries(200_000))
        write(large, large_entries(2_000))
        print(json.dumps({"small_entries": measure(small), "large_results": measure(large)}, indent=2))


if __name__ == "__main__":
    main()
