"""What is known of models: the built-in table, the user's own entries, the server's word.

Looking up is pure; asking the server is the provider's business (`claude.py`).
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from bareagent.config import ModelEntry
from bareagent.seams import CacheLife, Capabilities, ModelInfo, Price

UNKNOWN_WINDOW_TOKENS = 200_000
UNKNOWN_MAX_OUTPUT_TOKENS = 8_192
_PLATFORM_PREFIXES = ("us.", "eu.", "apac.", "jp.", "au.", "global.")

Fields = Mapping[str, Any]
"""The flat keys of one entry of models.toml."""


@cache
def table() -> dict[str, Fields]:
    """Return the built-in table by name or beginning of a name."""
    return tomllib.loads(Path(__file__).with_name("models.toml").read_text(encoding="utf-8"))


def names() -> list[str]:
    """Return the whole names of the built-in table, best known first."""
    return [name for name in table() if not name.endswith("-")]


def plain_name(name: str) -> str:
    """Return a model's name without what a platform puts around it."""
    for prefix in _PLATFORM_PREFIXES:
        name = name.removeprefix(prefix)
    name = name.rpartition("/")[2].removeprefix("anthropic.")
    return name.partition("@")[0].partition(":")[0].lower().replace(".", "-" if "claude" in name else ".")


def look_up(name: str, own: Mapping[str, ModelEntry] | None = None, said: Fields | None = None) -> ModelInfo:
    """Return what is known of a model.

    `own` are the user's entries, which win; `said` is what the server told (`fields_of`), which wins over
    the table for sizes and capabilities.
    """
    fields = dict(_entry(plain_name(name)))
    is_known = bool(fields) or bool(said and said.get("window"))
    fields |= said or {}
    entry = (own or {}).get(name)
    if entry is not None:
        mine = {key: value for key, value in msgspec.to_builtins(entry).items() if value is not None}
        is_known = is_known or "window" in mine
        fields |= mine
    return _info(name, fields, is_known=is_known)


def _entry(name: str) -> Fields:
    best = max((key for key in table() if name.startswith(key)), key=len, default="")
    return table().get(best, {})


def _info(name: str, fields: Fields, *, is_known: bool) -> ModelInfo:
    life = int(fields.get("cache_life_s", 300))
    return ModelInfo(
        name=name,
        window=int(fields.get("window", UNKNOWN_WINDOW_TOKENS)),
        max_output=int(fields.get("max_output", UNKNOWN_MAX_OUTPUT_TOKENS)),
        price=_price(fields),
        cache_life=CacheLife(seconds=life),
        capabilities=Capabilities(
            images=bool(fields.get("images", True)),
            cache=life > 0,
            thinking=fields.get("thinking", "none"),
            thinking_off=fields.get("thinking_off", "omit"),
            effort=bool(fields.get("effort", False)),
        ),
        token_factor=float(fields.get("token_factor", 1.25)),
        is_known=is_known,
    )


def _price(fields: Fields) -> Price:
    fresh = float(fields.get("input", 0.0))
    write = float(fields.get("cache_write", fresh))
    return Price(
        input=fresh,
        output=float(fields.get("output", 0.0)),
        cache_read=float(fields.get("cache_read", fresh)),
        cache_write=write,
        cache_write_1h=float(fields.get("cache_write_1h", write)),
        above_tokens=int(fields.get("above_tokens", 0)),
        above_factor=float(fields.get("above_factor", 1.0)),
    )


def fields_of(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a server's model object tells, in the words of models.toml.

    Takes the Messages API's form, and the `max_model_len` / `context_length` of other servers.
    """
    fields: dict[str, Any] = {}
    window = _number(said, "max_input_tokens", "max_model_len", "context_length", "context_window")
    if window:
        fields["window"] = window
    output = _number(said, "max_tokens", "max_output_tokens")
    if output:
        fields["max_output"] = output
    elif window:
        fields["max_output"] = min(UNKNOWN_MAX_OUTPUT_TOKENS, window // 4)
    capabilities = said.get("capabilities")
    if isinstance(capabilities, Mapping):
        fields |= _said_capabilities(capabilities)
    return fields


def _number(said: Mapping[str, Any], *keys: str) -> int:
    for key in keys:
        value = said.get(key)
        if isinstance(value, int) and value > 0:
            return value
    meta = said.get("meta")
    value = meta.get("n_ctx") if isinstance(meta, Mapping) and "max_model_len" in keys else None
    return value if isinstance(value, int) and value > 0 else 0


def _said_capabilities(said: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if "image_input" in said:
        fields["images"] = _is_supported(said["image_input"])
    if "effort" in said:
        fields["effort"] = _is_supported(said["effort"])
    thinking = said.get("thinking")
    types = thinking.get("types") if isinstance(thinking, Mapping) else None
    if isinstance(types, Mapping):
        fields |= _said_thinking({key for key, value in types.items() if _is_supported(value)})
    return fields


def _said_thinking(types: set[str]) -> dict[str, Any]:
    form = "adaptive" if "adaptive" in types else "budget" if "enabled" in types else "none"
    off = "disabled" if "disabled" in types else "between_tools" if "between_tools" in types else "never"
    return {"thinking": form, "thinking_off": "omit" if form == "none" else off}


def _is_supported(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value.get("supported"))
