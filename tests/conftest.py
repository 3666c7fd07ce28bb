"""Fixtures for all tests."""

from tests.server.fixtures import make_server, pair, start_server

__all__ = ["make_server", "pair", "start_server"]
