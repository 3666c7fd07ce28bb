"""The test server itself, driven by the plain SDK."""

import asyncio
import base64
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from tests.server import KEY, MOMENTS, CacheRules, Model, Server, Step, load, serve
from tests.server.faults import Cut, Fault, Send, plan
from tests.server.fixtures import MakeServer, StartServer
from tests.server.jsonish import Json
from tests.server.ledger import Ledger
from tests.server.reply import build
from tests.server.script import step_from
from tests.server.sse import events
from tests.server.units import Sizes

SCRIPTS = Path(__file__).parent / "server" / "scripts"
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


class Client:
    """The plain SDK, and the bare HTTP below it for what the SDK would not send."""

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

    async def say(self, *messages: Json, **more: Any) -> anthropic.types.Message:
        request: Json = {"model": MODEL, "max_tokens": 1000, "messages": list(messages), **more}
        found: anthropic.types.Message = await self.sdk.messages.create(**request)
        return found

    async def stream(self, *messages: Json, **more: Any) -> anthropic.types.Message:
        request: Json = {"model": MODEL, "max_tokens": 1000, "messages": list(messages), **more}
        async with self.sdk.messages.stream(**request) as stream:
            found: anthropic.types.Message = await stream.get_final_message()
            return found

    async def listen(self, seen: list[Any], *messages: Json, **more: Any) -> None:
        request: Json = {"model": MODEL, "max_tokens": 1000, "messages": list(messages), **more}
        async for event in await self.sdk.messages.create(**request, stream=True):
            seen += [event]

    async def close(self) -> None:
        await self.http.aclose()


@pytest_asyncio.fixture
async def clients() -> AsyncIterator[list[Client]]:
    made: list[Client] = []
    yield made
    for client in made:
        await client.close()


class Pair:
    """A server and a client of it."""

    def __init__(self, server: Server, client: Client) -> None:
        self.server, self.client = server, client


@pytest.fixture
def pair(make_server: MakeServer, clients: list[Client]) -> Any:
    async def make(steps: Any = (), **options: Any) -> Pair:
        server = await make_server(steps, **options)
        clients.append(Client(server))
        return Pair(server, clients[-1])

    return make


def as_param(message: anthropic.types.Message) -> Json:
    kept = [block.model_dump(exclude_none=True, exclude={"parsed_output"}) for block in message.content]
    return {"role": "assistant", "content": kept}


# Replies


@pytest.mark.parametrize("way", ["say", "stream"])
async def test_a_reply_arrives_whole_either_way(pair: Any, way: str) -> None:
    step = {
        "thinking": "let me see",
        "text": "Grüße, 世界 " * 9,
        "calls": [CALL, {"name": "bash", "input": {"command": "你好\n"}}],
        "chunk": 3,
    }
    both = await pair([step])
    message = await getattr(both.client, way)(user("hi"), tools=[BASH], thinking={"type": "adaptive"})
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert message.content[1].text == step["text"]
    assert message.content[3].input == {"command": "你好\n"}
    assert message.stop_reason == "tool_use"
    assert message.usage.output_tokens > message.usage.output_tokens_details.thinking_tokens > 0
    record = both.server.requests[0]
    assert (record.outcome, record.verdict, record.step) == ("done", "ok", 0)
    assert record.reply[2]["id"] == message.content[2].id


async def test_request_ids_stand_in_headers_and_errors(pair: Any) -> None:
    both = await pair(strict=False)
    response = await both.client.post({"model": MODEL})
    assert response.json()["request_id"] == response.headers["request-id"]
    assert response.json()["type"] == "error"


@pytest.mark.parametrize(
    "stop", ["end_turn", "stop_sequence", "max_tokens", "refusal", "pause_turn", "something_new"]
)
async def test_any_stop_reason_can_be_scripted(pair: Any, stop: str) -> None:
    both = await pair([{"text": "so far", "stop_reason": stop}])
    assert (await both.client.stream(user("hi"))).stop_reason == stop


async def test_odd_replies(pair: Any) -> None:
    both = await pair([
        {"empty": True},
        {"calls": [CALL], "raw_input": '{"command": "ls'},
        {"blocks": [{"type": "redacted_thinking", "hides": "x"}, {"type": "future", "n": 1}], "text": "a"},
        {"text": "a", "stop_reason": "null"},
        {"text": "a", "usage_output": 777, "usage": {"cache_read_input_tokens": 5}},
    ])  # fmt: skip
    say = both.client.stream
    assert (await say(user("1"))).content == []
    assert (await say(user("2"), tools=[BASH])).content[0].input == {}
    assert [block.type for block in (await say(user("3"))).content] == ["text", "redacted_thinking", "future"]
    assert (await say(user("4"))).stop_reason is None
    usage = (await say(user("5"))).usage
    assert (usage.output_tokens, usage.cache_read_input_tokens) == (777, 5)


async def test_a_reply_is_cut_at_max_tokens_inside_the_tool_input(pair: Any) -> None:
    long = {"name": "bash", "input": {"command": "x" * 4000}}
    both = await pair([{"calls": [long]}, {"thinking": "t" * 900}])
    cut = await both.client.stream(user("hi"), tools=[BASH], max_tokens=100)
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 100)
    assert cut.content[0].input == {}
    thought = await both.client.stream(user("hi"), max_tokens=100, thinking={"type": "adaptive"})
    assert thought.stop_reason == "max_tokens"
    assert Ledger().is_genuine(thought.content[0].model_dump())


# Other endpoints


