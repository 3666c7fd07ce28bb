"""One turn of the loop: the model's reply taken into the session, its end judged, its calls answered."""

import asyncio
from typing import Literal

import msgspec

from bareagent import context
from bareagent.calls import Toolbox, answer_calls, not_run
from bareagent.config import Config
from bareagent.context.purse import purse_of
from bareagent.context.room import room_of
from bareagent.entries import (
    AnyDelta,
    AnyEntry,
    Epoch,
    Interrupted,
    ReplyDropped,
    Said,
    TextDelta,
    Usage,
    UsageEntry,
)
from bareagent.errors import BadRequest, LimitReached, TooLong
from bareagent.messages import INTERRUPTED_TEXT, Message, calls, system, text_block, text_of, user
from bareagent.provider.cost import is_explained
from bareagent.provider.request import sent_otherwise
from bareagent.refused_images import let_go
from bareagent.sanitize import counted
from bareagent.seams import Ask, Emit, Provider, Reply, Request
from bareagent.session import Session

MAX_UNRUN = 3
"""Replies in a row whose calls could not run, before the run stops."""

LEAST_OUTPUT_TOKENS = 500
"""An answer counts as at least so long where the money for it is looked at."""

CONTINUE = "Continue."
"""What the model is told where it is to go on; nobody typed it, so a line says why it went out."""

NEVER_RUN = {
    "max_tokens": "the reply was cut at its token limit before this call was whole",
    "model_context_window_exceeded": "the context window was full before this call was whole",
}
KNOWN_ENDS = frozenset({"end_turn", "stop_sequence", "tool_use"})

Reason = Literal["end_turn", "max_turns", "max_cost", "max_tokens", "refusal", "interrupted", "error"]


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended; `text` is the last reply's text, `detail` what a user should know beside it."""

    reason: Reason
    text: str = ""
    detail: str = ""
    turns: int = 0


class Partial:
    """Hears a streaming reply and keeps its text, in case it is interrupted."""

    def __init__(self, emit: Emit) -> None:
        """Pass everything on to `emit`."""
        self._emit = emit
        self._texts: list[str] = []

    def __call__(self, heard: AnyEntry | AnyDelta, /) -> None:
        """Keep the text; forget it when the attempt failed."""
        match heard:
            case TextDelta():
                self._texts.append(heard.text)
            case ReplyDropped():
                self._texts.clear()
        self._emit(heard)

    def message(self) -> Message | None:
        """Return what an interrupted reply leaves: its text and a mark; None if no text had come."""
        text = "".join(self._texts)
        if not text.strip():
            return None
        return {"role": "assistant", "content": [text_block(text), text_block(INTERRUPTED_TEXT)]}


