"""The way from the command line to a first prompt: as little as can be is loaded before it."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from bareagent import folders
from bareagent.config import Config
from bareagent.config_load import load
from bareagent.errors import UsageError
from bareagent.options import Options
from bareagent.repl.door import Door, can_open
from bareagent.store.places import project_root


def start_repl(options: Options) -> int:
    """Run the REPL and return the exit code. Raises: BareAgentError."""
    own = _own_settings(options, os.environ)
    if own.ui.plain or not can_open():
        code: int = _compose().start_face(options)
        return code
    return asyncio.run(_open(options, own))


async def _open(options: Options, own: Config) -> int:
    door = Door(
        project_root(_working_directory()),
        options.mode or own.permissions.mode,
        own.ui.theme,
        is_vi=own.ui.vi,
        has_colour=options.has_colour,
    )

    async def behind(door: Door) -> None:
        compose = await asyncio.to_thread(_compose)
        await compose.furnish(door, options)

    return await door.run(behind)


def _own_settings(options: Options, env: Mapping[str, str]) -> Config:
    """Read the user's own settings; the project's may change them once they have been looked at."""
    return load(options.config or folders.config_folder() / "config.toml", None, env, {}).config


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError("The working directory no longer exists.", "cd to another one") from None


def _compose() -> ModuleType:
    from bareagent import compose

    return compose
