"""What the command line said, as data; light, so that a small command loads no more than it needs."""

from pathlib import Path

import msgspec


class Options(msgspec.Struct, kw_only=True):
    """What the command line said; empty or zero where it said nothing."""

    text: str | None = None
    output: str = "text"
    go_on: bool = False
    resume: str = ""
    mode: str = ""
    model: str = ""
    provider: str = ""
    max_turns: int = 0
    max_cost: float = 0.0
    is_unsaved: bool = False
    transcripts: Path | None = None
    config: Path | None = None
    has_colour: bool = True
    is_debug: bool = False
