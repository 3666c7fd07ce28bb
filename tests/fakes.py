"""A provider that answers from a script, in this process: for tests of the floors above it."""

import copy
from collections.abc import Callable, Iterable

from bareagent.entries import Usage
from bareagent.messages import Block, Message, text_block
from bareagent.seams import Emit, ModelInfo, Reply, Request

Answer = Reply | Exception | Callable[[Request], Reply]


def said(*blocks: Block | str, stop: str = "", usage: Usage | None = None) -> Reply:
    """Return a reply of these blocks; a string is a text block."""
    content = [text_block(block) if isinstance(block, str) else block for block in blocks]
    has_calls = any(block["type"] == "tool_use" for block in content)
    return Reply(
        message={"role": "assistant", "content": content},
        stop_reason=stop or ("tool_use" if has_calls else "end_turn"),
        usage=usage or Usage(),
        model="fake",
    )


def call(name: str, id: str = "c1", **given: object) -> Block:
    """Return a tool_use block."""
    return {"type": "tool_use", "id": id, "name": name, "input": given}


def result(text: str, id: str = "c1", *, is_error: bool = False) -> Block:
    """Return a tool_result block."""
    block: Block = {"type": "tool_result", "tool_use_id": id, "content": [text_block(text)]}
    return {**block, "is_error": True} if is_error else block


def results(*blocks: Block) -> Message:
    """Return the user message that holds these results."""
    return {"role": "user", "content": list(blocks)}


class FakeProvider:
    """Plays scripted answers in order, `summary` for each summary request without one; keeps all requests."""

    name = "fake"

    def __init__(
        self,
        answers: Iterable[Answer] = (),
        *,
        model: ModelInfo | None = None,
        summary: Answer | str = "A summary.",
    ) -> None:
        self.model = model or ModelInfo(name="fake", token_factor=1.0)
        self.answers = list(answers)
        self.summary = summary
        self.requests: list[Request] = []

    async def reply(self, request: Request, _on_event: Emit, /) -> Reply:
        self.requests.append(copy.deepcopy(request))
        if self.answers:
            answer = self.answers.pop(0)
        else:
            answer = said(self.summary) if isinstance(self.summary, str) else self.summary
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer

    async def select(self, name: str, /) -> ModelInfo:
        self.model = ModelInfo(name=name)
        return self.model

    async def facts(self, name: str, /) -> ModelInfo:
        return ModelInfo(name=name)

    async def aclose(self) -> None:
        """Hold nothing."""
