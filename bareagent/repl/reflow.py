"""Where the live region has gone when a terminal was resized: some lay their rows out anew."""

from collections.abc import Mapping

from prompt_toolkit.data_structures import Point
from prompt_toolkit.layout.screen import Screen

_PROGRAMS = {"iTerm.app", "WezTerm", "ghostty", "vscode", "Apple_Terminal", "rio"}
_MARKS = ("TMUX", "VTE_VERSION", "KITTY_WINDOW_ID", "WT_SESSION", "ALACRITTY_WINDOW_ID", "KONSOLE_VERSION")


def has_reflow(env: Mapping[str, str]) -> bool:
    """Tell whether the terminal is one that wraps its rows anew when its width changes."""
    return env.get("TERM_PROGRAM") in _PROGRAMS or any(env.get(name) for name in _MARKS)


def rows_above_cursor(drawn: Screen, cursor: Point, new_width: int) -> int:
    """Return how many rows above the cursor the drawing begins after a resize.

    `new_width` 0: the terminal leaves rows as they are.
    """
    if new_width <= 0:
        return cursor.y
    above = sum(_n_rows(_used(drawn, y), new_width) for y in range(cursor.y))
    return above + cursor.x // new_width


def _used(drawn: Screen, y: int) -> int:
    """Return the columns of a row up to its last visible character."""
    row = drawn.data_buffer[y]
    return max((x + char.width for x, char in row.items() if char.char.strip()), default=0)


def _n_rows(n_cells: int, width: int) -> int:
    return max(-(-n_cells // width), 1)
