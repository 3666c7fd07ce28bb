"""Fixtures for all tests."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.server.fixtures import make_server, pair, start_server

__all__ = ["make_server", "pair", "start_server"]

# How long an example takes says more of a busy machine than of the program.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


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
