"""`bareagent sessions …`: what a user does with saved sessions outside of a conversation.

Only Typer is loaded here; the work is done in `saved.py` and `saved_session.py`, loaded when a command runs.
"""

from pathlib import Path
from typing import Annotated, Literal

import typer

Form = Literal["md", "json", "jsonl"]
Which = Annotated[
    str, typer.Argument(metavar="ID", help="An id, its beginning, ID.N, a name, or a row of the list.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `bareagent sessions`; without one, the list is shown."""
    app.callback(invoke_without_command=True)(start)
    app.command("list")(list_sessions)
    app.command("show")(show)
    app.command("check")(check)
    app.command("repair")(repair)
    app.command("rm")(remove)
    app.command("export")(export)


def start(context: typer.Context) -> None:
    """List, show, check, repair, remove and export saved sessions."""
    if context.invoked_subcommand is None:
        list_sessions(context)


def list_sessions(
    context: typer.Context,
    is_all: Annotated[bool, typer.Option("--all", help="The sessions of all projects.")] = False,
    is_json: Json = False,
) -> None:
    """List this project's saved sessions, newest first."""
    from bareagent.saved import list_saved

    list_saved(context.obj, is_all=is_all, is_json=is_json)


def show(
    context: typer.Context,
    which: Which,
    request: Annotated[
        int, typer.Option(metavar="N", show_default=False, help="Print the Nth request as it was sent.")
    ] = 0,
    is_json: Json = False,
) -> None:
    """Show a session: what it is and what was said; or one of its requests, byte for byte."""
    from bareagent.saved_session import show_request, show_saved

    if request:
        show_request(context.obj, which, request)
    else:
        show_saved(context.obj, which, is_json=is_json)


def check(
    context: typer.Context,
    which: Annotated[
        str, typer.Argument(metavar="[ID]", help="One session; without it all are checked.")
    ] = "",
    is_json: Json = False,
) -> None:
    """Tell every fault of a session's log with its line; ends with 65 where there is one."""
    from bareagent.saved_session import check_saved

    raise typer.Exit(check_saved(context.obj, which, is_json=is_json))


def repair(context: typer.Context, which: Which) -> None:
    """Copy all that is sound of a session into a new one; the old one stays as it is."""
    from bareagent.saved_session import repair_saved

    repair_saved(context.obj, which)


def remove(
    context: typer.Context,
    which: Annotated[str, typer.Argument(metavar="ID", help="An id, its beginning or a name; no row.")],
    is_sure: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask; needed outside of a terminal.")
    ] = False,
) -> None:
    """Delete a session for good."""
    from bareagent.saved_session import remove_saved

    raise typer.Exit(remove_saved(context.obj, which, is_sure=is_sure))


def export(
    context: typer.Context,
    which: Which,
    form: Annotated[Form, typer.Option("--format", "-f", help="Markdown, JSON, or a message a line.")] = "md",
    file: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="A new file; without it stdout.")
    ] = None,
) -> None:
    """Write a session as a document."""
    from bareagent.saved_session import export_saved

    export_saved(context.obj, which, form, file)