async def test_models_and_counting(pair: Any) -> None:
    both = await pair(models=[Model("own", window=1234, max_output=99), {"id": "json", "window": 5}])
    sdk = both.client.sdk
    own = await sdk.models.retrieve("own")
    assert (own.max_input_tokens, own.max_tokens) == (1234, 99)
    assert own.capabilities.thinking.types.enabled.supported
    assert not own.capabilities.thinking.types.adaptive.supported
    assert {"own", "json", "claude-opus-4-8"} <= {model.id async for model in sdk.models.list()}
    count = await sdk.messages.count_tokens(model="own", messages=[user("12345678", "123")])
    assert count.input_tokens == 3
    with pytest.raises(anthropic.NotFoundError, match="model: nope"):
        await sdk.models.retrieve("nope")


async def test_what_a_server_lacks_it_refuses(pair: Any) -> None:
    both = await pair(["a"], lacks=["count_tokens", "models", "cache", "thinking"], strict=False)
    with pytest.raises(anthropic.NotFoundError):
        await both.client.sdk.models.list()
    with pytest.raises(anthropic.NotFoundError):
        await both.client.sdk.messages.count_tokens(model=MODEL, messages=[user("hi")])
    with pytest.raises(anthropic.BadRequestError, match="thinking: Extra inputs are not permitted"):
        await both.client.say(user("hi"), thinking={"type": "adaptive"})
    assert (await both.client.say(user("hi"))).usage.cache_read_input_tokens is None
    with pytest.raises(ValueError, match="nonsense"):
        Server(lacks=["nonsense"])


@pytest.mark.parametrize(
    ("headers", "status", "words"),
    [
        ({}, 401, "x-api-key header is required"),
        ({"x-api-key": "bad"}, 401, "invalid x-api-key"),
        ({"authorization": "Bearer bad"}, 401, "Invalid bearer token"),
        ({"x-api-key": "good"}, 400, "anthropic-version: header is required"),
        ({"authorization": "Bearer good", "anthropic-version": "2023-06-01"}, 404, "model: nope"),
    ],
)
async def test_who_may_ask(pair: Any, headers: dict[str, str], status: int, words: str) -> None:
    both = await pair(keys=["good"], strict=False)
    answer = await both.client.http.post("/v1/messages?beta=true", json={"model": "nope"}, headers=headers)
    assert (answer.status_code, answer.json()["error"]["message"]) == (status, words)


async def test_odd_requests(pair: Any) -> None:
    both = await pair(strict=False)
    post = both.client.post
    assert (await post(b"{")).json()["error"]["message"].startswith("The request body is not valid JSON")
    assert "no low surrogate" in (await post(b'{"model":"\\ud83d"}')).json()["error"]["message"]
    assert (await post(b'{"a":NaN}')).status_code == 400
    assert (await post(b"\xff\xfe")).status_code == 400
    assert (await post([])).json()["error"]["message"] == "Input should be an object"
    assert (await post({}, "/v1/other")).json()["error"]["type"] == "not_found_error"
    assert (await both.client.http.get("/v1/messages", headers={"x-api-key": "k"})).status_code == 400


async def test_a_body_over_the_limit(pair: Any) -> None:
    both = await pair(["a"], strict=False, max_body=100_000)
    with pytest.raises(anthropic.RequestTooLargeError, match="Request exceeds the maximum size"):
        await both.client.say(user("x" * 100_001))
    assert (await both.client.say(user("hi"))).stop_reason == "end_turn"
    assert Server().backend.max_body == 32 * 1024 * 1024


# Refusals

