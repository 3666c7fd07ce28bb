"""The provider: requests sent through the SDK's client, answers streamed back."""

import asyncio
import contextlib
import functools
import importlib
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from bareagent.config import Config
from bareagent.entries import ReplyDropped, ReplyStarted, Retrying, Said
from bareagent.errors import BadRequest, ProviderError, ServerUnreachable, TooLong, UnknownModel
from bareagent.messages import Message
from bareagent.provider import failures, models, retry
from bareagent.provider.adapt import Adapted
from bareagent.provider.client import PREPARED_BY_SDK, call_failures, open_client, sdk
from bareagent.provider.model_cache import ModelCache
from bareagent.provider.presets import Found, Preset
from bareagent.provider.request import Builder, Built, PrefixWatch, build
from bareagent.provider.stream import Assembler, Event, events_of
from bareagent.seams import Emit, ModelInfo, Reply, Request

ASK_TIMEOUT_S = 5.0
N_PAUSED_KEPT = 8
PAUSE_EACH_S = 0.005
DRAIN_S = 0.1  # an end that is on its way comes within a packet of the last event


class ClaudeProvider:
    """A server that speaks the Messages API.

    `preset` says where it is and how it wants its key, `found` has the key. Nothing is imported or
    connected before the first call.
    """

    def __init__(self, preset: Preset, found: Found, model: ModelInfo, config: Config) -> None:
        self.name = preset.name
        self._preset = preset
        self._found = found
        self._model = model
        self._config = config
        self._client: Any = None
        self._http: Any = None
        self._client_lock = asyncio.Lock()
        self._cache = ModelCache(preset.base_url or preset.kind)
        self._watch = PrefixWatch()
        self._builder = Builder()
        self._n_mended = 0
        self._adapted = Adapted()
        self._paused: list[Message] = []
        self._said_unknown: set[str] = set()
        self._has_sent = False

    def __repr__(self) -> str:
        """Leave the key out."""
        return f"ClaudeProvider({self.name!r}, {self.base_url!r}, {self._model.name!r})"

    @property
    def model(self) -> ModelInfo:
        """The model in use, with what was learned of it."""
        return self._adapted.to(self._model)

    @property
    def base_url(self) -> str:
        """Where the server is."""
        return self._preset.base_url

    async def reply(self, request: Request, on_event: Emit, /) -> Reply:
        """Send a request until it is answered or the retries are used up.

        Raises: InvalidRequest before anything is sent, else a leaf of ProviderError.
        """
        model = await self._model_of(request)
        self._say_unknown(model, on_event)
        attempt, without = 1, ""
        self._has_sent = True
        while True:
            built = self._build(request, model)
            self._say_mended(built, on_event)
            try:
                reply = await self._attempt(built, model, request, on_event)
            except BadRequest as error:
                learned = self._adapted.learn(str(error), model, request.messages)
                if not learned:
                    raise
                without = f"the server refuses {learned}"
                on_event(Said(text=f"{self.name} refuses {learned}: left out from here on.", level="warning"))
            except TooLong as error:
                self._learn_window(error, model, on_event)
                raise
            except ProviderError as error:
                attempt = await self._pause(error, attempt, on_event)
            else:
                return self._kept(reply, built, request, without)

    async def select(self, name: str, /) -> ModelInfo:
        """Use another model from here on. Raises: UnknownModel."""
        self._model = await self.facts(name)
        return self.model

    async def facts(self, name: str, /) -> ModelInfo:
        """Return what is known of a model, asking the server where the table does not say.

        Raises: UnknownModel where the server says that it has none of this name.
        """
        said = self._cache.get(name)
        info = models.look_up(name, self._config.models, said)
        if not info.is_known and said is None and self._preset.kind == "http":
            said = await self._ask_for(name)
            self._cache.add(name, said)
            info = models.look_up(name, self._config.models, said)
        if name == self._model.name:
            self._model = msgspec.structs.replace(info, is_demo=self._model.is_demo)
        return self._adapted.to(info)

    async def list_models(self) -> list[str]:
        """Return the names of the server's models; those of the built-in table where it tells none."""
        try:
            return list(await self._listed()) or models.names()
        except ProviderError:
            return models.names()

    async def first_model(self) -> str:
        """Return the first of the server's models; of the table, where it answers but lists none of its own.

        Raises: ServerUnreachable where nobody answers, or where the server says that it has no model.
        """
        try:
            listed = await self._listed()
        except ProviderError as error:
            if isinstance(error, ServerUnreachable) and not error.status:
                raise
            return models.names()[0]
        if not listed:
            raise ServerUnreachable(
                f"{self.base_url} has no model.", "Get one there, or name one with --model."
            )
        return next(iter(listed))

    async def refresh(self) -> Mapping[str, Mapping[str, Any]]:
        """Ask the server, once a day, what it says of its models, and return that; a failure changes nothing.

        What it says of the model in use holds from here on, but not within a conversation that has
        begun: another form of thinking would break its cached prefix.
        """
        if not self._cache.is_fresh() and self._preset.kind == "http":
            try:
                await self._listed()
            except ProviderError:
                return {}
        said = self._cache.get(self._model.name)
        if said and not self._has_sent:
            self._model = models.look_up(self._model.name, self._config.models, said)
        return self._cache.all()

    async def _listed(self) -> dict[str, dict[str, Any]]:
        """Ask for the list of models and keep it. Raises: ProviderError."""
        listed = {
            str(item["id"]): models.fields_of(item) for item in await self._all_models() if item.get("id")
        }
        if listed:
            self._cache.put(listed)
        return listed

    async def count_tokens(self, request: Request) -> int | None:
        """Return the server's own count of a request's tokens, None where it cannot count."""
        if not self.model.capabilities.count_tokens or self._preset.kind != "http":
            return None
        fields = json.loads(self._build(request, await self._model_of(request)).body)
        del fields["stream"], fields["max_tokens"]
        try:
            answer = await self._json("POST", "/v1/messages/count_tokens", msgspec.json.encode(fields))
        except ProviderError as error:
            self._adapted.counts_tokens = error.status not in {404, 405, 501}
            return None
        count = answer.get("input_tokens")
        return count if isinstance(count, int) else None

    async def check(self) -> None:
        """Try the key and the model with the smallest of calls. Raises: ProviderError."""
        line: Message = {"role": "user", "content": [{"type": "text", "text": "Say ok."}]}
        tiny = Request(messages=[line], max_tokens=16, purpose="summary")
        await self.reply(tiny, lambda _heard: None)

    async def aclose(self) -> None:
        """Close all connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def connect_by(self, http_client: Any) -> None:
        """Send through an `httpx2.AsyncClient` of the caller's own, from the next call on."""
        self._http = http_client
        self._client = None

    def _build(self, request: Request, model: ModelInfo) -> Built:
        if request.messages and request.messages[-1] in self._paused:
            request = msgspec.structs.replace(request, is_paused=True)
        n = self._adapted.n_without_thinking(request.messages)
        made = self._builder.build if request.purpose == "turn" else build
        return made(request, self._adapted.to(model), self._config.thinking, n_without_thinking=n)

    async def _model_of(self, request: Request) -> ModelInfo:
        if request.model and request.model != self._model.name:
            return await self.facts(request.model)
        if not self._model.is_known:
            await self.facts(self._model.name)
        return self._model

    def _say_unknown(self, model: ModelInfo, on_event: Emit) -> None:
        """Say once of a model that its numbers are guesses, and where to set them."""
        if model.is_known or model.name in self._said_unknown:
            return
        self._said_unknown.add(model.name)
        window = f"its window counts as {model.window:,} tokens"
        where = f'set [models."{model.name}"] window in your settings if it has another'
        on_event(
            Said(text=f"Nothing is known of {model.name}: {window}, its price as none; {where}.", level="dim")
        )

    def _learn_window(self, refused: TooLong, model: ModelInfo, on_event: Emit) -> None:
        """Count with the window that a refusal names from here on, where it is smaller; say so once."""
        before = self._adapted.to(model).window
        if self._adapted.learn_window(refused.window, model):
            where = f'[models."{model.name}"] window in your settings keeps it'
            text = f"The window of {model.name} is {refused.window:,} tokens here, not {before:,}; {where}."
            on_event(Said(text=text, level="warning"))

    def _say_mended(self, built: Built, on_event: Emit) -> None:
        """Say of calls and results that did not fit together how many there are, when more were found."""
        if built.n_mended <= self._n_mended:
            return
        self._n_mended = built.n_mended
        text = (
            f"{built.n_mended} calls or results of this conversation did not fit together: the model is told."
        )
        on_event(Said(text=text, level="warning"))

    def _kept(self, reply: Reply, built: Built, request: Request, without: str) -> Reply:
        if request.purpose == "turn":
            reply.prefix_break = self._watch.check(built, request.conversation)
            reply.epoch = without if reply.prefix_break else ""
        if reply.stop_reason == "pause_turn":
            self._paused = [*self._paused, reply.message][-N_PAUSED_KEPT:]
        return reply

    async def _pause(self, error: ProviderError, attempt: int, on_event: Emit) -> int:
        pause = retry.after(error, attempt, self._config.retry)
        if pause is None:
            raise error
        on_event(
            Retrying(
                reason=str(error),
                attempt=pause.attempt,
                max_attempts=pause.max_attempts,
                delay_s=pause.delay_s,
            )
        )
        await asyncio.sleep(pause.delay_s)
        return pause.attempt

    async def _attempt(self, built: Built, model: ModelInfo, request: Request, on_event: Emit) -> Reply:
        on_event(ReplyStarted(purpose=request.purpose, model=model.name))
        began = time.monotonic()
        assembler = Assembler()
        try:
            async with contextlib.aclosing(self._events(built, assembler)) as events:
                await self._follow(events, assembler, on_event, model.name)
            return _reply(assembler, built, model, time.monotonic() - began)
        except call_failures() as error:
            ours = failures.explain(error, self._aim(model.name), has_begun=assembler.has_begun)
            if assembler.has_shown:
                on_event(ReplyDropped(reason=str(ours)))
            raise ours from None if ours is error else error

    async def _follow(
        self, events: AsyncIterator[Event], assembler: Assembler, on_event: Emit, model: str
    ) -> None:
        paused = time.monotonic()
        async for event in events:
            if event.get("type") == "error":
                raise failures.of_event(event, self._aim(model))
            delta = assembler.feed(event)
            if delta is not None:
                on_event(delta)
            if assembler.is_done:
                await _drain(events)
                return
            if time.monotonic() - paused > PAUSE_EACH_S:
                await asyncio.sleep(0)  # hundreds of events may lie in one packet, and keys wait behind it
                paused = time.monotonic()

    async def _events(self, built: Built, assembler: Assembler) -> AsyncGenerator[Event, None]:
        client = await self._connected()
        if self._preset.kind in PREPARED_BY_SDK:
            async with await client.messages.create(**json.loads(built.body)) as stream:
                assembler.request_id = stream.response.headers.get("request-id", "")
                async for event in stream:
                    yield event.to_dict(mode="json")
            return
        response = await self._post(client, built.body)
        assembler.request_id = response.headers.get("request-id", "")
        try:
            async for event in _decoded(response, self._aim(str(built.head["model"]))):
                yield event
        finally:
            await response.aclose()

    async def _post(self, client: Any, body: bytes) -> Any:
        module, httpx2 = sdk(), importlib.import_module("httpx2")
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        return await client.post(
            "/v1/messages",
            cast_to=httpx2.Response,
            content=body,
            options={"headers": headers, "timeout": client.timeout},  # unset, the SDK tells "NOT_GIVEN"
            stream=True,
            stream_cls=module.AsyncStream[Any],
        )

    async def _connected(self) -> Any:
        async with self._client_lock:
            if self._client is None:
                await asyncio.to_thread(sdk)
                self._client = self._opened()
            return self._client

    def _opened(self) -> Any:
        if self._preset.kind not in PREPARED_BY_SDK and not self._found.key and not self._preset.is_open:
            raise failures.no_key(self._aim(self._model.name))
        return open_client(self._preset, self._found, self._config.retry.stream_idle_s, self._http)

    async def _json(
        self, method: str, path: str, body: bytes | None = None, model: str = ""
    ) -> dict[str, Any]:
        """Ask for one JSON object; `model` is the one asked about. Raises: ProviderError; nothing is tried twice."""
        httpx2 = importlib.import_module("httpx2")
        try:
            client = await self._connected()
            options = {"timeout": ASK_TIMEOUT_S, "headers": {"content-type": "application/json"}}
            ask = client.get if method == "GET" else functools.partial(client.post, content=body)
            response = await ask(path, cast_to=httpx2.Response, options=options)
            value = json.loads(response.content)
        except call_failures() as error:
            raise failures.explain(error, self._aim(model or self._model.name)) from error
        return value if isinstance(value, dict) else {}

    async def _all_models(self) -> list[dict[str, Any]]:
        answer = await self._json("GET", "/v1/models?limit=1000")
        listed = answer.get("data")
        return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []

    async def _ask_for(self, name: str) -> dict[str, Any]:
        try:
            said = await self._json("GET", f"/v1/models/{quote(name, safe='')}", model=name)
            return models.fields_of(said)
        except UnknownModel:
            if self.name == "anthropic":
                raise
        except ProviderError as error:
            if error.status not in {404, 405}:
                return {}
        return await self._find_in_list(name)

    async def _find_in_list(self, name: str) -> dict[str, Any]:
        """Other servers list their models only; one that has a single model takes any name for it."""
        try:
            listed = await self._all_models()
        except ProviderError:
            return {}
        named = [item for item in listed if str(item.get("id", "")).startswith(name)]
        chosen = named or (listed if len(listed) == 1 else [])
        return models.fields_of(chosen[0]) if chosen else {}

    def _aim(self, model: str) -> failures.Aim:
        where = self._found.where or next(iter(self._preset.key_envs), "")
        return failures.Aim(self.name, self._preset.base_url or self.name, model, where, self._found.key)


