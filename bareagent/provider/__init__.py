"""Everything between a view and a model's answer: keys, presets, models, requests, streams, retries."""

from collections.abc import Mapping

from msgspec.structs import replace

from bareagent.config import Config
from bareagent.errors import NoKey, ProviderError
from bareagent.provider import models
from bareagent.provider.claude import ClaudeProvider
from bareagent.provider.client import preload
from bareagent.provider.model_cache import ModelCache
from bareagent.provider.presets import (
    OFFICIAL_URL,
    PRESETS,
    Found,
    Preset,
    chosen_name,
    find_key,
    resolve,
    setup_command,
)

__all__ = [
    "PRESETS",
    "ClaudeProvider",
    "Found",
    "Preset",
    "addressed",
    "chosen_name",
    "find_key",
    "make_provider",
    "preload",
    "resolve",
]


async def make_provider(
    config: Config, env: Mapping[str, str], *, name: str = "", model: str = ""
) -> ClaudeProvider:
    """Return the provider that flags, settings and environment mean, in that order.

    Nothing is sent, but where a server of one's own has no model named: it is asked for its first.
    Raises: NoKey where nothing says which provider, or its key is missing; ConfigError for an unknown
    name; ServerUnreachable where a server has to be asked and is not there.
    """
    found = find_key(config, env, name)
    if not found.provider:
        raise NoKey(
            "No provider is set up and no key was found.",
            "Run `bareagent setup`, set ANTHROPIC_API_KEY, or name one with --provider.",
        )
    preset = addressed(found.provider, config, env)
    if preset.kind == "local":
        raise NoKey("The local model is started by the program itself.", "Use --provider local.")
    if not found.key and not preset.is_open:
        where = " or ".join(preset.key_envs) or "its environment variable"
        hint = f"Set {where}, or run {setup_command(preset.name)}."
        raise NoKey(f"No key for {preset.name} was found.", hint)
    return await _with_model(preset, found, config, model)


def addressed(name: str, config: Config, env: Mapping[str, str]) -> Preset:
    """Return a provider by name as it will be used: where it is, and whether it needs a key.

    ANTHROPIC_BASE_URL lies over the preset of its maker, unless the settings name an address.
    Raises: ConfigError for an unknown name.
    """
    preset = resolve(name, config)
    url = env.get("ANTHROPIC_BASE_URL", "").strip()
    if preset.name == "anthropic" and url and not config.provider.base_url:
        entry = config.providers.get("anthropic")
        url = entry.base_url if entry is not None and entry.base_url else url
        return _at(preset, url)
    return _at(preset, preset.base_url)


def _at(preset: Preset, url: str) -> Preset:
    # A copied address often ends in /v1, which the SDK adds by itself.
    url = url.rstrip("/").removesuffix("/v1")
    # Behind an address of one's own there may be a server that wants no key; it will say so if it does.
    is_elsewhere = preset.name == "anthropic" and url != OFFICIAL_URL
    return replace(preset, base_url=url, is_open=preset.is_open or is_elsewhere)


async def _with_model(preset: Preset, found: Found, config: Config, model: str) -> ClaudeProvider:
    chosen = model or preset.model
    said = ModelCache(preset.base_url or preset.kind).get(chosen)
    provider = ClaudeProvider(preset, found, models.look_up(chosen, config.models, said), config)
    if chosen:
        return provider
    try:
        await provider.select(await provider.first_model())
    except ProviderError:
        await provider.aclose()
        raise
    return provider