SCHEMA_WORDS = "tools.0.custom.input_schema"
LATEST = "cannot be modified. These blocks must remain as they were in the original response"
BAD: list[tuple[str, Json]] = [
    ("messages: at least one message is required", {"messages": []}),
    ("messages: Field required", {"messages": None}),
    ('first message must use the "user" role', {"messages": [assistant("a"), user("b")]}),
    ('multiple "user" roles in a row', {"messages": [user("a"), user("b")]}),
    ("messages.0.role: Input should be", {"messages": [{"role": "tool", "content": "a"}]}),
    ("messages.0.name: Extra inputs are not permitted", {"messages": [{**user("a"), "name": "x"}]}),
    ("all messages must have non-empty content", {"messages": [user()]}),
    ("messages: text content blocks must be non-empty", {"messages": [user("")]}),
    ("messages: text content blocks must contain non-whitespace text", {"messages": [user(" \n")]}),
    ("messages.0.content.0.text.parsed: Extra", {"messages": [user(text("a", parsed=1))]}),
    ("does not support assistant message prefill", {"messages": [user("a"), assistant("b")]}),
    (
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a. Each",
        {"messages": [user("q"), assistant(call("a")), user("no result")]},
    ),
    (
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: b. Each",
        {"messages": [user("q"), assistant(call("a"), call("b")), user(result("a"))]},
    ),
    (
        "messages.1: `tool_use` ids were found without",
        {"messages": [user("q"), assistant(call("a"))]},
    ),
    (
        "messages.1: `tool_use` ids were found without",
        {"messages": [user("q"), assistant(call("a")), user("first a text", result("a"))]},
    ),
    (
        "messages.2.content.1: unexpected `tool_use_id` found in `tool_result` blocks: b. Each",
        {"messages": [user("q"), assistant(call("a")), user(result("a"), result("b"))]},
    ),
    (
        "messages.0.content.0: unexpected `tool_use_id`",
        {"messages": [user(result("a"))]},
    ),
    (
        "each tool_use must have a single result. Found multiple `tool_result` blocks with id: a",
        {"messages": [user("q"), assistant(call("a")), user(result("a"), result("a"))]},
    ),
    (
        "must stand in the order of their `tool_use` blocks: expected a, b, found b, a",
        {"messages": [user("q"), assistant(call("a"), call("b")), user(result("b"), result("a"))]},
    ),
    (
        "messages.1: `tool_use` ids must be unique",
        {"messages": [user("q"), assistant(call("a"), call("a")), user(result("a"))]},
    ),
    ("content.0.tool_use.id: String should match", {"messages": [user("q"), assistant(call("a b"))]}),
    (
        "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
        {"messages": [user("q"), assistant({**call("a"), "input": "{"})]},
    ),
    ("`tool_use` blocks can only be in `assistant` messages", {"messages": [user(call("a"))]}),
    ("messages.0.content.0: Input tag 'odd' found", {"messages": [user({"type": "odd"})]}),
    ("content cannot be empty if `is_error` is true", {
        "messages": [user("q"), assistant(call("a")), user(result("a", content="", is_error=True))]
    }),
    ("messages: text content blocks must be non-empty", {
        "messages": [user("q"), assistant(call("a")), user(result("a", content=[text("")]))]
    }),
    ("must define tools", {"tools": None, "messages": [user("q"), assistant(call("a")), user(result("a"))]}),
    ("role 'system' is not supported on this model", {
        "messages": [user("a"), {"role": "system", "content": "b"}]
    }),
    ("max_tokens: Field required", {"max_tokens": None}),
    ("max_tokens: 64001 > 64000, which is the maximum allowed number of output", {"max_tokens": 64001}),
    ("max_tokens: Input should be greater than", {"max_tokens": 0}),
    ("max_tokens: Input should be a valid integer", {"max_tokens": "9"}),
    ("colour: Extra inputs are not permitted", {"colour": 1}),
    ("stream: Input should be a valid boolean", {"stream": "yes"}),
    ("A maximum of 4 blocks with cache_control may be provided. Found 5.", {
        "messages": [user(*[text("a", cache_control=MARK)] * 4)],
        "system": [text("s", cache_control=MARK)],
    }),
    ("A maximum of 4 blocks with cache_control", {
        "messages": [user(*[text("a", cache_control=MARK)] * 4)], "cache_control": MARK
    }),
    ("cache_control cannot be set for empty text blocks", {
        "messages": [user("a", text("", cache_control=MARK))]
    }),
    ("a ttl='1h' cache_control block must not come after a ttl='5m'", {
        "messages": [user(text("a", cache_control=MARK), text("b", cache_control={**MARK, "ttl": "1h"}))]
    }),
    ("cache_control.ephemeral.ttl: Input should be", {
        "messages": [user(text("a", cache_control={**MARK, "ttl": "9m"}))]
    }),
    ("thinking.cache_control: Extra inputs are not permitted", {"messages": [user("q"), assistant(
        {"type": "thinking", "thinking": "t", "signature": Ledger().sign("t"), "cache_control": MARK}, "a"
    ), user("b")]}),
    ("The final block in an assistant message cannot be `thinking`", {"messages": [user("q"), assistant(
        {"type": "thinking", "thinking": "t", "signature": Ledger().sign("t")}
    ), user("b")]}),
    (LATEST, {"messages": [user("q"), assistant(
        {"type": "thinking", "thinking": "T", "signature": Ledger().sign("t")}, "a"
    ), user("b")]}),
    ("messages.1.content.0: Invalid `signature` in `thinking` block", {"messages": [user("q"), assistant(
        {"type": "thinking", "thinking": "t", "signature": ""}, "a"
    ), user("b"), assistant("c"), user("d")]}),
    ("messages.1.content.0: Invalid `data` in `redacted_thinking` block", {"messages": [user("q"), assistant(
        {"type": "redacted_thinking", "data": "c2VjcmV0"}, "a"
    ), user("b"), assistant("c"), user("d")]}),
    ("messages.1.content.0.thinking.signature: Field required", {"messages": [user("q"), assistant(
        {"type": "thinking", "thinking": "t"}, "a"
    ), user("b")]}),
    ("tools.0.custom.name: String should match pattern", {"tools": [{**BASH, "name": "a b"}]}),
    ("tools: Tool names must be unique.", {"tools": [BASH, BASH]}),
    (f"{SCHEMA_WORDS}: Field required", {"tools": [{"name": "a"}]}),
    (f"{SCHEMA_WORDS}.type: Field required", {"tools": [{"name": "a", "input_schema": {}}]}),
    (f"{SCHEMA_WORDS}.type: Input should be 'object'", {
        "tools": [{"name": "a", "input_schema": {"type": "string"}}]
    }),
    ("tools.0.custom.parameters: Extra inputs", {"tools": [{**BASH, "parameters": {}}]}),
    ("tool_choice: Input tag 'some' found", {"tool_choice": {"type": "some"}}),
    ("Tool 'sh' not found in provided tools", {"tool_choice": {"type": "tool", "name": "sh"}}),
    ("tool_choice may only be specified while", {"tools": None, "tool_choice": {"type": "any"}}),
    ("Thinking may not be enabled when tool_choice forces tool use", {
        "tool_choice": {"type": "any"}, "thinking": {"type": "adaptive"}
    }),
    ("thinking: Input tag 'much' found", {"thinking": {"type": "much"}}),
    ("budget_tokens: Input should be greater than or equal to 1024", {
        "thinking": {"type": "enabled", "budget_tokens": 9}
    }),
    ("`max_tokens` must be greater than `thinking.budget_tokens`", {
        "max_tokens": 1024, "thinking": {"type": "enabled", "budget_tokens": 1024}
    }),
    ('"thinking.type.enabled" is not supported for this model', {
        "model": "claude-opus-4-8", "max_tokens": 9999, "thinking": {"type": "enabled", "budget_tokens": 1024}
    }),
    ("adaptive thinking is not supported on this model", {
        "model": "claude-haiku-4-5", "thinking": {"type": "adaptive"}
    }),
    ("does not support the effort parameter", {
        "model": "claude-haiku-4-5", "output_config": {"effort": "low"}
    }),
    ("`temperature` may only be set to 1", {"temperature": 0.5, "thinking": {"type": "adaptive"}}),
    ("system: text content blocks must be non-empty", {"system": [text("")]}),
    ("image input is not supported on this model", {"model": "test-plain", "messages": [user(png(9, 9))]}),
    ("max allowed size: 8000 pixels", {"messages": [user(png(8001, 9))]}),
    ("max allowed size for many-image requests: 2000 pixels", {
        "messages": [user(*[png(9, 9)] * 20, png(9, 2001))]
    }),
    ("image exceeds 5 MB maximum: 5242905 bytes > 5242880 bytes", {
        "messages": [user(png(9, 9, padding=5 * 1024 * 1024 + 1))]
    }),
    ("too many images and documents: 101 + 0 > 100", {"messages": [user(*[png(9, 9)] * 101)]}),
    ("Could not process image", {"messages": [user({"type": "image", "source": {
        "type": "base64", "media_type": "image/png", "data": "AAAA"}})]}),
    ("appears to be a image/png image", {"messages": [user({"type": "image", "source": {
        **png(9, 9)["source"], "media_type": "image/gif"}})]}),
]  # fmt: skip


