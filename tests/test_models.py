"""What is known of models: table, settings, the server's word, and the cache of it."""

import json
import os
import stat
from pathlib import Path

import pytest

from bareagent import errors
from bareagent.config import ModelEntry
from bareagent.entries import Said, Usage
from bareagent.messages import user
from bareagent.provider import models
from bareagent.provider.model_cache import ModelCache
from bareagent.seams import Request
from tests.heard import Ear, config, provider_for
from tests.server import Model, Server
from tests.server.models import MODELS as SERVED


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", [name for name in models.names() if name.startswith("claude")])
def test_prices_hold_together(name: str) -> None:
    info = models.look_up(name)
    assert info.is_known
    assert info.price.output == pytest.approx(5 * info.price.input)
    assert info.price.cache_write == pytest.approx(1.25 * info.price.input)
    assert info.price.cache_write_1h == pytest.approx(2 * info.price.input)
    assert 0.02 * info.price.input < info.price.cache_read < 0.11 * info.price.input
    assert info.max_output < info.window
    assert info.token_factor in {1.25, 1.75}


def test_the_table_agrees_with_the_servers_word_on_sizes() -> None:
    for served in SERVED:
        if served.id.startswith("claude-") and "4-5" not in served.id:
            info = models.look_up(served.id)
            assert info.window == served.window, served.id


@pytest.mark.parametrize(
    ("name", "known_as"),
    [
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", "claude-haiku-4-5"),
        ("global.anthropic.claude-sonnet-5-5", "claude-sonnet-5-5"),
        ("claude-sonnet-4-5@20250929", "claude-sonnet-4"),
        ("anthropic/claude-sonnet-5.5", "claude-sonnet-5-5"),
        ("claude-opus-5-5", "claude-opus-5-5"),
        ("claude-opus-5", "claude-opus-5"),
        ("qwen3-coder:30b", "qwen3-coder"),
        ("deepseek/deepseek-v4-pro", "deepseek-v4-pro"),
    ],
)
def test_a_platforms_name_means_the_same_model(name: str, known_as: str) -> None:
    info = models.look_up(name)
    assert (info.name, info.price) == (name, models.look_up(known_as).price)
    assert info.is_known


def test_long_prompts_cost_more_where_the_table_says_so() -> None:
    price = models.look_up("claude-haiku-5-5").price
    short, long = Usage(uncached=1_000, cache_read=99_000), Usage(uncached=1_001, cache_read=99_000)
    assert price.cost(short) == pytest.approx((1_000 * 0.1 + 99_000 * 0.01) / 1e6)
    assert price.cost(long) == pytest.approx(5 * (1_001 * 0.1 + 99_000 * 0.01) / 1e6)


def test_an_unknown_model_has_fallbacks_and_says_so() -> None:
    info = models.look_up("nobody-knows")
    assert not info.is_known
    assert info.window == 200_000
    assert info.price.cost(Usage(uncached=10**6, output=10**6)) == 0.0


def test_settings_win() -> None:
    own = {
        "claude-haiku-4-5": ModelEntry(
            window=50_000, input=9.0, cache_life_s=0, thinking="none", images=False
        )
    }
    info = models.look_up("claude-haiku-4-5", own, {"window": 77_000, "max_output": 5_000})
    assert (info.window, info.max_output, info.price.input, info.price.output) == (50_000, 5_000, 9.0, 5.0)
    capabilities = info.capabilities
    assert (capabilities.cache, capabilities.thinking, capabilities.images) == (False, "none", False)


@pytest.mark.parametrize(
    ("said", "fields"),
    [
        ({"max_model_len": 32_768}, {"window": 32_768, "max_output": 8_192}),
        ({"context_length": 4_096}, {"window": 4_096, "max_output": 1_024}),
        ({"meta": {"n_ctx": 8_192}}, {"window": 8_192, "max_output": 2_048}),
        ({"max_input_tokens": None, "max_tokens": "many"}, {}),
        ({}, {}),
    ],
)
def test_other_servers_say_it_otherwise(said: dict[str, object], fields: dict[str, object]) -> None:
    assert models.fields_of(said) == fields


async def test_an_unknown_model_is_asked_for_once() -> None:
    model = Model(
        "house-model", window=33_000, max_output=3_000, thinking=frozenset({"adaptive", "disabled"})
    )
    async with Server(["a", "b"], models=[model]) as server:
        provider = await provider_for(server.env, model="house-model")
        assert not provider.model.is_known
        for _ in range(2):
            await provider.reply(Request(messages=[user("hi")]), Ear())
        assert (provider.model.window, provider.model.max_output) == (33_000, 3_000)
        assert (provider.model.capabilities.thinking, provider.model.is_known) == ("adaptive", True)
        assert [record.path for record in server.all].count("/v1/models/house-model") == 1
        assert server.requests[0].body["max_tokens"] == 3_000
        await provider.aclose()


