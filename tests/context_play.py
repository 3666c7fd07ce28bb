"""Sessions for the tests of the context engine: rounds of a given size, and what was heard."""

from typing import Any

from bareagent import context
from bareagent.config import SEED_PROFILE, Config, Reminder
from bareagent.config import Compaction as Rules
from bareagent.entries import AnyDelta, AnyEntry, Cleared, Compaction, MessageEntry, Said, Usage
from bareagent.messages import Message, text_of, user
from bareagent.provider.request import build
from bareagent.seams import CacheLife, Capabilities, ModelInfo, Price, Request
from bareagent.session import Session
from tests.fakes import FakeProvider, call, result, results, said

PRICED = ModelInfo(
    name="claude-test",
    token_factor=1.0,
    price=Price(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75),
)
UNCACHED = ModelInfo(
    name="plain-test",
    token_factor=1.0,
    capabilities=Capabilities(cache=False),
    cache_life=CacheLife(seconds=0),
)
CHARS_A_TOKEN = 5
"""Of the made texts: each word of four letters and a space is about a token."""


def words(n_tokens: int, word: str = "word") -> str:
    return f"{word} " * n_tokens


def rules(**given: Any) -> Config:
    return Config(compaction=Rules(**given), reminder=Reminder())


def seed_rules(**given: Any) -> Config:
    """The classic profile, as the settings' files make it."""
    values: dict[str, Any] = {"profile": "seed", **SEED_PROFILE["compaction"], **given}
    return Config(compaction=Rules(**values), reminder=Reminder(rounds=0))


class Play:
    """One session in memory with its provider; replies are appended as the loop does."""

    def __init__(self, config: Config | None = None, provider: FakeProvider | None = None) -> None:
        self.session = Session.in_memory()
        self.provider = provider or FakeProvider(model=PRICED)
        self.config = config or Config()
        self.heard: list[AnyEntry | AnyDelta] = []
        self.n = 0
        self.is_billed = True

    def line(self, text: str) -> None:
        self.session.append(user(text), "line")

    def round(self, *sizes: int, tool: str = "bash", text: str = "") -> None:
        """A reply with one call a size (in tokens), and its results."""
        self.n += 1
        blocks = [call(tool, f"c{self.n}.{k}", command=f"run {self.n}.{k}") for k in range(len(sizes))]
        self.reply(*([text] if text else []), *blocks)
        answers = [result(words(size), block["id"]) for size, block in zip(sizes, blocks, strict=True)]
        self.session.append(results(*answers), "results")

    def reply(self, *blocks: Any, stop: str = "") -> None:
        usage = Usage()
        if self.is_billed:
            usage = Usage(cache_read=1, uncached=self.tokens(), output=20)
        made = said(*blocks, stop=stop, usage=usage)
        self.session.append(made.message, "reply", made)

    def tokens(self) -> int:
        planned = context.planned(self.session, self.provider, [], self.config)
        return round(sum(sized.tokens for sized in planned.view))

    async def prepare(self) -> None:
        await context.prepare(self.session, self.provider, [], self.config, self.heard.append)

    async def compact(self, focus: str = "", **given: Any) -> context.CompactOutcome:
        trigger = given.pop("trigger", "manual")
        return await context.compact_now(
            self.session, self.provider, [], self.config, self.heard.append, trigger, focus, **given
        )

    def request(self) -> Request:
        return context.request(self.session, self.provider, [], self.config)

    def check(self) -> bytes:
        """Hold the next request against the rules of the API; return its bytes."""
        built = build(self.request(), self.provider.model)
        assert built.n_mended == 0
        return built.body

    @property
    def messages(self) -> list[Message]:
        return self.session.messages

    def said(self, level: str = "") -> list[str]:
        return [h.text for h in self.heard if isinstance(h, Said) and level in {"", h.level}]

    def logged(self, kind: type) -> list[Any]:
        return [entry for entry in self.session.entries() if isinstance(entry, kind)]

    def happened(self) -> list[str]:
        """Epochs and reminders in the log's order."""
        names = []
        for entry in self.session.entries():
            match entry:
                case Cleared():
                    names.append("micro")
                case Compaction():
                    names.append("full")
                case MessageEntry() if entry.kind == "reminder":
                    names.append("nag")
                case MessageEntry() if entry.kind == "reply":
                    names.append("reply")
        return names

    def text(self) -> str:
        return "\n".join(text_of(message) for message in self.messages)
