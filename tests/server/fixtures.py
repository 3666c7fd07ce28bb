"""Pytest fixtures that give servers and check them when the test ends."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio

from tests.server.client import MakePair, Pair
from tests.server.server import Server, serve

MakeServer = Callable[..., Awaitable[Server]]
StartServer = Callable[..., Server]


@pytest_asyncio.fixture
async def make_server() -> AsyncIterator[MakeServer]:
    """`await make_server(steps, **options)`: a server in the test's own loop."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(steps: Any = (), **options: Any) -> Server:
            return await stack.enter_async_context(Server(steps, **options))

        yield make


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """`start_server(steps, **options)`: a server in a thread, for subprocesses and terminals."""
    with contextlib.ExitStack() as stack:

        def start(steps: Any = (), **options: Any) -> Server:
            return stack.enter_context(serve(steps, **options))

        yield start


@pytest_asyncio.fixture
async def pair(make_server: MakeServer) -> AsyncIterator[MakePair]:
    """`await pair(steps, **options)`: a server and the plain SDK pointed at it."""
    made: list[Pair] = []

    async def make(steps: Any = (), **options: Any) -> Pair:
        made.append(Pair(await make_server(steps, **options)))
        return made[-1]

    yield make
    for both in made:
        await both.client.close()
