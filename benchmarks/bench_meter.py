"""How well the size of a request is known before it is sent, and what the estimate costs.

The Meter against billed usage (95th percentile of the absolute error, its lower bound left out); the fast
estimate against a tokenizer's counts by block, and its time against `bytes.translate` over the same text.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bareagent.context.measure import measure
from bareagent.context.tokens import Meter, compact_json, estimate_tokens, fast_tokens
from bareagent.messages import text_of
from benchmarks.texts import Recorded, generate, read, true_tokens

TABLE = bytes(byte ^ 1 for byte in range(256))


def percentile(values: list[float], share: float) -> float:
    """Return a percentile; 0 for no values."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0


def errors_of(session: Recorded) -> list[float]:
    """Return the relative error before each billed reply for which there was a bill to go by."""
    meter = Meter(1.05 if is_gpt(session.model) else 1.25)
    errors = []
    estimate, last = 0.0, 0
    names: dict[Any, str] = {}
    for billed in session.messages:
        size = measure(billed.message, names).tokens
        if billed.is_marked or 0 < billed.prompt < last:
            meter.void()
        if billed.prompt:
            if meter.billed is not None:
                errors.append(abs(meter.reading(estimate) - billed.prompt) / billed.prompt)
            last = billed.prompt
        estimate += size
        if billed.prompt:
            meter.learn(billed.prompt + billed.output, estimate)
    return errors


def is_gpt(model: str) -> bool:
    """Tell whether a session's model is one of OpenAI's."""
    return model.lower().startswith(("gpt", "o1", "o3", "o4", "codex"))


def block_text(block: dict[str, Any]) -> str:
    """Return what of a block a tokenizer would see."""
    match block.get("type"):
        case "thinking":
            return str(block.get("thinking", ""))
        case "tool_use":
            return f"{block.get('name', '')}{compact_json(block.get('input'))}"
    return text_of(block)


def counted(sessions: Iterable[Recorded], skeletons: Path | None) -> list[tuple[str, float]]:
    """Return texts of blocks with a tokenizer's count of each."""
    if skeletons is None:
        texts = [
            block_text(block) for one in sessions for m in one.messages for block in m.message["content"]
        ]
        return [(text, max(true_tokens(text), 1.0)) for text in texts if text]
    with skeletons.open(encoding="utf-8") as file:
        known = {data["id"]: data["m"] for data in map(json.loads, file)}
    return [pair for one in sessions for pair in _matched(one, known.get(one.id, []))]


def _matched(session: Recorded, sizes: list[dict[str, Any]]) -> Iterable[tuple[str, float]]:
    """Yield the texts of one session whose length is that of the counted block."""
    for billed, counts in zip(session.messages, sizes, strict=False):
        for block, count in zip(billed.message["content"], counts["b"], strict=False):
            text = block_text(block)
            if count[1] > 0 and len(text) == count[2]:
                yield text, float(count[1])


def seconds(work: Callable[[], object], rounds: int = 5) -> float:
    """Return the shortest CPU time of a piece of work."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def speed(texts: list[str]) -> dict[str, float]:
    """Return times against `bytes.translate` over the same texts."""
    data = [text.encode("utf-8", "surrogatepass") for text in texts]
    base = seconds(lambda: [part.translate(TABLE) for part in data])
    fast = seconds(lambda: [fast_tokens(text) for text in texts])
    classic = seconds(lambda: [estimate_tokens(text) for text in texts])
    n_bytes = sum(map(len, data))
    return {
        "translate_mb_s": round(n_bytes / base / 1e6),
        "estimate_mb_s": round(n_bytes / fast / 1e6, 1),
        "estimate_over_translate": round(fast / base, 1),
        "classic_over_translate": round(classic / base, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--trajectories", type=Path, help="sessions with texts and usage; default: made-up ones"
    )
    parser.add_argument("--skeletons", type=Path, help="a tokenizer's counts; default: beside the sessions")
    given = parser.parse_args()
    sessions = list(read(given.trajectories)) if given.trajectories else list(generate(60))
    skeletons = given.skeletons
    if given.trajectories and skeletons is None:
        skeletons = given.trajectories.with_name("skeletons.jsonl")
    errors: dict[str, list[float]] = {"claude": [], "gpt": []}
    for session in sessions:
        errors["gpt" if is_gpt(session.model) else "claude"] += errors_of(session)
    blocks = counted(sessions, skeletons)
    off = [abs(fast_tokens(text) - tokens) / tokens for text, tokens in blocks]
    out = {
        "sessions": len(sessions),
        **{
            f"meter_{name}": {"replies": len(found), "p95": round(percentile(found, 0.95), 4)}
            for name, found in errors.items()
        },
        "estimate": {"blocks": len(blocks), "p95": round(percentile(off, 0.95), 4)},
        "time": speed([text for text, _ in blocks]),
    }
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