async def test_malformed_requests_are_refused_in_the_words_of_the_api(pair: Any) -> None:
    both = await pair(["never said"], strict=False)
    for words, change in BAD:
        body = {"model": MODEL, "max_tokens": 100, "messages": [user("hi")], "tools": [BASH], **change}
        answer = await both.client.post({name: value for name, value in body.items() if value is not None})
        error = answer.json()["error"]
        assert (answer.status_code, error["type"]) == (400, "invalid_request_error"), (words, error)
        assert words in error["message"]
    assert len(both.server.refused) == len(BAD)
    assert both.server.script.unused == [1]


@pytest.mark.parametrize(
    "change",
    [
        {"messages": [{"role": "user", "content": "a bare string"}]},
        {
            "messages": [
                user("q"),
                assistant("x", call("a"), call("b")),
                user(result("a"), result("b"), "more"),
            ]
        },
        {
            "messages": [
                user("q"),
                assistant(call("a")),
                user(result("a")),
                assistant(call("a")),
                user(result("a")),
            ]
        },
        {"messages": [user("q"), assistant(call("a")), user(result("a", content=[text("x"), png(9, 9)]))]},
        {"messages": [user("q"), assistant(call("a")), user(result("a", content="", is_error=False))]},
        {"model": "claude-opus-4-8", "messages": [user("a"), {"role": "system", "content": [text("b")]}]},
        {"messages": [user(text("a", cache_control={**MARK, "ttl": "1h"}), text("b", cache_control=MARK))]},
        {"messages": [user(text("a", citations=None))], "cache_control": MARK},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000},
        {"tools": None, "system": "one line", "metadata": {"user_id": "u"}},
        {"tool_choice": {"type": "tool", "name": "bash", "disable_parallel_tool_use": True}},
    ],
)
async def test_right_requests_are_taken(pair: Any, change: Json) -> None:
    both = await pair(["fine"])
    body = {"model": MODEL, "max_tokens": 100, "messages": [user("hi")], "tools": [BASH], **change}
    answer = await both.client.post({name: value for name, value in body.items() if value is not None})
    assert answer.json()["content"] == [text("fine")]


async def test_strict_servers_fail_the_test_that_sends_a_malformed_request() -> None:
    server = await Server(["a"]).start()
    client = Client(server)
    await client.say(user("1"))
    with pytest.raises(anthropic.BadRequestError, match="script: the script has no step left"):
        await client.say(user("2"))
    with pytest.raises(anthropic.BadRequestError):
        await client.say()
    await client.close()
    with pytest.raises(AssertionError, match=r"(?s)at least one message.*no step left for request 2"):
        async with server:
            pass


async def test_overflow(pair: Any) -> None:
    long = user("x" * 4 * 7900)
    both = await pair(["a"])
    ask = {"model": "test-small", "max_tokens": 1000}
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long: 8900 tokens > 8000 maximum"):
        await both.client.say(long, **ask)
    stopping = await pair(["word " * 400, "b"], overflow="stop")
    cut = await stopping.client.stream(long, **ask)
    assert (cut.stop_reason, cut.usage.output_tokens) == ("model_context_window_exceeded", 100)
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long: 8250 tokens > 8000 maximum"):
        await stopping.client.say(user("x" * 4 * 8250), **ask)
    older = await pair(overflow="length")
    with pytest.raises(anthropic.BadRequestError, match=r"context limit: 7900 \+ 1000 > 8000"):
        await older.client.say(long, **ask)


# Thinking, pauses, unknown blocks: what was said must come back as it was


