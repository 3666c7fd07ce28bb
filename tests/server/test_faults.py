"""Every fault at every moment, as the plain SDK meets it."""

import asyncio
import json
from typing import Any

import anthropic
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server import MOMENTS
from tests.server.client import BASH, CALL, MODEL, MakePair, fault, user
from tests.server.event import encode
from tests.server.faults import Cut, Fault, Send, plan
from tests.server.jsonish import Json
from tests.server.ledger import Ledger
from tests.server.reply import build
from tests.server.script import step_from
from tests.server.sse import events
from tests.server.units import Sizes

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
    pair: MakePair, status: int, error: type[anthropic.APIStatusError]
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
async def test_presets(pair: MakePair, preset: str, words: str) -> None:
    both = await pair([{"fault": fault("status", preset=preset)}])
    with pytest.raises(anthropic.APIStatusError) as caught:
        await both.client.say(user("hi"))
    assert words in str(caught.value.body)


CUT_ERRORS = (anthropic.APIConnectionError, httpx2.TransportError)


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("at", [*MOMENTS, {"event": 1}, {"event": 9}, {"byte": 0}, {"byte": 1234}])
async def test_a_cut_at_every_moment(pair: MakePair, at: Any, how: str) -> None:
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
async def test_a_moment_is_where_it_says(pair: MakePair, at: str, blocks: int, deltas: set[str]) -> None:
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
async def test_a_connection_that_ends_without_a_word(pair: MakePair, kind: str) -> None:
    both = await pair([{"fault": fault(kind)}, "whole"])
    with pytest.raises(anthropic.APIConnectionError):
        await both.client.stream(user("hi"))
    assert (await both.client.stream(user("hi"))).content[0].text == "whole"


async def test_connections_refused_for_a_while(pair: MakePair) -> None:
    both = await pair([{"fault": fault("refuse", seconds=0.3)}, "whole"])
    with pytest.raises(anthropic.APIConnectionError):
        await both.client.stream(user("hi"))
    with pytest.raises(anthropic.APIConnectionError):
        await both.client.stream(user("hi"))
    await asyncio.sleep(0.4)
    assert (await both.client.stream(user("hi"))).content[0].text == "whole"


@pytest.mark.parametrize("kind", ["overloaded_error", "api_error", "rate_limit_error"])
async def test_an_error_event_in_the_stream(pair: MakePair, kind: str) -> None:
    both = await pair([{**FULL, "fault": fault("error", at="text", error_type=kind)}])
    with pytest.raises(anthropic.APIStatusError) as caught:
        await both.client.stream(user("hi"), tools=[BASH])
    assert caught.value.status_code == 200
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["error"]["type"] == kind


async def test_garbled_events(pair: MakePair) -> None:
    both = await pair([{**FULL, "fault": fault("garble", at="tool_input")}])
    with pytest.raises(json.JSONDecodeError):
        await both.client.stream(user("hi"), tools=[BASH])


async def test_streams_without_their_end(pair: MakePair) -> None:
    both = await pair([
        {"text": "a", "fault": fault("drop")},
        {"text": "b", "fault": fault("drop", events=["message_stop"])},
        {"text": "c", "fault": fault("cut", how="end", at="after_last")},
    ])  # fmt: skip
    assert (await both.client.stream(user("1"))).stop_reason is None
    assert (await both.client.stream(user("2"))).stop_reason == "end_turn"
    assert (await both.client.stream(user("3"))).stop_reason is None


async def test_what_a_client_must_pass_over(pair: MakePair) -> None:
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


async def test_a_huge_event(pair: MakePair) -> None:
    both = await pair([{**FULL, "fault": fault("huge", at="text", bytes=2_000_000)}])
    message = await both.client.stream(user("hi"), tools=[BASH])
    assert len(message.content[1].text) == len(FULL["text"]) + 2_000_000


async def test_odd_bodies(pair: MakePair) -> None:
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


async def test_plain_replies_break_too(pair: MakePair) -> None:
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


async def test_a_moment_the_reply_has_not_is_told(pair: MakePair) -> None:
    both = await pair([{"text": "a", "fault": fault("cut", at="thinking")}], strict=False)
    with pytest.raises(anthropic.BadRequestError, match="script: step 1: fault at 'thinking'"):
        await both.client.stream(user("hi"))


async def test_a_stall_until_it_is_released(pair: MakePair) -> None:
    both = await pair([{**FULL, "fault": fault("stall", at="text")}])
    reply = asyncio.create_task(both.client.stream(user("hi"), tools=[BASH]))
    await both.server.arrived(1)
    await asyncio.sleep(0.1)
    assert not reply.done()
    both.server.release()
    assert (await reply).stop_reason == "tool_use"


async def test_a_client_that_leaves_is_seen(pair: MakePair) -> None:
    both = await pair([{**FULL, "fault": fault("stall", at="text")}])
    reply = asyncio.create_task(both.client.stream(user("hi"), tools=[BASH]))
    await both.server.arrived(1)
    await asyncio.sleep(0.05)
    reply.cancel()
    assert (await both.server.settled(1, timeout_s=2)).outcome == "client left"


async def test_a_stall_longer_than_the_clients_patience(pair: MakePair) -> None:
    both = await pair([{**FULL, "fault": fault("stall", at={"event": 5}, seconds=60)}])
    impatient = both.client.sdk.with_options(timeout=0.1)
    both.client.sdk = impatient
    seen: list[Any] = []
    with pytest.raises((httpx2.ReadTimeout, anthropic.APITimeoutError)):
        await both.client.listen(seen, user("hi"), tools=[BASH])
    assert len(seen) == 4


STREAM = events(build(step_from(FULL), 1, Ledger(), Sizes()), {"usage": {}}, chunk=7)
WHOLE = b"".join(encode(event) for event in STREAM)


@settings(max_examples=50)
@given(byte=st.integers(0, 6000), size=st.integers(1, 500))
def test_a_cut_at_any_byte_sends_exactly_the_bytes_before_it(byte: int, size: int) -> None:
    faults = [Fault(kind="cut", at={"byte": byte}), Fault(kind="drip", bytes=size)]
    actions = plan(STREAM, faults)
    cut = actions.index(Cut("close"))
    before = b"".join(action.data for action in actions[:cut] if isinstance(action, Send))
    assert before == WHOLE[:byte]
