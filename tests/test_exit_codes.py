"""docs/print-mode.md has a row for each exit code that the program can end with, and no other."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec

from bareagent import cli, errors, headless, saved_session
from bareagent.entries import AnyDelta
from bareagent.repl import door, plain
from bareagent.turn import Reason

PAGE = (Path(__file__).parents[1] / "docs" / "print-mode.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def defined() -> Iterator[int]:
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.BareAgentError):
            yield kind.exit_code
    yield from headless.EXIT_CODES.values()
    yield from headless.SIGNALS.values()
    yield from door.EXITS.values()
    yield from plain.EXITS.values()
    yield from (cli.EXIT_FAULT, cli.EXIT_OUTPUT, cli.EXIT_INTERRUPTED, saved_session.EXIT_UNREADABLE)


def test_each_exit_code_has_its_row() -> None:
    rows = re.findall(r"^\| (\d+) \|", section("Exit codes"), re.MULTILINE)
    assert rows == [str(code) for code in sorted(set(defined()))]


def test_what_a_run_can_print_is_described() -> None:
    told = section("What comes back")
    deltas = [msgspec.inspect.type_info(kind) for kind in get_args(AnyDelta)]
    for delta in deltas:
        assert isinstance(delta, msgspec.inspect.StructType)
        (row,) = (line for line in told.splitlines() if f"`{delta.tag}`" in line)
        assert all(f"`{field.name}`" in row for field in delta.fields if field.name != "agent")
    assert all(f"`{reason}`" in told for reason in get_args(Reason))