async def test_thinking_must_come_back_in_a_tool_loop(pair: Any) -> None:
    both = await pair([{"thinking": "why", "calls": [CALL]}, "b", "c"], strict=False)
    more = {"tools": [BASH], "thinking": {"type": "adaptive"}}
    first = as_param(await both.client.stream(user("q"), **more))
    answer = user(result(first["content"][-1]["id"]))
    without = {**first, "content": first["content"][1:]}
    with pytest.raises(anthropic.BadRequestError, match=LATEST):
        await both.client.say(user("q"), without, answer, **more)
    budget = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000, "tools": [BASH]}
    with pytest.raises(anthropic.BadRequestError, match="Expected `thinking` or `redacted_thinking`"):
        await both.client.say(user("q"), without, answer, **budget)
    await both.client.say(user("q"), first, answer, **more)
    await both.client.say(user("q"), without, answer, tools=[BASH], thinking={"type": "disabled"})


async def test_a_paused_reply_goes_back_as_it_is_and_nothing_else(pair: Any) -> None:
    both = await pair([{"text": "half", "stop_reason": "pause_turn"}, "whole"], strict=False)
    paused = as_param(await both.client.stream(user("q")))
    with pytest.raises(anthropic.BadRequestError, match="prefill"):
        await both.client.say(user("q"), assistant("halt"))
    assert (await both.client.say(user("q"), paused)).content[0].text == "whole"


async def test_unknown_blocks_come_back_unchanged_or_not_at_all(pair: Any) -> None:
    both = await pair([{"blocks": [{"type": "future", "n": 1}, text("a")]}, "b"], strict=False)
    first = as_param(await both.client.stream(user("q")))
    assert first["content"][0] == {"type": "future", "n": 1}
    changed = assistant({"type": "future", "n": 2}, "a")
    with pytest.raises(anthropic.BadRequestError, match="Input tag 'future'"):
        await both.client.say(user("q"), changed, user("r"))
    await both.client.say(user("q"), first, user("r"))


# The prompt cache


def big(name: str) -> Json:
    return text(name * 400)


async def test_the_cache_bills_reads_writes_and_the_rest(pair: Any) -> None:
    both = await pair(default="echo")
    system = [text("s" * 4000, cache_control={**MARK, "ttl": "1h"})]
    one = user(text("a" * 400, cache_control=MARK), text("b" * 40))
    first = (await both.client.say(one, system=system)).usage
    assert (first.cache_read_input_tokens, first.input_tokens) == (0, 10)
    assert first.cache_creation.ephemeral_1h_input_tokens == 1000
    assert first.cache_creation.ephemeral_5m_input_tokens == 100
    again = (await both.client.stream(one, system=system)).usage
    assert (again.cache_read_input_tokens, again.cache_creation_input_tokens) == (1100, 0)
    both.server.advance(299)
    assert (await both.client.say(one, system=system)).usage.cache_read_input_tokens == 1100
    both.server.advance(301)
    late = (await both.client.say(one, system=system)).usage
    assert (late.cache_read_input_tokens, late.cache_creation.ephemeral_5m_input_tokens) == (1000, 100)
    other = (await both.client.say(one, system=system, thinking={"type": "adaptive"})).usage
    assert other.cache_read_input_tokens == 1000, "thinking is no part of the system's cache"
    elsewhere = await both.client.say(one, system=system, model="test-plain")
    assert elsewhere.usage.cache_read_input_tokens == 0, "a cache for each model"


async def test_a_mark_looks_back_twenty_blocks_and_no_further(pair: Any) -> None:
    for n_new, is_read in ((19, True), (20, False)):
        both = await pair(default="echo")
        head = user(text("h" * 400, cache_control=MARK))
        await both.client.say(head)
        blocks = [text(f"{n} " + "x" * 40) for n in range(n_new)]
        blocks[-1]["cache_control"] = MARK
        usage = (await both.client.say({**head, "content": [big("h"), *blocks]})).usage
        assert (usage.cache_read_input_tokens == 100) is is_read


async def test_small_prefixes_and_top_level_marks(pair: Any) -> None:
    both = await pair(default="echo", cache=CacheRules(min_tokens=101))
    assert (await both.client.say(user("a" * 400), cache_control=MARK)).usage.cache_creation_input_tokens == 0
    assert (
        await both.client.say(user("a" * 404), cache_control=MARK)
    ).usage.cache_creation_input_tokens == 101


async def test_cache_share_and_prefix_breaks(pair: Any) -> None:
    both = await pair(default="echo")
    say = both.client.say
    one = user(text("a" * 400, cache_control=MARK))
    reply = as_param(await say(one, system="s", tools=[BASH]))
    bare = user("a" * 400)
    await say(bare, reply, user(text("b", cache_control=MARK)), system="s", tools=[BASH])
    assert both.server.prefix_breaks() == [], "marks do not count"
    share = both.server.cache_share()
    assert share["share"] == 1.0
    assert share["read"] > 100
    await say(bare, user_free := assistant("changed"), user("b", "c"), system="s", tools=[BASH])
    assert user_free
    await say(bare, system="s", tools=[BASH])
    await say(bare, system="t", tools=[BASH])
    await say(bare, system="t")
    await say(user(f"<conversation>{'a' * 9}</conversation>"))
    found = both.server.prefix_breaks()
    assert [(item.before, item.after) for item in found] == [(2, 3), (3, 4), (4, 5), (5, 6)]
    assert [item.where.split(":")[0] for item in found] == [
        "block 1 differs", "shorter", "system differ", "tools differ"
    ]  # fmt: skip


# Scripts


