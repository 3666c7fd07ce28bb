"""The terminal itself: what is written to it in one piece, what it says back, how it is left."""

import base64
import os
import re
import select
import sys
from collections.abc import Callable, Mapping
from typing import Protocol, TextIO

from prompt_toolkit.data_structures import Size
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.output.vt100 import Vt100_Output

from bareagent import platform
from bareagent.repl.strip import ERASE_DOWN
from bareagent.sanitize import valid_unicode

ASK_BACKGROUND = "\x1b]11;?\x1b\\"
MAX_COPY_BYTES = 100_000
LONG_PASTE_CHARS = 512
MAX_READ_CHARS = 1 << 20
MAX_KEYS_CHARS = 64
PASTE_BEGIN, PASTE_END = "\x1b[200~", "\x1b[201~"

# Show the cursor, end paste and mouse modes, leave the other screen, plain attributes.
_SANE = "\x1b[?2004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?25h\x1b[0m"
_REPLY = re.compile(r"\x1b\]11;rgb:([0-9a-fA-F/]{5,20})(?:\x07|\x1b\\)")
_REPLY_BEGUN = re.compile(r"\x1b\](?:1(?:1[^\x07\x1b]{0,40}\x1b?)?)?\Z")
# A whole control sequence (an old mouse report has three bytes more), and one that is cut off.
_CONTROL = re.compile(r"\x1b\[(?:\[[A-E]|M[ -\uffff]{3}|[0-?]*[ -/]*[@-Z\\-~])")
_CONTROL_BEGUN = re.compile(r"\x1b\[(?:[0-?]*|\[|M[ -\uffff]{0,2})\Z")
# Shift-Enter, where the terminal tells it apart.
_SHIFT_ENTER = re.compile(r"\x1b\[13;2u|\x1b\[27;2;13~")
_ONE_KEY = re.compile(r"\x1b?(?:\[[0-9;]*[A-Za-z~]|O.|.)?", re.DOTALL)
_MOVES = re.compile(r"(?:\x1b(?:\[[0-9;]*[A-H~]|O[A-H]))*\r?")
# Keys behind a line that no paste ends with: arrows and their like, Esc, Ctrl-C and its like.
_KEYS_BEHIND = re.compile(
    r"(?:\x1b(?:\[[0-9;]*[A-H]|\[3~|O[A-H])?|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f])+\Z"
)
# An Enter with more behind it, Alt-Enter and what stands inside a bracketed paste left alone.
_ENTER_INSIDE = re.compile(r"(?<!\x1b)\r(?=[^\r\n])(?=(?:(?!\x1b\[201~).)*(?:\x1b\[200~|\Z))", re.DOTALL)
_HYPERLINK_PROGRAMS = {"iTerm.app", "WezTerm", "vscode", "ghostty", "Hyper", "rio"}
_NO_OSC = {"linux", "vt52", "vt100", "vt102", "vt220", "cons25", "sun", "ansi"}
_NOTIFY_9 = {"iTerm.app", "WezTerm", "ghostty"}


class Canvas(Vt100_Output):
    """Writes what belongs together in one piece, and never asks where the cursor is."""

    _frozen: Size | None = None
    _is_held = False
    _is_pasting = False

    @property
    def responds_to_cpr(self) -> bool:
        """The answer would arrive as if it were typed; nothing here needs it."""
        return False

    def hold(self) -> None:
        """Keep everything back until `release`: a terminal then never shows half a picture."""
        self._is_held = True

    def release(self) -> None:
        """Write what was held back."""
        if self._is_held:
            self._is_held = False
            self.flush()

    def freeze(self) -> None:
        """Keep the size as it is and throw away what is drawn until `thaw`."""
        self._frozen = super().get_size()

    def thaw(self) -> None:
        """Take up the new size; what was drawn meanwhile is gone."""
        self._frozen = None
        self._buffer.clear()

    def get_size(self) -> Size:
        """Return rows and columns."""
        return self._frozen or super().get_size()

    def flush(self) -> None:
        """Write, unless held. A terminal that is gone swallows it: the hang-up signal is on its way."""
        if self._is_held or self._frozen:
            return
        try:
            super().flush()
        except OSError:
            self._buffer.clear()

    def erase_down(self) -> None:
        """Erase from the cursor, which stands in the first column, to the end."""
        self.write_raw(ERASE_DOWN)

    def enable_bracketed_paste(self) -> None:
        """Turn it on where it is not."""
        if not self._is_pasting:
            self._is_pasting = True
            super().enable_bracketed_paste()

    def disable_bracketed_paste(self) -> None:
        """Turn it off, but not in the middle of a picture."""
        if self._is_pasting and not self._is_held:
            self._is_pasting = False
            super().disable_bracketed_paste()


