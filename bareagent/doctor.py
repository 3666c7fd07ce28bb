"""`bareagent doctor`: what is here, what is missing, and what to do. It looks, and changes nothing.

Each check takes what it looks at and gives a `Check`; `examine` runs them all, `run` prints them.
"""

import asyncio
import importlib.metadata
import importlib.util
import json
import os
import platform as host
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from bareagent import __version__, folders, platform
from bareagent.config_load import Loaded
from bareagent.errors import BareAgentError, ServerUnreachable
from bareagent.provider import addressed, failures, local, make_provider
from bareagent.provider.presets import Preset, find_key, setup_command
from bareagent.sanitize import clean

PROBE_S = 0.5
PING_S = 20.0
MAX_PROBE_BYTES = 1 << 20
LIBRARIES = ("anthropic", "prompt_toolkit", "rich", "msgspec", "xllamacpp")
LOCAL_SERVERS = {
    "ollama": ("Ollama", 11434),
    "lmstudio": ("LM Studio", 1234),
    "llamacpp": ("llama-server", 8080),
    "vllm": ("vLLM", 8000),
}
LOCAL = "local"
NO_KEY = "set ANTHROPIC_API_KEY, or run `bareagent setup`, or name a provider in your config.toml"

Ping = Callable[[], Awaitable[None]]
"""One smallest call to the provider. Raises: ProviderError."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked at and found; `fix` says what to do. One that `is_optional` fails no doctor."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    is_optional: bool = False


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked at: the settings as loaded, the environment, where the program stands.

    `fault` says why the settings could not be read; `loaded` then holds the defaults.
    """

    loaded: Loaded
    env: Mapping[str, str]
    cwd: Path
    sessions: Path
    provider: str = ""
    model: str = ""
    fault: str = ""


def run(scene: Scene) -> int:
    """Examine, with one smallest call to the provider where a key is found, print, and return the exit code."""
    checks = asyncio.run(examine(scene, pinger(scene)))
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    for line in lines(checks):
        sys.stdout.write(line.encode(encoding, "replace").decode(encoding) + "\n")
    return exit_code(checks)


def pinger(scene: Scene) -> Ping | None:
    """Return what asks the provider, None where there is none to ask."""
    found = key(scene)
    if not found.ok or LOCAL in {scene.provider, scene.loaded.config.provider.name}:
        return None

    async def ping() -> None:
        await _knock(scene)
        provider = await make_provider(scene.loaded.config, scene.env, name=scene.provider, model=scene.model)
        try:
            await provider.check()
        finally:
            await provider.aclose()

    return ping


async def _knock(scene: Scene) -> None:
    """Tell at once of a server on this machine that is not running: a call would be tried again and again.

    Raises: ServerUnreachable.
    """
    config = scene.loaded.config
    preset = addressed(find_key(config, scene.env, scene.provider).provider, config, scene.env)
    try:
        address = urlsplit(preset.base_url)
        port = address.port or (443 if address.scheme == "https" else 80)
    except ValueError:
        return
    if not failures.is_loopback(address.hostname or ""):
        return
    try:
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(address.hostname, port)
        writer.close()
    except TimeoutError:
        return
    except OSError as error:
        said = f"nothing answers at {preset.base_url}: is {preset.name} running?"
        raise ServerUnreachable(said, "start it, or correct its address") from error


async def examine(scene: Scene, ping: Ping | None = None) -> list[Check]:
    """Run every check and return them in the order they are shown."""
    # One after the other: loading the SDK would eat up the short time that the probes have.
    servers = await local_servers(LOCAL_SERVERS)
    reached = await server(ping)
    return [
        versions(),
        settings(scene.loaded, scene.cwd, scene.fault),
        key(scene),
        *reached,
        local_model(),
        *servers,
        *(folder(name, path) for name, path in _folders(scene.sessions)),
        lock(scene.sessions),
        *writers(scene.sessions),
        terminal(scene.env),
        *programs(),
    ]


def lines(checks: Sequence[Check]) -> Iterator[str]:
    """Yield the report, clean for a terminal: a line a check, and one below it for what to do."""
    width = max((len(check.name) for check in checks), default=0)
    for check in checks:
        mark = "ok" if check.ok else "--" if check.is_optional else "!!"
        yield clean(f"{mark}  {check.name:{width}}  {check.detail}").replace("\n", " ")
        if check.fix and not check.ok:
            yield clean(f"    {'':{width}}  → {check.fix}").replace("\n", " ")


