"""The providers that are known by name, and where their keys are found."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from bareagent.config import Config, ProviderEntry
from bareagent.errors import ConfigError
from bareagent.provider import keys

Auth = Literal["x-api-key", "bearer", "both", "none"]
Kind = Literal["http", "bedrock", "vertex", "local"]

OFFICIAL_URL = "https://api.anthropic.com"
DEFAULT_MODEL = "claude-sonnet-5-5"


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """A provider: where it is, how it wants its key, which model it has when none is named.

    `is_open` is a server that needs no key. `about` is one line for lists.
    """

    name: str
    about: str
    base_url: str = ""
    key_envs: tuple[str, ...] = ()
    auth: Auth = "both"
    headers: dict[str, str] = {}
    model: str = ""
    kind: Kind = "http"
    is_open: bool = False


_ALL = (
    Preset(
        name="anthropic",
        about="Claude, from its maker",
        base_url=OFFICIAL_URL,
        key_envs=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        model=DEFAULT_MODEL,
    ),
    Preset(
        name="bedrock",
        about="Claude on AWS; needs the extra `bedrock` and AWS credentials",
        auth="none",
        model=f"anthropic.{DEFAULT_MODEL}",
        kind="bedrock",
        is_open=True,
    ),
    Preset(
        name="vertex",
        about="Claude on Google Cloud; needs the extra `vertex`, a project and a region",
        auth="none",
        model=DEFAULT_MODEL,
        kind="vertex",
        is_open=True,
    ),
    Preset(name="ollama", about="Ollama, here", base_url="http://127.0.0.1:11434", is_open=True),
    Preset(name="lmstudio", about="LM Studio, here", base_url="http://127.0.0.1:1234", is_open=True),
    Preset(name="llamacpp", about="llama-server, here", base_url="http://127.0.0.1:8080", is_open=True),
    Preset(
        name="vllm",
        about="vLLM, here",
        base_url="http://127.0.0.1:8000",
        key_envs=("VLLM_API_KEY",),
        is_open=True,
    ),
    Preset(
        name="openrouter",
        about="many makers' models behind one key",
        base_url="https://openrouter.ai/api",
        key_envs=("OPENROUTER_API_KEY",),
        auth="bearer",
        model="anthropic/claude-sonnet-5.5",
    ),
    Preset(
        name="deepseek",
        about="DeepSeek",
        base_url="https://api.deepseek.com/anthropic",
        key_envs=("DEEPSEEK_API_KEY",),
        model="deepseek-v4-pro",
    ),
    Preset(
        name="moonshot",
        about="Kimi, from Moonshot AI",
        base_url="https://api.moonshot.ai/anthropic",
        key_envs=("MOONSHOT_API_KEY", "KIMI_API_KEY"),
        model="kimi-k3",
    ),
    Preset(
        name="zai",
        about="GLM, from Z.ai",
        base_url="https://api.z.ai/api/anthropic",
        key_envs=("ZAI_API_KEY", "Z_AI_API_KEY"),
        model="glm-5",
    ),
    Preset(name="local", about="runs inside bareagent, without a key", kind="local", is_open=True),
)
PRESETS = {preset.name: preset for preset in _ALL}


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The provider that will be used, and where its key stands; `key` is never shown.

    `where` is an environment variable, the path of the key file, or "" where no key was found.
    """

    provider: str
    where: str = ""
    key: str = ""

    def __repr__(self) -> str:
        """Leave the key out."""
        return f"Found(provider={self.provider!r}, where={self.where!r}, has_key={bool(self.key)})"


def setup_command(name: str) -> str:
    """Return the command that keeps a key for this provider."""
    return "`bareagent setup`" if name == "anthropic" else f"`bareagent --provider {name} setup`"


def resolve(name: str, config: Config) -> Preset:
    """Return the provider of this name: the user's own entry laid over the preset, if both are there.

    Raises: ConfigError for a name that nobody knows.
    """
    preset, entry = PRESETS.get(name), config.providers.get(name)
    if preset is None and entry is None:
        raise ConfigError(f"There is no provider {name!r}.", _hint(name, {*PRESETS, *config.providers}))
    chosen = preset or Preset(name=name, about="from your settings")
    if entry is not None:
        chosen = _own(entry, chosen, is_new=preset is None)
    return _chosen(chosen, config) if config.provider.name in {"", name} else chosen


def _own(entry: ProviderEntry, base: Preset, *, is_new: bool) -> Preset:
    is_open = entry.auth == "none" or not entry.api_key_env if is_new else base.is_open
    return msgspec.structs.replace(
        base,
        base_url=entry.base_url or base.base_url,
        key_envs=(entry.api_key_env,) if entry.api_key_env else base.key_envs,
        auth=entry.auth if is_new or entry.auth != "x-api-key" else base.auth,
        headers={**base.headers, **entry.headers},
        model=entry.model or base.model,
        is_open=is_open,
    )


def _chosen(preset: Preset, config: Config) -> Preset:
    """Lay `[provider]` over the provider it means."""
    choice = config.provider
    return msgspec.structs.replace(
        preset,
        base_url=choice.base_url or preset.base_url,
        key_envs=(choice.api_key_env,) if choice.api_key_env else preset.key_envs,
        model=choice.model or preset.model,
    )


def _hint(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, sorted(known), 1)
    return f"Did you mean {close[0]}?" if close else f"Known ones: {', '.join(sorted(known))}."


def chosen_name(config: Config, env: Mapping[str, str], name: str = "") -> str:
    """Return the provider's name: the flag, the settings, the environment; "" where nothing says."""
    if name or config.provider.name:
        return name or config.provider.name
    if config.provider.base_url:
        return "anthropic"
    said = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL")
    if any(env.get(variable) for variable in said) or keys.stored("anthropic"):
        return "anthropic"
    return ""


def find_key(config: Config, env: Mapping[str, str], name: str = "") -> Found:
    """Return which provider is used and where its key was found, for `doctor` and the start.

    Raises: ConfigError for an unknown provider.
    """
    provider = chosen_name(config, env, name)
    if not provider:
        return Found(provider="")
    preset = resolve(provider, config)
    for variable in preset.key_envs:
        if env.get(variable):
            return Found(provider=provider, where=variable, key=env[variable].strip())
    key = keys.stored(provider)
    return Found(provider=provider, where=str(keys.path()) if key else "", key=key)
