"""The provider over real HTTP: replies, keys, presets, capabilities, tokens and their cost."""

import asyncio
import json
import stat
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bareagent import errors
from bareagent.config import Config
from bareagent.entries import Epoch, InputDelta, ReplyStarted, Said, TextDelta, ThinkingDelta, ToolSpec
from bareagent.messages import Message, answer, system, text_of, user
from bareagent.provider import PRESETS, Found, find_key, keys, make_provider, models, preload
from bareagent.provider.adapt import Adapted
from bareagent.provider.presets import resolve
from bareagent.seams import Request
from tests.conversation import Conversation, conversation
from tests.heard import Ear, config, provider_for
from tests.server import Call, Model, Server, Step
from tests.server.fixtures import MakeServer

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
BASH = ToolSpec(name="bash", description="Runs.", input_schema={"type": "object", "properties": {}})


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))


def ask(text: str = "hi", **fields: Any) -> Request:
    return Request(messages=[system("You are."), user(text)], **{"max_tokens": 4096, **fields})


async def test_a_reply_comes_as_deltas_and_as_a_whole() -> None:
    ear = Ear()
    step = Step(thinking="hm, well", text="Hello\nthere", calls=[Call(name="bash", input={"command": "ls"})])
    async with Server([step]) as server:
        provider = await provider_for(server.env)
        reply = await provider.reply(ask(tools=[BASH]), ear)
        await provider.aclose()
        record = server.requests[0]
    assert ear.of(ReplyStarted) == [ReplyStarted(purpose="turn", model="test-model")]
    assert "".join(delta.text for delta in ear.of(ThinkingDelta)) == "hm, well"
    assert "".join(delta.text for delta in ear.of(TextDelta)) == "Hello\nthere"
    assert [delta.name for delta in ear.of(InputDelta) if delta.name] == ["bash"]
    assert json.loads("".join(delta.partial_json for delta in ear.of(InputDelta))) == {"command": "ls"}
    assert reply.message["content"] == record.reply
    assert reply.stop_reason == "tool_use"
    assert reply.request_id == record.request_id
    assert float(record.headers["x-stainless-timeout"]) > 0
    assert (reply.sent.size, reply.sent.marks) == (len(record.raw), ["system", "0.0"])
    assert reply.usage.output == record.usage["output_tokens"]


async def test_a_conversation_goes_back_as_it_came() -> None:
    odd = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"q": "x"}}
    steps = [
        Step(thinking="a" * 500, text="b", calls=[Call(name="bash", input={"n": 1})]),
        Step(thinking="c", blocks=[{"type": "redacted_thinking", "data": "AAAA"}], text="d"),
        Step(text="e", blocks=[odd]),
        Step(text="f"),
    ]
    view: list[Message] = [system("You are. " * 50), user("go")]
    async with Server(steps) as server:
        provider = await provider_for(server.env)
        for _ in steps:
            reply = await provider.reply(Request(messages=view, tools=[BASH], max_tokens=4096), Ear())
            assert not reply.prefix_break
            view.append(reply.message)
            calls = [block for block in reply.message["content"] if block["type"] == "tool_use"]
            view.append(
                {"role": "user", "content": [answer(call, "ok") for call in calls]} if calls else user("on")
            )
        await provider.aclose()
        assert not server.prefix_breaks()
        assert server.cache_share()["share"] > 0.9


@pytest.mark.parametrize(
    "reason",
    ["end_turn", "stop_sequence", "max_tokens", "refusal", "model_context_window_exceeded", "new_one"],
)
async def test_every_stop_reason_is_told(reason: str) -> None:
    async with Server([Step(text="x", stop_reason=reason, stop_details={"category": "cyber"})]) as server:
        provider = await provider_for(server.env)
        reply = await provider.reply(ask(), Ear())
        await provider.aclose()
    assert reply.stop_reason == reason
    if reason == "refusal":
        assert reply.stop_details == {"category": "cyber"}


