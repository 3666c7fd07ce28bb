"""The todo list: the model writes it whole; it lives in the session, so resume and rewind keep it true."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from bareagent import messages
from bareagent.entries import Priority, Status, Todo, TodoItem
from bareagent.messages import Message
from bareagent.sanitize import valid_unicode
from bareagent.seams import Need, Output
from bareagent.tools.base import NOTHING, BadArguments, Params, ToolContext, text_for_model

MAX_ITEMS = 50
MAX_IN_A_ROW = 5
STOP_TEXT = (
    "The list was written five times in a row without other work, and was not changed this time. "
    "Stop planning: do the next open item now, or say what keeps you from it."
)


class Item(Params):
    """One item as the model writes it."""

    text: Annotated[str, Meta(min_length=1, max_length=1000)]
    id: str = ""
    status: Status = "pending"
    priority: Priority = "normal"


class TodoParams(Params):
    """The whole new list."""

    items: Annotated[list[Item], Meta(max_length=MAX_ITEMS)]


class TodoWrite:
    """Replaces the todo list."""

    name = "todo_write"
    description = text_for_model("todo_write")
    params: type[msgspec.Struct] = TodoParams
    is_read_only = False

    def needs(self, _params: TodoParams, _ctx: ToolContext) -> list[Need]:
        """Touch nothing but the session."""
        return NOTHING

    async def run(self, params: TodoParams, ctx: ToolContext) -> Output:
        """Check the list, give new items their ids, record it."""
        if n_in_a_row(ctx.session.messages) >= MAX_IN_A_ROW - 1:
            return Output(text=STOP_TEXT, is_error=True)
        view = ctx.session.view
        _check(params.items, [item.id for item in view.todo])
        entry = _numbered(params.items, view.next_todo)
        ctx.session.record(entry)
        text = lines(entry.items) or "The list is empty."
        return Output(text=text, shown=text, shown_as="todo")


def lines(items: Sequence[TodoItem]) -> str:
    """Return the list as the model reads it, a line an item."""
    return "\n".join(f"- {item.id} [{item.status}] ({item.priority}) {item.text}" for item in items)


def _numbered(items: Sequence[Item], next_id: int) -> Todo:
    numbered: list[TodoItem] = []
    for item in items:
        name = item.id
        if not name:
            name, next_id = f"t{next_id}", next_id + 1
        text = " ".join(valid_unicode(item.text).split())
        numbered.append(TodoItem(id=name, text=text, status=item.status, priority=item.priority))
    return Todo(items=numbered, next_id=next_id)


def _check(items: Sequence[Item], known: Sequence[str]) -> None:
    ids = [item.id for item in items if item.id]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        raise BadArguments(f"Two items have the id {twice[0]}. Leave the id of a new item out.")
    unknown = [name for name in ids if name not in known]
    if unknown:
        raise BadArguments(
            f"No item has the id {valid_unicode(unknown[0])[:40]!r}. Leave the id of a new item out. "
            f"Present ids: {', '.join(known) or 'none'}."
        )
    if any(not item.text.strip() for item in items):
        raise BadArguments("An item's text is blank.")
    if sum(item.status == "in_progress" for item in items) > 1:
        raise BadArguments("Only one item may be in_progress at a time.")


def n_in_a_row(view: Sequence[Message]) -> int:
    """Count the todo_write calls at the view's end that no other call or user's line parts.

    The reply now being answered is left out.
    """
    count = 0
    for message in reversed(view[: _last_reply(view)]):
        names = [str(call.get("name")) for call in messages.calls(message)]
        if any(name != "todo_write" for name in names) or _is_line(message):
            break
        count += len(names)
    return count


def _last_reply(view: Sequence[Message]) -> int:
    return max((i for i, message in enumerate(view) if message["role"] == "assistant"), default=0)


def _is_line(message: Message) -> bool:
    return message["role"] == "user" and not messages.has_results(message)
