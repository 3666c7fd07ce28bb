"""Fixtures for all tests."""

import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.server.fixtures import make_server, pair, start_server

__all__ = ["make_server", "pair", "start_server"]

# A run in the background of a shell ignores these, and so would every program that a test starts.
for name in ("SIGHUP", "SIGINT", "SIGQUIT"):
    if signal.getsignal(number := getattr(signal, name, signal.SIGINT)) is signal.SIG_IGN:
        usual = signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL
        signal.signal(number, usual)

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
