"""What a user gets: the built wheel, the pinned requirements, the two commands."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.source import ROOT, imports, package

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PINNED_FILES = ["requirements-dev.txt", "requirements-compat.txt", "bareagent/provider/weights.txt"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="hatchling, which builds the wheel, is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    listed = subprocess.run(
        ["git", "ls-files", "bareagent"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert {name for name in listed if (ROOT / name).exists()} - names == set()
    outside = {name for name in names if not name.startswith(("bareagent/", "bareagent-"))}
    assert outside == set()
    assert not [name for name in names if name.endswith(".gguf") or "__pycache__" in name]
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_wheel_alone_starts(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "HOME": str(tmp_path)}
    where = [sys.executable, "-c", "import bareagent; print(bareagent.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert found.stdout.startswith(str(tmp_path / "site")), found.stderr
    started = subprocess.run(
        [sys.executable, "-m", "bareagent", "--help"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert started.returncode == 0, started.stderr
    assert "--resume" in re.sub(r"\x1b\[[\d;]*m", "", started.stdout)


def test_the_command_is_declared(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (entry,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "bareagent = bareagent.__main__:main" in archive.read(entry).decode()


@pytest.mark.parametrize("name", PINNED_FILES)
def test_pinned_files_name_no_index_and_no_address(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"--(extra-)?index-url|--find-links|--trusted-host|^-[if]\b", text, re.MULTILINE)
    assert not re.search(r"\b[\w-]+\.(org|com|net|io|dev)\b", text)


@pytest.mark.parametrize("name", PINNED_FILES)
def test_every_pin_has_a_hash(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    pins = [line for line in lines if line.strip() and not line.startswith("#")]
    assert pins
    assert [line[:60] for line in pins if "==" not in line or "--hash=sha256:" not in line] == []


def pinned_versions() -> dict[str, str]:
    text = (ROOT / "requirements-dev.txt").read_text(encoding="utf-8")
    return {
        canonicalize_name(name): version
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)
    }


def test_the_pins_are_what_the_project_asks_for() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    asked = [
        *PROJECT["project"]["dependencies"],
        *PROJECT["dependency-groups"]["test"],
        *(line for extra in ("fast", "images", "local") for line in extras[extra]),
    ]
    pins = pinned_versions()
    for requirement in map(Requirement, asked):
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_what_is_imported_is_declared() -> None:
    """Nothing is used that only comes along with something else."""
    extras = PROJECT["project"]["optional-dependencies"]
    declared = [*PROJECT["project"]["dependencies"], *(line for lines in extras.values() for line in lines)]
    names = {canonicalize_name(Requirement(line).name) for line in declared}
    installed = packages_distributions()
    modules = frozenset(source.module for source in package())
    tops = {found.module.split(".")[0] for source in package() for found in imports(source, modules)}
    foreign = tops - set(sys.stdlib_module_names) - {"bareagent"}
    undeclared = {
        top for top in foreign if not names & {canonicalize_name(name) for name in installed.get(top, [])}
    }
    assert undeclared == set()


def fake_python(folder: Path, version: str) -> Path:
    """A program that says it is this Python and fails whatever it is asked to do."""
    script = folder / "oldpython"
    script.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "Python {version}" && exit 0\nexit 1\n')
    script.chmod(0o755)
    return script


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("target", ["run", "test"])
def test_make_names_a_python_that_is_too_old(tmp_path: Path, target: str) -> None:
    for name in ("Makefile", "pyproject.toml", *PINNED_FILES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    command = ["make", target, f"PYTHON={fake_python(tmp_path, '3.9.2')}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "needs Python 3.11 or newer" in done.stderr
    assert "3.9.2" in done.stderr
    assert not (tmp_path / ".venv").exists()
    gone = subprocess.run(
        ["make", target, "PYTHON=no-such-python"], cwd=tmp_path, capture_output=True, text=True
    )
    assert "no-such-python is not here" in gone.stderr
