"""Fixtures for all tests."""

from pathlib import Path

import pytest

from tests.server.fixtures import make_server, pair, start_server

__all__ = ["make_server", "pair", "start_server"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder to work in."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A HOME that holds nothing yet."""
    return tmp_path / "home"
