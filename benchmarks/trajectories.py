"""Sessions in sizes for the policy benchmark: read from a file, or made up by a seeded generator."""

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import msgspec

TOKEN_SCALE = 1.12
"""Provider tokens for each token of o200k."""
BLOCK_TOKENS = 3
IMAGE_TOKENS = 1500
_CAPS = {"dayhaysoos/nimbus": 120, "sierra-research/tau-bench": 60}
"""Near-duplicate sources, held down so that no one project decides."""


class Piece(msgspec.Struct):
    """One block: true tokens, the product's estimates (fast; classic in quarters), characters."""

    kind: str
    tokens: int
    fast: float
    plain: int
    chars: int
    tool: str


class Turn(msgspec.Struct):
    """One message; `needs` are the (message, block) places of results whose text its edits replace."""

    role: str
    at: float | None
    pieces: list[Piece]
    needs: list[tuple[int, int]]
    number: int


class Trajectory(msgspec.Struct):
    """One session."""

    id: str
    source: str
    turns: list[Turn]


def read(path: Path) -> list[Trajectory]:
    """Return the trajectories of a file of skeletons, near-duplicates capped."""
    found = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            one = _trajectory(json.loads(line))
            if sum(turn.role == "a" for turn in one.turns) >= 3:
                found.append(one)
    return _capped(found)


def _trajectory(data: dict[str, Any]) -> Trajectory:
    turns = []
    for number, message in enumerate(data["m"]):
        pieces = [_piece(block) for block in message["b"]]
        if pieces and not message.get("compaction"):
            needs = [(place[0], place[1]) for place in message.get("d", ())]
            turns.append(Turn(message["r"], message.get("t"), pieces, needs, number))
    return Trajectory(data["id"], data["source"], turns)


def _piece(block: list[Any]) -> Piece:
    kind, tokens, chars, plain, tool, fast = block[:6]
    images = block[6] if kind == "r" and len(block) > 6 else 0
    return Piece(
        kind=kind,
        tokens=int(tokens * TOKEN_SCALE + 0.5) + BLOCK_TOKENS + IMAGE_TOKENS * images,
        fast=fast + BLOCK_TOKENS + IMAGE_TOKENS * images,
        plain=round(plain * 4),
        chars=chars,
        tool=str(tool or "unknown"),
    )


def _capped(found: list[Trajectory]) -> list[Trajectory]:
    by_source: dict[str, list[Trajectory]] = {}
    for one in found:
        by_source.setdefault(one.source.split("@")[0], []).append(one)
    kept = []
    for source, rows in by_source.items():
        rows.sort(key=lambda one: hashlib.md5(f"cap{one.id}".encode(), usedforsecurity=False).hexdigest())
        kept += rows[: _CAPS.get(source, len(rows))]
    return kept


_TOOLS = (("read_file", 0.35, 7.2), ("bash", 0.4, 5.6), ("grep", 0.15, 5.4), ("edit_file", 0.1, 4.0))
"""Name, share, and the logarithm of the usual result's tokens."""


def generate(n: int, seed: int = 7) -> list[Trajectory]:
    """Return made-up sessions with sizes, pauses and edits in the manner of real ones."""
    rng = random.Random(seed)
    return [_made_up(rng, index) for index in range(n)]


def _made_up(rng: random.Random, index: int) -> Trajectory:
    turns: list[Turn] = []
    reads: list[tuple[int, int]] = []
    at = 0.0
    for call in range(int(rng.lognormvariate(3.4, 0.9)) + 3):
        if call == 0 or rng.random() < 0.08:
            at += rng.expovariate(1 / 90) if call else 0.0
            turns.append(_turn(rng, "u", at, [("t", "", 4.3)], [], len(turns)))
        at += rng.expovariate(1 / 9)
        name, _, size = rng.choices(_TOOLS, [share for _, share, _ in _TOOLS])[0]
        needs = [_source(rng, reads)] if name == "edit_file" and reads else []
        turns.append(_turn(rng, "a", at, [("t", "", 3.2), ("u", name, 4.2)], needs, len(turns)))
        at += rng.expovariate(1 / 4)
        if name == "read_file":
            reads.append((len(turns), 0))
        turns.append(_turn(rng, "u", at, [("r", name, size)], [], len(turns)))
    return Trajectory(f"made-{index}", "generator", turns)


def _source(rng: random.Random, reads: list[tuple[int, int]]) -> tuple[int, int]:
    """Choose what an edit replaces: most often the last file read."""
    return reads[-1 - min(int(rng.expovariate(1 / 1.2)), len(reads) - 1)]


def _turn(
    rng: random.Random,
    role: str,
    at: float,
    blocks: list[tuple[str, str, float]],
    needs: list[tuple[int, int]],
    number: int,
) -> Turn:
    pieces = []
    for kind, tool, size in blocks:
        tokens = int(rng.lognormvariate(size, 0.9)) + 1
        guess = tokens / TOKEN_SCALE * rng.lognormvariate(0, 0.08)
        pieces.append(Piece(kind, tokens, guess, round(tokens * 3.6), tokens * 4, tool))
    return Turn(role, at, pieces, needs, number)
