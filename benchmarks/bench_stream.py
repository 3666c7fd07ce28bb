"""Streaming Markdown: CPU and bytes of a 200 KB answer that comes in 5-character pieces.

The pieces go through what the program itself uses: `Live` hears them, the prompt_toolkit application with
its input line, status line and toolbar draws on a pseudo-terminal, whose bytes are counted and read back
as a screen with scrollback. Frames fall due by a simulated clock, at the named number of pieces a second.
The baseline is one rendering of the whole text by the same code, in the same run. Prints one JSON object.
"""

import asyncio
import json
import os
import random
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator

import pyte
from prompt_toolkit.history import InMemoryHistory

from bareagent.config import Ui
from bareagent.entries import TextDelta
from bareagent.repl.first import Hands
from bareagent.repl.live import Live
from bareagent.repl.markdown import render
from bareagent.repl.screen import FRAME_S, Screen
from bareagent.repl.strip import plain
from bareagent.repl.styles import THEMES

WIDTH, HEIGHT = 100, 30
PIECE_CHARS = 5
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


class Clock:
    """Time as the answer's pieces tell it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Streaming(Hands):
    """The live region of a run: the unfinished end of the answer, a blank row, the status line."""

    live: Live

    def moving(self, width: int, max_rows: int) -> list[str]:
        above = self.live.rows(width, max_rows - 2)
        return [*above, "", self.live.status(width)] if max_rows > 3 else []

    def foot(self, width: int) -> str:
        return "model · default · 12%"[:width]


class Tty:
    """A pseudo-terminal whose other side is read to its end by a thread."""

    def __init__(self) -> None:
        self.master, slave = os.openpty()
        tty.setraw(slave)
        os.set_blocking(self.master, True)
        termios.tcsetwinsize(slave, (HEIGHT, WIDTH))
        self.stdin, self.stdout = os.fdopen(os.dup(slave)), os.fdopen(slave, "w")
        self.seen = bytearray()
        self.reading_s = 0.0
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self.master, 1 << 16)
            except OSError:
                break
            if not data:
                break
            self.seen += data
        self.reading_s = time.thread_time()

    def close(self) -> None:
        self.stdin.close()
        self.stdout.close()
        self._thread.join()
        os.close(self.master)


def pieces(text: str) -> Iterator[str]:
    return (text[at : at + PIECE_CHARS] for at in range(0, len(text), PIECE_CHARS))


async def drawn(screen: Screen, live: Live, clock: Clock, text: str, pieces_per_s: int) -> float:
    """Stream the text; give the CPU seconds it took."""
    is_drawn = asyncio.Event()
    screen.app.after_render += lambda _: is_drawn.set()
    runs = asyncio.ensure_future(screen.app.run_async())
    await is_drawn.wait()
    live.begin()
    began, due = time.process_time(), clock.now
    for piece in pieces(text):
        screen.print(live.hear(TextDelta(text=piece)))
        clock.now += 1 / pieces_per_s
        if clock.now >= due:
            due = clock.now + FRAME_S
            screen.frame()
            await asyncio.sleep(0)
    screen.print(live.end())
    screen.frame()
    took = time.process_time() - began
    screen.leave()
    await runs
    screen.flush()
    return took


def stream(text: str, pieces_per_s: int) -> tuple[float, bytes]:
    """Give CPU seconds and the bytes that went to the terminal."""
    terminal, clock = Tty(), Clock()
    try:
        screen = Screen(InMemoryHistory(), terminal.stdin, terminal.stdout)
        hands = Streaming(screen, THEMES["dark"], "default")
        screen.hands = hands
        hands.live = Live(THEMES["dark"], lambda: WIDTH, Ui(), clock=clock)
        took = asyncio.run(drawn(screen, hands.live, clock, text, pieces_per_s))
    finally:
        terminal.close()
    return took - terminal.reading_s, bytes(terminal.seen)


def read_back(sent: bytes, text_rows: list[str]) -> bool:
    """Tell whether all rows stand on the screen and in its scrollback, once each and in order."""
    screen = pyte.HistoryScreen(WIDTH, HEIGHT, history=100_000, ratio=0.5)
    pyte.ByteStream(screen).feed(sent)
    above = ["".join(row[x].data for x in range(WIDTH)).rstrip() for row in screen.history.top]
    rows = [row for row in [*above, *(row.rstrip() for row in screen.display)] if row]
    return rows == [plain(row).rstrip() for row in text_rows if plain(row).strip()]


def whole(text: str) -> tuple[float, list[str]]:
    began = time.process_time()
    rendered = render(text, WIDTH, THEMES["dark"])
    return time.process_time() - began, rendered.splitlines()


def bests(measures: list[Callable[[], float]], n_tries: int = 4) -> list[float]:
    """Give the least of each, taken in turns, so that what else the machine does hits all alike."""
    taken = [[measure() for measure in measures] for _ in range(n_tries)]
    return [min(each) for each in zip(*taken, strict=True)]


def size(rows: list[str]) -> int:
    return sum(len(row.encode()) + 2 for row in rows)


def figures(kind: str) -> dict[str, object]:
    short, text = (DOCUMENTS[kind](random.Random(7))[:n_chars] for n_chars in LENGTHS)
    rows = whole(text)[1]
    sent: dict[int, bytes] = {}

    def streamed(pieces_per_s: int) -> float:
        took, sent[pieces_per_s] = stream(text, pieces_per_s)
        return took

    middle = PIECES_PER_S[1]
    whole_s, short_s, *streams_s = bests(
        [
            lambda: whole(text)[0],
            lambda: stream(short, middle)[0],
            *(lambda speed=speed: streamed(speed) for speed in PIECES_PER_S),
        ]
    )
    result: dict[str, object] = {
        "chars": len(text),
        "whole_cpu_s": round(whole_s, 3),
        "whole_bytes": size(rows),
        "time_of_double_length": round(streams_s[1] / short_s, 2),
    }
    for speed, cpu_s in zip(PIECES_PER_S, streams_s, strict=True):
        result[f"at_{speed}_pieces_per_s"] = {
            "cpu_ratio": round(cpu_s / whole_s, 2),
            "bytes_ratio": round(len(sent[speed]) / size(rows), 2),
            "rows_equal": read_back(sent[speed], rows),
        }
    return result


def main() -> None:
    kinds = sys.argv[1:] or list(DOCUMENTS)
    print(json.dumps({"width": WIDTH, **{kind: figures(kind) for kind in kinds}}, indent=1))


if __name__ == "__main__":
    main()
