"""Streaming Markdown: CPU and bytes of a 200 KB answer that comes in 5-character pieces.

The baseline is one rendering of the whole text by the same code, in the same run. The live region is
modelled as prompt_toolkit draws it: at most 20 frames a second; rows that are final are printed
above, after which the region is drawn anew; otherwise only what changed in a row is sent. Frames fall
due by a simulated clock, at the named number of pieces a second. Prints one JSON object.
"""

import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from itertools import takewhile

from bareagent.repl.markdown import MarkdownStream, render
from bareagent.repl.styles import THEMES

WIDTH = 100
TAIL_ROWS = 12
PIECE_CHARS = 5
FRAMES_PER_S = 20
PIECES_PER_S = (200, 1000, 5000)
LENGTHS = (100_000, 200_000)
WORDS = [
    "the",
    "agent",
    "reads",
    "a",
    "file",
    "and",
    "世界",
    "`runs`",
    "**tests**",
    "again,",
    "[all](http://x.y/z)",
]


def prose(chance: random.Random, n_words: int) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(n_words))


def code(chance: random.Random, n_lines: int) -> str:
    lines = (f"    value_{n} = compute({n}, 'text')  # {chance.choice(WORDS)}" for n in range(n_lines))
    return "```python\ndef main() -> None:\n" + "\n".join(lines) + "\n```"


def table(chance: random.Random, n_rows: int) -> str:
    rows = (f"| {n} | `name_{n}` | {prose(chance, 5)} |" for n in range(n_rows))
    return "| n | name | what it does |\n|--:|:--|---|\n" + "\n".join(rows)


def mixed(chance: random.Random, n_blocks: int) -> str:
    def block(n: int) -> str:
        items = "\n".join(f"- **{n}.{k}** {prose(chance, 14)}" for k in range(5))
        parts = [f"## Part {n}", prose(chance, 70), items, code(chance, 12), "> " + prose(chance, 20)]
        return "\n\n".join([*parts, table(chance, 6)])

    return "\n\n".join(block(n) for n in range(n_blocks))


# More than enough of each kind; cut to length below.
DOCUMENTS: dict[str, Callable[[random.Random], str]] = {
    "mixed": lambda chance: mixed(chance, max(LENGTHS) // 1000),
    "code": lambda chance: code(chance, max(LENGTHS) // 30),
    "paragraph": lambda chance: prose(chance, max(LENGTHS) // 4),
    "table": lambda chance: table(chance, max(LENGTHS) // 30),
}


class Region:
    """The live region as a terminal gets it: counts bytes, sends none."""

    def __init__(self) -> None:
        self.n_bytes = 0
        self._shown: list[str] = []

    def frame(self, final: list[str], tail: list[str]) -> None:
        if final:
            self.n_bytes += len(f"\x1b[{len(self._shown)}A\r\x1b[J") + size(final)
            self._shown = []
        for n, row in enumerate(tail):
            before = self._shown[n] if n < len(self._shown) else ""
            if row != before:
                same = n_same(row, before)
                self.n_bytes += len("\x1b[99;99H\x1b[K\x1b[38;5;117m") + size([row[same:]]) - 2
        self._shown = tail


def n_same(row: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(row, other, strict=False)))


def size(rows: list[str]) -> int:
    return sum(len(row.encode()) + 2 for row in rows)


def pieces(text: str) -> Iterator[str]:
    return (text[at : at + PIECE_CHARS] for at in range(0, len(text), PIECE_CHARS))


def stream(text: str, pieces_per_s: int) -> tuple[float, int, list[str]]:
    """Give CPU seconds, bytes and the final rows of the text streamed at this speed."""
    region, every = Region(), max(pieces_per_s // FRAMES_PER_S, 1)
    shown: list[str] = []
    pending: list[str] = []
    cpu_s = 0.0
    markdown = MarkdownStream(WIDTH, THEMES["dark"])
    began = time.process_time()
    for n, piece in enumerate(pieces(text), 1):
        pending += markdown.feed(piece)
        if n % every == 0:
            tail = markdown.tail(TAIL_ROWS)
            cpu_s += time.process_time() - began
            region.frame(pending, tail)
            shown += pending
            pending = []
            began = time.process_time()
    pending += markdown.finish()
    cpu_s += time.process_time() - began
    region.frame(pending, [])
    return cpu_s, region.n_bytes, shown + pending


def whole(text: str) -> tuple[float, list[str]]:
    began = time.process_time()
    rendered = render(text, WIDTH, THEMES["dark"])
    return time.process_time() - began, rendered.splitlines()


def best(measure: Callable[[], float], n_tries: int = 4) -> float:
    return min(measure() for _ in range(n_tries))


def figures(kind: str) -> dict[str, object]:
    short, text = (DOCUMENTS[kind](random.Random(7))[:n_chars] for n_chars in LENGTHS)
    whole(text)
    whole_s = best(lambda: whole(text)[0])
    rows = whole(text)[1]
    result: dict[str, object] = {
        "chars": len(text),
        "whole_cpu_s": round(whole_s, 3),
        "whole_bytes": size(rows),
    }
    middle = PIECES_PER_S[1]
    doubled = best(lambda: stream(text, middle)[0]) / best(lambda: stream(short, middle)[0])
    result["time_of_double_length"] = round(doubled, 2)
    for speed in PIECES_PER_S:
        cpu_s, n_bytes, shown = stream(text, speed)
        result[f"at_{speed}_pieces_per_s"] = {
            "cpu_ratio": round(cpu_s / whole_s, 2),
            "bytes_ratio": round(n_bytes / size(rows), 2),
            "rows_equal": shown == rows,
        }
    return result


def main() -> None:
    kinds = sys.argv[1:] or list(DOCUMENTS)
    print(json.dumps({"width": WIDTH, **{kind: figures(kind) for kind in kinds}}, indent=1))


if __name__ == "__main__":
    main()
