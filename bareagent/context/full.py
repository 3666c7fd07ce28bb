"""Full compaction, done: the history gives way to a summary by a model and facts by code.

Works on a session and, in `Compactor`, on a plain list; where it cuts is planned in `plan.py`.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bareagent.config import Config
from bareagent.context import facts as fact
from bareagent.context import summary as ask
from bareagent.context.measure import Sized
from bareagent.context.plan import SHRINK, Full
from bareagent.context.purse import purse_of
from bareagent.context.readable import RESULT_CHARS, readable_parts
from bareagent.context.room import room_of
from bareagent.context.tokens import fast_tokens
from bareagent.context.working import Book, Working, tool_specs
from bareagent.entries import Compaction, ReplyStarted, Retrying, Said, ToolSpec, Trigger, Usage, UsageEntry
from bareagent.errors import InvalidRequest, ProviderError
from bareagent.fold import header_text
from bareagent.messages import Message, system
from bareagent.seams import Emit, Heard, Provider, Tool
from bareagent.view import parse_handle

ACKNOWLEDGEMENTS = {
    "zh": "收到，我已理解之前的上下文，继续工作。",
    "": "Understood. I have the earlier context and will go on.",
}
SUFFIXES: dict[Trigger, str] = {"manual": "compact", "auto": "auto", "overflow": "overflow", "tool": "tool"}
NOTHING = "Nothing to compact."


class CompactOutcome(msgspec.Struct, kw_only=True):
    """How a compaction ended. `fits`: the view is smaller and at most window − reserve.

    `lines` is what every face shows; sizes are tokens of the whole request.
    """

    is_done: bool = False
    fits: bool = False
    reason: str = ""
    lines: list[str] = msgspec.field(default_factory=list)
    tokens_before: int = 0
    tokens_after: int = 0
    entry: Compaction | None = None


class Job(msgspec.Struct, kw_only=True):
    """One compaction at work: what it needs from every side."""

    book: Book
    state: Working
    provider: Provider
    tools: Sequence[Tool | ToolSpec]
    config: Config
    emit: Emit
    full: Full
    focus: str = ""
    facts_only: bool = False
    spent: ask.Spent = msgspec.field(default_factory=ask.Spent)


async def compact(job: Job) -> CompactOutcome:
    """Summarise, rebuild and log; nothing changes where no usable summary comes.

    A cancelled call raises CancelledError and leaves the view as it was; what it cost is logged.
    """
    draft = _draft(job, job.book.snapshot(SUFFIXES[job.full.trigger]))
    if job.facts_only:
        reason = "" if draft.facts else "there are no facts to keep"
    else:
        reason = await _summarise(job, draft)
    if reason and not (job.full.is_urgent and draft.facts):
        return _failed(job, reason)
    if reason:
        job.emit(Said(text=f"The summary failed: {reason}. The facts alone are kept.", level="warning"))
    size = _size_after(job, draft)
    if not reason and _is_too_large(job, size):
        _bill(job)
        return _failed(job, "the result would not be smaller")
    draft.tokens_before, draft.tokens_after = round(job.full.before), round(size)
    if not reason and job.spent.n_calls:
        draft.usage, draft.cost_usd, draft.model = job.spent.usage, job.spent.cost_usd, job.spent.model
    return _done(job, job.book.compact(draft))


def _draft(job: Job, snapshot: Path | None) -> Compaction:
    """Return the compaction but for its summary."""
    view, cut, rules = job.book.view, job.full.cut, job.config.compaction
    is_open = cut.first < len(view.messages)
    starts_with_reply = is_open and view.messages[cut.first]["role"] == "assistant"
    language = ask.language_of(rules.language, fact.newest_line(view))
    acknowledgement = "" if starts_with_reply else ACKNOWLEDGEMENTS["zh" if language == "zh" else ""]
    return Compaction(
        summary="",
        generation=0,
        first_kept_entry_id=view.ids[cut.first] if is_open else 0,
        facts=_facts(job) if rules.facts else "",
        acknowledgement=acknowledgement,
        system_items=[view.ids[index] for index in cut.system],
        dropped=[view.ids[index] for index in cut.dropped],
        capped=cut.caps,
        trigger=job.full.trigger,
        focus=job.focus,
        snapshot=str(snapshot) if snapshot else "",
    )


def _facts(job: Job) -> str:
    view, rules = job.book.view, job.config.compaction
    gone = [i for i in job.full.cut.source if not job.state.is_header(i)]
    earlier = fact.parse(view.compactions[-1].facts) if view.compactions else fact.Facts()
    gathered = fact.gather(originals(job.book, gone), [view.kinds[i] for i in gone], earlier)
    limit = room_of(job.provider.model, rules).limit
    usable = max(limit / job.state.meter.ratio - job.state.fixed(job.tools), limit / 8)
    newest = fact.newest_line(view)
    is_open = job.state.awaits_reply() or job.state.last_stop == "model_context_window_exceeded"
    return fact.rendered(gathered, view.todo, view.pins, usable, rules.pin_tokens, newest, is_open=is_open)


def originals(book: Book, places: Sequence[int]) -> list[Message]:
    """Return messages of the view with the original text of their cleared and capped results."""
    view = book.view
    changed = {parse_handle(handle)[0] for handle in (*view.cleared, *view.capped)}
    return [
        book.message_entry(view.ids[index]).message if view.ids[index] in changed else view.messages[index]
        for index in places
    ]


async def _summarise(job: Job, draft: Compaction) -> str:
    """Fill in the summary; return why there is none, or an empty text."""
    if not _is_affordable(job):
        return "its price would pass the money limit (limits.cost_usd)"
    try:
        with purse_of(job.book).holding(_price(job)):
            draft.summary = await _asked(job)
    except (ask.SummaryFailed, ProviderError, InvalidRequest) as error:
        _bill(job)
        return str(error).rstrip(".")
    except asyncio.CancelledError:
        _bill(job)
        raise
    return ""


def _is_affordable(job: Job) -> bool:
    limit = job.config.limits.cost_usd
    if not limit:
        return True
    return purse_of(job.book).spent + _price(job) <= limit


def _price(job: Job) -> float:
    """Return about what the summary costs, in dollars."""
    sent = Usage(uncached=round(job.full.before), output=job.config.compaction.summary_max_tokens)
    return job.provider.model.price.cost(sent)


async def _asked(job: Job) -> str:
    view, rules = job.book.view, job.config.compaction
    question = ask.Question(
        rules=rules,
        language=ask.language_of(rules.language, fact.newest_line(view)),
        focus=job.focus,
        previous=view.compactions[-1].summary if view.compactions and rules.profile != "seed" else "",
    )
    quiet = _Quiet(job.emit)
    model = await job.provider.facts(rules.model) if rules.model else job.provider.model
    if rules.summary_request == "prefix" and not rules.model and _has_room_behind(job):
        messages, tools = request_messages(job.book), tool_specs(view, job.tools)
        return await ask.summarise_prefix(job.provider, messages, tools, question, job.spent, quiet)
    ratio = model.token_factor if rules.model else job.state.meter.ratio
    parts = source_parts(job, question)
    return await ask.summarise(job.provider, parts, question, model, ratio, job.spent, quiet)


def _has_room_behind(job: Job) -> bool:
    """Tell whether the question and its answer fit behind the request as it stands."""
    room = 2 * job.config.compaction.summary_max_tokens + 1_000
    return job.full.before + room < job.provider.model.window


class _Quiet:
    """Lets through what a screen may show while a summary is made: no text of the summary itself."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit

    def __call__(self, heard: Heard, /) -> None:
        if isinstance(heard, ReplyStarted):
            self._emit(ReplyStarted(purpose="summary", model=heard.model))
        elif isinstance(heard, Retrying | Said):
            self._emit(heard)