async def test_steps_by_match_in_sequence_and_by_function(pair: Any) -> None:
    both = await pair([
        {"match_re": "sum (of )?it", "text": "matched", "repeat": True},
        {"summary": True, "text": "summary"},
        "first",
        lambda record: f"{record.number} {record.last_text}",
        {"text": "last", "times": 2},
    ])  # fmt: skip
    lines = ("a", "sum it", "b", "<conversation>x</conversation>", "sum of it", "c", "d")
    said = [(await both.client.say(user(line))).content[0].text for line in lines]
    assert said == ["first", "matched", "3 b", "summary", "matched", "last", "last"]
    both.server.check_done()


async def test_a_summary_step_is_not_for_requests_with_tools(pair: Any) -> None:
    both = await pair([{"summary": True, "text": "summary"}, "plain"])
    told = user("<conversation>x</conversation>")
    assert (await both.client.say(told, tools=[BASH])).content[0].text == "plain"
    with pytest.raises(AssertionError, match=r"not played: \[1\]"):
        both.server.check_done()


async def test_expectations_and_failing_functions_fail_the_test(pair: Any) -> None:
    def check(_record: object) -> str:
        raise AssertionError("no such luck")

    both = await pair([{"expect": ["42"], "text": "a"}, check], strict=False)
    with pytest.raises(anthropic.BadRequestError, match="expects '42'"):
        await both.client.say(user("41"))
    with pytest.raises(anthropic.BadRequestError, match="AssertionError: no such luck"):
        await both.client.say(user("43"))
    assert len(both.server.problems) == 2


@pytest.mark.parametrize(
    "step",
    [
        {"txt": "a"},
        {"fault": {"kind": "nothing"}},
        {"fault": {"kind": "cut", "at": "noon"}},
        {"fault": {"kind": "cut", "when": 1}},
    ],
)
def test_a_wrong_step_is_told_when_it_is_written(step: Json) -> None:
    with pytest.raises(ValueError, match=r"txt|nothing|noon|when"):
        Server([step])


# Faults


def fault(kind: str, **more: Any) -> Json:
    return {"kind": kind, **more}


FULL: Json = {"thinking": "think " * 20, "text": "words " * 20, "calls": [CALL, CALL], "chunk": 5}


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, anthropic.BadRequestError),
        (401, anthropic.AuthenticationError),
        (403, anthropic.PermissionDeniedError),
        (404, anthropic.NotFoundError),
        (408, anthropic.APIStatusError),
        (409, anthropic.ConflictError),
        (413, anthropic.RequestTooLargeError),
        (429, anthropic.RateLimitError),
        (500, anthropic.InternalServerError),
        (502, anthropic.InternalServerError),
        (503, anthropic.InternalServerError),
        (529, anthropic.InternalServerError),
    ],
)
async def test_status_faults_then_the_next_step(
    pair: Any, status: int, error: type[anthropic.APIStatusError]
) -> None:
    both = await pair([{"fault": fault("status", status=status, retry_after=1.5, times=2)}, "after"])
    for _ in range(2):
        with pytest.raises(error) as caught:
            await both.client.stream(user("hi"))
        assert caught.value.status_code == status
        assert caught.value.response.headers["retry-after"] == "1.5"
    assert (await both.client.stream(user("hi"))).content[0].text == "after"
    assert [record.outcome for record in both.server.requests] == ["status", "status", "done"]


@pytest.mark.parametrize(
    ("preset", "words"),
    [
        ("credit", "credit balance is too low"),
        ("tokens_per_minute", "input tokens per minute"),
        ("too_long", "prompt is too long"),
        ("llama_overflow", "exceed_context_size_error"),
        ("proxy_overflow", "ContextWindowExceededError"),
        ("openai_overflow", "context_length_exceeded"),
    ],
)
async def test_presets(pair: Any, preset: str, words: str) -> None:
    both = await pair([{"fault": fault("status", preset=preset)}])
    with pytest.raises(anthropic.APIStatusError) as caught:
        await both.client.say(user("hi"))
    assert words in str(caught.value.body)


CUT_ERRORS = (anthropic.APIConnectionError, httpx2.TransportError)


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("at", [*MOMENTS, {"event": 1}, {"event": 9}, {"byte": 0}, {"byte": 1234}])
async def test_a_cut_at_every_moment(pair: Any, at: Any, how: str) -> None:
    both = await pair([{**FULL, "fault": fault("cut", at=at, how=how)}, "whole"])
    with pytest.raises(CUT_ERRORS) as caught:
        await both.client.stream(user("hi"), tools=[BASH])
    assert isinstance(caught.value, anthropic.APIConnectionError) is (at == "first_byte")
    assert (await both.client.stream(user("hi"))).content[0].text == "whole"
    assert both.server.requests[0].outcome == "cut"


@pytest.mark.parametrize(
    ("at", "blocks", "deltas"),
    [
        ("headers", 0, set()),
        ("thinking", 1, {"thinking_delta"}),
        ("text", 2, {"thinking_delta", "signature_delta", "text_delta"}),
        ("between", 1, {"thinking_delta", "signature_delta"}),
        ("tool_input", 3, {"thinking_delta", "signature_delta", "text_delta", "input_json_delta"}),
        ("after_last", 4, {"thinking_delta", "signature_delta", "text_delta", "input_json_delta"}),
    ],
)
async def test_a_moment_is_where_it_says(pair: Any, at: str, blocks: int, deltas: set[str]) -> None:
    both = await pair([{**FULL, "fault": fault("cut", at=at)}])
    seen: list[Any] = []
    with pytest.raises(CUT_ERRORS):
        await both.client.listen(seen, user("hi"), tools=[BASH])
    assert sum(event.type == "content_block_start" for event in seen) == blocks
    assert {event.delta.type for event in seen if event.type == "content_block_delta"} == deltas
    n_stops = sum(event.type == "content_block_stop" for event in seen)
    is_inside = at in {"thinking", "text", "tool_input"}
    assert n_stops == blocks - is_inside


