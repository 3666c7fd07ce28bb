"""The command table as Markdown: the README's list and the sections of docs/commands.md.

`python -m bareagent.repl.commands_doc README.md docs/commands.md` writes both anew between their marks; a
test compares.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from bareagent.repl.commands import Command, ordered

BEGIN = "<!-- commands: made from the table in bareagent/repl -->"
END = "<!-- end of commands -->"


def as_table() -> str:
    """Return the list of commands, a row each."""
    rows = [f"| `{_cell(each.title)}` | {_cell(each.help)} |" for each in ordered()]
    return "\n".join(["| command | what it does |", "|---|---|", *rows])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def as_sections() -> str:
    """Return a section a command, with its whole help."""
    return "\n\n".join(map(_section, ordered()))


def _section(each: Command) -> str:
    more = f"\n\n{each.more}" if each.more else ""
    return f"### {each.title}\n\n{each.help}.{during(each)}{more}"


def during(each: Command) -> str:
    """Return what is said of a command during a run; empty where it then waits."""
    if each.safe is None or (each.safe and not each.usage):
        return " Answers during a run, too."
    forms = " and ".join(f"`/{each.name} {argument}".rstrip() + "`" for argument in each.safe)
    return f" {forms} answers during a run, too." if forms else ""


def renewed(text: str, made: str) -> str:
    """Return a page with what stands between its marks replaced. Raises: ValueError without marks."""
    before, _, rest = text.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError("the page has no marks for the commands")
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{after}"


def main(paths: Sequence[str]) -> None:
    """Write the table into the first page and the sections into the second."""
    for path, made in zip(map(Path, paths), (as_table(), as_sections()), strict=True):
        path.write_text(renewed(path.read_text(encoding="utf-8"), made), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
