"""Fixtures for all tests."""

from tests.server.fixtures import make_server, start_server

__all__ = ["make_server", "start_server"]
