"""The keys: one table of what they do; the bindings and docs/terminal.md derive from it."""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from prompt_toolkit.application import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition, FilterOrBool, is_searching, to_filter, vi_insert_mode
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from bareagent.repl import edit


class Keyed(Protocol):
    """What keys may ask for."""

    def enter(self) -> None:
        """Send the draft, or take the completion that is marked."""

    def new_line(self) -> None:
        """Begin a new line in the draft."""

    def up(self) -> None:
        """Go up: in the menu, in the draft, to a queued line, to the history."""

    def down(self) -> None:
        """Go down."""

    def tab(self) -> None:
        """Complete."""

    def cycle_mode(self) -> None:
        """Take the next permission mode."""

    def edit_draft(self) -> None:
        """Open the draft in an editor."""

    def redraw(self) -> None:
        """Draw the screen anew."""

    def expand(self) -> None:
        """Show what is folded, or the last result whole."""

    def escape(self) -> None:
        """Close a menu or stop the run."""

    def control_c(self) -> None:
        """Stop the run, clear the draft, or leave."""

    def control_d(self) -> None:
        """Leave where the draft is empty; else delete."""

    def suspend(self) -> None:
        """Stop the program until the shell wakes it."""

    def steer(self) -> None:
        """Deliver what is queued after the present calls."""

    def paste(self, text: str) -> None:
        """Take a pasted text."""

    def backspace(self) -> None:
        """Delete a character, or a fold whole."""

    def panel_key(self, key: str) -> None:
        """Answer a question, move in a list."""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table: how it is called, what it does, the prompt_toolkit keys."""

    names: str
    help: str
    keys: tuple[tuple[str, ...], ...]
    act: Callable[[Keyed], Callable[[], None]]
    in_panel: bool = False


TABLE = (
    Key(names="Enter", help="send the line", keys=(("enter",),), act=lambda k: k.enter),
    Key(
        names="Alt-Enter, Ctrl-J, Shift-Enter, \\ Enter",
        help="begin a new line (Shift-Enter where the terminal tells it apart)",
        keys=(("escape", "enter"), ("c-j",)),
        act=lambda k: k.new_line,
    ),
    Key(names="Up", help="queued line, then history", keys=(("up",), ("c-p",)), act=lambda k: k.up),
    Key(names="Down", help="forward in the history", keys=(("down",), ("c-n",)), act=lambda k: k.down),
    Key(names="Tab", help="complete a command, an argument, an @path", keys=(("tab",),), act=lambda k: k.tab),
    Key(
        names="Shift-Tab",
        help="next permission mode: default, auto, plan",
        keys=(("s-tab",),),
        act=lambda k: k.cycle_mode,
        in_panel=True,
    ),
    Key(
        names="Ctrl-G",
        help="edit the draft in $VISUAL or $EDITOR",
        keys=(("c-g",),),
        act=lambda k: k.edit_draft,
    ),
    Key(names="Ctrl-L", help="draw the screen anew", keys=(("c-l",),), act=lambda k: k.redraw, in_panel=True),
    Key(
        names="Ctrl-O",
        help="unfold pastes in the draft; else show the last result, or the question, whole",
        keys=(("c-o",),),
        act=lambda k: k.expand,
        in_panel=True,
    ),
    Key(
        names="Esc",
        help="close the menu or stop the run (vi: from navigation mode)",
        keys=(("escape",),),
        act=lambda k: k.escape,
        in_panel=True,
    ),
    Key(
        names="Ctrl-C",
        help="stop the run; clear the draft; on an empty line twice: leave",
        keys=(("c-c",), ("<sigint>",)),
        act=lambda k: k.control_c,
        in_panel=True,
    ),
    Key(names="Ctrl-D", help="leave, on an empty line", keys=(("c-d",),), act=lambda k: k.control_d),
    Key(
        names="Ctrl-Z",
        help="suspend; fg comes back",
        keys=(("c-z",),),
        act=lambda k: k.suspend,
        in_panel=True,
    ),
    Key(
        names="Ctrl-S",
        help="in a run: deliver the draft or the queued lines after the present calls",
        keys=(("c-s",),),
        act=lambda k: k.steer,
    ),
    Key(
        names="Backspace",
        help="delete; a folded paste whole",
        keys=(("backspace",),),
        act=lambda k: k.backspace,
    ),
)

OTHERS = (
    ("Enter on an empty line", "after a failed call: send it again"),
    ("Left Right Delete", "move and delete by whole characters, joined emoji too"),
    ("Ctrl-R", "search the history"),
    ("Ctrl-A Ctrl-E Ctrl-K Ctrl-U Ctrl-W Ctrl-Y", "move, cut and paste as in a shell"),
)
"""What the docs name beside the table: keys of prompt_toolkit's own, and those of `_BY_GRAPHEME`."""
_BY_GRAPHEME = {"left": edit.go_left, "right": edit.go_right, "delete": edit.delete_after}

PANEL_KEYS = ("up", "down", "tab", "c-r", "c-d", "enter", "backspace")


def bindings(keyed: Callable[[], Keyed], has_panel: FilterOrBool, is_writing: FilterOrBool) -> KeyBindings:
    """Bind the table to what is asked for; in a panel only its own keys and those marked so."""
    made = KeyBindings()
    panel, writing = to_filter(has_panel), to_filter(is_writing)
    for key in TABLE:
        where = ~is_searching if key.in_panel else ~panel & ~is_searching
        if key.names == "Esc":
            where &= ~Condition(_is_vi) | ~vi_insert_mode
        _bind(made, key, keyed, where)
    made.add("backspace", filter=panel & writing)(_on_buffer(edit.delete_before))
    for name in PANEL_KEYS:
        # In the text line Backspace edits it.
        where = panel & ~writing if name == "backspace" else panel
        made.add(name, filter=where)(_panel_key(keyed, name))
    made.add("c-j", filter=panel & ~writing)(_panel_key(keyed, "\n"))  # by itself it would be an Enter
    for name, act in _BY_GRAPHEME.items():
        made.add(name, filter=(~panel | writing) & ~is_searching & _has_no_selection)(_on_buffer(act))
    made.add(Keys.Any, filter=panel & ~writing)(lambda event: keyed().panel_key(event.data))
    made.add(Keys.BracketedPaste)(lambda event: keyed().paste(event.data))
    return made


def _is_vi() -> bool:
    return get_app().editing_mode == EditingMode.VI


def _bind(made: KeyBindings, key: Key, keyed: Callable[[], Keyed], where: FilterOrBool) -> None:
    def act(_event: KeyPressEvent) -> None:
        key.act(keyed())()

    for sequence in key.keys:
        made.add(*sequence, filter=where)(act)


@Condition
def _has_no_selection() -> bool:
    return get_app().current_buffer.selection_state is None


def _on_buffer(act: Callable[[Buffer], None]) -> Callable[[KeyPressEvent], Any]:
    return lambda event: act(event.current_buffer)


def _panel_key(keyed: Callable[[], Keyed], name: str) -> Callable[[KeyPressEvent], Any]:
    return lambda _event: keyed().panel_key(name)