async def _decoded(response: Any, aim: failures.Aim) -> AsyncIterator[Event]:
    """Give the events of an answer, whatever its content type claims."""
    kind = response.headers.get("content-type", "")
    if "html" in kind:
        raise failures.wrong_address(f"{aim.base_url} answered with a web page")
    if "json" in kind and "stream" not in kind:
        for event in _of_whole(json.loads(await response.aread()), aim):
            yield event
        return
    async for sent in sdk().AsyncStream.raw_events(response):
        if not sent.data or sent.data == "[DONE]":
            continue
        event = json.loads(sent.data)
        if not isinstance(event, dict):
            raise failures.garbled("an event is no object")
        yield event


async def _drain(events: AsyncIterator[Event]) -> None:
    """Read to the end of the body, so that its connection serves the next call too; not every server ends it."""
    with contextlib.suppress(TimeoutError, *call_failures()):
        async with asyncio.timeout(DRAIN_S):
            async for _ in events:
                pass


def _of_whole(answer: Any, aim: failures.Aim) -> list[Event]:
    if isinstance(answer, dict) and answer.get("type") == "message":
        return events_of(answer)
    if isinstance(answer, dict) and "error" in answer:
        return [{"type": "error", "error": answer["error"]}]
    raise failures.wrong_address(f"{aim.base_url} answered with something else than a message")


def _reply(assembler: Assembler, built: Built, model: ModelInfo, duration_s: float) -> Reply:
    whole = assembler.whole()
    if whole is None:
        raise failures.cut()
    return Reply(
        message=whole.message,
        stop_reason=whole.stop_reason,
        stop_details=whole.stop_details,
        usage=whole.usage,
        model=whole.model or model.name,
        request_id=assembler.request_id,
        sent=built.sent,
        broken=whole.broken,
        has_cache_fields=whole.has_cache_fields,
        cost_usd=model.price.cost(whole.usage),
        duration_s=duration_s,
    )
