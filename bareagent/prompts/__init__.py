"""Texts for the model that belong to no tool, each in a `.md` file beside this module."""

from functools import cache
from pathlib import Path


@cache
def text(name: str) -> str:
    """Return the prompt of this name, without its final newline."""
    return Path(__file__).with_name(f"{name}.md").read_text(encoding="utf-8").rstrip("\n")
