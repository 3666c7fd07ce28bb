"""`bareagent sessions …`: what a user does with saved sessions outside of a conversation."""

import typer


def register(app: typer.Typer) -> None:
    """Add the commands to `bareagent sessions`."""
    del app