async def test_a_paused_reply_is_sent_back_as_it_is() -> None:
    async with Server([Step(text="one", stop_reason="pause_turn"), Step(text="two")]) as server:
        provider = await provider_for(server.env)
        request = ask()
        reply = await provider.reply(request, Ear())
        request.messages = [*request.messages, reply.message]
        assert text_of((await provider.reply(request, Ear())).message) == "two"
        await provider.aclose()
        assert server.requests[1].messages[-1]["role"] == "assistant"


async def test_two_calls_at_once_do_not_mix() -> None:
    async with Server(lambda record: f"you said {record.last_text}", strict=False) as server:
        server.add(lambda record: f"you said {record.last_text}")
        provider = await provider_for(server.env)
        first, second = await asyncio.gather(
            provider.reply(ask("one"), Ear()), provider.reply(ask("two", purpose="subagent"), Ear())
        )
        await provider.aclose()
    assert (text_of(first.message), text_of(second.message)) == ("you said one", "you said two")


# Keys.


@pytest.mark.parametrize(
    ("auth", "sent"),
    [
        ("x-api-key", {"x-api-key": "k-123", "authorization": None}),
        ("bearer", {"x-api-key": None, "authorization": "Bearer k-123"}),
        ("both", {"x-api-key": "k-123", "authorization": "Bearer k-123"}),
    ],
)
async def test_a_key_goes_out_in_the_form_that_is_wanted(auth: str, sent: dict[str, str | None]) -> None:
    async with Server(["x"], keys=["k-123"]) as server:
        own = {"base_url": server.url, "api_key_env": "MY_KEY", "auth": auth, "headers": {"X-Team": "a"}}
        settings = config(providers={"mine": own})
        provider = await provider_for({"MY_KEY": "k-123"}, settings, name="mine")
        await provider.reply(ask(), Ear())
        await provider.aclose()
        headers = server.requests[0].headers
    assert {name: headers.get(name) for name in sent} == sent
    assert headers["x-team"] == "a"


async def test_a_server_without_keys_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-for-this-server")
    async with Server(["x"], strict=False) as server:
        settings = config(providers={"ollama": {"base_url": server.url + "/v1/"}})
        provider = await provider_for({}, settings, name="ollama", model="claude-haiku-4-5")
        with pytest.raises(errors.BadKey):  # the test server insists on one
            await provider.reply(ask(), Ear())
        await provider.aclose()
        headers = server.requests[0].headers
    assert not {"authorization", "x-api-key"} & headers.keys()


async def test_a_token_of_the_environment_is_a_bearer() -> None:
    async with Server(["x"], keys=["t-1"]) as server:
        env = {"ANTHROPIC_AUTH_TOKEN": "t-1", "ANTHROPIC_BASE_URL": server.url}
        provider = await provider_for(env)
        await provider.reply(ask(), Ear())
        await provider.aclose()
        assert server.requests[0].headers["authorization"] == "Bearer t-1"
        assert "x-api-key" not in server.requests[0].headers


async def test_an_address_without_a_key_is_tried() -> None:
    async with Server(["x"], strict=False) as server:
        provider = await provider_for({"ANTHROPIC_BASE_URL": server.url + "/v1"}, model="claude-haiku-4-5")
        with pytest.raises(errors.BadKey):  # the test server insists on one
            await provider.reply(ask(), Ear())
        await provider.aclose()
        assert len(server.requests) == 1


async def test_a_wrong_key_is_told_with_its_source() -> None:
    async with Server(["x"], keys=["right"], strict=False) as server:
        provider = await provider_for({**server.env, "ANTHROPIC_API_KEY": "wrong-key-9"})
        with pytest.raises(errors.BadKey) as caught:
            await provider.check()
        assert "wrong-key-9" not in repr(provider) + str(caught.value) + caught.value.hint
        assert "ANTHROPIC_API_KEY" in caught.value.hint
        await provider.aclose()


