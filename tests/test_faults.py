"""The fault matrix: each fault at each moment, against the real server, and every exception mapped."""

import asyncio
import importlib
import inspect
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from bareagent import errors
from bareagent.config import Retry
from bareagent.entries import ReplyDropped, Retrying, TextDelta, ToolSpec
from bareagent.messages import user
from bareagent.provider import failures, retry
from bareagent.provider.client import call_failures
from bareagent.seams import Request
from tests.heard import Ear, config, provider_for
from tests.server import Call, Fault, Server, Step

AIM = failures.Aim("anthropic", "http://x.test", "some-model", "ANTHROPIC_API_KEY", "sk-secret-key-123")
MOMENTS = ("first_byte", "headers", "thinking", "between", "text", "tool_input", "after_last", "before_stop")
WITHIN = ("headers", "thinking", "between", "text", "tool_input", "after_last", "before_stop")
GOOD = Step(
    thinking="let me see", text="I will look.", calls=[Call(name="bash", input={"command": "ls -la"})]
)
TOOL = ToolSpec(name="bash", description="Runs.", input_schema={"type": "object", "properties": {}})


def request() -> Request:
    return Request(messages=[user("look")], tools=[TOOL], max_tokens=4096)


def faulty(*faults: Fault) -> Step:
    return Step(thinking=GOOD.thinking, text=GOOD.text, calls=GOOD.calls, faults=faults)


def cases() -> Iterator[Any]:
    for moment in MOMENTS:
        for how in ("close", "reset", "end"):
            if moment != "first_byte":
                yield pytest.param(Fault(kind="cut", at=moment, how=how), id=f"cut-{how}-{moment}")
    for moment in WITHIN:
        yield pytest.param(Fault(kind="garble", at=moment), id=f"garble-{moment}")
        yield pytest.param(Fault(kind="stall", at=moment), id=f"stall-{moment}")
        for kind in ("overloaded_error", "api_error", "rate_limit_error"):
            yield pytest.param(Fault(kind="error", at=moment, error_type=kind), id=f"{kind}-{moment}")
    for status in (408, 409, 429, 500, 502, 503, 504, 529):
        yield pytest.param(Fault(kind="status", status=status), id=f"status-{status}")
    for kind in ("reset", "empty", "close"):
        yield pytest.param(Fault(kind=kind), id=kind)
    yield pytest.param(Fault(kind="drop", events=("message_delta", "message_stop")), id="no-end")
    yield pytest.param(Fault(kind="drop", events=("message_stop",)), id="no-stop")
    yield pytest.param(Fault(kind="drop", events=("message_delta",)), id="no-reason")
    yield pytest.param(Fault(kind="status", preset="tokens_per_minute"), id="tokens-per-minute")


@pytest.mark.parametrize("fault", list(cases()))
async def test_a_passing_fault_is_survived(fault: Fault) -> None:
    idle_s = 1.0 if fault.kind == "stall" else 30.0
    settings = config(retry={"base_s": 0.0, "max_attempts": 3, "stream_idle_s": idle_s})
    ear = Ear()
    async with Server([faulty(fault), GOOD]) as server:
        provider = await provider_for(server.env, settings)
        reply = await provider.reply(request(), ear)
        await provider.aclose()
        assert len(server.requests) == 2
        assert server.requests[0].raw == server.requests[1].raw
    assert [block["type"] for block in reply.message["content"]] == ["thinking", "text", "tool_use"]
    assert len(ear.of(Retrying)) == 1
    assert ear.of(Retrying)[0].attempt == 2
    assert ear.shown == 'let me seeI will look.bash{"command":"ls -la"}'
    was_shown = fault.kind == "drop" or (
        fault.kind in {"cut", "garble", "stall", "error"} and fault.at != "headers"
    )
    assert len(ear.of(ReplyDropped)) == was_shown


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(kind="status", status=400), errors.BadRequest),
        (Fault(kind="status", status=401), errors.BadKey),
        (Fault(kind="status", status=402), errors.NoCredit),
        (Fault(kind="status", status=403), errors.BadKey),
        (Fault(kind="status", status=404), errors.ServerUnreachable),
        (Fault(kind="status", status=413), errors.TooLong),
        (Fault(kind="status", preset="credit"), errors.NoCredit),
        (Fault(kind="status", preset="too_long"), errors.TooLong),
        (Fault(kind="status", preset="llama_overflow"), errors.TooLong),
        (Fault(kind="status", preset="proxy_overflow"), errors.TooLong),
        (Fault(kind="status", preset="openai_overflow"), errors.TooLong),
        (Fault(kind="error", error_type="invalid_request_error", at="text"), errors.BadRequest),
        (Fault(kind="html", status=200), errors.ServerUnreachable),
        (Fault(kind="html", status=404), errors.ServerUnreachable),
    ],
)
async def test_a_lasting_fault_is_told_at_once(fault: Fault, error: type[errors.ProviderError]) -> None:
    ear = Ear()
    async with Server([faulty(fault)], strict=False) as server:
        provider = await provider_for(server.env)
        with pytest.raises(error) as caught:
            await provider.reply(request(), ear)
        await provider.aclose()
        assert len(server.requests) == 1
    assert not ear.of(Retrying)
    assert ear.shown == ""
    assert "\n" not in str(caught.value) + caught.value.hint
    assert str(caught.value)


