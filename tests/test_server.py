"""The test server itself, driven by the plain SDK: replies, endpoints, scripts, ways to start it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest

from tests.server import KEY, Model, Server, Step, load, serve
from tests.server.client import BASH, CALL, MODEL, MakePair, as_param, fault, result, user
from tests.server.fixtures import StartServer
from tests.server.jsonish import Json
from tests.server.ledger import Ledger
from tests.server.script import step_from

SCRIPTS = Path(__file__).parent / "server" / "scripts"


@pytest.mark.parametrize("way", ["say", "stream"])
async def test_a_reply_arrives_whole_either_way(pair: MakePair, way: str) -> None:
    step = {
        "thinking": "let me see",
        "text": "Grüße, 世界 " * 9,
        "calls": [CALL, {"name": "bash", "input": {"command": "你好\n"}}],
        "chunk": 3,
    }
    both = await pair([step])
    message = await getattr(both.client, way)(user("hi"), tools=[BASH], thinking={"type": "adaptive"})
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert message.content[1].text == step["text"]
    assert message.content[3].input == {"command": "你好\n"}
    assert message.stop_reason == "tool_use"
    assert message.usage.output_tokens > message.usage.output_tokens_details.thinking_tokens > 0
    record = await both.server.settled(1)
    assert (record.outcome, record.verdict, record.step) == ("done", "ok", 0)
    assert record.reply[2]["id"] == message.content[2].id


async def test_request_ids_stand_in_headers_and_errors(pair: MakePair) -> None:
    both = await pair(strict=False)
    response = await both.client.post({"model": MODEL})
    assert response.json()["request_id"] == response.headers["request-id"]
    assert response.json()["type"] == "error"


@pytest.mark.parametrize(
    "stop", ["end_turn", "stop_sequence", "max_tokens", "refusal", "pause_turn", "something_new"]
)
async def test_any_stop_reason_can_be_scripted(pair: MakePair, stop: str) -> None:
    both = await pair([{"text": "so far", "stop_reason": stop}])
    assert (await both.client.stream(user("hi"))).stop_reason == stop


async def test_odd_replies(pair: MakePair) -> None:
    both = await pair([
        {"empty": True},
        {"calls": [CALL], "raw_input": '{"command": "ls'},
        {"blocks": [{"type": "redacted_thinking", "hides": "x"}, {"type": "future", "n": 1}], "text": "a"},
        {"text": "a", "stop_reason": "null"},
        {"text": "a", "usage_output": 777, "usage": {"cache_read_input_tokens": 5}},
    ])  # fmt: skip
    say = both.client.stream
    assert (await say(user("1"))).content == []
    assert (await say(user("2"), tools=[BASH])).content[0].input == {}
    assert [block.type for block in (await say(user("3"))).content] == ["text", "redacted_thinking", "future"]
    assert (await say(user("4"))).stop_reason is None
    usage = (await say(user("5"))).usage
    assert (usage.output_tokens, usage.cache_read_input_tokens) == (777, 5)


async def test_a_reply_is_cut_at_max_tokens_inside_the_tool_input(pair: MakePair) -> None:
    long = {"name": "bash", "input": {"command": "x" * 4000}}
    both = await pair([{"calls": [long]}, {"thinking": "t" * 900}])
    cut = await both.client.stream(user("hi"), tools=[BASH], max_tokens=100)
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 100)
    assert cut.content[0].input == {}
    thought = await both.client.stream(user("hi"), max_tokens=100, thinking={"type": "adaptive"})
    assert thought.stop_reason == "max_tokens"
    assert Ledger().is_genuine(thought.content[0].model_dump())


async def test_models_and_counting(pair: MakePair) -> None:
    both = await pair(models=[Model("own", window=1234, max_output=99), {"id": "json", "window": 5}])
    sdk: Any = both.client.sdk
    own = await sdk.models.retrieve("own")
    assert (own.max_input_tokens, own.max_tokens) == (1234, 99)
    assert own.capabilities
    assert own.capabilities.thinking.types.enabled.supported
    assert not own.capabilities.thinking.types.adaptive.supported
    assert {"own", "json", "claude-opus-4-8"} <= {model.id async for model in sdk.models.list()}
    count = await sdk.messages.count_tokens(model="own", messages=[user("12345678", "123")])
    assert count.input_tokens == 3
    with pytest.raises(anthropic.NotFoundError, match="model: nope"):
        await sdk.models.retrieve("nope")


async def test_what_a_server_lacks_it_refuses(pair: MakePair) -> None:
    both = await pair(["a"], lacks=["count_tokens", "models", "cache", "thinking"], strict=False)
    sdk: Any = both.client.sdk
    with pytest.raises(anthropic.NotFoundError):
        await sdk.models.list()
    with pytest.raises(anthropic.NotFoundError):
        await sdk.messages.count_tokens(model=MODEL, messages=[user("hi")])
    with pytest.raises(anthropic.BadRequestError, match="thinking: Extra inputs are not permitted"):
        await both.client.say(user("hi"), thinking={"type": "adaptive"})
    assert (await both.client.say(user("hi"))).usage.cache_read_input_tokens is None
    with pytest.raises(ValueError, match="nonsense"):
        Server(lacks=["nonsense"])


@pytest.mark.parametrize(
    ("headers", "status", "words"),
    [
        ({}, 401, "x-api-key header is required"),
        ({"x-api-key": "bad"}, 401, "invalid x-api-key"),
        ({"authorization": "Bearer bad"}, 401, "Invalid bearer token"),
        ({"x-api-key": "good"}, 400, "anthropic-version: header is required"),
        ({"authorization": "Bearer good", "anthropic-version": "2023-06-01"}, 404, "model: nope"),
    ],
)
async def test_who_may_ask(pair: MakePair, headers: dict[str, str], status: int, words: str) -> None:
    both = await pair(keys=["good"], strict=False)
    answer = await both.client.http.post("/v1/messages?beta=true", json={"model": "nope"}, headers=headers)
    assert (answer.status_code, answer.json()["error"]["message"]) == (status, words)


async def test_servers_that_insist_on_a_header_or_a_path(pair: MakePair) -> None:
    model = Model("hidden", is_listed=False)
    both = await pair(default="echo", auth="x-api-key", root="/anthropic", models=[model])
    assert both.server.url.endswith("/anthropic")
    with pytest.raises(anthropic.AuthenticationError, match="x-api-key header is required"):
        await both.client.say(user("hi"))
    named: Any = both.client.sdk.with_options(default_headers={"x-api-key": "k"})
    request: Json = {"model": "hidden", "max_tokens": 9, "messages": [user("hi")]}
    assert (await named.messages.create(**request)).content[0].text == "echo: hi"
    assert both.server.requests[-1].status == 200
    with pytest.raises(anthropic.NotFoundError):
        await named.models.retrieve("hidden")
    with pytest.raises(anthropic.NotFoundError):
        await named.with_options(base_url=both.server.url[:-10]).messages.create(**request)


async def test_odd_requests(pair: MakePair) -> None:
    both = await pair(strict=False)
    post = both.client.post
    assert (await post(b"{")).json()["error"]["message"].startswith("The request body is not valid JSON")
    assert "no low surrogate" in (await post(b'{"model":"\\ud83d"}')).json()["error"]["message"]
    assert (await post(b'{"a":NaN}')).status_code == 400
    assert (await post(b"\xff\xfe")).status_code == 400
    assert (await post([])).json()["error"]["message"] == "Input should be an object"
    assert (await post({}, "/v1/other")).json()["error"]["type"] == "not_found_error"
    assert (await both.client.http.get("/v1/messages", headers={"x-api-key": "k"})).status_code == 400


async def test_a_body_over_the_limit(pair: MakePair) -> None:
    both = await pair(["a"], strict=False, max_body=100_000)
    with pytest.raises(anthropic.RequestTooLargeError, match="Request exceeds the maximum size"):
        await both.client.say(user("x" * 100_001))
    assert (await both.client.say(user("hi"))).stop_reason == "end_turn"
    assert Server().backend.max_body == 32 * 1024 * 1024


async def test_steps_by_match_in_sequence_and_by_function(pair: MakePair) -> None:
    both = await pair([
        {"match_re": "sum (of )?it", "text": "matched", "repeat": True},
        {"summary": True, "text": "summary"},
        "first",
        lambda record: f"{record.number} {record.last_text}",
        {"text": "last", "times": 2},
    ])  # fmt: skip
    lines = ("a", "sum it", "b", "<conversation>x</conversation>", "sum of it", "c", "d")
    said = [(await both.client.say(user(line))).content[0].text for line in lines]
    assert said == ["first", "matched", "3 b", "summary", "matched", "last", "last"]
    both.server.check_done()


async def test_a_summary_step_is_not_for_requests_with_tools(pair: MakePair) -> None:
    both = await pair([{"summary": True, "text": "summary"}, "plain"])
    told = user("<conversation>x</conversation>")
    assert (await both.client.say(told, tools=[BASH])).content[0].text == "plain"
    with pytest.raises(AssertionError, match=r"not played: \[1\]"):
        both.server.check_done()


async def test_expectations_and_failing_functions_fail_the_test(pair: MakePair) -> None:
    def check(_record: object) -> str:
        raise AssertionError("no such luck")

    both = await pair([{"expect": ["42"], "text": "a"}, check], strict=False)
    with pytest.raises(anthropic.BadRequestError, match="expects '42'"):
        await both.client.say(user("41"))
    with pytest.raises(anthropic.BadRequestError, match="AssertionError: no such luck"):
        await both.client.say(user("43"))
    assert len(both.server.problems) == 2


@pytest.mark.parametrize(
    "step",
    [
        {"txt": "a"},
        {"fault": {"kind": "nothing"}},
        {"fault": {"kind": "cut", "at": "noon"}},
        {"fault": {"kind": "cut", "when": 1}},
    ],
)
def test_a_wrong_step_is_told_when_it_is_written(step: Json) -> None:
    with pytest.raises(ValueError, match=r"txt|nothing|noon|when"):
        Server([step])


def test_a_server_in_a_thread(start_server: StartServer) -> None:
    server = start_server(["hello", {"text": "x", "fault": fault("stall")}])
    client = anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0, timeout=1)
    request: Json = {"model": MODEL, "max_tokens": 9, "messages": [user("hi")]}
    with client, client.messages.stream(**request) as stream:
        assert stream.get_final_text() == "hello"
    assert server.wait_settled(1).outcome == "done"
    with pytest.raises(TimeoutError, match="waited for request 2, 1 came in"):
        server.wait(2, timeout_s=0.02)


def test_a_server_in_a_thread_checks_when_it_ends() -> None:
    def talk() -> None:
        body = {"model": MODEL, "max_tokens": 9, "messages": [user("hi")]}
        headers = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
        with serve() as server, httpx2.Client(base_url=server.url, verify=False) as client:
            assert client.post("/v1/messages", json=body, headers=headers).status_code == 400

    with pytest.raises(AssertionError, match="no step left"):
        talk()


def test_the_command_prints_how_to_point_a_program_here(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    command = [sys.executable, "-m", "tests.server", str(SCRIPTS / "chat.json"), "--log", str(log)]
    root = Path(__file__).parent.parent
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=root) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().decode().strip() for _ in range(2)]
        env = dict(line.removeprefix("export ").split("=", 1) for line in lines)
        client = anthropic.Anthropic(
            base_url=env["ANTHROPIC_BASE_URL"], api_key=env["ANTHROPIC_API_KEY"], max_retries=0
        )
        request: Json = {"model": MODEL, "max_tokens": 99, "messages": [user("hi")]}
        with client:
            assert client.messages.create(**request).content[0].type == "text"
        process.send_signal(signal.SIGINT)
        _out, err = process.communicate(timeout=5)
    assert process.returncode == 0
    assert b"1 requests" in err
    assert json.loads(log.read_text())["outcome"] == "done"


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.json")), ids=lambda path: path.stem)
def test_the_scripts_that_ship_load(path: Path) -> None:
    steps, options = load(path)
    assert Server(steps, **options).script.unused
    assert all(isinstance(step_from(step), Step) for step in steps if isinstance(step, dict))


async def test_the_task_of_twelve_turns_can_be_done(pair: MakePair, tmp_path: Path) -> None:
    steps, options = load(SCRIPTS / "task.json")
    assert len(steps) == 12
    both = await pair(steps, **options)
    names = ("todo_write", "glob", "grep", "bash", "read_file", "write_file", "edit_file")
    tools = [{**BASH, "name": name} for name in names]
    messages = [user("Write slug.py with a function slug(title), and a test for it.")]
    while True:
        reply = await both.client.stream(*messages, tools=tools, thinking={"type": "adaptive"})
        messages.append(as_param(reply))
        calls = [block for block in reply.content if block.type == "tool_use"]
        if not calls:
            break
        done = [result(block.id, content=await act(block.name, block.input, tmp_path)) for block in calls]
        messages.append(user(*done))
    both.server.check_done()
    assert both.server.prefix_breaks() == []
    assert "split()" in (tmp_path / "slug.py").read_text()


async def act(name: str, given: Json, root: Path) -> str:
    """The tools, as plain as can be."""
    path = root / given.get("file_path", "")
    match name:
        case "write_file":
            path.write_text(given["content"])
        case "edit_file":
            path.write_text(path.read_text().replace(given["old_text"], given["new_text"]))
        case "read_file":
            return str(path.read_text())
        case "glob" | "grep":
            return " ".join(name for name in ("slug.py", "test_slug.py") if (root / name).exists())
        case "bash":
            process = await asyncio.create_subprocess_shell(
                given["command"],
                cwd=root,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            )
            return (await process.communicate())[0].decode()
    return "done"


async def test_a_long_stream_is_quick(pair: MakePair) -> None:
    both = await pair([{"text": "x" * 2000, "chunk": 1}])
    started = time.perf_counter()
    message = await both.client.stream(user("hi"), max_tokens=9999)
    assert len(message.content[0].text) == 2000
    assert time.perf_counter() - started < 10