@pytest.mark.parametrize(
    ("settings", "env", "name", "found"),
    [
        ({}, {}, "", ("", "")),
        ({}, {"ANTHROPIC_API_KEY": "a"}, "", ("anthropic", "ANTHROPIC_API_KEY")),
        ({}, {"ANTHROPIC_AUTH_TOKEN": "a"}, "", ("anthropic", "ANTHROPIC_AUTH_TOKEN")),
        (
            {"provider": {"name": "zai"}},
            {"ANTHROPIC_API_KEY": "a", "ZAI_API_KEY": "z"},
            "",
            ("zai", "ZAI_API_KEY"),
        ),
        (
            {"provider": {"name": "zai"}},
            {"ANTHROPIC_API_KEY": "a"},
            "anthropic",
            ("anthropic", "ANTHROPIC_API_KEY"),
        ),
        ({"provider": {"api_key_env": "K"}}, {"ANTHROPIC_API_KEY": "a", "K": "k"}, "", ("anthropic", "K")),
        ({}, {"ANTHROPIC_API_KEY": ""}, "", ("", "")),
    ],
)
def test_where_the_provider_and_its_key_come_from(
    settings: dict[str, Any], env: Mapping[str, str], name: str, found: tuple[str, str]
) -> None:
    result = find_key(config(**settings), env, name)
    assert (result.provider, result.where) == found


async def test_without_any_provider_the_start_says_so() -> None:
    with pytest.raises(errors.NoKey) as caught:
        await make_provider(Config(), {})
    assert caught.value.exit_code == 77
    with pytest.raises(errors.NoKey, match="deepseek"):
        await make_provider(Config(), {}, name="deepseek")
    with pytest.raises(errors.ConfigError) as unknown:
        await make_provider(Config(), {}, name="antropic")
    assert "anthropic" in unknown.value.hint


def test_a_stored_key_is_private_and_found() -> None:
    file = keys.store("zai", " z-key \n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    result = find_key(Config(), {}, "zai")
    assert (result.key, result.where) == ("z-key", str(file))
    assert "z-key" not in repr(result)
    keys.store("zai", "")
    assert find_key(Config(), {}, "zai") == Found(provider="zai")


def test_presets_are_whole() -> None:
    assert set(PRESETS) == {
        "anthropic", "bedrock", "vertex", "ollama", "lmstudio", "llamacpp", "vllm", "openrouter",
        "deepseek", "moonshot", "zai", "local",
    }  # fmt: skip
    for preset in PRESETS.values():
        assert preset.kind != "http" or preset.base_url.startswith("http")
        assert not preset.base_url.endswith(("/", "/v1"))
        assert preset.is_open or preset.key_envs
        assert preset.is_open or models.look_up(preset.model).is_known


def test_settings_lie_over_a_preset() -> None:
    settings = config(provider={"name": "vllm", "base_url": "http://gpu:1", "model": "m"})
    preset = resolve("vllm", settings)
    assert (preset.base_url, preset.model) == ("http://gpu:1", "m")
    assert resolve("ollama", settings).base_url == PRESETS["ollama"].base_url


@pytest.mark.parametrize("name", ["bedrock", "vertex"])
async def test_a_platform_that_is_not_installed_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("google.auth", "botocore"):
        monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setenv("ANTHROPIC_VERTEX_PROJECT_ID", "p")
    monkeypatch.setenv("CLOUD_ML_REGION", "us-east5")
    provider = await provider_for({}, name=name, model="anthropic.claude-haiku-4-5")
    with pytest.raises(errors.ServerUnreachable) as caught:
        await provider.reply(ask(), Ear())
    await provider.aclose()
    assert f"bareagent[{name}]" in caught.value.hint


# Capabilities.


async def test_thinking_that_a_server_refuses_is_left_out_and_said() -> None:
    ear = Ear()
    settings = config(models={"odd": {"window": 100_000, "thinking": "adaptive"}})
    odd = Model("odd", thinking=frozenset({"disabled"}))
    async with Server(["a", "b"], models=[odd], strict=False) as server:
        provider = await provider_for(server.env, settings, model="odd")
        assert text_of((await provider.reply(ask(), ear)).message) == "a"
        await provider.reply(ask(), ear)
        assert provider.model.capabilities.thinking == "none"
        assert len(server.requests) == 3
        await provider.aclose()
    assert len(ear.of(Said)) == 1


async def test_a_budget_gives_way_to_adaptive_thinking() -> None:
    settings = config(models={"new": {"window": 100_000, "thinking": "budget"}})
    new = Model("new", thinking=frozenset({"adaptive"}))
    async with Server(["a"], models=[new], strict=False) as server:
        provider = await provider_for(server.env, settings, model="new")
        await provider.reply(ask(), Ear())
        await provider.aclose()
        assert provider.model.capabilities.thinking == "adaptive"


async def test_thinking_of_another_account_is_left_out() -> None:
    stranger: Message = {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "mine", "signature": "AAAA"},
            {"type": "text", "text": "x"},
            {"type": "tool_use", "id": "t1", "name": "bash", "input": {}},
        ],
    }
    results: Message = {"role": "user", "content": [answer(stranger["content"][2], "out")]}
    ear = Ear()
    async with Server([Step(thinking="new", text="a"), "b"], strict=False) as server:
        provider = await provider_for(server.env)
        view = [user("go"), stranger, results]
        reply = await provider.reply(Request(messages=view, tools=[BASH], max_tokens=4096), ear)
        view += [reply.message, user("more")]
        again = await provider.reply(Request(messages=view, tools=[BASH], max_tokens=4096), ear)
        await provider.aclose()
        assert [record.is_valid for record in server.requests] == [False, True, True]
        kinds = [block["type"] for message in server.requests[2].messages for block in message["content"]]
    assert kinds.count("thinking") == 1
    assert not again.prefix_break
    assert len(ear.of(Said)) == 1