async def test_the_attempts_are_counted_and_the_last_error_is_told() -> None:
    ear = Ear()
    async with Server([Step(text="x", faults=[Fault(kind="status", status=529)], repeat=True)]) as server:
        provider = await provider_for(server.env)
        with pytest.raises(errors.TryLater, match="Overloaded"):
            await provider.reply(request(), ear)
        await provider.aclose()
        assert len(server.requests) == 3
    assert [pause.attempt for pause in ear.of(Retrying)] == [2, 3]


async def test_a_servers_own_wish_is_obeyed() -> None:
    ear = Ear()
    fault = Fault(kind="status", status=429, retry_after=0.2)
    async with Server([faulty(fault), GOOD]) as server:
        provider = await provider_for(server.env)
        await provider.reply(request(), ear)
        await provider.aclose()
        first, second = server.requests
        assert second.at - first.at >= 0.2
    assert ear.of(Retrying)[0].delay_s >= 0.2


async def test_a_pause_can_be_cancelled() -> None:
    ear = Ear()
    fault = Fault(kind="status", status=429, retry_after=60)
    async with Server([faulty(fault)]) as server:
        provider = await provider_for(server.env)
        task = asyncio.create_task(provider.reply(request(), ear))
        await ear.hears(Retrying)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await provider.aclose()


async def test_a_cancelled_call_closes_its_connection() -> None:
    ear = Ear()
    async with Server([Step(text="word " * 50, faults=[Fault(kind="stall", at="text")])]) as server:
        provider = await provider_for(server.env)
        task = asyncio.create_task(provider.reply(request(), ear))
        await ear.hears(TextDelta)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        record = await server.settled(1)
        assert record.outcome == "client left"
        await provider.aclose()


async def test_bad_arguments_are_kept_raw_and_never_run() -> None:
    raw = ['{"command": "rm', '{"a": NaN}', "[1]", '"x"', "{" * 20_000]
    async with Server([Step(calls=[Call(name="bash", raw_input=text)]) for text in raw]) as server:
        provider = await provider_for(server.env)
        for text in raw:
            reply = await provider.reply(request(), Ear())
            assert reply.broken == {0: text}
            assert reply.message["content"][0]["input"] == {}
        await provider.aclose()


async def test_a_call_without_arguments_is_whole() -> None:
    async with Server([Step(calls=[Call(name="bash", raw_input="")])]) as server:
        provider = await provider_for(server.env)
        reply = await provider.reply(request(), Ear())
        await provider.aclose()
    assert not reply.broken
    assert reply.message["content"][0]["input"] == {}


@pytest.mark.parametrize("value", ["", "last", "all"])
async def test_missing_usage_is_no_failure(value: str) -> None:
    async with Server([faulty(Fault(kind="no_usage", value=value))]) as server:
        provider = await provider_for(server.env)
        reply = await provider.reply(request(), Ear())
        await provider.aclose()
    assert (reply.usage.output == 0) == (value == "all") or reply.usage.output >= 0
    assert reply.has_cache_fields == (value != "all")


