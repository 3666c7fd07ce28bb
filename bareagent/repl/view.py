"""What a conversation looks like: lines, calls, results, diffs and lists as finished rows.

Everything untrusted is cleaned here; rows hold SGR colours only and fit the width.
"""

from collections.abc import Sequence
from typing import Any

from bareagent.cells import cells
from bareagent.entries import CallEnded, Retrying, TodoItem
from bareagent.messages import Block, text_of
from bareagent.repl.ansi import cut, paint, wrapped
from bareagent.repl.rows import tokens
from bareagent.repl.styles import Styles
from bareagent.sanitize import clean, one_line

__all__ = [
    "call_row",
    "cut",
    "diff_rows",
    "ended_rows",
    "line_rows",
    "paint",
    "result_rows",
    "retrying",
    "said_rows",
    "seconds",
    "telling",
    "todo_rows",
    "tokens",
    "wrapped",
]

MAX_DIFF_ROWS = 60
MAX_LINE_ROWS = 40
TODO_MARKS = {"pending": "☐", "in_progress": "◐", "completed": "☑"}
_TELLING = (
    "command",
    "file_path",
    "pattern",
    "task",
    "question",
    "name",
    "query",
    "handle",
    "focus",
    "id",
    "path",
)


def said_rows(text: str, style: str, width: int) -> list[str]:
    """Return a line of the program's own."""
    return [paint(row, style) for row in wrapped(clean(text), max(width, 4))]


def retrying(heard: Retrying) -> str:
    """Return why a call is made again and which attempt it is."""
    return f"{one_line(heard.reason, 60)}; attempt {heard.attempt} of {heard.max_attempts}"


def line_rows(text: str, width: int, styles: Styles) -> list[str]:
    """Return the user's line as it stands in the conversation."""
    rows = wrapped(clean(text).strip("\n"), max(width - 2, 2))
    more = len(rows) - MAX_LINE_ROWS
    if more > 0:
        half = MAX_LINE_ROWS // 2
        rows = [*rows[:half], f"… {more} more lines …", *rows[-half:]]
    marks = [paint("> ", styles.accent)] + ["  "] * (len(rows) - 1)
    return [mark + paint(row, styles.strong) for mark, row in zip(marks, rows, strict=True)]


def telling(call: Block) -> str:
    """Return what tells a call from others of its tool: a command, a path with its range, a pattern."""
    given = call.get("input")
    if not isinstance(given, dict):
        return ""
    match call.get("name"):
        case "read_file":
            return _path_and_range(given)
        case "grep" | "glob":
            place = str(given.get("path") or ".")
            return str(given.get("pattern", "")) + ("" if place == "." else f"  in {place}")
        case "todo_write":
            items = given.get("items")
            return f"{len(items)} items" if isinstance(items, list) else ""
        case "exit_plan":
            return ""  # the plan itself stands before it
        case "recall":
            return " ".join(f"{key}={value}" for key, value in given.items())
    return next((str(given[key]) for key in _TELLING if given.get(key)), _first_text(given))


def _path_and_range(given: dict[str, Any]) -> str:
    path, offset, limit = str(given.get("file_path", "")), given.get("offset"), given.get("limit")
    if not (isinstance(offset, int) or isinstance(limit, int)):
        return path
    first = offset if isinstance(offset, int) else 1
    return f"{path}:{first}-{first + limit - 1}" if isinstance(limit, int) else f"{path}:{first}-"


def _first_text(given: dict[str, Any]) -> str:
    return next((value for value in given.values() if isinstance(value, str)), "")


def call_row(
    call: Block, width: int, styles: Styles, mark: str = "●", state: str = "", look: str = ""
) -> str:
    """Return a call on one row: mark, tool, telling argument, state at its end."""
    name = one_line(str(call.get("name", "?")), max(width // 2, 4))
    room = width - cells(mark) - 1 - cells(name) - (cells(state) + 2 if state else 0)
    argument = one_line(telling(call), room - 2) if room > 4 else ""
    parts = [paint(mark, look or styles.accent), " ", paint(name, styles.strong)]
    if argument:
        parts += ["  ", argument]
    if state and room >= 0:
        parts += ["  ", paint(state, styles.faint)]
    if room >= 0:
        return "".join(parts)
    bare = width - cells(mark) - 1
    return parts[0] + " " + cut(name, bare) if bare > 0 else cut(name, width)


def seconds(value: float) -> str:
    """Return a duration as a person says it: `3.2 s`, `2 min 5 s`."""
    if value < 60:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def ended_rows(ended: CallEnded, width: int, styles: Styles, n_lines: int) -> list[str]:
    """Return a call that has its result: its row and the result's first lines, diff or list."""
    is_error = bool(ended.result.get("is_error"))
    if ended.shown_as == "todo" and not is_error:
        return []  # the list itself was shown when it changed
    state = "failed" if is_error else ""
    if ended.duration_s >= 1:
        state = f"{state}, {seconds(ended.duration_s)}" if state else seconds(ended.duration_s)
    head = call_row(ended.call, width, styles, state=state, look=styles.error if is_error else styles.good)
    return [head, *_body(ended, width, styles, n_lines, is_error)]


def _body(ended: CallEnded, width: int, styles: Styles, n_lines: int, is_error: bool) -> list[str]:
    if ended.shown and ended.shown_as == "diff":
        return diff_rows(ended.shown, width, styles)
    text = ended.shown or text_of(ended.result.get("content"))
    if ended.call.get("name") == "read_file" and not is_error:
        return [paint(cut(f"  {_n_lines(text)}", width), styles.faint)]
    return result_rows(text, width, styles, n_lines, styles.error if is_error else styles.faint)


def _n_lines(text: str) -> str:
    n = text.rstrip("\n").count("\n") + 1
    return "1 line" if n == 1 else f"{n:,} lines"


def result_rows(text: str, width: int, styles: Styles, n_lines: int, look: str) -> list[str]:
    """Return a result's first lines, and how many more there are."""
    lines = text.strip("\n").split("\n", n_lines + 1)
    shown = lines[:n_lines]
    more = text.strip("\n").count("\n") + 1 - len(shown)
    if more == 1:
        shown, more = text.strip("\n").split("\n"), 0
    rows = [paint("  " + cut(line, width - 2), look) for line in shown if n_lines]
    if more > 0 and n_lines:
        rows.append(paint(cut(f"  … {more:,} more lines (Ctrl-O)", width), styles.faint))
    return rows


def diff_rows(diff: str, width: int, styles: Styles, limit: int = MAX_DIFF_ROWS) -> list[str]:
    """Return a unified diff in colours, capped."""
    lines = diff.split("\n", limit + 1)
    rows = [_diff_row(line, width, styles) for line in lines[:limit]]
    more = diff.count("\n") + 1 - len(rows)
    if more > 0:
        rows.append(paint(cut(f"  … {more:,} more lines (Ctrl-O)", width), styles.faint))
    return rows


def _diff_row(line: str, width: int, styles: Styles) -> str:
    looks = {"+": styles.inserted, "-": styles.deleted, "@": styles.accent}
    return paint("  " + cut(line, width - 2), looks.get(line[:1], ""))


def todo_rows(items: Sequence[TodoItem], width: int, styles: Styles) -> list[str]:
    """Return the todo list as a checklist."""
    return [_todo_row(item, width, styles) for item in items]


def _todo_row(item: TodoItem, width: int, styles: Styles) -> str:
    looks = {"completed": styles.faint, "in_progress": styles.strong}
    text = f"  {TODO_MARKS[item.status]} {one_line(item.text, max(width - 4, 1))}"
    return paint(cut(text, width), looks.get(item.status, ""))
