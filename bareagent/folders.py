"""The folders the program uses outside of projects; `bareagent paths` lists them."""

from pathlib import Path

import platformdirs

NAME = "bareagent"


def config_folder() -> Path:
    """Return where the user's config.toml and stored keys lie."""
    return platformdirs.user_config_path(NAME, appauthor=False)


def data_folder() -> Path:
    """Return where the catalogue of sessions, history, trust and fetched weights lie."""
    return platformdirs.user_data_path(NAME, appauthor=False)


def cache_folder() -> Path:
    """Return where what can be fetched again lies."""
    return platformdirs.user_cache_path(NAME, appauthor=False)


def log_folder() -> Path:
    """Return where debug logs and crash reports go."""
    return platformdirs.user_log_path(NAME, appauthor=False)


def program_folders() -> tuple[Path, ...]:
    """Return all of them: a tool's writing there always asks."""
    return (config_folder(), data_folder(), cache_folder(), log_folder())