@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind="ping", at="text", count=3),
        Fault(kind="comment", at="tool_input"),
        Fault(kind="unknown_event", at="between"),
        Fault(kind="content_type", value="text/plain"),
        Fault(kind="content_type", value=""),
        Fault(kind="drip", bytes=7, seconds=0.0),
    ],
    ids=lambda fault: fault.kind + fault.value,
)
async def test_oddities_of_a_stream_change_nothing(fault: Fault) -> None:
    ear = Ear()
    async with Server([faulty(fault)]) as server:
        provider = await provider_for(server.env)
        reply = await provider.reply(request(), ear)
        await provider.aclose()
        assert len(server.requests) == 1
    assert reply.message["content"][2]["input"] == {"command": "ls -la"}
    assert not ear.of(Retrying)


# Every exception there is.


def tree(module: Any, root: type[BaseException]) -> list[type[BaseException]]:
    found = {
        kind
        for name in dir(module)
        if inspect.isclass(kind := getattr(module, name)) and issubclass(kind, root)
    }
    return sorted(found, key=lambda kind: kind.__name__)


def sdk_errors() -> list[type[BaseException]]:
    return tree(importlib.import_module("anthropic._exceptions"), Exception)


def transport_errors() -> list[type[BaseException]]:
    httpx2 = importlib.import_module("httpx2")
    return [kind for kind in tree(httpx2, Exception) if not issubclass(kind, Warning)]


def made(kind: type[BaseException]) -> BaseException:
    httpx2 = importlib.import_module("httpx2")
    wanted = inspect.signature(kind.__init__).parameters
    sent = httpx2.Request("POST", "http://x.test/v1/messages")
    status = getattr(kind, "status_code", 500)
    response = httpx2.Response(status if isinstance(status, int) else 500, request=sent)
    given = {"message": "words", "request": sent, "response": response, "body": None}
    try:
        return kind(**{name: given[name] for name in wanted if name in given})
    except TypeError:
        return kind("words")


LASTING = {
    "BadRequestError", "AuthenticationError", "PaymentRequiredError", "PermissionDeniedError",
    "NotFoundError", "PreconditionFailedError", "ContentTooLargeError", "UnprocessableEntityError",
    "RequestHeaderFieldsTooLargeError", "CredentialsError", "IdentityTokenFileError",
}  # fmt: skip


@pytest.mark.parametrize("has_begun", [False, True])
def test_every_error_of_the_sdk_is_one_of_ours(has_begun: bool) -> None:
    kinds = sdk_errors()
    assert len(kinds) > 20
    for kind in kinds:
        ours = failures.explain(made(kind), AIM, has_begun=has_begun)
        assert type(ours) is not errors.ProviderError
        assert str(ours)
        assert ours.is_retryable == (kind.__name__ not in LASTING), (kind, type(ours))


@pytest.mark.parametrize("has_begun", [False, True])
def test_every_error_of_the_transport_is_one_of_ours(has_begun: bool) -> None:
    kinds = transport_errors()
    lasting = {"InvalidURL", "UnsupportedProtocol", "LocalProtocolError", "TooManyRedirects", "ProxyError"}
    assert len(kinds) > 20
    for kind in kinds:
        ours = failures.explain(made(kind), AIM, has_begun=has_begun)
        assert isinstance(ours, errors.ServerUnreachable | errors.CutOff), kind
        assert ours.is_retryable == (kind.__name__ not in lasting), kind


def test_all_that_can_come_is_caught() -> None:
    for kind in [
        *sdk_errors(),
        *transport_errors(),
        OSError,
        ssl.SSLError,
        ValueError,
        KeyError,
        AssertionError,
    ]:
        assert issubclass(kind, call_failures()), kind


def test_a_key_never_stands_in_an_error() -> None:
    words = f"invalid key {AIM.key} in header"
    ours = failures.of_answer(401, "authentication_error", words, {}, AIM)
    assert AIM.key not in str(ours) + ours.hint + repr(ours)
    assert "ANTHROPIC_API_KEY" in ours.hint


