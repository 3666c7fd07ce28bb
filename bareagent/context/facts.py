"""What a compaction keeps by code: the user's lines and demands, pins, files, todos, the failing command.

The text is written and read back here, so that facts carry on from one compaction to the next.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from bareagent.context.readable import head_and_tail
from bareagent.context.reminder import item_line, open_items
from bareagent.context.tokens import fast_tokens, text_quarters
from bareagent.entries import Kind, TodoItem
from bareagent.messages import Block, Message, calls, has_results, results, text_of
from bareagent.view import View

LINES_TOKENS = 2_000
DEMANDS_TOKENS = 2_000
FILES_TOKENS = 1_000
TODO_TOKENS = 2_000
COMMAND_CHARS = 1_000
_OPEN, _CLOSE = "<facts>", "</facts>"
_LINES = "The user's lines, word for word, oldest first"
"""The title that facts of earlier versions have; it is read only."""

_PAST = "The user's earlier lines, word for word, oldest first: taken up already; what they demand or forbid holds"
_REQUEST = "The user's open request, word for word"
_DEMANDS = "What the user demands or forbids, word for word"
_PINS = "Pinned by the user"
_CHANGED = "Files changed"
_READ = "Files read"
_TODO = "Open todo items"
_COMMAND = "The last command that failed and has not succeeded since"
_MORE = re.compile(r"^\((\d+) more\)$")
_STRONG = re.compile(
    r"\b(?:do not|don['’]?t|never|must|mustn['’]?t|only|shall not|may not|not allowed|forbidden|prohibited)\b"
    r"|不要|不能|不得|不可|不许|不准|别|勿|必须|务必|禁止|只能|只用|严禁|切勿",
    re.IGNORECASE,
)
_DEMAND = re.compile(
    _STRONG.pattern
    + r"|\b(?:cannot|can['’]?t|always|should(?:n['’]?t| not)?|avoid|without|no longer|under no|refrain"
    r"|make sure|ensure|instead of|required)\b|不应|应当|只需|一定|千万|永远|绝不",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?])(?=\s)|(?<=[。！？；])|\n")
_PATH_KEYS = ("file_path", "path", "filename", "notebook_path", "file", "filePath", "relative_path")
_CHANGES = re.compile(r"edit|write|patch|create|replace|insert|update|delete|move|rename|undo", re.IGNORECASE)
_PATCHED = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (.+)$", re.MULTILINE)
_SHELL = re.compile(r"bash|shell|exec|command|terminal|run", re.IGNORECASE)
_EXIT = re.compile(r"\bexit(?:ed)?(?: with)?(?: code| status)?[: ]+([1-9]\d*)\b", re.IGNORECASE)


class Facts(msgspec.Struct, kw_only=True):
    """Facts as data; lists stand oldest first. `n_more_…` counts paths that found no room."""

    lines: list[str] = msgspec.field(default_factory=list)
    demands: list[str] = msgspec.field(default_factory=list)
    pins: list[str] = msgspec.field(default_factory=list)
    changed: list[str] = msgspec.field(default_factory=list)
    read: list[str] = msgspec.field(default_factory=list)
    todo: list[str] = msgspec.field(default_factory=list)
    command: list[str] = msgspec.field(default_factory=list)
    n_more_changed: int = 0
    n_more_read: int = 0


def gather(messages: Sequence[Message], kinds: Sequence[Kind], earlier: Facts) -> Facts:
    """Return the facts of summarised messages on top of those of earlier compactions, nothing cut yet."""
    facts = msgspec.convert(msgspec.to_builtins(earlier), Facts)
    facts.pins, facts.todo = [], []
    for message, kind in zip(messages, kinds, strict=True):
        if message["role"] == "user" and kind == "line" and not has_results(message):
            line = text_of(message).strip("\n")
            if line.strip():
                facts.lines.append(line)
    facts.demands = list(dict.fromkeys([*facts.demands, *_all_demands(facts.lines)]))
    _note_files(facts, messages)
    _note_command(facts, messages)
    return facts


def _all_demands(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        yield from demands(line)


def demands(line: str) -> list[str]:
    """Return the sentences of a line that hold a prohibition or a demand, word for word."""
    sentences = (piece.strip() for piece in _SENTENCE_END.split(line))
    return [sentence for sentence in sentences if sentence and _DEMAND.search(sentence)]


def paths(call: Block) -> list[str]:
    """Return the paths a call of a file tool names."""
    given = call.get("input")
    if not isinstance(given, dict):
        return _PATCHED.findall(str(given))
    named = [given[key] for key in _PATH_KEYS if isinstance(given.get(key), str) and given[key].strip()]
    patched = [path for value in given.values() for path in _patched(value)]
    return [path for path in [*named, *patched] if "\n" not in path]


def _patched(value: Any) -> list[str]:
    texts = value if isinstance(value, list) else [value]
    return [path for text in texts if isinstance(text, str) for path in _PATCHED.findall(text)]


def _note_files(facts: Facts, messages: Sequence[Message]) -> None:
    changed, read = dict.fromkeys(facts.changed), dict.fromkeys(facts.read)
    for call, result in _answered(messages):
        named = paths(call)
        is_change = bool(_CHANGES.search(str(call.get("name", "")))) or _is_command_change(call)
        target = changed if is_change and not _failed(result) else read
        for path in named:
            target.pop(path, None)
            target[path] = None
    facts.changed = list(changed)
    facts.read = [path for path in read if path not in changed]


def _is_command_change(call: Block) -> bool:
    given = call.get("input")
    command = given.get("command") if isinstance(given, dict) else None
    is_edit = isinstance(command, str) and command in {"create", "str_replace", "insert", "undo_edit"}
    return is_edit or bool(_patched(command))


def _failed(result: Block | None) -> bool:
    return result is None or bool(result.get("is_error"))


def _answered(messages: Sequence[Message]) -> Iterable[tuple[Block, Block | None]]:
    """Yield each call with its result, in call order."""
    for index, message in enumerate(messages):
        found = calls(message)
        if found:
            after = messages[index + 1] if index + 1 < len(messages) else None
            by_id = {block.get("tool_use_id"): block for block in results(after)} if after else {}
            for call in found:
                yield call, by_id.get(call.get("id"))


def _note_command(facts: Facts, messages: Sequence[Message]) -> None:
    for call, result in _answered(messages):
        given = call.get("input")
        command = given.get("command") if isinstance(given, dict) else None
        if not isinstance(command, str) or result is None or not _SHELL.search(str(call.get("name", ""))):
            continue
        text = text_of(result)
        if result.get("is_error") or _says_failed(text):
            facts.command = [
                head_and_tail(command, COMMAND_CHARS),
                head_and_tail(text.strip(), COMMAND_CHARS),
            ]
        elif facts.command and facts.command[0] == head_and_tail(command, COMMAND_CHARS):
            facts.command = []


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens each kind of fact may take; `newest` is for the newest line alone."""

    lines: float = LINES_TOKENS
    newest: float = LINES_TOKENS
    demands: float = DEMANDS_TOKENS
    pins: float = 2_000
    files: float = FILES_TOKENS
    todo: float = TODO_TOKENS
    command: float = 600