@pytest.mark.parametrize("kind", ["reset", "close"])
async def test_a_connection_that_ends_without_a_word(pair: Any, kind: str) -> None:
    both = await pair([{"fault": fault(kind)}, "whole"])
    with pytest.raises(anthropic.APIConnectionError):
        await both.client.stream(user("hi"))
    assert (await both.client.stream(user("hi"))).content[0].text == "whole"


async def test_connections_refused_for_a_while(pair: Any) -> None:
    both = await pair([{"fault": fault("refuse", seconds=0.3)}, "whole"])
    with pytest.raises(anthropic.APIConnectionError):
        await both.client.stream(user("hi"))
    with pytest.raises(anthropic.APIConnectionError):
        await both.client.stream(user("hi"))
    await asyncio.sleep(0.4)
    assert (await both.client.stream(user("hi"))).content[0].text == "whole"


@pytest.mark.parametrize("kind", ["overloaded_error", "api_error", "rate_limit_error"])
async def test_an_error_event_in_the_stream(pair: Any, kind: str) -> None:
    both = await pair([{**FULL, "fault": fault("error", at="text", error_type=kind)}])
    with pytest.raises(anthropic.APIStatusError) as caught:
        await both.client.stream(user("hi"), tools=[BASH])
    assert caught.value.status_code == 200
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["error"]["type"] == kind


async def test_garbled_events(pair: Any) -> None:
    both = await pair([{**FULL, "fault": fault("garble", at="tool_input")}])
    with pytest.raises(json.JSONDecodeError):
        await both.client.stream(user("hi"), tools=[BASH])


async def test_streams_without_their_end(pair: Any) -> None:
    both = await pair([
        {"text": "a", "fault": fault("drop")},
        {"text": "b", "fault": fault("drop", events=["message_stop"])},
        {"text": "c", "fault": fault("cut", how="end", at="after_last")},
    ])  # fmt: skip
    assert (await both.client.stream(user("1"))).stop_reason is None
    assert (await both.client.stream(user("2"))).stop_reason == "end_turn"
    assert (await both.client.stream(user("3"))).stop_reason is None


async def test_what_a_client_must_pass_over(pair: Any) -> None:
    odd = [
        fault("ping", at="text", count=3),
        fault("comment", at="headers"),
        fault("unknown_event", at="between"),
        fault("drip", bytes=100),
    ]
    both = await pair([{**FULL, "faults": odd}])
    message = await both.client.stream(user("hi"), tools=[BASH])
    assert message.content[1].text == FULL["text"]
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]


async def test_a_huge_event(pair: Any) -> None:
    both = await pair([{**FULL, "fault": fault("huge", at="text", bytes=2_000_000)}])
    message = await both.client.stream(user("hi"), tools=[BASH])
    assert len(message.content[1].text) == len(FULL["text"]) + 2_000_000


async def test_odd_bodies(pair: Any) -> None:
    both = await pair([
        {"fault": fault("empty")},
        {"fault": fault("html", status=502)},
        {"fault": fault("html", status=200)},
        {"text": "a", "fault": fault("content_type", value="application/octet-stream")},
        {"text": "a", "fault": fault("no_usage")},
    ])  # fmt: skip
    post = both.client.post
    body = {"model": MODEL, "max_tokens": 9, "messages": [user("hi")], "stream": True}
    empty = await post(body)
    assert (empty.status_code, empty.content) == (200, b"")
    page = await post(body)
    assert (page.status_code, page.headers["content-type"]) == (502, "text/html")
    assert (await post(body)).status_code == 200
    assert (await post(body)).headers["content-type"] == "application/octet-stream"
    lines = (await post(body)).text.splitlines()
    last = next(line for line in lines if '"type":"message_delta"' in line)
    assert '"usage"' not in last


async def test_plain_replies_break_too(pair: Any) -> None:
    both = await pair([
        {"text": "a" * 99, "fault": fault("cut", at="text")},
        {"text": "a" * 99, "fault": fault("garble")},
        {"text": "a", "fault": fault("error", error_type="overloaded_error")},
        {"text": "a", "fault": fault("stall", seconds=0.05)},
    ])  # fmt: skip
    with pytest.raises(CUT_ERRORS):
        await both.client.say(user("1"))
    with pytest.raises(json.JSONDecodeError):
        await both.client.say(user("2"))
    with pytest.raises(anthropic.InternalServerError) as caught:
        await both.client.say(user("3"))
    assert caught.value.status_code == 529
    assert (await both.client.say(user("4"))).stop_reason == "end_turn"


async def test_a_moment_the_reply_has_not_is_told(pair: Any) -> None:
    both = await pair([{"text": "a", "fault": fault("cut", at="thinking")}], strict=False)
    with pytest.raises(anthropic.BadRequestError, match="script: step 1: fault at 'thinking'"):
        await both.client.stream(user("hi"))


async def test_a_stall_until_it_is_released(pair: Any) -> None:
    both = await pair([{**FULL, "fault": fault("stall", at="text")}])
    reply = asyncio.create_task(both.client.stream(user("hi"), tools=[BASH]))
    await both.server.arrived(1)
    await asyncio.sleep(0.1)
    assert not reply.done()
    both.server.release()
    assert (await reply).stop_reason == "tool_use"


