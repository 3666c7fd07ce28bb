"""HTTP/1.1 over one connection: a request read, a response written, a connection broken."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

MAX_HEAD_BYTES = 64 * 1024
POLL_S = 0.01


class ClientLeft(Exception):
    """The client closed its side before the response was whole."""


class BadRequest(Exception):
    """What came was no HTTP."""


@dataclass(slots=True)
class Request:
    """One request; header names are in lower case. `size` is the body's length as it was sent."""

    method: str
    path: str
    query: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    size: int = 0


class Wire:
    """One connection of one client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, max_body: int) -> None:
        self._reader, self._writer, self._max_body = reader, writer, max_body
        self._is_chunked = False
        self.is_open = True

    async def read(self) -> Request | None:
        """The next request, or None at the end of the connection; Raises: BadRequest."""
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except asyncio.LimitOverrunError as error:
            raise BadRequest("head too large") from error
        request = _parse_head(head)
        if request.headers.get("expect", "").lower() == "100-continue":
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            await self._read_body(request)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except ValueError as error:
            raise BadRequest(f"body: {error}") from error
        return request

    async def start(self, status: int, headers: Mapping[str, str], length: int | None = None) -> None:
        """The status line and headers; without a length the body is sent in chunks."""
        self._is_chunked = length is None
        frame = {"transfer-encoding": "chunked"} if length is None else {}
        if length is not None:
            frame = {"content-length": str(length)}
        try:
            phrase = HTTPStatus(status).phrase
        except ValueError:
            phrase = "Overloaded"
        lines = [f"HTTP/1.1 {status} {phrase}"]
        lines += [f"{name}: {value}" for name, value in {**headers, **frame}.items()]
        await self._write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    async def send(self, data: bytes) -> None:
        """A piece of the body; Raises: ClientLeft."""
        if data and self._is_chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        await self._write(data)

    async def end(self) -> None:
        """The end of the body."""
        if self._is_chunked:
            await self._write(b"0\r\n\r\n")

    async def pause(self, seconds: float) -> None:
        """Sleep; Raises: ClientLeft as soon as the client goes."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (left := until - loop.time()) > 0:
            self.look()
            await asyncio.sleep(min(left, POLL_S))

    def look(self) -> None:
        """Raises: ClientLeft if the client has gone."""
        if self._reader.at_eof() or self._writer.transport.is_closing():
            raise ClientLeft

    def reset(self) -> None:
        """Break the connection with a RST."""
        sock: socket.socket | None = self._writer.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()
        self.is_open = False

    async def close(self) -> None:
        """Close the connection with a FIN; what was written goes out first."""
        self.is_open = False
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def abort(self) -> None:
        """Drop the connection and what was not yet sent."""
        self._writer.transport.abort()
        self.is_open = False

    async def _write(self, data: bytes) -> None:
        self.look()
        self._writer.write(data)
        try:
            await self._writer.drain()
        except ConnectionError as error:
            raise ClientLeft from error

    async def _read_body(self, request: Request) -> None:
        if request.headers.get("transfer-encoding", "").lower() == "chunked":
            await self._read_chunks(request)
            return
        await self._take(request, int(request.headers.get("content-length", "0") or 0))

    async def _read_chunks(self, request: Request) -> None:
        while True:
            line = await self._reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            await self._take(request, size)
            await self._reader.readexactly(2)
            if size == 0:
                return

    async def _take(self, request: Request, size: int) -> None:
        # What is over the limit is read and thrown away: the client can then hear the refusal.
        request.size += size
        if request.size <= self._max_body:
            request.body += await self._reader.readexactly(size)
            return
        request.body = b""
        while size:
            piece = await self._reader.read(min(size, 1 << 20))
            if not piece:
                raise asyncio.IncompleteReadError(b"", size)
            size -= len(piece)


def _parse_head(head: bytes) -> Request:
    lines = head.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise BadRequest(lines[0])
    path, _, query = parts[1].partition("?")
    request = Request(parts[0], path, query)
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            request.headers[name.strip().lower()] = value.strip()
    return request