def rendered(
    facts: Facts,
    todo: Sequence[TodoItem],
    pins: Sequence[str],
    usable: float,
    pin_tokens: int,
    newest_line: str | None,
    *,
    is_open: bool = False,
) -> str:
    """Return the facts as text, all together at most half of a usable window of estimated tokens.

    Where they would be more, each kind shrinks in proportion.
    """
    caps = Caps(newest=max(usable / 4, 1), pins=pin_tokens)
    text = render(facts, todo, pins, caps, newest_line, is_open=is_open)
    share = 1.0
    while fast_tokens(text) > usable / 2 and share > 0.01:
        share *= min(usable / 2 / fast_tokens(text), 0.9)
        shrunk = Caps(**{name: getattr(caps, name) * share for name in Caps.__struct_fields__})
        text = render(facts, todo, pins, shrunk, newest_line, is_open=is_open)
    return text


def render(
    facts: Facts,
    todo: Sequence[TodoItem],
    pins: Sequence[str],
    caps: Caps,
    newest_line: str | None = None,
    *,
    is_open: bool = False,
) -> str:
    """Return the facts as text within their caps; empty when there are none.

    `newest_line` is the newest line of the session if it fell into the summary; with `is_open` the model
    was still at work on it. All others were taken up: a model that reads them must not do them again.
    """
    lines = _newest_lines(facts.lines, caps, newest_line)
    n_past = len(lines) - 1 if is_open and lines and facts.lines[-1] == newest_line else len(lines)
    kept = "\n".join(lines)
    demanded = [item for item in _newest_demands(facts.demands, caps.demands) if item not in kept]
    changed = _newest(facts.changed, caps.files)
    read = _newest(facts.read, caps.files)
    listed = [item_line(item).removeprefix("- ") for item in open_items(todo)]
    sections = [
        (_PAST, lines[:n_past]),
        (_REQUEST, lines[n_past:]),
        (_DEMANDS, demanded),
        (_PINS, _newest(pins, caps.pins)),
        (_CHANGED, _counted(changed, len(facts.changed) - len(changed) + facts.n_more_changed)),
        (_READ, _counted(read, len(facts.read) - len(read) + facts.n_more_read)),
        (_TODO, _oldest(listed, caps.todo)),
        (_COMMAND, [_fitted(text, caps.command / 2) for text in facts.command]),
    ]
    body = "\n\n".join(_section(title, items) for title, items in sections if items)
    return f"{_OPEN}\n{body}\n{_CLOSE}" if body else ""


