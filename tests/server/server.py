"""The server as tests hold it: options, records, lifetime, connections."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.server import prefix
from tests.server.backend import Backend
from tests.server.cache import CacheRules, PromptCache
from tests.server.jsonish import Json
from tests.server.ledger import Ledger
from tests.server.models import Model, table
from tests.server.prefix import Break
from tests.server.record import Record
from tests.server.script import Script, Speaker, StepLike
from tests.server.units import Sizes
from tests.server.wire import BadRequest, ClientLeft, Request, Wire

MAX_BODY = 32 * 1024 * 1024
KEY = "test-key"
# What a compatible server may not have: endpoints, cache fields in usage, request parameters.
LACKS = frozenset({
    "count_tokens", "models", "cache", "cache_control", "tools", "thinking", "system", "output_config",
})  # fmt: skip
STARTED_IN_S = 10.0


class Server:
    """A strict, scripted Messages API on 127.0.0.1; README.md has the whole interface.

    `async with Server(steps) as server` runs it in the loop at hand, `with serve(steps) as server`
    in a thread of its own. With `strict` (the default) the end of the block raises AssertionError
    if a request was malformed or the script did not foresee it.
    """

    def __init__(
        self,
        steps: Iterable[StepLike] | Speaker = (),
        *,
        default: StepLike | None = None,
        models: Iterable[Model | Json] = (),
        keys: Iterable[str] | None = None,
        auth: str = "",
        root: str = "",
        lacks: Iterable[str] = (),
        cache: CacheRules | Json | None = None,
        bytes_per_token: float = 4.0,
        overflow: str = "refuse",
        verify_thinking: bool = True,
        secret: bytes = b"bareagent tests",
        strict: bool = True,
        max_body: int = MAX_BODY,
        port: int = 0,
        log: Path | None = None,
    ) -> None:
        unknown = set(lacks) - LACKS
        if unknown:
            raise ValueError(f"lacks: unknown {sorted(unknown)}; known: {sorted(LACKS)}")
        rules = CacheRules(**cache) if isinstance(cache, dict) else cache or CacheRules()
        self.cache = PromptCache(rules, self.now)
        self.script = Script([steps] if callable(steps) else steps, default)
        self.backend = Backend(
            script=self.script,
            models=table(models),
            sizes=Sizes(bytes_per_token),
            ledger=Ledger(secret),
            cache=self.cache,
            keys=None if keys is None else frozenset(keys),
            auth=auth,
            root=root,
            lacks=frozenset(lacks),
            overflow=overflow,
            verify_thinking=verify_thinking,
            max_body=max_body,
            deafen=self._deafen_for,
        )
        self.all: list[Record] = []
        self.strict = strict
        self._log, self._port, self._skew_s = log, port, 0.0
        self._listener: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._n_connections = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    # What a test reads.

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}{self.backend.root}"

    @property
    def env(self) -> dict[str, str]:
        """The environment that points a program here."""
        key = min(self.backend.keys or {KEY})
        return {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": key}

    @property
    def problems(self) -> list[str]:
        """What the script did not foresee, and faults of the server itself."""
        return self.backend.problems

    @property
    def requests(self) -> list[Record]:
        """All requests to the messages endpoint, refused ones too."""
        return [record for record in self.all if record.path == "/v1/messages"]

    @property
    def refused(self) -> list[Record]:
        """Requests to the messages endpoint that were malformed."""
        return [record for record in self.requests if not record.is_valid]

    def prefix_breaks(self, only: Callable[[Record], bool] | None = None) -> list[Break]:
        """Where a request does not begin with the one before; summaries are left out by default."""
        chosen = only or (lambda record: not record.is_summary)
        return prefix.breaks([record for record in self.requests if chosen(record)])

    def cache_share(self) -> Json:
        """`read`, `possible` and `share` over all requests."""
        return prefix.share(self.requests, self.cache.rules.life_s)

    def check(self) -> None:
        """Raises: AssertionError if a request was malformed or the script did not foresee it."""
        bad = [f"request {record.number}: {record.verdict}" for record in self.refused]
        if bad or self.problems:
            raise AssertionError("\n".join([*bad, *self.problems]))

    def check_done(self) -> None:
        """As `check`, and every step of the script must have been played."""
        self.check()
        if self.script.unused:
            raise AssertionError(f"steps that were not played: {self.script.unused}")

    # What a test does.

    def add(self, *steps: StepLike) -> None:
        """Append steps to the script."""
        self.script.add(steps)

    def advance(self, seconds: float) -> None:
        """Let time pass for the prompt cache."""
        self._skew_s += seconds

    def release(self) -> None:
        """End every stall that waits for it."""
        waiting = (record.number for record in self.all if record.outcome == "open")
        self.backend.released.update(waiting)

    def now(self) -> float:
        """Seconds on the server's clock."""
        return time.monotonic() + self._skew_s

    def wait(self, n_requests: int, timeout_s: float = 10.0) -> Record:
        """Block until request `n_requests` (from 1) has come in; for a server in a thread.

        Raises: TimeoutError.
        """
        self._block(lambda: len(self.requests) >= n_requests, n_requests, timeout_s)
        return self.requests[n_requests - 1]

    def wait_settled(self, n_requests: int, timeout_s: float = 10.0) -> Record:
        """The same, until the outcome of that request is known too; Raises: TimeoutError."""
        record = self.wait(n_requests, timeout_s)
        self._block(lambda: record.outcome != "open", n_requests, timeout_s)
        return record

    async def arrived(self, n_requests: int, timeout_s: float = 10.0) -> Record:
        """The same for a server in this loop."""
        async with asyncio.timeout(timeout_s):
            await self._changes(lambda: len(self.requests) >= n_requests)
        return self.requests[n_requests - 1]

    async def settled(self, n_requests: int, timeout_s: float = 10.0) -> Record:
        """Request `n_requests` after its outcome is known."""
        record = await self.arrived(n_requests, timeout_s)
        async with asyncio.timeout(timeout_s):
            await self._changes(lambda: record.outcome != "open")
        return record

    async def start(self) -> Self:
        """Listen, if it does not yet; the port is known afterwards."""
        if self._listener is None:
            await self._listen()
        return self

    async def stop(self) -> None:
        """Close the listener and every connection."""
        await self._deafen()
        tasks = [*self._tasks, *self.backend.background]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.stop()
        if kind is None and self.strict:
            self.check()

    def start_thread(self) -> Self:
        """Run in a thread of its own until `stop_thread`."""
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        if not ready.wait(STARTED_IN_S):
            raise TimeoutError("the test server did not start")
        return self

    def stop_thread(self) -> None:
        """Stop the thread and all its connections."""
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread is not None:
            self._thread.join()

    # Connections.

    def _run(self, ready: threading.Event) -> None:
        asyncio.run(self._serve_until_stopped(ready))

    async def _serve_until_stopped(self, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        await self.start()
        ready.set()
        await self._stop.wait()
        await self.stop()

    async def _listen(self) -> None:
        # The protocol is named as asyncio turns Nagle off only where it is; with it on, each reply
        # of two writes would wait 40 ms for an acknowledgement.
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", self._port))
        except OSError:
            sock.close()
            raise
        self._port = sock.getsockname()[1]
        self._listener = await asyncio.start_server(self._connected, sock=sock)

    def _block(self, is_so: Callable[[], bool], n_requests: int, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        while not is_so():
            if time.monotonic() > until:
                raise TimeoutError(f"waited for request {n_requests}, {len(self.requests)} came in")
            time.sleep(0.005)

    async def _changes(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self._changed.clear()
            await self._changed.wait()

    async def _deafen(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            await asyncio.sleep(0)

    async def _deafen_for(self, seconds: float) -> None:
        await self._deafen()
        await asyncio.sleep(seconds)
        await self._listen()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._finished)
        self._n_connections += 1
        wire = Wire(reader, writer, self.backend.max_body)
        try:
            await self._converse(wire, self._n_connections)
            await wire.close()
        except asyncio.CancelledError:
            wire.abort()

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.problems.append(f"the server itself failed: {type(error).__name__}: {error}")

    async def _converse(self, wire: Wire, connection: int) -> None:
        while wire.is_open:
            try:
                request = await wire.read()
            except BadRequest as error:
                self.problems.append(f"no HTTP: {error}")
                return
            if request is None:
                return
            record = self._note(request, connection)
            try:
                await self.backend.answer(record, request, wire)
            except ClientLeft:
                record.outcome = "client left"
                return
            finally:
                wire.is_open &= request.headers.get("connection", "").lower() != "close"
                self._changed.set()
                self._write_log(record)

    def _note(self, request: Request, connection: int) -> Record:
        number = len(self.all) + 1
        path = request.path.removeprefix(self.backend.root)
        record = Record(number, request.method, path, request.query, request.headers)
        record.raw, record.connection, record.at = request.body, connection, self.now()
        record.request_id = f"req_test{number:08d}"
        self.all.append(record)
        self._changed.set()
        return record

    def _write_log(self, record: Record) -> None:
        if self._log is not None:
            with self._log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record.as_json()) + "\n")


@contextlib.contextmanager
def serve(steps: Iterable[StepLike] | Speaker = (), **options: Any) -> Iterator[Server]:
    """A server in a thread of its own, for tests that drive a subprocess or a terminal."""
    server = Server(steps, **options).start_thread()
    try:
        yield server
    finally:
        server.stop_thread()
    if server.strict:
        server.check()