async def test_images_that_a_server_refuses_are_sent_as_words_from_then_on() -> None:
    settings = config(models={"test-plain": {"window": 100_000, "thinking": "none", "images": True}})
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    call = {"type": "tool_use", "id": "t1", "name": "bash", "input": {}}
    view: list[Message] = [
        {"role": "user", "content": [{"type": "text", "text": "look"}, picture]},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [answer(call, [picture])]},
    ]
    ear = Ear()
    async with Server(["I see.", "Still."], strict=False) as server:
        provider = await provider_for(server.env, settings, model="test-plain")
        for _ in range(2):
            await provider.reply(Request(messages=view, tools=[BASH], max_tokens=4096), ear)
        await provider.aclose()
        assert [record.is_valid for record in server.requests] == [False, True, True]
        assert server.requests[1].raw == server.requests[2].raw
        assert server.requests[1].raw.count(b"[an image, which this model cannot see]") == 2
        assert b"base64" not in server.requests[1].raw
    assert [said.text for said in ear.of(Said)] == ["anthropic refuses images: left out from here on."]


async def test_cache_marks_that_a_server_refuses_are_left_out_from_then_on() -> None:
    ear = Ear()
    async with Server(["a", "b"], lacks=["cache_control"], strict=False) as server:
        provider = await provider_for(server.env)
        for _ in range(2):
            await provider.reply(ask(), ear)
        await provider.aclose()
        assert [b"cache_control" in record.raw for record in server.requests] == [True, False, False]
        assert not provider.model.capabilities.cache
    assert len(ear.of(Said)) == 1


async def test_tokens_are_counted_where_the_server_can() -> None:
    async with Server() as server:
        provider = await provider_for(server.env)
        count = await provider.count_tokens(ask("x" * 4000))
        await provider.aclose()
    assert count is not None
    assert 900 < count < 1200
    async with Server(lacks=["count_tokens"]) as server:
        provider = await provider_for(server.env)
        assert await provider.count_tokens(ask()) is None
        assert not provider.model.capabilities.count_tokens
        n = len(server.all)
        assert await provider.count_tokens(ask()) is None
        assert len(server.all) == n
        await provider.aclose()


async def test_cost_is_counted_at_the_models_prices() -> None:
    usage = {"input_tokens": 1_000_000, "cache_read_input_tokens": 2_000_000, "output_tokens": 100_000}
    async with Server([Step(text="x", usage=usage)]) as server:
        provider = await provider_for(server.env, model="claude-haiku-4-5")
        reply = await provider.reply(ask(), Ear())
        await provider.aclose()
    assert reply.usage.cache_read == 2_000_000
    assert reply.cost_usd == pytest.approx(1.0 + 0.2 + 0.1 * 5)


