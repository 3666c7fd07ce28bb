"""The house rules, read from the source: floors, sizes, late imports, broad excepts, waivers."""

import ast
import io
import re
import statistics
import subprocess
import sys
import tokenize
from collections.abc import Iterator

import pytest

from tests.source import (
    ARCHITECTURE,
    FUNCTION,
    ROOT,
    Import,
    Source,
    floor_of,
    floors,
    imports,
    lazy_imports,
    package,
    read,
)

BROAD_PLACES = ["bareagent/calls.py", "bareagent/cli.py", "bareagent/repl/app.py"]
UNIX_ONLY = {"fcntl", "grp", "pwd", "resource", "termios", "tty"}
NESTS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)

TABLE = floors(ARCHITECTURE.read_text(encoding="utf-8"))
LAZY = lazy_imports(ARCHITECTURE.read_text(encoding="utf-8"))
FILES = package()
MODULES = frozenset(source.module for source in FILES)
BY_MODULE = {source.module: source for source in FILES}


def floor(source: Source) -> int | None:
    return 0 if source.name == "bareagent/__init__.py" else floor_of(source.name, TABLE)


def inner_imports(source: Source) -> Iterator[tuple[Import, Source]]:
    for found in imports(source, MODULES):
        if found.module in BY_MODULE:
            yield found, BY_MODULE[found.module]


def test_the_table_has_every_file() -> None:
    assert len(set(TABLE.values())) >= 8
    assert [source.name for source in FILES if floor(source) is None] == []


def test_a_file_imports_from_no_higher_floor() -> None:
    wrong = [
        f"{source.name}:{found.line} (floor {floor(source)}) imports {other.name} (floor {floor(other)})"
        for source in FILES
        for found, other in inner_imports(source)
        if (floor(other) or 0) > (floor(source) or 0)
    ]
    assert wrong == []


def test_imports_at_the_top_make_no_circle() -> None:
    below = {
        source.name: {
            other.name
            for found, other in inner_imports(source)
            if found.place == "top" and other.name != source.name and other.path.name != "__init__.py"
        }
        for source in FILES
    }
    # What imports nothing and what nothing imports is in no circle; what is left in the end is.
    while free := {name for name in below if not below[name]} | (set(below) - set().union(*below.values())):
        below = {name: names - free for name, names in below.items() if name not in free}
    assert below == {}


def is_listed(source: Source, found: Import) -> bool:
    return any(
        any(found.module == name or found.module.startswith(f"{name}.") for name in names)
        and any(
            source.name == place or (place[-1] == "/" and source.name.startswith(place)) for place in places
        )
        for names, places in LAZY
    )


def test_imports_inside_functions_are_the_listed_ones() -> None:
    wrong = [
        f"{source.name}:{found.line} imports {found.module}"
        for source in FILES
        for found in imports(source, MODULES)
        if found.place == "function" and not is_listed(source, found)
    ]
    assert wrong == []


def is_broad(node: ast.AST) -> bool:
    """Whether a node catches everything; one that only tidies up and raises again catches nothing."""
    names = {"Exception", "BaseException"}
    if isinstance(node, ast.ExceptHandler):
        last = node.body[-1]
        if isinstance(last, ast.Raise) and last.exc is None:
            return False
        kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        return any(kind is None or (isinstance(kind, ast.Name) and kind.id in names) for kind in kinds)
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
        return any(isinstance(arg, ast.Name) and arg.id in names for arg in node.args)
    return False


def test_three_places_catch_everything() -> None:
    found = [source.name for source in FILES for node in ast.walk(source.tree) if is_broad(node)]
    assert [name for name in found if name not in BROAD_PLACES] == []
    assert all(found.count(name) <= 1 for name in BROAD_PLACES), found


def functions(source: Source) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(source.tree) if isinstance(node, FUNCTION))


def n_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_functions_are_short() -> None:
    sizes = {
        f"{source.name}:{node.lineno} {node.name}": n_lines(node)
        for source in FILES
        for node in functions(source)
    }
    assert {name: size for name, size in sizes.items() if size > 50} == {}
    assert statistics.median(sizes.values()) < 10


def test_files_are_short() -> None:
    sizes = {source.name: len(source.text.splitlines()) for source in FILES}
    assert {name: size for name, size in sizes.items() if size > 500} == {}


def depth(node: ast.AST, level: int = 0) -> int:
    """The deepest level of blocks under a node; `elif` opens none, a function inside starts anew."""
    deepest = level
    for child in ast.iter_child_nodes(node):
        if isinstance(child, FUNCTION):
            continue
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deepest = max(deepest, depth(child, level + (isinstance(child, NESTS) and not is_elif)))
    return deepest


def test_blocks_nest_at_most_three_deep() -> None:
    deep = {
        f"{source.name}:{node.lineno} {node.name}": depth(node)
        for source in FILES
        for node in functions(source)
        if depth(node) > 3
    }
    assert deep == {}


def waivers(source: Source) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type != tokenize.COMMENT:
            continue
        comment = token.string
        if re.search(r"\b(noqa|nosec|pragma:|pyright:|mypy:)", comment):
            yield f"{source.name}:{token.start[0]} {comment}"
        if "type:" in comment and not re.fullmatch(r"# type: ignore\[[\w, -]+\] +# \S.{9,}", comment):
            yield f"{source.name}:{token.start[0]} {comment}"


def test_rules_are_not_waived() -> None:
    paths = [
        path for folder in ("bareagent", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")
    ]
    assert [found for path in paths for found in waivers(read(path))] == []


def test_unix_modules_stand_behind_one_file() -> None:
    wrong = [
        f"{source.name}:{found.line} {found.module}"
        for source in FILES
        if source.name != "bareagent/platform.py"
        for found in imports(source, MODULES)
        if found.module in UNIX_ONLY
    ]
    assert wrong == []


IMPORT_ALL = """
import importlib, sys
for name in {unix!r}:
    sys.modules[name] = None
for name in {modules!r}:
    importlib.import_module(name)
print("imported", len({modules!r}))
"""


def test_the_package_imports_where_unix_modules_are_missing() -> None:
    modules = sorted(MODULES - {"bareagent.__main__"})
    script = IMPORT_ALL.format(unix=sorted(UNIX_ONLY), modules=modules)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"imported {len(modules)}\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("try:\n    pass\nexcept Exception:\n    pass", True),
        ("try:\n    pass\nexcept (ValueError, BaseException):\n    pass", True),
        ("try:\n    pass\nexcept:\n    pass", True),
        ("with contextlib.suppress(Exception):\n    pass", True),
        ("try:\n    pass\nexcept (ValueError, OSError):\n    pass", False),
        ("try:\n    pass\nexcept BaseException:\n    close()\n    raise", False),
        ("try:\n    pass\nexcept BaseException:\n    raise ValueError", True),
    ],
)
def test_broad_excepts_are_seen(code: str, expected: bool) -> None:
    assert any(is_broad(node) for node in ast.walk(ast.parse(code))) is expected


def test_depth_is_counted() -> None:
    code = "if a:\n  pass\nelif b:\n  for c in d:\n    with e:\n      pass\n"
    assert depth(ast.parse(code)) == 3
    assert depth(ast.parse("if a:\n  pass\nelse:\n  if b:\n    pass\n  c()\n")) == 2
