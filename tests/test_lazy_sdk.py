"""The SDK in part: the same objects, far fewer modules, and whole where the trick does not work."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def run(code: str, *path: Path) -> Any:
    folders = ":".join(map(str, [*path, ROOT]))
    argv = [sys.executable, "-c", code]
    done = subprocess.run(
        argv, capture_output=True, text=True, env={"PYTHONPATH": folders, "PATH": ""}, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


COUNT = """
import json, sys
{load}
import httpx2
client = anthropic.AsyncAnthropic(api_key="k")
response = httpx2.Response(400, request=httpx2.Request("GET", "http://x"))
error = anthropic.APIStatusError("x", response=response, body={{}})
print(json.dumps(sum(name.startswith("anthropic.") for name in sys.modules)))
"""


def test_less_than_half_of_the_sdk_is_read() -> None:
    whole = run(COUNT.format(load="import anthropic"))
    part = run(COUNT.format(load="from bareagent.provider.lazy_sdk import load\nanthropic = load()"))
    assert whole > 2000
    assert part < whole / 2


def test_every_name_is_there_and_the_same() -> None:
    code = """
import importlib, json
from bareagent.provider.lazy_sdk import LazyPackage, load
anthropic = load()
assert isinstance(anthropic, LazyPackage)
from anthropic import AsyncAnthropic
from anthropic.types import Message
from anthropic.types.message import Message as Same
from anthropic._client import AsyncAnthropic as Client
assert Message is Same and AsyncAnthropic is Client and load() is anthropic
client = AsyncAnthropic(api_key="k")
assert client.messages.create and client.beta.messages.create
missing = [name for name in anthropic.__all__ if not hasattr(anthropic, name)]
try:
    anthropic.no_such_name
except AttributeError:
    missing.append("as it should")
assert anthropic.AsyncAnthropic is AsyncAnthropic
from anthropic import types
assert types.Message is Same
print(json.dumps(missing))
"""
    assert run(code) == ["as it should"]


def test_an_sdk_that_is_written_otherwise_is_loaded_whole(tmp_path: Path) -> None:
    package = tmp_path / "anthropic"
    package.mkdir()
    names = "AsyncAnthropic, AsyncStream, AnthropicError, DefaultAsyncHttpxClient, Omit"
    (package / "__init__.py").write_text(f"FLAG = 5\nfrom .inner import {names}\n")
    (package / "inner.py").write_text(f"import anthropic\n{names} = [anthropic.FLAG] * 5\n")
    code = """
import json, sys
from bareagent.provider.lazy_sdk import LazyFinder, load
sdk = load()
assert not any(isinstance(finder, LazyFinder) for finder in sys.meta_path)
print(json.dumps([type(sdk).__name__, sdk.AsyncAnthropic]))
"""
    assert run(code, tmp_path) == ["module", 5]
