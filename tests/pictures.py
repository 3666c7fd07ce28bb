"""Makes the README's pictures: the real program, a scripted model, the screen as a terminal shows it.

`python -m tests.pictures` writes docs/pictures/*.svg.
"""

import html
import tempfile
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pyte

from tests.screen import Terminal, repl
from tests.server.script import StepLike
from tests.server.script import load as load_script
from tests.server.server import serve

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
CELL_W, CELL_H, PAD = 8.4, 18, 12
BACKGROUND, FOREGROUND = "#16181d", "#d5d8de"
NAMED = {
    "black": "#2b2f38",
    "red": "#f07178",
    "green": "#a6cc70",
    "brown": "#ffcc66",
    "blue": "#73b8ff",
    "magenta": "#d4a6ff",
    "cyan": "#95e6cb",
    "white": "#d5d8de",
}


class Look(NamedTuple):
    """How a cell is drawn."""

    colour: str
    is_bold: bool
    is_italic: bool
    background: str


def colour_of(name: str, otherwise: str) -> str:
    if name == "default":
        return otherwise
    if len(name) == 6 and all(char in "0123456789abcdefABCDEF" for char in name):
        return f"#{name}"
    return NAMED.get(name.removeprefix("bright"), otherwise)


def look_of(cell: Any) -> Look:
    colour, background = colour_of(cell.fg, FOREGROUND), colour_of(cell.bg, "")
    if cell.reverse:
        colour, background = background or BACKGROUND, colour
    return Look(colour, cell.bold, cell.italics, background)


class Stretch(NamedTuple):
    """Cells of one look that stand side by side; a wide character's second cell is empty."""

    column: int
    look: Look
    cells: list[str]


def stretches(row: Any, width: int) -> Iterator[Stretch]:
    """Yield a row's stretches, from left to right."""
    cells = [(column, row[column]) for column in range(width)]
    for look, group in groupby(cells, key=lambda pair: look_of(pair[1])):
        taken = list(group)
        yield Stretch(taken[0][0], look, [cell.data for _, cell in taken])


def svg(screen: pyte.Screen) -> str:
    """Return the screen as an SVG picture; empty rows at its ends are left out."""
    shown = [number for number, row in enumerate(screen.display) if row.strip()] or [0]
    n_rows = shown[-1] - shown[0] + 1
    width, height = screen.columns * CELL_W + 2 * PAD, n_rows * CELL_H + 2 * PAD
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'font-family="ui-monospace,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="14">',
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
    ]
    for number in range(n_rows):
        parts += row_parts(screen.buffer[shown[0] + number], screen.columns, PAD + number * CELL_H)
    return "\n".join([*parts, "</svg>", ""])


def row_parts(row: Any, columns: int, top: float) -> Iterator[str]:
    for column, look, cells in stretches(row, columns):
        if look.background:
            yield (
                f'<rect x="{PAD + column * CELL_W:.1f}" y="{top:.1f}" width="{len(cells) * CELL_W:.1f}" '
                f'height="{CELL_H}" fill="{look.background}"/>'
            )
        inked = [at for at, cell in enumerate(cells) if cell.strip()]
        if inked:
            yield word_part(column + inked[0], look, cells[inked[0] : inked[-1] + 1], top)


def word_part(column: int, look: Look, cells: list[str], top: float) -> str:
    style = ' font-weight="bold"' * look.is_bold + ' font-style="italic"' * look.is_italic
    return (
        f'<text x="{PAD + column * CELL_W:.1f}" y="{top + 13:.1f}" fill="{look.colour}"{style} '
        f'textLength="{len(cells) * CELL_W:.1f}" xml:space="preserve">{html.escape("".join(cells))}</text>'
    )


def save(terminal: Terminal, name: str) -> None:
    terminal.settle(0.5)
    keep(terminal, name)


def keep(terminal: Terminal, name: str) -> None:
    """Keep the picture of this very moment."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    (PICTURES / f"{name}.svg").write_text(svg(terminal.screen), encoding="utf-8")


def play(folder: Path) -> None:
    """Play the task of twelve turns and take the pictures."""
    project, home = folder / "slug", folder / "home"
    project.mkdir(parents=True)
    steps, options = load_script(ROOT / "tests" / "server" / "scripts" / "task.json")
    # The first picture is taken while this reply is being written.
    steps = [slowed(step) for step in steps]
    summary = {
        "summary": True,
        "text": "The user wants slug.py with a test; both are written and the tests pass.",
    }
    with (
        serve([summary, *steps], **options) as server,
        repl(
            project, home=home, server=server, arguments=["--mode", "bypass"], rows=29, columns=104
        ) as terminal,
    ):
        terminal.enter("Write slug.py with a function slug(title), and a test for it.")
        terminal.wait(lambda t: any("They pass. Is" in row for row in t.shown) and t.is_busy, 90)
        keep(terminal, "session")
        terminal.wait("both tests in", 90)
        terminal.wait_prompt()
        terminal.enter("/clear")
        terminal.wait("New conversation started.")
        terminal.enter(f"/resume {first_session(project)}")
        terminal.wait("Resumed session")
        terminal.enter("/context")
        terminal.wait("Compactions so far", 20)
        save(terminal, "context")
        terminal.leave()


def slowed(step: StepLike) -> StepLike:
    """Return the step, its reply slow to come where it is the one that the first picture shows."""
    is_shown = isinstance(step, Mapping) and str(step.get("text")).startswith("They pass")
    return {**step, "delay_s": 0.4} if isinstance(step, Mapping) and is_shown else step


def first_session(project: Path) -> str:
    """Return the id of the session with the task in it."""
    return min(path.name for path in (project / ".transcripts").iterdir() if path.is_dir())


def main() -> None:
    """Make all pictures."""
    with tempfile.TemporaryDirectory() as folder:
        play(Path(folder))


if __name__ == "__main__":
    main()
