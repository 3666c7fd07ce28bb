"""`bareagent doctor`, `paths`, `models` and `setup`: what they need of the composition."""

import asyncio
import getpass
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bareagent import doctor, folders
from bareagent.compose import Setting, settings, working_directory
from bareagent.config import ModelEntry
from bareagent.config_load import load
from bareagent.errors import ConfigError, ProviderError, UsageError
from bareagent.options import Options
from bareagent.provider import keys, make_provider, models, resolve
from bareagent.seams import ModelInfo, Price
from bareagent.store.places import project_root, sessions_folder


def run_doctor(options: Options) -> int:
    """Print what was checked and return the exit code."""
    setting, fault = _settings_or_defaults(options)
    scene = doctor.Scene(
        fault=fault,
        loaded=setting.loaded,
        env=os.environ,
        cwd=setting.cwd,
        sessions=_sessions(setting),
        provider=options.provider,
        model=options.model,
    )
    return doctor.run(scene)


def _settings_or_defaults(options: Options) -> tuple[Setting, str]:
    """Return the settings, or the defaults and why there are none: a doctor looks at broken ones too."""
    try:
        return settings(options), ""
    except ConfigError as error:
        cwd = working_directory()
        return Setting(cwd=cwd, root=project_root(cwd), loaded=load(None, None, {})), str(error)


def _sessions(setting: Setting) -> Path:
    return sessions_folder(setting.root, folders.data_folder(), setting.config.session.dir)


def list_paths(options: Options) -> Iterator[tuple[str, str]]:
    """Yield every folder and file the program uses, with its purpose."""
    setting = settings(options)
    yield "settings", str(folders.config_folder() / "config.toml")
    yield "keys", str(keys.path())
    yield "project", str(setting.root / ".bareagent" / "config.toml")
    yield "sessions", str(_sessions(setting))
    yield "data", str(folders.data_folder())
    yield "cache", str(folders.cache_folder())
    yield "logs", str(folders.log_folder())


def list_models(options: Options) -> Iterator[str]:
    """Yield a line a model: name, window and prices in dollars per million tokens.

    What the server says of its models stands above the table; where it cannot be asked, the table is all.
    """
    setting = settings(options)
    config = setting.config
    served = asyncio.run(_served(setting, options))
    names = [*sorted(served), *sorted({*models.names(), *config.models} - served.keys())]
    width = max(map(len, names)) + 2
    if served:
        yield f"* {len(served)} the server has"
    yield f"{'model':{width}}  {'window':>9}  {'output':>7}  dollars per M tokens: in, out, cache read, write"
    for name in names:
        shown = f"* {name}" if name in served else f"  {name}"
        info = models.look_up(name, config.models, served.get(name))
        yield _model_line(info, shown, width, _prices(info.price, config.models.get(name)))


async def _served(setting: Setting, options: Options) -> Mapping[str, Mapping[str, Any]]:
    """Return what the server says of its models, nothing where none is set up or it does not tell."""
    try:
        provider = await make_provider(setting.config, os.environ, name=options.provider, model=options.model)
    except ProviderError:
        return {}
    try:
        return await provider.refresh()
    finally:
        await provider.aclose()


def _prices(price: Price, own: ModelEntry | None) -> str:
    """Return the prices; `-` where none is known: only the user's own entry can say that a model is free."""
    if not (price.input or price.output) and (own is None or own.input is own.output is None):
        return "-"
    return f"{price.input:g}, {price.output:g}, {price.cache_read:g}, {price.cache_write:g}"


def _model_line(info: ModelInfo, name: str, width: int, prices: str) -> str:
    return f"{name:{width}}  {info.window:>9,}  {info.max_output:>7,}  {prices}"


def run_setup(options: Options) -> int:
    """Ask for a key, try it with one call, keep it. Raises: UsageError, ProviderError."""
    if not sys.stdin.isatty():
        raise UsageError("setup asks for a key and needs a terminal.", "or set ANTHROPIC_API_KEY")
    setting = settings(options)
    name = options.provider or "anthropic"
    try:
        key = _asked_key(name)
        _say("Trying the key with one small call …")
        asyncio.run(_try_key(setting, options, name, key))
    except KeyboardInterrupt:
        _say("\nNothing was kept.")
        raise
    _say(f"The key works and is kept in {keys.store(name, key)}.")
    return 0


def _asked_key(name: str) -> str:
    try:
        key = getpass.getpass(f"Key for {name} (not shown): ").strip()
    except EOFError:
        key = ""
    if not key:
        raise UsageError("No key was given.")
    return key


def _say(text: str) -> None:
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding) + "\n")
    sys.stdout.flush()


async def _try_key(setting: Setting, options: Options, name: str, key: str) -> None:
    variables = resolve(name, setting.config).key_envs or ("ANTHROPIC_API_KEY",)
    env = {**os.environ, **dict.fromkeys(variables, key)}
    provider = await make_provider(setting.config, env, name=name, model=options.model)
    try:
        await provider.check()
    finally:
        await provider.aclose()