def _newest_lines(lines: Sequence[str], caps: Caps, newest: str | None) -> list[str]:
    if newest is None or not lines or lines[-1] != newest:
        return _newest(lines, caps.lines)
    older = _newest(lines[:-1], max(caps.lines - fast_tokens(newest), 0))
    return [*older, _fitted(newest, caps.newest)]


def _newest_demands(items: Sequence[str], tokens: float) -> list[str]:
    """Return the newest demands that fit, those in plain words of prohibition or duty first."""
    strong = _newest([item for item in items if _STRONG.search(item)], tokens, _classic_cost)
    left = tokens - sum(map(_classic_cost, strong))
    kept = {*strong, *_newest([item for item in items if not _STRONG.search(item)], left, _classic_cost)}
    return [item for item in items if item in kept]


def _cost(item: str) -> float:
    return fast_tokens(item) + 2


def _classic_cost(item: str) -> float:
    return text_quarters(item) / 4


def _newest(items: Sequence[str], tokens: float, cost: Callable[[str], float] = _cost) -> list[str]:
    """Return the newest items that fit; one that is too long for what is left is passed over."""
    return _oldest(items[::-1], tokens, cost)[::-1]


def _oldest(items: Sequence[str], tokens: float, cost: Callable[[str], float] = _cost) -> list[str]:
    kept = []
    for item in items:
        if cost(item) <= tokens:
            tokens -= cost(item)
            kept.append(item)
    return kept


def _fitted(text: str, tokens: float) -> str:
    cost = fast_tokens(text)
    return text if cost <= tokens else head_and_tail(text, max(int(len(text) * tokens / cost), 40))


def _counted(items: list[str], more: int) -> list[str]:
    return [f"({more} more)", *items] if more > 0 else items


def _section(title: str, items: Iterable[str]) -> str:
    return "\n".join([f"## {title}", *("- " + item.replace("\n", "\n  ") for item in items)])


def parse(text: str) -> Facts:
    """Return the facts a text of `render` holds; text of another make gives none."""
    facts = Facts()
    if not text.startswith(_OPEN):
        return facts
    by_title = _sections(text)
    facts.lines = [line for title in (_LINES, _PAST, _REQUEST) for line in by_title.get(title, [])]
    facts.demands = by_title.get(_DEMANDS, [])
    facts.pins = by_title.get(_PINS, [])
    facts.todo = by_title.get(_TODO, [])
    facts.command = by_title.get(_COMMAND, [])
    facts.changed, facts.n_more_changed = _uncounted(by_title.get(_CHANGED, []))
    facts.read, facts.n_more_read = _uncounted(by_title.get(_READ, []))
    return facts


def _sections(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    items: list[str] = []
    for line in text.split("\n")[1:]:
        if line.startswith("## "):
            items = found.setdefault(line[3:], [])
        elif line.startswith("- "):
            items.append(line[2:])
        elif line.startswith("  ") and items:
            items[-1] += "\n" + line[2:]
    return found


def _uncounted(items: list[str]) -> tuple[list[str], int]:
    match = _MORE.match(items[0]) if items else None
    return (items[1:], int(match[1])) if match else (items, 0)


def _says_failed(text: str) -> bool:
    """Look for a bad exit code where tools write it: at the beginning or the end."""
    ends = text if len(text) <= 800 else f"{text[:400]}\n{text[-400:]}"
    return "xit" in ends and bool(_EXIT.search(ends))


def newest_line(view: View) -> str | None:
    """Return the newest line of the user's own, which an earlier compaction may have; None for none."""
    for message, kind in zip(reversed(view.messages), reversed(view.kinds), strict=True):
        if kind == "line" and message["role"] == "user":
            return text_of(message).strip("\n")
    earlier = parse(view.compactions[-1].facts).lines if view.compactions else []
    return earlier[-1] if earlier else None