def source_parts(job: Job, question: ask.Question) -> list[ask.Part]:
    """Return the readable form of what is summarised, message by message, with its weight."""
    rules = job.config.compaction
    from_log = rules.summary_source == "log"
    gone = [
        i
        for i in job.full.cut.source
        if not (question.previous and job.state.is_header(i)) and job.book.view.kinds[i] != "reminder"
    ]
    messages = originals(job.book, gone) if from_log else [job.book.view.messages[i] for i in gone]
    is_classic = rules.profile == "seed"
    most = 0 if is_classic else RESULT_CHARS
    texts = readable_parts(messages, result_chars=most, is_escaped=not is_classic)
    sizes = job.state.measured(job.tools).messages
    return [
        (text, _weight(text, sizes[i], most, from_log)) for text, i in zip(texts, gone, strict=True) if text
    ]


def _weight(text: str, sized: Sized, most: int, from_log: bool) -> float:
    """Return the estimate of a readable message, from what is known of its size where that will do."""
    if from_log and any(result.is_cleared for result in sized.results):
        return fast_tokens(text)
    over = sum(
        result.tokens * (1 - most / result.chars) for result in sized.results if 0 < most < result.chars
    )
    return sized.tokens - over


def request_messages(book: Book) -> list[Message]:
    """Return the system prompt and the view, as a request takes them."""
    prompt = book.view.prompt
    return [*([system(prompt.system)] if prompt and prompt.system else []), *book.view.messages]