class Run:
    """What one run holds beside the session: counters that say when enough is enough."""

    def __init__(
        self,
        session: Session,
        provider: Provider,
        box: Toolbox,
        config: Config,
        emit: Emit,
        ask: Ask,
    ) -> None:
        """Begin with clean counters."""
        self.session = session
        self.provider = provider
        self.box = box
        self.config = config
        self.emit = emit
        self.ask = ask
        self._n_unrun = 0
        self._has_continued = False
        self._has_been_owed = False
        self._text = ""

    def ended(self, stop: Stop, turns: int) -> Stop:
        """Say what a user should know of the end and return it complete."""
        if stop.reason == "max_turns":
            stop = msgspec.structs.replace(
                stop, detail=f"Stopped after {turns} turns (limits.turns); a new line goes on."
            )
        if stop.detail:
            self.emit(Said(text=stop.detail, level="warning"))
        return msgspec.structs.replace(stop, text=stop.text or self._text, turns=turns)

    def deliver_notices(self) -> None:
        """Append what waits for the model: ended background jobs."""
        notice = self.box.jobs.notices()
        if notice:
            self.session.append(system(notice), "notice")

    async def reply(self) -> Reply:
        """Call the model; a cancelled call leaves its text in the session.

        A request refused as too long is compacted and sent once more (docs/context.md).
        """
        partial = Partial(self.emit)
        try:
            return await self._reply_or_compact(partial)
        except asyncio.CancelledError:
            message = partial.message()
            if message is not None:
                self.session.append(message, "reply")
            self.session.record(Interrupted())
            raise

    async def _reply_or_compact(self, partial: Partial) -> Reply:
        window = self.provider.model.window
        given = self.session, self.provider, self.box.tools, self.config
        try:
            return await self._sent(partial)
        except TooLong as refused:
            # In the window just learned there may be room for a shorter answer.
            has_room = self.provider.model.window < window and context.fits(*given)
            if has_room and refused.size <= refused.window:
                return await self._reply_or_compact(partial)
            outcome = await context.compact_now(*given, self.emit, "overflow")
            if not outcome.fits and (outcome.is_done or not has_room):
                raise
            return await self._sent(partial)

    async def _sent(self, partial: Partial) -> Reply:
        """Send the view; once more without the images that a server refuses."""
        try:
            return await self._sent_once(partial)
        except BadRequest as refused:
            n = let_go(self.session, str(refused))
            if not n:
                raise
            text = f"{counted(n, 'result')} with images cleared, since the server refused: {refused}"
            self.emit(Said(text=text, level="warning"))
            return await self._sent_once(partial)

    async def _sent_once(self, partial: Partial) -> Reply:
        coming = self._afforded()
        with purse_of(self.session).holding(coming):
            return await self.provider.reply(self._request(), partial)

    def _request(self) -> Request:
        request = context.request(self.session, self.provider, self.box.tools, self.config)
        # The log and the view hold masks for secrets; only the request has the originals.
        messages = self.session.unmask(request.messages)
        return msgspec.structs.replace(
            request, messages=messages, purpose=self.box.purpose, conversation=self.session.id
        )

    def _afforded(self) -> float:
        """Return about what the next call costs, in dollars. Raises: LimitReached where it is too much."""
        limit = self.config.limits.cost_usd
        if not limit:
            return 0.0
        spent = purse_of(self.session).spent
        coming = context.next_cost(self.session, self.provider, self.box.tools, self.config)
        coming += self._likely_output_cost()
        if spent + coming > limit:
            shown = f"{limit:.2f}" if limit >= 1 else f"{limit:.10f}".rstrip("0")
            so_far = f"on top of ${spent:.4f} spent"
            raise LimitReached(
                f"The next call would cost about ${coming:.4f} {so_far}; the limit is ${shown}.",
                "raise limits.cost_usd or --max-cost",
            )
        return coming

    def _likely_output_cost(self) -> float:
        """Return what an answer of mean length costs, in dollars."""
        view = self.session.view
        mean = sum(usage.output for usage in view.usage.values()) // max(view.n_turns, 1)
        return self.provider.model.price.cost(Usage(output=max(mean, LEAST_OUTPUT_TOKENS)))

    def take(self, reply: Reply) -> Stop | None:
        """Take a reply into the session; return how the run ends, None if it goes on."""
        self._explain_break(reply)
        if reply.stop_reason == "refusal":
            return self._refused(reply)
        if not _says_anything(reply.message):
            return self._empty(reply)
        reply = self._judged(reply)
        self.session.append(reply.message, "reply", reply)
        self._text = text_of(reply.message)
        if calls(reply.message):
            return None
        return self._ends(reply)

    def _judged(self, reply: Reply) -> Reply:
        """Return the reply as cut by the window where that, not its own token limit, cut it short."""
        model, bill = self.provider.model, reply.usage
        room = room_of(model, self.config.compaction)
        if reply.stop_reason != "max_tokens" or bill.output >= model.max_output or bill.total <= room.limit:
            return reply
        said = {"said": reply.stop_reason}
        return msgspec.structs.replace(reply, stop_reason="model_context_window_exceeded", stop_details=said)

    def _explain_break(self, reply: Reply) -> None:
        """Log an epoch the provider had to make; report a broken prefix that no epoch explains."""
        changed = self._changed_since_left(reply)
        if reply.epoch or changed:
            self.session.record(Epoch(reason=reply.epoch or f"{changed} changed since the session was left"))
        elif reply.prefix_break and not is_explained(self.session.entries()):
            text = f"This request did not begin with the one before ({reply.prefix_break}): a fault of bareagent."
            self.emit(Said(text=text, level="warning"))

    def _changed_since_left(self, reply: Reply) -> str:
        """Return which field of a resumed session's first request differs from the last one's, if any.

        The provider compares requests of its own process only.
        """
        if "has replied" in self.session.working:
            return ""
        self.session.working["has replied"] = True
        view = self.session.view
        at = next((n for n in reversed(range(len(view.kinds))) if view.kinds[n] == "reply"), None)
        if at is None:
            return ""
        last = self.session.message_entry(view.ids[at])
        return sent_otherwise(last.request, reply.sent) if last.request and last.model == reply.model else ""

    def _ends(self, reply: Reply) -> Stop | None:
        match reply.stop_reason:
            case "pause_turn":
                return None
            case "max_tokens":
                return Stop(
                    reason="max_tokens",
                    detail="The answer was cut at its token limit; /retry goes on with it.",
                )
            case "model_context_window_exceeded":
                return self._go_on("The context window filled up before the answer was whole")
        owed = None if self._has_been_owed else context.owes(self.session, self.config)
        if owed is not None:
            self._has_been_owed = True
            self.session.append(owed, "reminder")
            return None
        known = reply.stop_reason in KNOWN_ENDS
        detail = "" if known else f"The model stopped for an unknown reason: {reply.stop_reason}."
        return Stop(reason="end_turn", detail=detail)

    def _refused(self, reply: Reply) -> Stop:
        self._bill(reply, "refusal")
        category = (reply.stop_details or {}).get("category")
        named = f" ({category})" if category else ""
        return Stop(reason="refusal", detail=f"The model refused to answer{named}.")

    def _empty(self, reply: Reply) -> Stop | None:
        self._bill(reply, "empty")
        return self._go_on("The answer was empty")

    def _bill(self, reply: Reply, purpose: str) -> None:
        self.session.record(
            UsageEntry(usage=reply.usage, model=reply.model, purpose=purpose, cost_usd=reply.cost_usd)
        )

    def _go_on(self, why_not: str) -> Stop | None:
        """Ask once to go on, and say so; the second time the run ends and says why."""
        if self._has_continued:
            return Stop(reason="error", detail=f"{why_not}.")
        self._has_continued = True
        ask_on(self.session, self.emit, why_not)
        return None

    async def answer(self, reply: Reply) -> Stop | None:
        """Give each call of a reply its result; return how the run ends, None if it goes on."""
        if reply.stop_reason in NEVER_RUN:
            return self._answer_unrun(reply)
        self._n_unrun = 0
        await answer_calls(reply, self.session, self.box, self.config, self.emit, self.ask)
        self._deliver_steered()
        if not await self._compact_if_marked():
            return None
        return Stop(reason="end_turn") if self.config.compaction.exit_after_tool else None

    def _answer_unrun(self, reply: Reply) -> Stop | None:
        self._n_unrun += 1
        why = NEVER_RUN[reply.stop_reason]
        self.session.append(not_run(reply.message, f"not run: {why}"), "results")
        if self._n_unrun < MAX_UNRUN:
            return None
        return Stop(reason="max_tokens", detail=f"Stopped: {MAX_UNRUN} replies in a row were cut in a call.")

    def _deliver_steered(self) -> None:
        for line in self.box.take_steered():
            self.session.append(user(line), "line")

    async def _compact_if_marked(self) -> bool:
        focus = self.box.take_compact_mark()
        if focus is None:
            return False
        await context.compact_now(
            self.session, self.provider, self.box.tools, self.config, self.emit, "tool", focus
        )
        return True


def ask_on(session: Session, emit: Emit, why: str) -> None:
    """Ask the model to go on, and tell the user why."""
    session.append(user(CONTINUE), "continue")
    emit(Said(text=f"{why}; asked to go on.", level="dim"))


def _says_anything(message: Message) -> bool:
    """Tell whether a reply holds more than thinking and blank text."""
    return any(
        block.get("type") not in {"thinking", "redacted_thinking", "text"}
        or str(block.get("text", "")).strip()
        for block in message["content"]
    )