class Reader(Protocol):
    """What gives the characters typed."""

    closed: bool

    def read(self, count: int = 1024) -> str:
        """Return what waits."""


class Typed:
    """Stands before the keyboard: takes out the terminal's answers, tells pastes from keys.

    Without bracketed paste an Enter with more bytes behind it is a new line, and such text is given on
    as a paste. `is_burst` says that the last characters came as one piece, so not from a hand; arrows and
    the Enter behind them, which a slow line gathers, are none.
    """

    def __init__(self, reader: Reader, descriptor: int, on_background: Callable[[bool], None]) -> None:
        """Read through `reader`; `on_background` hears whether the background is light."""
        self._reader = reader
        self._descriptor = descriptor
        self._on_background = on_background
        self._held = ""
        self._last = ""
        self._is_in_paste = False
        self._was_lines = False
        self.is_burst = False

    @property
    def closed(self) -> bool:
        """The terminal is gone."""
        return self._reader.closed

    def read(self, _count: int = 1024) -> str:
        """Return what was typed, as the key parser should see it."""
        data = self._held + self._reader.read()
        self._held = ""
        while self._waits() and len(data) < MAX_READ_CHARS:
            more = self._reader.read(1 << 16)
            if not more:
                break
            data += more
        data = self._without_strange(self._without_replies(data))
        return self._as_paste(_SHIFT_ENTER.sub("\n", valid_unicode(data)))

    def _waits(self) -> bool:
        try:
            return bool(select.select([self._descriptor], [], [], 0)[0])
        except (OSError, ValueError):
            return False

    def _without_replies(self, data: str) -> str:
        found = _REPLY.search(data)
        if found:
            self._on_background(_is_light(found[1]))
            data = _REPLY.sub("", data)
        begun = _REPLY_BEGUN.search(data)
        if begun and len(begun[0]) > 1:
            self._held, data = begun[0], data[: begun.start()]
        return data

    def _without_strange(self, data: str) -> str:
        """Leave out what no key sends: mouse and focus reports, key releases; a half one waits for its rest."""
        if "\x1b[" not in data:
            return data
        begun = _CONTROL_BEGUN.search(data)
        if begun:
            self._held, data = begun[0], data[: begun.start()]
        return _CONTROL.sub(_if_known, data)

    def _as_paste(self, data: str) -> str:
        was_in_paste = self._is_in_paste
        self._note_paste(data)
        self.is_burst = not (_ONE_KEY.fullmatch(data) or _MOVES.fullmatch(data))
        keys = _KEYS_BEHIND.search(data, max(len(data) - MAX_KEYS_CHARS, 0))
        if keys and keys.start() and not was_in_paste and "\x1b" not in data[: keys.start()]:
            return self._as_lines(data[: keys.start()]) + keys[0]
        if was_in_paste or self._is_in_paste or PASTE_BEGIN in data or "\x1b" in data:
            self._was_lines = False
            if was_in_paste or (self._is_in_paste and PASTE_BEGIN not in data):
                return data
            typed, begin, pasted = data.rpartition(PASTE_BEGIN) if self._is_in_paste else (data, "", "")
            return _ENTER_INSIDE.sub("\n", typed + begin) + pasted
        return self._as_lines(data)

    def _as_lines(self, data: str) -> str:
        lines = data.rstrip("\r\n")
        is_lines = "\r" in lines or "\n" in lines or (self._was_lines and len(data) > 1)
        self._was_lines = is_lines and len(data) > LONG_PASTE_CHARS
        return f"{PASTE_BEGIN}{data}{PASTE_END}" if is_lines else data

    def _note_paste(self, data: str) -> None:
        text = self._last + data
        begin, end = text.rfind(PASTE_BEGIN), text.rfind(PASTE_END)
        if begin != end:
            self._is_in_paste = begin > end
        self._last = data[-5:]


