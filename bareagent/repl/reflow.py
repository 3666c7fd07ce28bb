"""Where the live region has gone when a terminal was resized: some lay their rows out anew."""

from collections.abc import Mapping

from prompt_toolkit.data_structures import Point
from prompt_toolkit.layout.screen import Screen

_PROGRAMS = {"iTerm.app", "WezTerm", "ghostty", "vscode", "Apple_Terminal", "rio"}
_MARKS = ("TMUX", "VTE_VERSION", "KITTY_WINDOW_ID", "WT_SESSION", "ALACRITTY_WINDOW_ID", "KONSOLE_VERSION")

_LATE = ("TMUX", "ZELLIJ", "STY")


def settle_s(env: Mapping[str, str]) -> float:
    """Return how long a size must have stayed before it counts, in seconds.

    Multiplexers lay their rows out at once and tell the new size up to a quarter of a second later.
    """
    return 0.5 if any(env.get(name) for name in _LATE) else 0.08


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
    # Behind the end of its row the cursor goes with the end.
    return above + min(cursor.x // new_width, _n_rows(_used(drawn, cursor.y), new_width) - 1)


def _used(drawn: Screen, y: int) -> int:
    """Return the columns of a row up to its last visible character."""
    row = drawn.data_buffer[y]
    return max((x + char.width for x, char in row.items() if char.char.strip()), default=0)


def _n_rows(n_cells: int, width: int) -> int:
    return max(-(-n_cells // width), 1)
