"""What the settings' structs say about themselves: keys, defaults, comments, the example file."""

import json
import typing
from collections.abc import Iterator
from typing import Any

import msgspec

from bareagent.config import Config, ModelEntry, ProviderEntry, Table

HEAD = (
    "# Copy to your configuration folder as config.toml (`bareagent paths` names the folder).",
    "# A project's own settings go to .bareagent/config.toml in its root; it may set fewer keys.",
    "# Every key with its default; BAREAGENT_<TABLE>_<KEY> sets one by the environment.",
)
NAMED = (
    ("providers.mine", ProviderEntry, "any name of your own"),
    ('models."name"', ModelEntry, "the model's exact name"),
)


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One setting: dotted name, default (or an example where there is none), what it does."""

    name: str
    default: Any
    about: str
    options: tuple[str, ...] = ()


def known_keys() -> list[str]:
    """Return the dotted keys of all settings but those of named tables (providers, models)."""
    return [key.name for key in keys(Config)]


def keys(table: type[Table], prefix: str = "") -> Iterator[Key]:
    """Yield the settings of a table and the tables in it; named tables are left out."""
    for item in msgspec.structs.fields(table):
        name = f"{prefix}{item.encode_name}"
        if _is_table(item.type):
            yield from keys(item.type, f"{name}.")
        elif meta := _meta(item.type):
            default = meta.examples[0] if meta.examples else _default(item)
            yield Key(name=name, default=default, about=meta.description or "", options=_options(item.type))


def example() -> str:
    """Return the text of `config.toml.example`."""
    return "\n".join([*HEAD, *_tables(Config, ""), *_named_tables(), ""])


INTRO = """# Settings

Four layers, each over the one before: your own `config.toml` (`bareagent paths` names its folder), the
project's `.bareagent/config.toml`, environment variables `BAREAGENT_<TABLE>_<KEY>` (the value as in TOML, or
plain text), and flags. Unknown keys and wrong types are errors that name file, line, key and what was expected.

A project's file may set `[compaction]` (but `model`), `[reminder]`, `[ui]`, `tools.max_result_chars`,
`tools.bash.timeout_s`, a tighter `permissions.mode`, more `permissions.ask` and `deny` rules, and lower
`[limits]`. Anything else in it (an address, a key, a command, a looser mode) is refused by name and has no effect.

A `config.toml` in the working directory is not read; the start says so.

`profile = "seed"` sets several keys at once (docs/seeds.md); keys set by hand win over it.
"""


def reference() -> str:
    """Return the text of docs/config.md."""
    parts = [*_sections(Config, "")]
    for name, table, shown in NAMED:
        parts += [f"## [{name}]", f"{_title(table)} ({shown}).", _rows(table)]
    return "\n\n".join([INTRO.strip(), *parts]) + "\n"


def _sections(table: type[Table], name: str) -> Iterator[str]:
    if name and any("." not in key.name for key in keys(table)):
        yield from (f"## [{name}]", f"{_title(table)}.", _rows(table))
    for item in msgspec.structs.fields(table):
        if _is_table(item.type):
            yield from _sections(item.type, f"{name}.{item.encode_name}".lstrip("."))


def _rows(table: type[Table]) -> str:
    rows = ["| key | default | what |", "|---|---|---|"]
    for key in keys(table):
        if "." not in key.name:
            about = key.about.replace("|", "\\|")
            options = f" ({', '.join(key.options)})" if key.options else ""
            rows.append(f"| `{key.name}` | `{_toml(key.default)}` | {about}{options} |")
    return "\n".join(rows)


def _tables(table: type[Table], name: str) -> Iterator[str]:
    own = [key for key in keys(table) if "." not in key.name]
    if own:
        yield from ("", f"# {_title(table)}", f"[{name}]")
        yield from (_line(key) for key in own)
    for item in msgspec.structs.fields(table):
        if _is_table(item.type):
            yield from _tables(item.type, f"{name}.{item.encode_name}".lstrip("."))


def _named_tables() -> Iterator[str]:
    for name, table, shown in NAMED:
        yield from ("", f"# {_title(table)} ({shown})", f"# [{name}]")
        yield from (f"# {_line(key)}" for key in keys(table))


def _title(table: type[Table]) -> str:
    return (table.__doc__ or "").strip().splitlines()[0].rstrip(".")


def _line(key: Key) -> str:
    return f"{key.name} = {_toml(key.default)}  # {key.about}"


def _toml(value: Any) -> str:
    match value:
        case dict():
            return "{}"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _is_table(kind: Any) -> typing.TypeGuard[type[Table]]:
    return isinstance(kind, type) and issubclass(kind, Table)


def _meta(kind: Any) -> msgspec.Meta | None:
    metas = [meta for meta in typing.get_args(kind)[1:] if isinstance(meta, msgspec.Meta)]
    return metas[-1] if metas else None


def _options(kind: Any) -> tuple[str, ...]:
    if typing.get_origin(kind) is typing.Literal:
        return typing.get_args(kind)
    return tuple(option for part in typing.get_args(kind) for option in _options(part))


def _default(item: msgspec.structs.FieldInfo) -> Any:
    if item.default_factory is not msgspec.NODEFAULT:
        return item.default_factory()
    return None if item.default is msgspec.NODEFAULT else item.default