def _if_known(found: re.Match[str]) -> str:
    sequence = found[0]
    is_known = sequence in ANSI_SEQUENCES or sequence == PASTE_END or _SHIFT_ENTER.fullmatch(sequence)
    return sequence if is_known else ""


def _is_light(colour: str) -> bool:
    """Tell whether `RRRR/GGGG/BBBB` is rather light."""
    parts = [part for part in colour.split("/") if part]
    if len(parts) != 3:
        return False
    red, green, blue = (int(part, 16) / int("f" * len(part), 16) for part in parts)
    return 0.3 * red + 0.59 * green + 0.11 * blue > 0.5


def ask_background(env: Mapping[str, str] = os.environ) -> str:
    """Return what asks for the background's colour; empty where it would be shown as text."""
    return "" if env.get("TERM") in _NO_OSC else ASK_BACKGROUND


def copy_sequence(text: str, env: Mapping[str, str] = os.environ) -> str:
    """Return what puts a text on the clipboard (OSC 52); empty where it is too long, or there is none."""
    data = base64.b64encode(text.encode())
    if len(data) > MAX_COPY_BYTES or env.get("TERM") in _NO_OSC:
        return ""
    return _through(f"\x1b]52;c;{data.decode()}\x07", env)


def notify_sequence(title: str, body: str, env: Mapping[str, str] = os.environ) -> str:
    """Return the bell, and a notice of the desktop's where the terminal is known to show it."""
    if env.get("TERM_PROGRAM") in _NOTIFY_9:
        return "\x07" + _through(f"\x1b]9;{title}: {body}\x07", env)
    if env.get("VTE_VERSION") or env.get("TERM", "").startswith(("rxvt", "foot")):
        return "\x07" + _through(f"\x1b]777;notify;{title};{body}\x07", env)
    return "\x07"


def _through(sequence: str, env: Mapping[str, str]) -> str:
    """Wrap a sequence so that GNU screen passes it on; tmux knows these itself."""
    if env.get("TERM", "").startswith("screen") and not env.get("TMUX"):
        return f"\x1bP{sequence}\x1b\\"
    return sequence


def has_hyperlinks(env: Mapping[str, str] = os.environ) -> bool:
    """Tell whether the terminal is one that shows OSC 8 links."""
    if env.get("TERM_PROGRAM") in _HYPERLINK_PROGRAMS or env.get("TERM") in {"xterm-kitty", "foot"}:
        return True
    vte = env.get("VTE_VERSION", "")
    return bool(env.get("WT_SESSION") or env.get("KITTY_WINDOW_ID") or (vte.isdigit() and int(vte) >= 5000))


def is_usable(stdin: TextIO | None, stdout: TextIO | None, env: Mapping[str, str] = os.environ) -> bool:
    """Tell whether a live screen can be drawn: a terminal on both sides that understands more than text."""
    if stdin is None or stdout is None or sys.platform == "win32" or env.get("TERM", "") in {"", "dumb"}:
        return False
    try:
        return stdin.isatty() and stdout.isatty()
    except ValueError:
        return False


class Guard:
    """Gives the terminal back as it was, whichever way the program ends."""

    def __init__(self, stdin: TextIO, stdout: TextIO) -> None:
        """Note how the terminal is now."""
        self._stdout = stdout
        self._descriptor = stdin.fileno()
        self._state = platform.terminal_state(self._descriptor)

    def restore(self) -> None:
        """Set modes, cursor, paste and mouse back; a terminal that is gone is no fault."""
        try:
            self._stdout.write(_SANE)
            self._stdout.flush()
        except (OSError, ValueError):
            pass
        platform.restore_terminal(self._descriptor, self._state)

    def drain(self) -> None:
        """Throw away what was typed and not read: the shell behind must not take it for commands."""
        platform.discard_input(self._descriptor)