def _bill(job: Job) -> None:
    spent = job.spent
    if spent.n_calls:
        job.book.record(
            UsageEntry(usage=spent.usage, model=spent.model, purpose="summary", cost_usd=spent.cost_usd)
        )


def _size_after(job: Job, draft: Compaction) -> float:
    measured = job.state.measured(job.tools)
    cut = job.full.cut
    items = sum(measured.messages[index].tokens for index in cut.system)
    header = fast_tokens(header_text(draft)) + fast_tokens(draft.acknowledgement) + 6
    return job.state.meter.ratio * (measured.fixed + items + cut.tail_tokens + header)


def _is_too_large(job: Job, size: float) -> bool:
    is_guarded = job.full.trigger in {"auto", "overflow"} and job.config.compaction.profile != "seed"
    return is_guarded and size > SHRINK * job.full.before


def _failed(job: Job, reason: str) -> CompactOutcome:
    line = f"Context compaction failed: {reason}. Nothing changed."
    lines = [line]
    if job.full.trigger in {"auto", "overflow"} and job.state.guard.note_failure():
        lines.append("Automatic compaction rests until your next line: it failed three times.")
    for text in lines:
        job.emit(Said(text=text, level="warning"))
    before = round(job.full.before)
    return CompactOutcome(reason=reason, lines=lines, tokens_before=before, tokens_after=before)


def _done(job: Job, entry: Compaction) -> CompactOutcome:
    name = job.book.full_id
    sizes = f"{entry.tokens_before:,} → {entry.tokens_after:,} tokens"
    if entry.trigger == "manual":
        after = job.book.snapshot("compacted")
        where = f" · {after}" if after else ""
        lines = ["Context compaction finished.", f"{sizes} · {name}{where}"]
    else:
        lines = [f"Context compacted: {sizes} ({name})"]
    if entry.trigger in {"auto", "overflow"} and job.state.guard.note_auto(job.book.view.n_turns):
        lines.append("Automatic compaction rests until your next line: three compactions freed too little.")
    for line in lines:
        job.emit(Said(text=line))
    limit = room_of(job.provider.model, job.config.compaction).limit
    return CompactOutcome(
        is_done=True,
        fits=entry.tokens_after < entry.tokens_before and entry.tokens_after <= limit,
        lines=lines,
        tokens_before=entry.tokens_before,
        tokens_after=entry.tokens_after,
        entry=entry,
    )
