"""The command table as Markdown: the README's list and the sections of docs/commands.md.

`python -m bareagent.repl.commands_doc README.md docs/commands.md` writes both anew between their marks; a
test compares.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from bareagent.repl.commands import ordered

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
    parts = []
    for each in ordered():
        during = " Answers during a run, too." if each.is_safe else ""
        parts.append(f"### {each.title}\n\n{each.help}.{during}" + (f"\n\n{each.more}" if each.more else ""))
    return "\n\n".join(parts)


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