async def test_a_client_that_leaves_is_seen(pair: Any) -> None:
    both = await pair([{**FULL, "fault": fault("stall", at="text")}])
    reply = asyncio.create_task(both.client.stream(user("hi"), tools=[BASH]))
    await both.server.arrived(1)
    await asyncio.sleep(0.05)
    reply.cancel()
    assert (await both.server.settled(1, timeout_s=2)).outcome == "client left"


async def test_a_stall_longer_than_the_clients_patience(pair: Any) -> None:
    both = await pair([{**FULL, "fault": fault("stall", at={"event": 5}, seconds=60)}])
    impatient = both.client.sdk.with_options(timeout=0.1)
    both.client.sdk = impatient
    seen: list[Any] = []
    with pytest.raises((httpx2.ReadTimeout, anthropic.APITimeoutError)):
        await both.client.listen(seen, user("hi"), tools=[BASH])
    assert len(seen) == 4


@given(byte=st.integers(0, 6000), size=st.integers(1, 500))
def test_a_cut_at_any_byte_sends_exactly_the_bytes_before_it(byte: int, size: int) -> None:
    said = build(step_from(FULL), 1, Ledger(), Sizes())
    stream = events(said, {"usage": {}}, chunk=7)
    whole = b"".join(action.data for action in plan(stream, []) if isinstance(action, Send))
    faults = [Fault(kind="cut", at={"byte": byte}), Fault(kind="drip", bytes=size)]
    actions = plan(stream, faults)
    cut = actions.index(Cut("close"))
    before = b"".join(action.data for action in actions[:cut] if isinstance(action, Send))
    assert before == whole[:byte]


# In a thread, from the command line, and what stands ready


def test_a_server_in_a_thread(start_server: StartServer) -> None:
    server = start_server(["hello", {"text": "x", "fault": fault("stall")}])
    client = anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0, timeout=1)
    request: Json = {"model": MODEL, "max_tokens": 9, "messages": [user("hi")]}
    with client, client.messages.stream(**request) as stream:
        assert stream.get_final_text() == "hello"
    assert server.wait(1).outcome == "done"
    with pytest.raises(TimeoutError, match="1 of 2"):
        server.wait(2, timeout_s=0.02)


def test_a_server_in_a_thread_checks_when_it_ends() -> None:
    def talk() -> None:
        body = {"model": MODEL, "max_tokens": 9, "messages": [user("hi")]}
        headers = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
        with serve() as server, httpx2.Client(base_url=server.url, verify=False) as client:
            assert client.post("/v1/messages", json=body, headers=headers).status_code == 400

    with pytest.raises(AssertionError, match="no step left"):
        talk()


def test_the_command_prints_how_to_point_a_program_here(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    command = [sys.executable, "-m", "tests.server", str(SCRIPTS / "chat.json"), "--log", str(log)]
    root = Path(__file__).parent.parent
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=root) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().decode().strip() for _ in range(2)]
        env = dict(line.removeprefix("export ").split("=", 1) for line in lines)
        client = anthropic.Anthropic(
            base_url=env["ANTHROPIC_BASE_URL"], api_key=env["ANTHROPIC_API_KEY"], max_retries=0
        )
        request: Json = {"model": MODEL, "max_tokens": 99, "messages": [user("hi")]}
        with client:
            assert client.messages.create(**request).content[0].type == "text"
        process.send_signal(signal.SIGINT)
        _out, err = process.communicate(timeout=5)
    assert process.returncode == 0
    assert b"1 requests" in err
    assert json.loads(log.read_text())["outcome"] == "done"


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.json")), ids=lambda path: path.stem)
def test_the_scripts_that_ship_load(path: Path) -> None:
    steps, options = load(path)
    assert Server(steps, **options).script.unused
    assert all(isinstance(step_from(step), Step) for step in steps if isinstance(step, dict))


async def test_the_task_of_twelve_turns_can_be_done(pair: Any, tmp_path: Path) -> None:
    steps, options = load(SCRIPTS / "task.json")
    assert len(steps) == 12
    both = await pair(steps, **options)
    names = ("todo_write", "glob", "grep", "bash", "read_file", "write_file", "edit_file")
    tools = [{**BASH, "name": name} for name in names]
    messages = [user("Write slug.py with a function slug(title), and a test for it.")]
    while True:
        reply = await both.client.stream(*messages, tools=tools, thinking={"type": "adaptive"})
        messages.append(as_param(reply))
        calls = [block for block in reply.content if block.type == "tool_use"]
        if not calls:
            break
        done = [result(block.id, content=await act(block.name, block.input, tmp_path)) for block in calls]
        messages.append(user(*done))
    both.server.check_done()
    assert both.server.prefix_breaks() == []
    assert "split()" in (tmp_path / "slug.py").read_text()


async def act(name: str, given: Json, root: Path) -> str:
    """The tools, as plain as can be."""
    path = root / given.get("file_path", "")
    match name:
        case "write_file":
            path.write_text(given["content"])
        case "edit_file":
            path.write_text(path.read_text().replace(given["old_text"], given["new_text"]))
        case "read_file":
            return str(path.read_text())
        case "glob" | "grep":
            return " ".join(name for name in ("slug.py", "test_slug.py") if (root / name).exists())
        case "bash":
            process = await asyncio.create_subprocess_shell(
                given["command"],
                cwd=root,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            )
            return (await process.communicate())[0].decode()
    return "done"


async def test_a_long_stream_is_quick(pair: Any) -> None:
    both = await pair([{"text": "x" * 5000, "chunk": 1}])
    started = time.perf_counter()
    message = await both.client.stream(user("hi"), max_tokens=9999)
    assert len(message.content[0].text) == 5000
    assert time.perf_counter() - started < 10
