"""Reads settings: the user's file, the project's, the environment, flags, in that order.

Each layer is checked by itself, so that an error names where it stands. A project's file may only
tighten permissions and set context, reminder, ui and tool limits; the rest is refused by name.
"""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bareagent.config import MODES, SEED_PROFILE, Config
from bareagent.config_doc import keys as setting_keys
from bareagent.config_doc import known_keys
from bareagent.errors import ConfigError

ENV_PREFIX = "BAREAGENT_"

PROJECT_MAY_SET = frozenset(
    {
        "compaction",
        "reminder",
        "ui",
        "limits.turns",
        "limits.cost_usd",
        "tools.max_result_chars",
        "tools.bash.timeout_s",
        "permissions.mode",
        "permissions.ask",
        "permissions.deny",
    }
)
"""Tables and keys that a project's file may hold; `compaction.model` is left out below."""

PROJECT_MAY_NOT_SET = frozenset({"compaction.model"})


class Layer(msgspec.Struct, kw_only=True):
    """One source of settings; `text` (of a file) serves to find a key's line."""

    source: str
    data: dict[str, Any]
    text: str = ""
    is_project: bool = False


class Loaded(msgspec.Struct, kw_only=True):
    """The settings, the sources that were read, and one line for each refused key of a project."""

    config: Config
    sources: list[str]
    refused: list[str]
    hand_set: frozenset[str] = frozenset()


def load(
    user_file: Path | None,
    project_file: Path | None,
    env: Mapping[str, str],
    flags: Mapping[str, Any] | None = None,
) -> Loaded:
    """Return the merged settings.

    A missing file counts as empty. `flags` maps dotted keys ("compaction.threshold") to values.
    Raises: ConfigError, which names file, line, key and what was expected.
    """
    layers = [
        _file_layer(user_file),
        _file_layer(project_file, is_project=True),
        _environment_layer(env),
        Layer(source="flags", data=_nest(flags or {})),
    ]
    present = [layer for layer in layers if layer.data]
    for layer in present:
        _check(layer)
    refused = _refuse(present)
    merged: dict[str, Any] = {}
    for layer in present:
        _merge(merged, layer.data)
    hand_set = frozenset(key for key, _ in _leaves(merged))
    config = _convert(Layer(source="settings", data=_with_profile(merged)))
    return Loaded(
        config=config,
        sources=[layer.source for layer in present],
        refused=refused,
        hand_set=hand_set,
    )


def _file_layer(path: Path | None, *, is_project: bool = False) -> Layer:
    if path is None or not path.is_file():
        return Layer(source="", data={})
    try:
        text = path.read_bytes().decode("utf-8-sig")
        data = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text", "save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{path}: is no valid TOML: {error}", "mend the line or move the file away"
        ) from None
    return Layer(source=str(path), data=data, text=text, is_project=is_project)


def _environment_layer(env: Mapping[str, str]) -> Layer:
    keys = env_keys()
    values: dict[str, Any] = {}
    for name in sorted(env):
        if not name.startswith(ENV_PREFIX):
            continue
        if name not in keys:
            raise ConfigError(f"{name}: no such setting{_nearest(name, keys)}")
        values[keys[name]] = _env_value(env[name])
    return Layer(source="environment", data=_nest(values))


def env_keys() -> dict[str, str]:
    """Return the environment variables that set something, each with its dotted key."""
    return {ENV_PREFIX + key.replace(".", "_").upper(): key for key in known_keys()}


def _env_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _plain(what: str) -> str:
    return what[:1].lower() + what[1:].split(", got", maxsplit=1)[0].replace("`", "")


def _nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *tables, name = key.split(".")
        place = nested
        for table in tables:
            place = place.setdefault(table, {})
        place[name] = value
    return nested


