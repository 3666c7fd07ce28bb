"""The looks of text: one table of styles for each theme, as SGR parameters."""

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Styles:
    """SGR parameters (`1;36`) by what the text is; empty means as it is."""

    heading: str = ""
    subheading: str = ""
    minor_heading: str = ""
    strong: str = ""
    emphasis: str = ""
    strike: str = ""
    code: str = ""
    link: str = ""
    url: str = ""
    quote: str = ""
    bullet: str = ""
    faint: str = ""
    keyword: str = ""
    string: str = ""
    comment: str = ""
    number: str = ""
    name: str = ""
    builtin: str = ""
    operator: str = ""
    inserted: str = ""
    deleted: str = ""
    error: str = ""
    warning: str = ""
    good: str = ""
    accent: str = ""


_SHAPES = {"strong": "1", "emphasis": "3", "strike": "9"}

THEMES: Mapping[str, Styles] = {
    "dark": Styles(
        **_SHAPES,
        heading="1;38;5;117",
        subheading="1;38;5;153",
        minor_heading="1",
        code="38;5;180",
        link="4;38;5;75",
        url="38;5;246",
        quote="38;5;250",
        bullet="38;5;75",
        faint="38;5;244",
        keyword="38;5;176",
        string="38;5;114",
        comment="38;5;245",
        number="38;5;215",
        name="38;5;117",
        builtin="38;5;80",
        operator="38;5;252",
        inserted="38;5;114",
        deleted="38;5;210",
        error="38;5;203",
        warning="38;5;221",
        good="38;5;114",
        accent="38;5;117",
    ),
    "light": Styles(
        **_SHAPES,
        heading="1;38;5;25",
        subheading="1;38;5;31",
        minor_heading="1",
        code="38;5;94",
        link="4;38;5;26",
        url="38;5;242",
        quote="38;5;239",
        bullet="38;5;26",
        faint="38;5;243",
        keyword="38;5;90",
        string="38;5;28",
        comment="38;5;243",
        number="38;5;130",
        name="38;5;25",
        builtin="38;5;30",
        operator="38;5;236",
        inserted="38;5;28",
        deleted="38;5;124",
        error="38;5;160",
        warning="38;5;130",
        good="38;5;28",
        accent="38;5;25",
    ),
    "ansi": Styles(
        **_SHAPES,
        heading="1;36",
        subheading="1",
        minor_heading="1;3",
        code="33",
        link="4;34",
        url="2",
        quote="2",
        bullet="34",
        faint="2",
        keyword="35",
        string="32",
        comment="2",
        number="33",
        name="36",
        builtin="36",
        inserted="32",
        deleted="31",
        error="31",
        warning="33",
        good="32",
        accent="36",
    ),
    "mono": Styles(
        **_SHAPES,
        heading="1;4",
        subheading="1",
        minor_heading="1;3",
        code="1",
        link="4",
        url="2",
        quote="2",
        faint="2",
        keyword="1",
        comment="2",
        deleted="2",
        error="1",
        warning="1",
        good="1",
        accent="1",
    ),
    "plain": Styles(),
}


def styles(theme: str, env: Mapping[str, str]) -> Styles:
    """Give the theme's table (an unknown theme: `ansi`); a set NO_COLOR means `mono`."""
    if env.get("NO_COLOR") and not env.get("FORCE_COLOR") and theme != "plain":
        return THEMES["mono"]
    return THEMES.get(theme, THEMES["ansi"])


def themed(
    name: str, *, has_colour: bool, is_light: bool = False, env: Mapping[str, str] = os.environ
) -> Styles:
    """Give a theme's table; `auto` is chosen by the terminal's background and its number of colours."""
    if name == "auto":
        has_many = "256color" in env.get("TERM", "") or bool(env.get("COLORTERM"))
        name = ("light" if is_light else "dark") if has_many else "ansi"
    return styles(name, env if has_colour else {"NO_COLOR": "1"})


def joined(*parts: str) -> str:
    """Give one SGR parameter list of several; a later one wins where they differ."""
    return ";".join(filter(None, parts))
