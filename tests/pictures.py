"""Makes the README's pictures: the real program, a scripted model, the screen as a terminal shows it.

`python -m tests.pictures` writes docs/pictures/*.svg.
"""

import html
import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pyte

from tests.screen import Terminal, repl
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


def spans(row: Any, width: int) -> Iterator[tuple[int, Look, str]]:
    """Yield start column, look and text of each stretch of one look."""
    cells = [(column, row[column]) for column in range(width)]
    for look, group in groupby(cells, key=lambda pair: look_of(pair[1])):
        taken = list(group)
        yield taken[0][0], look, "".join(cell.data for _, cell in taken)


def svg(screen: pyte.Screen) -> str:
    """Return the screen as an SVG picture; empty rows at its end are left out."""
    shown = [number for number, row in enumerate(screen.display) if row.strip()]
    n_rows = max(shown, default=0) + 1
    width, height = screen.columns * CELL_W + 2 * PAD, n_rows * CELL_H + 2 * PAD
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'font-family="ui-monospace,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="14">',
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
    ]
    for number in range(n_rows):
        parts += row_parts(screen.buffer[number], screen.columns, PAD + number * CELL_H)
    return "\n".join([*parts, "</svg>", ""])


def row_parts(row: Any, columns: int, top: float) -> Iterator[str]:
    for column, look, text in spans(row, columns):
        left = PAD + column * CELL_W
        if look.background:
            yield (
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{len(text) * CELL_W:.1f}" '
                f'height="{CELL_H}" fill="{look.background}"/>'
            )
        if text.strip():
            style = ' font-weight="bold"' * look.is_bold + ' font-style="italic"' * look.is_italic
            yield (
                f'<text x="{left:.1f}" y="{top + 13:.1f}" fill="{look.colour}"{style} '
                f'textLength="{len(text) * CELL_W:.1f}" xml:space="preserve">{html.escape(text)}</text>'
            )


def save(terminal: Terminal, name: str) -> None:
    terminal.settle(0.5)
    PICTURES.mkdir(parents=True, exist_ok=True)
    (PICTURES / f"{name}.svg").write_text(svg(terminal.screen), encoding="utf-8")


def play(folder: Path) -> None:
    """Play the task of twelve turns and take the pictures."""
    project, home = folder / "slug", folder / "home"
    project.mkdir(parents=True)
    steps, options = load_script(ROOT / "tests" / "server" / "scripts" / "task.json")
    summary = {
        "summary": True,
        "text": "The user wants slug.py with a test; both are written and the tests pass.",
    }
    with (
        serve([summary, *steps], **options) as server,
        repl(
            project, home=home, server=server, arguments=["--mode", "bypass"], rows=34, columns=104
        ) as terminal,
    ):
        terminal.enter("Write slug.py with a function slug(title), and a test for it.")
        terminal.wait("both tests in", 90)
        terminal.wait_prompt()
        save(terminal, "session")
        terminal.enter("/clear")
        terminal.wait("New conversation started.")
        terminal.enter(f"/resume {first_session(project)}")
        terminal.wait("Resumed session")
        terminal.enter("/context")
        terminal.wait("Compactions so far", 20)
        save(terminal, "context")
        terminal.leave()


def first_session(project: Path) -> str:
    """Return the id of the session with the task in it."""
    return min(path.name for path in (project / ".transcripts").iterdir() if path.is_dir())


def main() -> None:
    """Make all pictures."""
    with tempfile.TemporaryDirectory() as folder:
        play(Path(folder))


if __name__ == "__main__":
    main()