def _merge(base: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            _merge(base[key], value)
        else:
            base[key] = dict(value) if isinstance(value, dict) else value


def _with_profile(merged: dict[str, Any]) -> dict[str, Any]:
    if merged.get("compaction", {}).get("profile") != "seed":
        return merged
    layered: dict[str, Any] = {table: dict(values) for table, values in SEED_PROFILE.items()}
    _merge(layered, merged)
    return layered


def _leaves(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _check(layer: Layer) -> None:
    _convert(layer)


def _convert(layer: Layer) -> Config:
    try:
        config = msgspec.convert(layer.data, Config)
    except msgspec.ValidationError as error:
        raise _explained(error, layer) from None
    if isinstance(config.compaction.threshold, int) and config.compaction.threshold < 100:
        raise ConfigError(
            f'{_where(layer, "compaction.threshold")}: expected a number of tokens from 100 on, or "auto"'
        )
    return config


def _explained(error: msgspec.ValidationError, layer: Layer) -> ConfigError:
    what, _, path = str(error).partition(" - at `$")
    key = _named(path.rstrip("`").lstrip("."), layer.data)
    unknown = re.search(r"unknown field `(.*)`", what)
    if unknown:
        key = f"{key}.{unknown[1]}".lstrip(".")
        return ConfigError(f"{_where(layer, key)}: no such setting{_nearest(key, known_keys())}")
    expected = _options(key) if "enum" in what else _plain(what)
    return ConfigError(f"{_where(layer, key)}: {expected}, not {_value_at(layer.data, key)!r}")


def _named(key: str, data: Mapping[str, Any]) -> str:
    """Put the name in for `[...]`, which stands for some entry of a named table."""
    table, is_named, rest = key.partition("[...]")
    if not is_named:
        return key
    for name, entry in data.get(table, {}).items():
        try:
            msgspec.convert({table: {name: entry}}, Config)
        except msgspec.ValidationError:
            return f'{table}."{name}"{rest}'
    return key


def _options(key: str) -> str:
    for known in setting_keys(Config):
        if known.name == key:
            return "expected " + " or ".join(f'"{option}"' for option in known.options)
    return "expected another value"


def _value_at(data: Any, key: str) -> Any:
    for part in re.findall(r'"[^"]*"|[^.\[\]]+', key):
        name = part.strip('"')
        if isinstance(data, dict):
            data = data.get(name)
        elif isinstance(data, list) and name.isdigit():
            data = data[int(name)]
    return data


def _where(layer: Layer, key: str) -> str:
    line = _line_of(layer.text, key)
    place = f"{layer.source}:{line}" if line else layer.source
    table, _, name = key.rpartition(".")
    return f"{place}: [{table}] {name}" if table else f"{place}: {name}"


def _line_of(text: str, key: str) -> int:
    """Return the line that sets a key, 0 where it cannot be told."""
    key = re.sub(r"\[\d+\]$", "", key).replace('"', "")
    table, _, name = key.rpartition(".")
    present = ""
    for number, line in enumerate(text.split("\n"), 1):
        header = re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line)
        if header:
            present = header[1].replace('"', "")
            if present == key:
                return number
        setter = re.match(r"\s*([\w.\"-]+)\s*=", line)
        if setter and f"{present}.{setter[1]}".replace('"', "").lstrip(".") in {key, f"{table}.{name}"}:
            return number
    return 0


def _nearest(name: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""


def _refuse(layers: list[Layer]) -> list[str]:
    """Take out of a project's layer what it may not set and say so, a line a key."""
    user: dict[str, Any] = {}
    refused: list[str] = []
    for layer in layers:
        if not layer.is_project:
            _merge(user, layer.data)
            continue
        for key, value in list(_leaves(layer.data)):
            reason = _refusal(key, value, user)
            if reason:
                _remove(layer.data, key)
                refused.append(f"{_where(layer, key)}: {reason}")
    return refused


def _refusal(key: str, value: Any, user: Mapping[str, Any]) -> str:
    table = key.split(".", maxsplit=1)[0]
    if key in PROJECT_MAY_NOT_SET or not {key, table} & PROJECT_MAY_SET:
        return "a project's file may not set this; put it into your own config.toml"
    present = _value_at(user, key) or _value_at(msgspec.to_builtins(Config()), key)
    if key == "permissions.mode" and MODES.index(value) > MODES.index(present):
        return f'a project\'s file may not loosen the mode ("{value}" after "{present}")'
    if table == "limits" and present and (not value or value > present):
        return "a project's file may only lower your limit"
    if key in {"permissions.ask", "permissions.deny"} and present:
        value.extend(item for item in present if item not in value)
    return ""


def _remove(data: dict[str, Any], key: str) -> None:
    """Take a key out, and the tables that it leaves empty."""
    name, _, rest = key.partition(".")
    if rest:
        _remove(data[name], rest)
        if data[name]:
            return
    del data[name]