def exit_code(checks: Sequence[Check]) -> int:
    """Return 0 where everything that is needed is here, else 1."""
    return int(any(not check.ok and not check.is_optional for check in checks))


def versions() -> Check:
    """Tell the versions of the program, Python, the system and the libraries."""
    python = f"Python {host.python_version()} ({sys.executable})"
    parts = [f"bareagent {__version__}", python, f"{host.system()} {host.release()} {host.machine()}"]
    parts += [f"{name} {found}" for name in LIBRARIES if (found := _version_of(name))]
    return Check(name="versions", ok=True, detail=" · ".join(parts))


def _version_of(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def settings(loaded: Loaded, cwd: Path, fault: str = "") -> Check:
    """Tell which sources of settings were read, and what of a project's file was refused."""
    if fault:
        return Check(name="settings", ok=False, detail=fault, fix="mend it; below, the defaults are checked")
    detail = f"read: {', '.join(loaded.sources) or 'nothing, all defaults'}"
    if (cwd / "config.toml").is_file():
        detail += f"; {cwd / 'config.toml'} is not read"
    if loaded.refused:
        detail += f"; refused: {'; '.join(loaded.refused)}"
    return Check(
        name="settings",
        ok=not loaded.refused,
        detail=detail,
        fix="take the refused keys out of the project's file",
        is_optional=True,
    )


def key(scene: Scene) -> Check:
    """Tell which provider is used and where its key was found; the key itself is never shown."""
    try:
        found = find_key(scene.loaded.config, scene.env, scene.provider)
    except BareAgentError as error:
        return Check(name="key", ok=False, detail=str(error), fix=error.hint)
    if not found.provider:
        return Check(name="key", ok=False, detail="no provider and no key", fix=NO_KEY, is_optional=True)
    if found.key and not found.key.isprintable():
        return Check(
            name="key", ok=False, detail=f"{found.where} holds more than a key", fix="copy the key again"
        )
    if found.where:
        return Check(name="key", ok=True, detail=f"{found.provider}: from {found.where}")
    preset = addressed(found.provider, scene.loaded.config, scene.env)
    missing = f"{found.provider}: none" + (", and none needed" if preset.is_open else " found")
    return Check(name="key", ok=preset.is_open, detail=missing, fix=_get_key(preset))


def _get_key(preset: Preset) -> str:
    variables = " or ".join(preset.key_envs) or "its environment variable"
    return f"set {variables}, or run {setup_command(preset.name)}"


async def server(ping: Ping | None) -> list[Check]:
    """Tell whether the configured provider answers a smallest call; nothing where none is configured."""
    if ping is None:
        return []
    try:
        async with asyncio.timeout(PING_S):
            await ping()
    except TimeoutError:
        fix = "look at the network, the proxy and the provider's status page"
        return [Check(name="server", ok=False, detail=f"no answer within {PING_S:.0f} s", fix=fix)]
    except BareAgentError as error:
        return [Check(name="server", ok=False, detail=str(error), fix=error.hint)]
    return [Check(name="server", ok=True, detail="answers, and takes the key and the model")]


def local_model() -> Check:
    """Tell whether the embedded model can run."""
    if importlib.util.find_spec("xllamacpp") is None:
        return Check(
            name="local model",
            ok=False,
            detail="its runtime is not installed",
            fix=local.GET_RUNTIME,
            is_optional=True,
        )
    weights = local.find_demo_weights()
    if weights is None:
        return Check(
            name="local model",
            ok=False,
            detail="the demonstration weights are not here",
            fix=local.GET_DEMO,
            is_optional=True,
        )
    return Check(name="local model", ok=True, detail=f"demonstration weights: {weights}")


async def local_servers(known: Mapping[str, tuple[str, int]]) -> list[Check]:
    """Look for model servers on the loopback; `known` maps a provider's name to a title and a port."""
    rows = list(known.items())
    answers = await asyncio.gather(*(_models_at(port) for _, (_, port) in rows))
    return [
        Check(
            name="local server",
            ok=True,
            detail=f"{title} at 127.0.0.1:{port}: {_some(models)}; use it: --provider {name}",
        )
        for (name, (title, port)), models in zip(rows, answers, strict=True)
        if models is not None
    ]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return (", ".join(names[:5]) + more) or "no models"


async def _models_at(port: int) -> list[str] | None:
    """Return the names a server on the loopback lists, None where no model server answers in time."""
    try:
        async with asyncio.timeout(PROBE_S):
            answer = await _fetch(port, "/v1/models")
        head, _, body = answer.partition(b"\r\n\r\n")
        if head.split(maxsplit=2)[1] != b"200":
            return None
        return [str(model["id"]) for model in json.loads(body)["data"]]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


async def _fetch(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        # 1.0, so that the answer comes whole and ends with the connection.
        writer.write(
            f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nAccept: application/json\r\n\r\n".encode()
        )
        answer = b""
        while len(answer) < MAX_PROBE_BYTES and (chunk := await reader.read(1 << 16)):
            answer += chunk
        return answer
    finally:
        writer.close()


def _folders(sessions: Path) -> Iterator[tuple[str, Path]]:
    yield "settings folder", folders.config_folder()
    yield "data folder", folders.data_folder()
    yield "cache folder", folders.cache_folder()
    yield "log folder", folders.log_folder()
    yield "sessions", sessions


def folder(name: str, path: Path) -> Check:
    """Tell whether a folder can be written, or made where it is not there yet."""
    there = _nearest(path)
    can_write = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    detail = str(path) if there == path else f"{path} (not made yet)"
    if can_write:
        return Check(name=name, ok=True, detail=detail)
    why = "cannot be written" if there.is_dir() else "is no folder"
    return Check(
        name=name, ok=False, detail=f"{detail}: {there} {why}", fix=f"give yourself the right: {there}"
    )


def _nearest(path: Path) -> Path:
    """The path, or the nearest of its parents that is there."""
    return next((place for place in (path, *path.parents) if place.exists()), path)


def lock(sessions: Path) -> Check:
    """Try whether the disk of the sessions keeps two programs from writing one session."""
    if not platform.can_lock():
        return Check(
            name="lock",
            ok=False,
            detail="this system has no file locks",
            fix="open a session in one program at a time",
            is_optional=True,
        )
    try:
        with (
            tempfile.NamedTemporaryFile(dir=_nearest(sessions)) as first,
            Path(first.name).open("rb") as second,
        ):
            holds = platform.try_lock(first) and not platform.try_lock(second)
    except OSError as error:
        return Check(name="lock", ok=False, detail=f"cannot be tried: {error.strerror}", is_optional=True)
    return Check(
        name="lock",
        ok=holds,
        detail="works on this disk" if holds else "this disk does not keep locks",
        fix='put the sessions elsewhere: [session] dir = "user"',
    )


def writers(sessions: Path) -> Iterator[Check]:
    """Yield a line for each session that a program holds open for writing."""
    for log in sorted(sessions.glob("*/log.jsonl")):
        try:
            with log.open("rb") as file:
                is_held = not platform.try_lock(file)
            who = (
                (log.parent / "lock").read_text(encoding="utf-8", errors="replace").strip() if is_held else ""
            )
        except OSError:
            continue
        if is_held:
            yield Check(
                name="open session", ok=True, detail=f"{log.parent.name}: {who or 'by another program'}"
            )


def terminal(env: Mapping[str, str]) -> Check:
    """Tell what the terminal can do; a pipe is no fault."""
    size = shutil.get_terminal_size()
    encoding = (getattr(sys.stdout, "encoding", None) or "none").lower()
    is_screen = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    kind = env.get("TERM", "") or "TERM is not set"
    detail = f"{kind}, {size.columns}×{size.lines}, {encoding}{'' if is_screen else ', not a terminal'}"
    fix = ""
    if encoding.replace("-", "") != "utf8":
        fix = "set a UTF-8 locale (LANG=C.UTF-8)"
    elif is_screen and kind in {"dumb", "TERM is not set"}:
        fix = "set TERM (xterm-256color), or use [ui] plain = true"
    return Check(name="terminal", ok=not fix, detail=detail, fix=fix, is_optional=True)


def programs() -> Iterator[Check]:
    """Yield a line for each program that is used where it is found."""
    wanted = {
        "bash": "commands run in /bin/sh instead; install bash",
        "git": "install git: a project's root and its changes are found by it",
        "rg": "searches are slower without it: install ripgrep, or the extra: bareagent[fast]",
    }
    for name, fix in wanted.items():
        found = shutil.which(name) or _beside_python(name)
        yield Check(name=name, ok=bool(found), detail=found or "not found", fix=fix, is_optional=True)


def _beside_python(name: str) -> str:
    """A program that an extra put into the program's own environment, which need not be on PATH."""
    path = Path(sys.executable).parent / name
    return str(path) if path.is_file() else ""
