"""What the house rules read: the package's files as trees, and the tables of docs/architecture.md."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "bareagent"
ARCHITECTURE = ROOT / "docs" / "architecture.md"

Place = Literal["top", "function", "typing"]
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Import:
    """One imported module, as a dotted name, and where it stands."""

    module: str
    line: int
    place: Place


@dataclass(frozen=True)
class Source:
    """One Python file of the project."""

    path: Path
    text: str = field(repr=False)
    tree: ast.Module = field(repr=False)

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def module(self) -> str:
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def package() -> tuple[Source, ...]:
    """Every Python file of bareagent."""
    return tuple(read(path) for path in sorted(PACKAGE.rglob("*.py")))


def read(path: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    return Source(path, text, ast.parse(text, str(path)))


def imports(source: Source, modules: frozenset[str]) -> Iterator[Import]:
    """Every import of a file; `from a import b` is `a.b` where that is one of `modules`, else `a`."""
    yield from _imports(source.tree, modules, "top")


def _imports(node: ast.AST, modules: frozenset[str], place: Place) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(alias.name, node.lineno, place)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        for alias in node.names:
            whole = f"{base}.{alias.name}"
            yield Import(whole if whole in modules else base, node.lineno, place)
    elif isinstance(node, (*FUNCTION, ast.Lambda)):
        place = "function"
    elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        place = "typing"
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, modules, place)


def section(heading: str, text: str) -> str:
    """The text under `## heading` (any level), up to the next heading of that level or above."""
    match = re.search(rf"^(#+) {re.escape(heading)}\s*$", text, re.MULTILINE)
    assert match, f"docs/architecture.md has no heading {heading!r}"
    level = len(match[1])
    rest = text[match.end() :]
    end = re.search(rf"^#{{1,{level}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def floors(text: str) -> dict[str, int]:
    """Path (a file, or a folder that ends in `/`) → floor, from the fenced block under "Floors"."""
    block = re.search(r"^```\w*\n(.*?)^```", section("Floors", text), re.MULTILINE | re.DOTALL)
    assert block, "docs/architecture.md has no fenced block under Floors"
    table: dict[str, int] = {}
    floor = None
    for line in block[1].splitlines():
        head = re.match(r"(\d+)\s", line)
        floor = int(head[1]) if head else floor
        for token in re.findall(r"[\w./-]+(?:\.py\b|/(?=\s|$|,))", line):
            assert floor is not None, f"no floor before {token}"
            path = token if token.startswith("bareagent/") else f"bareagent/{token}"
            table[path] = floor
    return table


def floor_of(name: str, table: dict[str, int]) -> int | None:
    """The floor of a file by its path from the root, or None where the table does not have it."""
    if name in table:
        return table[name]
    folders = [path for path in table if path.endswith("/") and name.startswith(path)]
    return table[max(folders, key=len)] if folders else None


def lazy_imports(text: str) -> list[tuple[frozenset[str], tuple[str, ...]]]:
    """The list "Lazy imports": (modules, places); a place is a file or a folder that ends in `/`."""
    rows = []
    bullets = re.split(r"^- ", section("Lazy imports", text), flags=re.MULTILINE)[1:]
    for bullet in bullets:
        before, _, after = bullet.partition(" in ")
        places = re.findall(r"`(bareagent/[\w./]+)`", after)
        if "neighbours" in after:
            places += [place.rpartition("/")[0] + "/" for place in places]
        rows.append((frozenset(re.findall(r"`([\w.]+)`", before)), tuple(places)))
    return rows
