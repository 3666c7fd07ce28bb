"""The nag reminder: when open todo items are brought back to mind, and what it says."""

from collections.abc import Sequence

import msgspec

from bareagent.config import Reminder
from bareagent.entries import TodoItem
from bareagent.messages import Message, text_of
from bareagent.prompts import text

OPENING = "<nag-reminder>"
CLOSING = "</nag-reminder>"


class Todos(msgspec.Struct, frozen=True, kw_only=True):
    """The todo list and how long ago it moved.

    `rounds` counts rounds since the last update, reminder or compaction; `newest` is the newest
    reminder's text in the view, where the rule needs it.
    """

    items: Sequence[TodoItem] = ()
    rounds: int = 0
    newest: str = ""


def open_items(items: Sequence[TodoItem]) -> list[TodoItem]:
    """Return the items that are not completed."""
    return [item for item in items if item.status != "completed"]


def item_line(item: TodoItem) -> str:
    """Return one item as a line."""
    return f"- {item.id} [{item.status}] ({item.priority}) {' '.join(item.text.split())}"


def reminder_text(items: Sequence[TodoItem]) -> str:
    """Return the reminder for a list, whole."""
    return "\n".join([OPENING, text("reminder"), *map(item_line, open_items(items)), CLOSING])


def due(todo: Todos, config: Reminder) -> str:
    """Return the reminder that is due before this call, or an empty text."""
    if not config.enabled or todo.rounds < max(config.rounds, 1) or not open_items(todo.items):
        return ""
    wanted = reminder_text(todo.items)
    if config.rounds == 0 and todo.newest == wanted:
        return ""
    return wanted


def is_reminder(message: Message) -> bool:
    """Tell whether a message is a nag reminder."""
    return text_of(message).startswith(OPENING)
