"""What survives a compaction when the summary says nothing: sessions cut at 50,000 tokens.

The summariser answers with one empty-handed line, so what stands in the rebuilt view is what is kept by
code. Of later-edited paths that a file tool had named before the cut, of the user's sentences with a
prohibition (the newest 2,000 tokens of them), of open todos and pins: the share that is in the view. Of all
results that were cleared or compacted away: the share that one recall brings back. Baseline: the same
without facts.
"""

import argparse
import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bareagent import context
from bareagent.config import Compaction, Config
from bareagent.entries import MessageEntry, Pin, Todo, TodoItem, Usage
from bareagent.messages import Message, calls, has_results, results, text_block, text_of
from bareagent.seams import Answer, Emit, ModelInfo, Question, Reply, Request
from bareagent.session import Session
from bareagent.tools.background import Jobs
from bareagent.tools.base import ToolContext
from bareagent.tools.recall import MAX_SLICE_CHARS, Recall, RecallParams
from benchmarks.texts import Recorded, generate, read

CUT_TOKENS = 50_000
PROHIBITION_TOKENS = 2_000
RECALLS = 12
PROHIBITION = re.compile(r"\b(?:do not|don'?t|never|must|only)\b|不要|不能|必须|禁止", re.IGNORECASE)
EDITS = frozenset(("edit", "write", "multiedit", "edit_file", "write_file", "notebookedit", "create"))
FILES = EDITS | {"read", "read_file", "view"}
TODOS = [
    TodoItem(id="t1", text="finish the parser"),
    TodoItem(id="t2", text="run all tests", status="in_progress"),
]
PIN = "The port of the test server is 8123."


class EmptyHanded:
    """A provider whose summaries say nothing."""

    name = "empty-handed"
    model = ModelInfo(name="empty-handed", token_factor=1.1)

    async def reply(self, _request: Request, _on_event: Emit, /) -> Reply:
        """Answer with one line."""
        message: Message = {"role": "assistant", "content": [text_block("Some work was done.")]}
        return Reply(message=message, stop_reason="end_turn", usage=Usage())

    async def select(self, _name: str, /) -> ModelInfo:
        """Keep the model."""
        return self.model

    async def facts(self, _name: str, /) -> ModelInfo:
        """Know the model."""
        return self.model

    async def aclose(self) -> None:
        """Hold nothing."""


def prohibitions(lines: Sequence[str]) -> list[str]:
    """Return the newest sentences with a prohibition, up to the limit."""
    sentences = [part.strip() for line in lines for part in re.split(r"(?<=[.!?。！？])\s+|\n+", line)]
    kept, room = [], float(PROHIBITION_TOKENS)
    for sentence in reversed([part for part in sentences if PROHIBITION.search(part)]):
        room -= context.estimate_tokens(sentence)
        if room < 0:
            break
        kept.append(sentence)
    return kept


def named(messages: Sequence[Message], tools: frozenset[str]) -> set[str]:
    """Return the paths that calls of some tools name."""
    found = set()
    for message in messages:
        for call in calls(message):
            given = call.get("input")
            path = given.get("file_path") or given.get("path") if isinstance(given, dict) else None
            if str(call.get("name")).lower() in tools and isinstance(path, str):
                found.add(path)
    return found


class Cut:
    """One session up to its cut, and what came after it."""

    def __init__(self, recorded: Recorded) -> None:
        self.session = Session.in_memory()
        self.session.record(Todo(items=TODOS, next_id=3))
        self.session.record(Pin(pins=[PIN]))
        self.lines: list[str] = []
        messages = [billed.message for billed in recorded.messages if billed.message["content"]]
        size, self.n = 0.0, 0
        for self.n, message in enumerate(messages, 1):
            size += context.estimate_tokens(message["content"])
            self._append(message)
            if size > CUT_TOKENS and message["role"] == "user":
                break
        self.before, self.after = messages[: self.n], messages[self.n :]
        self.is_long = size > CUT_TOKENS

    def _append(self, message: Message) -> None:
        if message["role"] == "assistant":
            self.session.append(message, "reply")
        elif has_results(message):
            self.session.append(message, "results")
        else:
            self.lines.append(text_of(message))
            self.session.append(message, "line")


async def survive(cut: Cut, *, has_facts: bool) -> dict[str, tuple[int, int]]:
    """Compact a cut session; return found and wanted of each kind."""
    config = Config(compaction=Compaction(facts=has_facts))
    await context.compact_now(cut.session, EmptyHanded(), [], config, ignore, "auto")
    shown = "\n".join(strings(cut.session.messages))
    paths = named(cut.after, EDITS) & named(cut.before, FILES)
    wanted = {
        "edited paths": paths,
        "prohibitions": set(prohibitions(cut.lines)),
        "todos and pins": {PIN, *(item.text for item in TODOS)},
    }
    return {kind: (sum(one in shown for one in items), len(items)) for kind, items in wanted.items()}


def strings(value: Any) -> Iterator[str]:
    """Yield every text of a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


async def recalled(cut: Cut) -> tuple[int, int]:
    """Return how many of the results that are gone come back by one recall, and how many were tried."""
    here = Path.cwd()
    ctx = ToolContext(
        session=cut.session, config=Config(), cwd=here, root=here, emit=ignore, ask=no, jobs=Jobs()
    )
    standing = set(cut.session.view.ids)
    gone = [
        (f"r{entry.n}" if k == 1 else f"r{entry.n}.{k}", text_of(block))
        for entry in cut.session.entries()
        if isinstance(entry, MessageEntry) and entry.n not in standing
        for k, block in enumerate(results(entry.message), 1)
    ]
    step = max(len(gone) // RECALLS, 1)
    n_back = 0
    tried = gone[::step]
    for handle, text in tried:
        output = await Recall().run(RecallParams(handle=handle, limit=MAX_SLICE_CHARS), ctx)
        n_back += text[:MAX_SLICE_CHARS] in output.text
    return n_back, len(tried)


def ignore(_heard: object) -> None:
    """Nobody listens."""


async def no(_question: Question) -> Answer:
    """Refuse."""
    return Answer(verdict="no")


async def measure(sessions: Iterator[Recorded], *, has_facts: bool, has_recall: bool) -> dict[str, Any]:
    """Return the shares over all sessions that are long enough."""
    totals: dict[str, list[int]] = {}
    n = 0
    for recorded in sessions:
        cut = Cut(recorded)
        if not cut.is_long:
            continue
        n += 1
        found = await survive(cut, has_facts=has_facts)
        if has_recall:
            found["recalled"] = await recalled(cut)
        for kind, (got, wanted) in found.items():
            total = totals.setdefault(kind, [0, 0])
            total[0] += got
            total[1] += wanted
    shares = {
        kind: {"share": round(got / wanted, 4) if wanted else 1.0, "of": wanted}
        for kind, (got, wanted) in totals.items()
    }
    return {"sessions": n, **shares}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trajectories", type=Path, help="sessions with texts; default: made-up ones")
    given = parser.parse_args()

    def sessions() -> Iterator[Recorded]:
        return read(given.trajectories) if given.trajectories else generate(40)

    out = {
        "default": asyncio.run(measure(sessions(), has_facts=True, has_recall=True)),
        "without facts": asyncio.run(measure(sessions(), has_facts=False, has_recall=False)),
    }
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
