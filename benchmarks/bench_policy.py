"""What forgetting costs: sessions replayed through the product's own plan and Meter.

Prompt = 6,000 tokens of system and tools + all blocks. What is the same as in the last request is read
from the cache, the rest is written. A cleared result costs 13 tokens. A full compaction sends the history
as fresh text (or, `prefix`, reads it from the cache), writes 2,000 tokens and keeps the tail. An edit
whose source was cleared or compacted away costs one more request that reads the whole block again. The
thrash guard is left out, as the price model has none.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bareagent.config import Compaction, Config
from bareagent.context.measure import PLACEHOLDER_TOKENS, Measured, Result, Sized
from bareagent.context.micro import Cache
from bareagent.context.plan import Full, plan
from bareagent.context.reminder import Todos
from bareagent.context.room import Room
from bareagent.context.tokens import Meter
from bareagent.seams import Price
from benchmarks.trajectories import TOKEN_SCALE, Piece, Trajectory, Turn, generate, read

SYSTEM_TOKENS = 6_000
SUMMARY_TOKENS = 2_000
REREAD_CALL_TOKENS = 90
SUMMARY_QUESTION_TOKENS = 500
RESERVE = 20_000
CACHE_LIFE_S = 300.0
PRICE = Price(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75)


class Held:
    """One block that stands in the context: its true tokens now, and at first."""

    def __init__(self, piece: Piece, result: Result | None) -> None:
        self.tokens = self.whole = piece.tokens
        self.result = result


class Replay:
    """One session under one setting."""

    def __init__(self, config: Config, limit: int, has_pauses: bool, is_prefix: bool) -> None:
        self.config = config
        self.room = Room(window=limit + RESERVE, reserve=RESERVE, max_output=8_192)
        self.has_pauses = has_pauses
        self.is_prefix = is_prefix
        self.totals: dict[str, float] = dict.fromkeys(
            ("requests", "edits", "hidden", "compactions", "clears", "uncached", "read", "write", "output"), 0
        )

    def run(self, one: Trajectory) -> None:
        """Replay one session from its start."""
        self.meter = Meter(TOKEN_SCALE)
        self.sizes: list[Sized] = []
        self.held: list[list[Held]] = []
        self.places: dict[tuple[int, int], Held] = {}
        self.gone: dict[tuple[int, int], int] = {}
        self.cached: list[int] = []
        self.n_cached, self.rent = 0, 0.0
        self.last_at: float | None = None
        sent_at: float | None = None
        for turn in one.turns:
            if turn.role == "a":
                self._request(turn, sent_at if sent_at is not None else turn.at)
            else:
                sent_at = turn.at if turn.at is not None else sent_at
            self._append(turn)
            if turn.role == "a":
                self._learn()

    def _append(self, turn: Turn) -> None:
        sized = Sized("assistant" if turn.role == "a" else "user", id=turn.number + 1)
        held = []
        for place, piece in enumerate(turn.pieces):
            result = None
            if piece.kind == "r":
                result = Result(
                    index=place,
                    tokens=piece.fast,
                    plain=piece.plain,
                    chars=piece.chars,
                    tool=piece.tool,
                    handle=f"{turn.number}.{place}",
                )
                sized.results.append(result)
            held.append(Held(piece, result))
            self.places[turn.number, place] = held[-1]
            sized.tokens += piece.fast
            sized.plain += piece.plain
        if turn.role == "u" and not sized.results:
            sized.kind = "line"
        self.sizes.append(sized)
        self.held.append(held)

    def _request(self, turn: Turn, at: float | None) -> None:
        is_cold = self._is_cold(at)
        if is_cold:
            self.cached = []
        now = plan(
            Measured(self.sizes, SYSTEM_TOKENS / TOKEN_SCALE),
            self.meter,
            Todos(),
            Cache(is_cold=is_cold or not self.n_cached, n_messages=self.n_cached, rent=self.rent),
            PRICE,
            self.config,
            self.room,
        )
        self.rent = now.micro.rent
        if now.micro.reason:
            self._clear([slot.result for slot in now.micro.batch.slots])
        if now.full:
            self._compact(now.full)
        self.totals["edits"] += len(turn.needs)
        missing = [self.gone.pop(place) for place in turn.needs if place in self.gone]
        if missing:
            self.totals["hidden"] += len(missing)
            self._bill()
            self._reread(sum(missing))
        self._bill()
        self.totals["output"] += sum(piece.tokens for piece in turn.pieces)
        self.last_at = turn.at if turn.at is not None else self.last_at

    def _is_cold(self, at: float | None) -> bool:
        if not self.has_pauses or self.last_at is None or at is None:
            return False
        return at - self.last_at > CACHE_LIFE_S

    def _clear(self, results: Sequence[Result]) -> None:
        chosen = {id(result) for result in results}
        freed = 0.0
        by_held = {id(held): place for place, held in self.places.items()}
        for sized, blocks in zip(self.sizes, self.held, strict=True):
            for held in blocks:
                if held.result is None or id(held.result) not in chosen:
                    continue
                self.gone[by_held[id(held)]] = held.whole
                held.tokens = int(PLACEHOLDER_TOKENS)
                sized.tokens -= held.result.saving
                sized.plain -= held.result.plain_saving
                freed += held.result.saving
                held.result.plain -= held.result.plain_saving
                held.result.tokens = PLACEHOLDER_TOKENS
                held.result.is_cleared = True
        self.totals["clears"] += 1
        self.meter.clear(freed)

    def _compact(self, full: Full) -> None:
        first = full.cut.first
        history = sum(held.tokens for blocks in self.held[:first] for held in blocks)
        self._price_summary(history, first)
        before = {id(held) for blocks in self.held[:first] for held in blocks if held.result is not None}
        for place, held in self.places.items():
            if id(held) in before:
                self.gone[place] = held.whole
        fast = SUMMARY_TOKENS / TOKEN_SCALE
        header = Sized("user", tokens=fast, plain=SUMMARY_TOKENS * 4, is_header=True)
        self.sizes = [header, *self.sizes[first:]]
        summary = Held(Piece("t", SUMMARY_TOKENS, fast, 0, 0, ""), None)
        self.held = [[summary], *self.held[first:]]
        self.cached, self.n_cached, self.rent = self.cached[:1], 0, 0.0
        self.meter.void()
        self.totals["compactions"] += 1

    def _price_summary(self, history: int, first: int) -> None:
        if self.is_prefix:
            flat = [held.tokens for blocks in self.held[:first] for held in blocks]
            known = sum(self._same(flat))
            self.totals["read"] += known
            self.totals["uncached"] += history + SYSTEM_TOKENS - known + SUMMARY_QUESTION_TOKENS
        else:
            self.totals["uncached"] += history + SUMMARY_QUESTION_TOKENS
        self.totals["output"] += SUMMARY_TOKENS

    def _same(self, flat: list[int]) -> list[int]:
        """Return the sizes of the blocks that the cache holds; block 0 is system and tools."""
        same = []
        for old, new in zip(self.cached, [SYSTEM_TOKENS, *flat], strict=False):
            if old != new:
                break
            same.append(old)
        return same

    def _reread(self, tokens: int) -> None:
        self.totals["output"] += REREAD_CALL_TOKENS
        fast = tokens / TOKEN_SCALE
        call = Piece("u", REREAD_CALL_TOKENS, REREAD_CALL_TOKENS / TOKEN_SCALE, 300, 300, "read")
        piece = Piece("r", tokens, fast, tokens * 4, tokens * 4, "read")
        result = Result(index=0, tokens=fast, plain=piece.plain, chars=piece.chars, tool="read")
        self.sizes.append(Sized("assistant", tokens=call.fast, plain=call.plain))
        self.sizes.append(Sized("user", tokens=fast, plain=piece.plain, results=[result]))
        self.held += [[Held(call, None)], [Held(piece, result)]]
        self.places[-1, len(self.places)] = self.held[-1][0]

    def _bill(self) -> None:
        flat = [held.tokens for blocks in self.held for held in blocks]
        known = sum(self._same(flat))
        total = SYSTEM_TOKENS + sum(flat)
        self.totals["read"] += known
        self.totals["write"] += total - known
        self.totals["requests"] += 1
        self.cached = [SYSTEM_TOKENS, *flat]
        self.n_cached = len(self.held)
        self.billed = total

    def _learn(self) -> None:
        reply = sum(held.tokens for held in self.held[-1])
        estimate = SYSTEM_TOKENS / TOKEN_SCALE + sum(sized.tokens for sized in self.sizes)
        self.meter.learn(self.billed + reply, estimate)

    def cost_usd(self) -> float:
        """Return the dollars so far."""
        t = self.totals
        return (
            t["uncached"] * PRICE.input
            + t["write"] * PRICE.cache_write
            + t["read"] * PRICE.cache_read
            + t["output"] * PRICE.output
        ) / 1e6


POLICIES: dict[str, dict[str, Any]] = {
    "never": {"micro": "off"},
    "eager": {"micro": "eager", "min_chars": 40},
    "default": {},
    "cost-first": {"keep_tokens": 0},
}
SETTINGS = {"180k": (180_000, False), "180k pauses": (180_000, True), "50k": (50_000, False)}
"""The limit in tokens, and whether the cache dies in real pauses."""


def measure(
    sessions: list[Trajectory], policy: dict[str, Any], limit: int, pauses: bool, is_prefix: bool
) -> Replay:
    """Replay all sessions under one policy."""
    # The price model keeps 8,000 tokens, however many runs they are.
    config = Config(compaction=Compaction(threshold="auto", tail_turns=100, **policy))
    replay = Replay(config, limit, pauses, is_prefix)
    for one in sessions:
        replay.run(one)
    return replay


def row(replay: Replay, base: float) -> dict[str, float]:
    """Return what is printed of one replay."""
    t = replay.totals
    return {
        "cost_usd": round(replay.cost_usd(), 2),
        "ratio": round(replay.cost_usd() / base, 4),
        "compactions": int(t["compactions"]),
        "clears": int(t["clears"]),
        "hidden_edits": round(t["hidden"] / max(t["edits"], 1), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trajectories", type=Path, help="a file of skeletons; default: made-up sessions")
    parser.add_argument("--n", type=int, default=120, help="how many made-up sessions")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--summaries", default="text,prefix")
    parser.add_argument("--settings", default=",".join(SETTINGS))
    given = parser.parse_args()
    sessions = read(given.trajectories) if given.trajectories else generate(given.n)
    out: dict[str, Any] = {"sessions": len(sessions)}
    for setting in given.settings.split(","):
        limit, pauses = SETTINGS[setting]
        for summary in given.summaries.split(","):
            runs = {
                name: measure(sessions, POLICIES[name], limit, pauses, summary == "prefix")
                for name in dict.fromkeys(["never", *given.policies.split(",")])
            }
            base = runs["never"].cost_usd()
            out[f"{setting}, {summary} summaries"] = {name: row(run, base) for name, run in runs.items()}
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
