"""What a screen heard, and a provider for tests that speaks to the test server."""

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from bareagent.config import Config, Retry
from bareagent.entries import AnyDelta, InputDelta, ReplyDropped, TextDelta, ThinkingDelta
from bareagent.provider import ClaudeProvider, make_provider
from bareagent.seams import Heard

T = TypeVar("T")


class Ear:
    """Keeps all deltas; `shown` is what stands on a screen that takes back what it is told to."""

    def __init__(self) -> None:
        self.all: list[AnyDelta] = []
        self._more = asyncio.Event()

    async def hears(self, kind: type[T]) -> T:
        """Wait for the first delta of a kind."""
        while not self.of(kind):
            self._more.clear()
            await self._more.wait()
        return self.of(kind)[0]

    def __call__(self, heard: Heard, /) -> None:
        self._more.set()
        self.all.append(heard)  # type: ignore[arg-type]  # a provider sends deltas only

    def of(self, kind: type[T]) -> list[T]:
        return [delta for delta in self.all if isinstance(delta, kind)]

    @property
    def shown(self) -> str:
        text = ""
        for delta in self.all:
            if isinstance(delta, ReplyDropped):
                text = ""
            elif isinstance(delta, TextDelta | ThinkingDelta):
                text += delta.text
            elif isinstance(delta, InputDelta):
                text += delta.name + delta.partial_json
        return text


QUICK = Retry(base_s=0.001, max_attempts=3, stream_idle_s=5.0)


def config(**tables: Any) -> Config:
    return msgspec.convert({"retry": msgspec.to_builtins(QUICK), **tables}, Config)


async def provider_for(
    env: Mapping[str, str], settings: Config | None = None, *, name: str = "", model: str = "test-model"
) -> ClaudeProvider:
    return await make_provider(settings or config(), env, name=name, model=model)
