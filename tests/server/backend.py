"""From a request to its answer: routes, the check, the bill, the script, the faults."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.server import faults, reply, sse, validate
from tests.server.cache import PromptCache
from tests.server.errors import ApiError
from tests.server.faults import Cut, Fault, Send, Wait
from tests.server.jsonish import Json, canonical, parse
from tests.server.ledger import Ledger
from tests.server.models import Model
from tests.server.record import Record
from tests.server.reply import Reply
from tests.server.script import Script, ScriptError, Step
from tests.server.units import Sizes, total, units
from tests.server.wire import POLL_S, Request, Wire

HEADERS = {
    "anthropic-organization-id": "00000000-0000-4000-8000-000000000000",
    "anthropic-ratelimit-requests-limit": "4000",
    "anthropic-ratelimit-requests-remaining": "3999",
    "anthropic-ratelimit-input-tokens-limit": "2000000",
    "anthropic-ratelimit-input-tokens-remaining": "1999000",
}
CACHE_FIELDS = ("cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation")


@dataclass(slots=True)
class Backend:
    """What stands behind the sockets; one for a server."""

    script: Script
    models: dict[str, Model]
    sizes: Sizes
    ledger: Ledger
    cache: PromptCache
    keys: frozenset[str] | None
    auth: str
    root: str
    lacks: frozenset[str]
    overflow: str
    verify_thinking: bool
    max_body: int
    deafen: Callable[[float], Awaitable[None]]
    problems: list[str] = field(default_factory=list)
    released: set[int] = field(default_factory=set)
    background: set[asyncio.Task[None]] = field(default_factory=set)

    async def answer(self, record: Record, request: Request, wire: Wire) -> None:
        """Answer one request; Raises: ClientLeft."""
        try:
            self._admit(record, request)
            await self._route(record, wire)
        except ScriptError as error:
            self.problems.append(f"request {record.number}: {error}")
            await self._refuse(record, wire, ApiError(400, f"script: {error}"))
        except ApiError as error:
            await self._refuse(record, wire, error)

    # The way in.

    def _admit(self, record: Record, request: Request) -> None:
        if not request.path.startswith(self.root):
            raise ApiError(404, "Not Found")
        self._check_key(record.headers)
        if "anthropic-version" not in record.headers:
            raise ApiError(400, "anthropic-version: header is required", shape=True)
        if request.size > self.max_body:
            raise ApiError(413, "Request exceeds the maximum size")

    def _check_key(self, headers: dict[str, str]) -> None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        bearer = token.strip() if scheme.lower() == "bearer" else ""
        key = (self.auth != "bearer" and headers.get("x-api-key")) or ""
        key = key or (bearer if self.auth != "x-api-key" else "")
        if not key:
            raise ApiError(401, "x-api-key header is required")
        if self.keys is not None and key not in self.keys:
            raise ApiError(401, "Invalid bearer token" if key == bearer else "invalid x-api-key")

    async def _route(self, record: Record, wire: Wire) -> None:
        match (record.method, record.path):
            case ("POST", "/v1/messages"):
                await self._messages(record, wire)
            case ("POST", "/v1/messages/count_tokens") if "count_tokens" not in self.lacks:
                await self._count(record, wire)
            case ("GET", path) if path.startswith("/v1/models") and "models" not in self.lacks:
                await self._models(record, wire)
            case (method, "/v1/messages") if method != "POST":
                raise ApiError(405, "Method Not Allowed", "invalid_request_error")
            case _:
                raise ApiError(404, "Not Found")

    async def _models(self, record: Record, wire: Wire) -> None:
        name = record.path.removeprefix("/v1/models").strip("/")
        if not name:
            infos = [model.info() for model in self.models.values() if model.is_listed]
            ids = {"first_id": infos[0]["id"], "last_id": infos[-1]["id"]} if infos else {}
            await self._json(record, wire, {"data": infos, "has_more": False, **ids})
            return
        if name not in self.models or not self.models[name].is_listed:
            raise ApiError(404, f"model: {name}")
        await self._json(record, wire, self.models[name].info())

    async def _count(self, record: Record, wire: Wire) -> None:
        self._check_body(record, counting=True)
        await self._json(record, wire, {"input_tokens": total(record.units)})

    def _check_body(self, record: Record, *, counting: bool = False) -> Model:
        try:
            value = parse(record.raw)
        except ValueError as error:
            message = f"The request body is not valid JSON: {error}"
            raise ApiError(400, message, shape=True) from error
        if isinstance(value, dict):
            record.body = value
        body, model = validate.model_of(value, self.models)
        rules = validate.Rules(self.ledger, self.lacks, self.verify_thinking)
        validate.check(body, model, rules, counting=counting)
        record.units = units(body, self.sizes)
        return model

    # The messages endpoint.

    async def _messages(self, record: Record, wire: Wire) -> None:
        model = self._check_body(record)
        self._check_window(record, model)
        step = self.script.take(record)
        kinds = faults.INSTEAD if record.body.get("stream") else (*faults.INSTEAD, "error")
        instead = [fault for fault in step.faults if fault.kind in kinds]
        if instead:
            await self._fail(record, wire, instead[0])
            return
        said = reply.build(step, record.number, self.ledger, self.sizes)
        self._limit(said, record, model)
        self._bill(said, record)
        self.ledger.issue(said.content, said.stop_reason)
        await self._say(said, step, record, wire)

    def _check_window(self, record: Record, model: Model) -> None:
        prompt = total(record.units)
        asked = prompt + record.body["max_tokens"]
        if prompt <= model.window and (asked <= model.window or self.overflow == "stop"):
            return
        if prompt <= model.window and self.overflow == "length":
            raise ApiError(
                400,
                f"input length and `max_tokens` exceed context limit: {prompt} + "
                f"{record.body['max_tokens']} > {model.window}, decrease input length or "
                "`max_tokens` and try again",
            )
        size = max(prompt, asked if self.overflow == "refuse" else prompt)
        raise ApiError(400, f"prompt is too long: {size} tokens > {model.window} maximum")

    def _limit(self, said: Reply, record: Record, model: Model) -> None:
        room = model.window - total(record.units)
        reply.shorten(said, record.body["max_tokens"], "max_tokens", self.ledger, self.sizes)
        reply.shorten(said, room, "model_context_window_exceeded", self.ledger, self.sizes)

    def _bill(self, said: Reply, record: Record) -> None:
        usage = self.cache.bill(record.body, record.units).usage()
        if "cache" in self.lacks:
            usage = {"input_tokens": total(record.units)}
        record.usage = {**usage, **said.output_usage()}
        record.reply, record.stop_reason = said.content, said.stop_reason

    async def _say(self, said: Reply, step: Step, record: Record, wire: Wire) -> None:
        is_stream = bool(record.body.get("stream"))
        kind = "text/event-stream; charset=utf-8" if is_stream else "application/json"
        try:
            actions = self._actions(said, step, record)
        except ValueError as error:
            raise ScriptError(f"step {(record.step or 0) + 1}: {error}") from error
        for fault in step.faults:
            if fault.kind == "content_type":
                kind = fault.value or "text/plain"
        early = [fault for fault in step.faults if fault.at == "first_byte"]
        for fault in early:
            await self._before(fault, record, wire)
        if not wire.is_open:
            return
        length = None if is_stream else _length(actions)
        await self._start(record, wire, 200, {"content-type": kind}, length)
        await self._play(actions, record, wire)

    def _actions(self, said: Reply, step: Step, record: Record) -> list[faults.Action]:
        later = [fault for fault in step.faults if fault.at != "first_byte"]
        if not record.body.get("stream"):
            body = {**self._envelope(record), **_outcome(said), "usage": record.usage}
            return faults.plan_plain(canonical(body).encode(), later)
        opening = {name: value for name, value in record.usage.items() if "output" not in name}
        envelope = {**self._envelope(record), "usage": {**opening, "output_tokens": 1}}
        events = sse.events(said, {**envelope, **_nothing()}, step.chunk)
        return faults.plan(events, later, step.delay_s)

    def _envelope(self, record: Record) -> Json:
        name = f"msg_test{record.number:08d}"
        return {"id": name, "type": "message", "role": "assistant", "model": record.body["model"]}

    async def _before(self, fault: Fault, record: Record, wire: Wire) -> None:
        if fault.kind == "stall":
            await self._wait(fault.seconds, record, wire)
        elif fault.kind == "cut":
            await self._cut(fault.how, record, wire)

    # The way out.

    async def _play(self, actions: list[faults.Action], record: Record, wire: Wire) -> None:
        for action in actions:
            match action:
                case Send(data):
                    await wire.send(data)
                case Wait(seconds):
                    await self._wait(seconds, record, wire)
                case Cut("end"):
                    break
                case Cut(how):
                    await self._cut(how, record, wire)
                    return
        await wire.end()
        record.outcome = "done" if not _has_cut(actions) else "cut"

    async def _wait(self, seconds: float | None, record: Record, wire: Wire) -> None:
        if seconds is not None:
            await wire.pause(seconds)
            return
        while record.number not in self.released:
            await wire.pause(POLL_S)

    async def _cut(self, how: str, record: Record, wire: Wire) -> None:
        record.outcome = "cut"
        if how == "reset":
            # What was sent before must arrive: a RST throws away what stands in the buffers.
            await wire.pause(POLL_S)
            wire.reset()
        else:
            await wire.close()

    async def _fail(self, record: Record, wire: Wire, fault: Fault) -> None:
        record.outcome = fault.kind
        match fault.kind:
            case "status" | "error":
                await self._refuse(record, wire, fault.error())
                record.outcome = fault.kind
            case "html":
                body = fault.data or faults.HTML.format(status=fault.status)
                await self._body(record, wire, fault.status, "text/html", body.encode())
            case "empty":
                kind = fault.value or "text/event-stream; charset=utf-8"
                await self._body(record, wire, 200, kind, b"")
            case "close":
                await wire.close()
            case _:
                wire.reset()
        if fault.kind == "refuse":
            task = asyncio.ensure_future(self.deafen(fault.seconds or 0.2))
            self.background.add(task)
            task.add_done_callback(self.background.discard)

    async def _refuse(self, record: Record, wire: Wire, error: ApiError) -> None:
        record.error, record.outcome = error, "refused"
        body = canonical(error.body(record.request_id)).encode()
        headers = {"content-type": "application/json", **error.headers}
        await self._start(record, wire, error.status, headers, len(body))
        await wire.send(body)

    async def _json(self, record: Record, wire: Wire, value: Json) -> None:
        await self._body(record, wire, 200, "application/json", canonical(value).encode())
        record.outcome = "done"

    async def _body(self, record: Record, wire: Wire, status: int, kind: str, body: bytes) -> None:
        await self._start(record, wire, status, {"content-type": kind}, len(body))
        await wire.send(body)

    async def _start(
        self, record: Record, wire: Wire, status: int, headers: dict[str, str], length: int | None
    ) -> None:
        record.status = status
        await wire.start(status, {"request-id": record.request_id, **HEADERS, **headers}, length)


def _outcome(said: Reply) -> Json:
    return {
        "content": said.content,
        "stop_reason": said.stop_reason,
        "stop_sequence": said.stop_sequence,
        "stop_details": said.stop_details,
    }


def _nothing() -> Json:
    return {"content": [], "stop_reason": None, "stop_sequence": None, "stop_details": None}


def _length(actions: list[faults.Action]) -> int:
    return sum(len(action.data) for action in actions if isinstance(action, Send))


def _has_cut(actions: list[faults.Action]) -> bool:
    return any(isinstance(action, Cut) for action in actions)
