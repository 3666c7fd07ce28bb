"""What the test server refuses, and what it must take."""

import contextlib
import copy
from typing import Any

import anthropic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server import Server, validate
from tests.server.client import (
    BASH,
    CALL,
    MARK,
    MODEL,
    Client,
    MakePair,
    as_param,
    assistant,
    call,
    png,
    result,
    text,
    user,
)
from tests.server.errors import ApiError
from tests.server.jsonish import Json
from tests.server.ledger import Ledger
from tests.server.models import table
from tests.server.units import Sizes, total, units

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


async def test_malformed_requests_are_refused_in_the_words_of_the_api(pair: MakePair) -> None:
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
async def test_right_requests_are_taken(pair: MakePair, change: Json) -> None:
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


async def test_overflow(pair: MakePair) -> None:
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


async def test_thinking_must_come_back_in_a_tool_loop(pair: MakePair) -> None:
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


async def test_a_paused_reply_goes_back_as_it_is_and_nothing_else(pair: MakePair) -> None:
    both = await pair([{"text": "half", "stop_reason": "pause_turn"}, "whole"], strict=False)
    paused = as_param(await both.client.stream(user("q")))
    with pytest.raises(anthropic.BadRequestError, match="prefill"):
        await both.client.say(user("q"), assistant("halt"))
    assert (await both.client.say(user("q"), paused)).content[0].text == "whole"


async def test_unknown_blocks_come_back_unchanged_or_not_at_all(pair: MakePair) -> None:
    both = await pair([{"blocks": [{"type": "future", "n": 1}, text("a")]}, "b"], strict=False)
    first = as_param(await both.client.stream(user("q")))
    assert first["content"][0] == {"type": "future", "n": 1}
    changed = assistant({"type": "future", "n": 2}, "a")
    with pytest.raises(anthropic.BadRequestError, match="Input tag 'future'"):
        await both.client.say(user("q"), changed, user("r"))
    await both.client.say(user("q"), first, user("r"))


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 9) | st.sampled_from(["", " ", "a", "user", "text"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "role", "content", "id", "name", "input", "cache_control"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
SOUND: Json = {
    "model": MODEL,
    "max_tokens": 100,
    "system": [text("s", cache_control=MARK)],
    "tools": [BASH],
    "tool_choice": {"type": "auto"},
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "low"},
    "messages": [
        user("q", png(2, 2)),
        assistant({"type": "thinking", "thinking": "t", "signature": Ledger().sign("t")}, call("a")),
        user(result("a"), "more"),
    ],
}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value, as the keys that lead there."""
    items: Any = value.items() if isinstance(value, dict) else enumerate(value)
    inner = [(*path, key) for key, _ in items]
    deeper = [
        place for key, item in items if isinstance(item, dict | list) for place in places(item, (*path, key))
    ]
    return inner + deeper


@settings(max_examples=150)
@given(data=st.data())
def test_no_request_breaks_the_server(data: st.DataObject) -> None:
    body = copy.deepcopy(SOUND)
    for _ in range(data.draw(st.integers(1, 2))):
        *path, last = data.draw(st.sampled_from(places(body)))
        holder: Any = body
        for key in path:
            holder = holder[key]
        holder[last] = data.draw(ANY_JSON)
    with contextlib.suppress(ApiError):
        _, model = validate.model_of(body, table())
        validate.check(body, model, validate.Rules(Ledger()))
        assert total(units(body, Sizes())) >= 0


def test_the_sound_request_is_taken() -> None:
    validate.check(SOUND, table()[MODEL], validate.Rules(Ledger()))