def test_a_header_that_cannot_be_sent_is_no_wrong_address_and_shows_no_key() -> None:
    httpx2 = importlib.import_module("httpx2")
    aim = AIM._replace(key="sk-secret\nkey-123")
    ours = failures.explain(httpx2.LocalProtocolError(f"Illegal header value {aim.key.encode()!r}"), aim)
    assert isinstance(ours, errors.BadKey)
    assert "secret" not in str(ours) + ours.hint
    assert "ANTHROPIC_API_KEY" in ours.hint


def test_where_no_key_was_sent_none_is_said_to_come_from_anywhere() -> None:
    ours = failures.of_answer(401, "authentication_error", "a key is required", {}, AIM._replace(key=""))
    assert "came from" not in ours.hint
    assert "set ANTHROPIC_API_KEY" in ours.hint


@pytest.mark.parametrize(
    ("status", "kind", "message", "error"),
    [
        (404, "not_found_error", "model: claude-nope-1", errors.UnknownModel),
        (404, "NotFoundError", "The model `nope` does not exist.", errors.UnknownModel),
        (404, "not_found_error", "model 'nope' not found, try pulling it first", errors.UnknownModel),
        (400, "invalid_request_error", "nope is not a valid model ID", errors.UnknownModel),
        (404, "not_found_error", "Not Found", errors.ServerUnreachable),
        (429, "rate_limit_error", "prompt is too long for your tokens per minute", errors.TryLater),
        (429, "exceeded_current_quota_error", "insufficient balance", errors.NoCredit),
        (500, "api_error", "prompt is too long", errors.TryLater),
        (400, "invalid_request_error", "thinking: Extra inputs are not permitted", errors.BadRequest),
        (200, "overloaded_error", "Overloaded", errors.TryLater),
    ],
)
def test_wordings_of_other_servers(
    status: int, kind: str, message: str, error: type[errors.ProviderError]
) -> None:
    assert type(failures.of_answer(status, kind, message, {}, AIM)) is error


@pytest.mark.parametrize(
    ("message", "window"),
    [
        ("prompt is too long: 205431 tokens > 200000 maximum", 200_000),
        ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease", 200_000),
        ("request (9003 tokens) exceeds the available context size (8192 tokens), try increasing it", 8_192),
        ("the request exceeds the available context size, try increasing it", 0),
        ("This model's maximum context length is 8192 tokens. However, you requested 9000 tokens", 8_192),
        ("Prompt contains 40,000 tokens, too large for model with 32,768 maximum context length", 32_768),
        ("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 131_072),
        (
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            1_048_576,
        ),
        ("Your request exceeded model token limit: 8192", 8_192),
        ("the model is loaded with context length of only 4096 tokens, which is not enough", 4_096),
    ],
)
def test_a_window_is_read_from_the_words_of_many_servers(message: str, window: int) -> None:
    error = failures.of_answer(400, "invalid_request_error", message, {}, AIM)
    assert isinstance(error, errors.TooLong)
    assert error.window == window


# The pauses.


def test_pauses_double_up_to_half_a_minute_with_full_jitter() -> None:
    config = Retry(base_s=1.0, max_attempts=9)
    error = errors.TryLater("busy")
    longest = [retry.after(error, attempt, config, draw=1.0) for attempt in range(1, 9)]
    assert [pause.delay_s for pause in longest if pause] == [1, 2, 4, 8, 16, 30, 30, 30]
    shortest = retry.after(error, 5, config, draw=0.0)
    assert shortest is not None
    assert shortest.delay_s == 0.0
    assert retry.after(error, 9, config) is None
    assert retry.after(errors.BadKey("no"), 1, config) is None


def test_a_wish_beyond_two_minutes_ends_the_retries() -> None:
    error = errors.TryLater("busy", retry_after_s=119.0)
    pause = retry.after(error, 1, Retry(), draw=0.0)
    assert pause is not None
    assert pause.delay_s == 119.0
    assert retry.after(errors.TryLater("busy", retry_after_s=121.0), 1, Retry()) is None