async def test_a_known_model_is_not_asked_for() -> None:
    async with Server(["a"]) as server:
        provider = await provider_for(server.env, model="claude-haiku-4-5")
        await provider.reply(Request(messages=[user("hi")]), Ear())
        assert [record.path for record in server.all] == ["/v1/messages"]
        await provider.aclose()


async def test_a_model_that_the_server_has_not_is_told() -> None:
    async with Server(strict=False) as server:
        provider = await provider_for(server.env, model="claude-haiku-4-5")
        with pytest.raises(errors.UnknownModel) as caught:
            await provider.select("nope-1")
        assert "bareagent models" in caught.value.hint
        assert "has no model nope-1" in str(caught.value)
        assert provider.model.name == "claude-haiku-4-5"
        info = await provider.select("test-small")
        assert info.window == 8_000
        await provider.aclose()


async def test_a_server_without_a_models_endpoint_is_no_failure() -> None:
    async with Server(["a"], lacks=["models"]) as server:
        settings = config(providers={"mine": {"base_url": server.url, "api_key_env": "K"}})
        provider = await provider_for({"K": "k"}, settings, name="mine", model="test-model")
        server.add("b")
        ear = Ear()
        for _ in range(2):
            await provider.reply(Request(messages=[user("hi")], max_tokens=100), ear)
        assert [said.text.count("200,000") for said in ear.of(Said)] == [1]
        assert provider.model.window == 200_000
        assert await provider.list_models() == models.names()
        await provider.aclose()


async def test_the_servers_word_is_kept_for_a_day(own_folders: Path) -> None:
    async with Server(models=[Model("claude-haiku-4-5", window=111_000)]) as server:
        provider = await provider_for(server.env, model="claude-haiku-4-5")
        await provider.refresh()
        assert provider.model.window == 111_000
        assert provider.model.price.input == 1.0
        n = len(server.all)
        await provider.refresh()
        other = await provider_for(server.env, model="claude-haiku-4-5")
        await other.refresh()
        assert (await other.facts("claude-haiku-4-5")).window == 111_000
        assert len(server.all) == n
        await provider.aclose()
        await other.aclose()
        file = next(own_folders.rglob("models.json"))
        kept = json.loads(file.read_text())
        kept[server.url]["at"] -= 90_000
        file.write_text(json.dumps(kept))
        assert ModelCache(server.url).get("claude-haiku-4-5") is None
        assert not ModelCache(server.url).is_fresh()


@pytest.mark.parametrize(
    "content", ["", "[]", "nonsense", '{"http://x": 5}', '{"http://x": {"at": "", "models": {}}}']
)
def test_a_broken_cache_is_an_empty_one(own_folders: Path, content: str) -> None:
    folder = own_folders / "bareagent"
    folder.mkdir()
    (folder / "models.json").write_text(content)
    cache = ModelCache("http://x")
    assert cache.get("m") is None
    cache.put({"m": {"window": 5}})
    assert ModelCache("http://x").get("m") == {"window": 5}


def test_the_cache_is_private_whatever_the_umask(own_folders: Path) -> None:
    before = os.umask(0)
    try:
        ModelCache("http://x").put({"m": {"window": 5}})
    finally:
        os.umask(before)
    folder = own_folders / "bareagent"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "models.json").stat().st_mode) == 0o600


async def test_nobody_there_or_no_model_there_is_told_and_none_made_up() -> None:
    down = config(providers={"ollama": {"base_url": "http://127.0.0.1:9"}})
    with pytest.raises(errors.ServerUnreachable, match="cannot be reached"):
        await provider_for({}, down, name="ollama", model="")
    async with Server(models=[Model(model.id, is_listed=False) for model in SERVED]) as server:
        empty = config(providers={"ollama": {"base_url": server.url, "api_key_env": "K"}})
        with pytest.raises(errors.ServerUnreachable, match="has no model"):
            await provider_for({"K": "k"}, empty, name="ollama", model="")


async def test_a_local_servers_first_model_is_taken_where_none_is_named() -> None:
    async with Server(["a"]) as server:
        settings = config(providers={"ollama": {"base_url": server.url, "api_key_env": "K"}})
        provider = await provider_for({"K": "k"}, settings, name="ollama", model="")
        assert provider.model.name in {model.id for model in SERVED}
        await provider.aclose()