def test_the_sdk_can_be_loaded_ahead() -> None:
    thread = preload()
    thread.join(30)
    assert not thread.is_alive()


BOUND = (
    "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation. "
    'Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)
MODIFIED = (
    "messages.7.content.9: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
    "modified. These blocks must remain as they were in the original response."
)


@pytest.mark.parametrize("words", [BOUND, MODIFIED])
def test_thinking_bound_to_another_history_is_left_out_for_good(words: str) -> None:
    info = models.look_up("claude-sonnet-5-5")
    adapted = Adapted()
    old: Message = {"role": "assistant", "content": [{"type": "thinking", "thinking": "", "signature": "s1"}]}
    new: Message = {"role": "assistant", "content": [{"type": "thinking", "thinking": "", "signature": "s2"}]}
    view = [user("a"), old, user("b")]
    assert adapted.learn(words, info, view) == "earlier thinking"
    assert adapted.n_without_thinking([*view, new, user("c")]) == 2
    assert adapted.n_without_thinking([user("summary"), old, user("b"), new]) == 2
    assert adapted.to(info) == info
    whole = [*view, new, user("c")]
    assert adapted.learn(words, info, whole) == "earlier thinking"
    assert adapted.n_without_thinking(whole) == 4
    if words == MODIFIED:
        assert adapted.learn(words, info, whole) == "thinking before the newest reply"
        assert adapted.n_without_thinking(whole) == 2
    assert adapted.learn(words, info, whole) == "thinking"


def test_a_tool_loop_that_began_without_thinking_goes_on_without() -> None:
    words = (
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` "
        "is enabled, a final `assistant` message must start with a thinking block."
    )
    info, adapted = models.look_up("claude-haiku-4-5"), Adapted()
    assert adapted.learn(words, info, [user("a")]) == "thinking"
    assert adapted.to(info).capabilities.thinking == "none"


async def test_a_broken_prefix_is_reported_unless_an_epoch_explains_it(
    make_server: MakeServer, tmp_path: Path
) -> None:
    server = await make_server(["one", "two", "three", "four"])
    async with conversation(server, tmp_path) as talk:
        first = talk.session.messages
        await talk.agent.run("first")
        await talk.agent.run("second")
        talk.session.record(Epoch(reason="a test"))
        first[0] = user("other")
        await talk.agent.run("third")
        assert not faults_in(talk)
        first[0] = user("first")
        await talk.agent.run("fourth")
        assert faults_in(talk) == [
            "This request did not begin with the one before (block 0): a fault of bareagent."
        ]


def faults_in(talk: Conversation) -> list[str]:
    return [heard.text for heard in talk.heard if isinstance(heard, Said) and "fault of" in heard.text]


async def test_calls_that_follow_each_other_share_one_connection() -> None:
    async with Server(["One.", "Two.", {"calls": [{"name": "bash", "input": {"command": "ls"}}]}]) as server:
        provider = await provider_for(server.env)
        for _ in range(3):
            await provider.reply(Request(messages=[user("go")], max_tokens=100), Ear())
        await provider.aclose()
    assert len({record.connection for record in server.requests}) == 1


async def test_a_server_that_never_ends_its_answer_costs_no_wait() -> None:
    n_events = 7  # message_stop is the last of them
    fault = {"kind": "stall", "at": {"event": n_events}}
    async with Server([{"text": "Whole.", "fault": fault}, "Next."]) as server:
        provider = await provider_for(server.env)
        began = time.monotonic()
        reply = await provider.reply(Request(messages=[user("go")], max_tokens=100), Ear())
        took = time.monotonic() - began
        again = await provider.reply(Request(messages=[user("go")], max_tokens=100), Ear())
        await provider.aclose()
        assert [text_of(each.message) for each in (reply, again)] == ["Whole.", "Next."]
        assert (await server.settled(1)).outcome == "client left"
    assert took < 2
