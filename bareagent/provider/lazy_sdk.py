"""Loads of the SDK only what is used: its packages that do nothing but pass names on wait to be asked.

`import anthropic` reads 3,000 modules, nearly all of them types of requests nobody here sends. A
package's `__init__` that is a list of `from .x import Y` is not run: each name is fetched from its
module when it is first asked for, and is the same object. Anything else about a package runs it whole.
"""

import ast
import importlib
import importlib.abc
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

NAME = "anthropic"
_lock = threading.RLock()


def load() -> ModuleType:
    """Return the SDK, loaded in part; whole where that does not work with the version at hand."""
    with _lock:
        if NAME in sys.modules:
            return sys.modules[NAME]
        finder = LazyFinder()
        sys.meta_path.insert(0, finder)
        try:
            return _probed(importlib.import_module(NAME))
        except (ImportError, AttributeError, TypeError, NameError, ValueError):
            sys.meta_path.remove(finder)
            for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
                del sys.modules[name]
            return importlib.import_module(NAME)


def _probed(module: ModuleType) -> ModuleType:
    """Fetch what a first call needs. Raises: what the import of it raises."""
    for name in ("AsyncAnthropic", "AsyncStream", "AnthropicError", "DefaultAsyncHttpxClient", "Omit"):
        getattr(module, name)
    return module


class LazyFinder(importlib.abc.MetaPathFinder):
    """Finds the SDK's packages and makes those lazy that may be."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a package of the SDK, None for everything else."""
        if fullname.partition(".")[0] != NAME:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if (
            spec is None
            or not spec.submodule_search_locations
            or not isinstance(spec.loader, SourceFileLoader)
        ):
            return spec
        tree = ast.parse(spec.loader.get_data(spec.loader.path))
        if fullname == NAME or _only_passes_on(tree.body):
            spec.loader = LazyLoader(spec.loader, dict(_passed_on(tree.body)))
        return spec


class LazyLoader(importlib.abc.Loader):
    """Gives a package that knows where its names come from, without running it."""

    def __init__(self, loader: SourceFileLoader, names: dict[str, tuple[str, str]]) -> None:
        self._loader = loader
        self._names = names

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return an empty lazy package."""
        return LazyPackage(spec.name, self._loader, self._names)

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing yet."""


class LazyPackage(ModuleType):
    """A package whose names are fetched when they are asked for."""

    def __init__(self, name: str, loader: SourceFileLoader, names: dict[str, tuple[str, str]]) -> None:
        super().__init__(name)
        self.__dict__["_lazy"] = (loader, names)

    def __getattr__(self, name: str) -> Any:
        """Fetch one name; a name that is not passed on runs the package as it is written."""
        loader, names = self.__dict__["_lazy"]
        if name in names:
            module, attribute = names[name]
            value = getattr(importlib.import_module(module, self.__name__), attribute)
            setattr(self, name, value)
            return value
        if (name.startswith("__") and name != "__all__") or self.__dict__.get("_is_whole"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if PathFinder.find_spec(f"{self.__name__}.{name}", self.__path__) is not None:
            return importlib.import_module(f"{self.__name__}.{name}")
        self.__dict__["_is_whole"] = True
        loader.exec_module(self)
        return getattr(self, name)


def _only_passes_on(body: Iterable[ast.stmt]) -> bool:
    return all(
        (isinstance(statement, ast.ImportFrom) and all(alias.name != "*" for alias in statement.names))
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        or _is_all(statement)
        for statement in body
    )


def _is_all(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__"


def _passed_on(body: Iterable[ast.stmt]) -> Iterator[tuple[str, tuple[str, str]]]:
    for statement in body:
        if isinstance(statement, ast.ImportFrom) and statement.level == 1 and statement.module:
            for alias in statement.names:
                yield alias.asname or alias.name, (f".{statement.module}", alias.name)
