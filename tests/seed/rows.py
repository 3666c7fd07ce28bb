"""What the tests of the rows share: both profiles, a plain history, a Compactor with its fake server."""

from pathlib import Path
from typing import Any

from bareagent.config import Compaction as Rules
from bareagent.config import Config
from bareagent.context import Compactor
from bareagent.entries import Said
from bareagent.messages import Message, user
from bareagent.seams import Heard, ModelInfo
from bareagent.store.transcripts import TranscriptManager
from tests.context_play import seed_rules
from tests.fakes import FakeProvider, call, result, results, said

CHINESE_ACKNOWLEDGEMENT = "收到，我已理解之前的上下文，继续工作。"
NO_CACHE = {"exists": False}


def history(n_rounds: int, size: int = 900, tool: str = "bash") -> list[Message]:
    """A line, then rounds of one call whose results have `size` characters; ends with the results."""
    messages: list[Message] = [user("do it")]
    for n in range(n_rounds):
        messages.append(said(call(tool, f"id{n}", command=f"step {n}")).message)
        messages.append(results(result("x" * size, f"id{n}")))
    return messages


def talk(n: int = 3) -> list[Message]:
    """Lines and answers; ends with an answer."""
    messages: list[Message] = []
    for k in range(n):
        messages += [user(f"question {k}"), said(f"answer {k}").message]
    return messages


def manager(path: Path) -> TranscriptManager:
    return TranscriptManager(path, path / "user-data")


class Bench:
    """A Compactor, its provider, and what it said. `profile` is "seed" or "default"."""

    def __init__(self, profile: str = "seed", summary: Any = "the summary", **given: Any) -> None:
        model = given.pop("model", ModelInfo(name="fake", token_factor=1.0))
        place = {key: given.pop(key) for key in ("transcript_mgr", "threshold", "session_id") if key in given}
        config = seed_rules(**given) if profile == "seed" else Config(compaction=Rules(**given))
        self.provider = FakeProvider(model=model, summary=summary)
        self.heard: list[Heard] = []
        self.compactor = Compactor(self.provider, config=config, emit=self.heard.append, **place)

    async def __call__(self, messages: list[Message], force: bool = False) -> list[Message]:
        assert await self.compactor(messages, force=force) is None  # type: ignore[func-returns-value]  # None is the contract
        return messages

    def warnings(self) -> list[str]:
        return [heard.text for heard in self.heard if isinstance(heard, Said) and heard.level == "warning"]
