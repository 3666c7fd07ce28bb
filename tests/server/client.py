"""The plain SDK against a server, and requests in few words; for tests of the server itself."""

import base64
import json
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import anthropic
import httpx2

from tests.server.jsonish import Json
from tests.server.server import Server

MODEL = "test-model"
BASH: Json = {"name": "bash", "description": "Run.", "input_schema": {"type": "object"}}
CALL: Json = {"name": "bash", "input": {"command": "ls -la"}}
MARK: Json = {"type": "ephemeral"}


def text(words: str, **more: Any) -> Json:
    return {"type": "text", "text": words, **more}


def user(*blocks: Json | str) -> Json:
    return {"role": "user", "content": [text(b) if isinstance(b, str) else b for b in blocks]}


def assistant(*blocks: Json | str) -> Json:
    return {**user(*blocks), "role": "assistant"}


def call(name: str) -> Json:
    return {"type": "tool_use", "id": name, "name": "bash", "input": {}}


def result(name: str, **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": name, "content": [text("out")], **more}


def png(width: int, height: int, padding: int = 0) -> Json:
    data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + b"\0" * padding
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(data).decode()}
    return {"type": "image", "source": source}


def fault(kind: str, **more: Any) -> Json:
    return {"kind": kind, **more}


class Client:
    """The plain SDK, and the bare HTTP below it for what the SDK would not send.

    Messages come back as Any: a test knows which of the many kinds of block it asked for.
    """

    def __init__(self, server: Server) -> None:
        # No TLS here: making a context for it would take longer than the test.
        self.http = httpx2.AsyncClient(base_url=server.url, timeout=5, verify=False)
        self.sdk = anthropic.AsyncAnthropic(
            base_url=server.url, api_key="k", max_retries=0, http_client=self.http
        )

    async def post(self, body: Any, path: str = "/v1/messages", **headers: str) -> httpx2.Response:
        base = {"x-api-key": "k", "anthropic-version": "2023-06-01", **headers}
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.http.post(path, content=raw, headers=base)

    async def say(self, *messages: Json, **more: Any) -> Any:
        request: Json = {"model": MODEL, "max_tokens": 1000, "messages": list(messages), **more}
        return await self.sdk.messages.create(**request)

    async def stream(self, *messages: Json, **more: Any) -> Any:
        request: Json = {"model": MODEL, "max_tokens": 1000, "messages": list(messages), **more}
        async with self.sdk.messages.stream(**request) as stream:
            return await stream.get_final_message()

    async def listen(self, seen: list[Any], *messages: Json, **more: Any) -> None:
        request: Json = {"model": MODEL, "max_tokens": 1000, "messages": list(messages), **more}
        async for event in await self.sdk.messages.create(**request, stream=True):
            seen += [event]

    async def close(self) -> None:
        await self.http.aclose()


def as_param(message: anthropic.types.Message) -> Json:
    """A reply as it goes back in the next request."""
    kept = [block.model_dump(exclude_none=True, exclude={"parsed_output"}) for block in message.content]
    return {"role": "assistant", "content": kept}


class Pair:
    """A server and a client of it."""

    def __init__(self, server: Server) -> None:
        self.server, self.client = server, Client(server)


MakePair = Callable[..., Awaitable[Pair]]
