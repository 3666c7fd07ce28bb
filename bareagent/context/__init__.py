"""The context engine: before each model call the view is made ready, and only here.

`prepare` does three things in this order: nag reminder, micro-compaction, full compaction. Everything
that compacts, by itself or on demand, goes through this module.
"""

from collections.abc import Sequence

from bareagent.config import Config
from bareagent.context.full import (
    NOTHING,
    CompactOutcome,
    Job,
    compact,
    request_messages,
)
from bareagent.context.measure import measure
from bareagent.context.micro import Micro
from bareagent.context.plain import Compactor
from bareagent.context.plan import Full, Plan, Wishes, plan
from bareagent.context.reminder import reminder_text
from bareagent.context.room import LEAST_OUTPUT, MAX_BYTES, MAX_IMAGES, is_over_window, room_of
from bareagent.context.show import Item, Picture, Preview, picture_of, preview_of, waits
from bareagent.context.tokens import Meter, estimate_tokens
from bareagent.context.working import Book, Working, state_of, tool_specs
from bareagent.entries import Said, ToolSpec, Trigger
from bareagent.messages import Block, Message, system, text_block, user
from bareagent.sanitize import counted
from bareagent.seams import Emit, Provider, Request, Tool

__all__ = [
    "CompactOutcome",
    "Compactor",
    "Item",
    "Meter",
    "Picture",
    "Plan",
    "Preview",
    "compact_now",
    "estimate_tokens",
    "fits",
    "leave_alone",
    "line_too_long",
    "next_cost",
    "owes",
    "picture",
    "plan",
    "planned",
    "prepare",
    "preview",
    "request",
    "waits",
]

Tools = Sequence[Tool | ToolSpec]


async def prepare(session: Book, provider: Provider, tools: Tools, config: Config, emit: Emit) -> None:
    """Make the view ready for the next model call: nag, micro, full, each logged as it is done."""
    state = state_of(session, provider)
    wishes = wishes_of(state)
    now = planned(session, provider, tools, config, wishes)
    if now.nag:
        session.append(system(now.nag), "reminder")
    _do_micro(session, state, provider, now.micro, emit)
    if now.full is not None and (now.nag or now.micro.reason):
        now = planned(session, provider, tools, config, wishes)  # where it cuts has moved
    if now.full is not None:
        await compact(_job(session, provider, tools, config, emit, now.full))
    _say_crowded(state, provider, tools, config, emit)


async def leave_alone(*_given: object) -> None:
    """Do nothing: for callers whose context must stay as it is."""


def planned(
    session: Book, provider: Provider, tools: Tools, config: Config, wishes: Wishes | None = None
) -> Plan:
    """Return the plan for a session's next call as things stand; changes nothing."""
    state = state_of(session, provider)
    view = state.measured(tools)
    model = provider.model
    return plan(
        view,
        state.meter,
        state.todos(config),
        state.cache(model),
        model.price,
        config,
        room_of(model, config.compaction),
        wishes,
    )


def wishes_of(state: Working) -> Wishes:
    """Return what happened before in a session that changes what is due."""
    is_full = state.last_stop == "model_context_window_exceeded"
    is_answered = not state.awaits_reply()
    return Wishes(
        forced="overflow" if is_full and not is_answered and not state.guard.is_resting else None,
        is_resting=state.guard.is_resting or is_answered,
        waits=state.waits,
    )


def _job(session: Book, provider: Provider, tools: Tools, config: Config, emit: Emit, full: Full) -> Job:
    return Job(
        book=session,
        state=state_of(session, provider),
        provider=provider,
        tools=tools,
        config=config,
        emit=emit,
        full=full,
    )


def _do_micro(session: Book, state: Working, provider: Provider, chosen: Micro, emit: Emit) -> None:
    batch = chosen.batch
    if not chosen.reason:
        state.rent = chosen.rent
        return
    cost = max(batch.cost, 0.0) * provider.model.price.input / 1e6
    state.meter.clear(batch.freed / state.meter.ratio)
    session.clear(
        [slot.result.handle for slot in batch.slots],
        chosen.reason,
        tokens=round(batch.freed),
        cost_usd=cost,
        pays_after=batch.pays_after,
    )
    emit(Said(text=batch_line(chosen, cost), level="dim"))


def batch_line(chosen: Micro, cost_usd: float) -> str:
    """Return the line that announces a batch."""
    batch = chosen.batch
    n = len(batch.slots)
    what = f"Cleared {counted(n, 'old result')}: {round(batch.freed):,} tokens freed"
    if batch.cost <= 0:
        return f"{what}, at no cost ({chosen.reason})"
    price = f"${cost_usd:.4f}" if cost_usd else f"{round(batch.cost):,} tokens of input"
    return f"{what}, costs {price} now, paid after {batch.pays_after} calls ({chosen.reason})"


def _say_crowded(state: Working, provider: Provider, tools: Tools, config: Config, emit: Emit) -> None:
    limit = room_of(provider.model, config.compaction).limit
    fixed = state.fixed(tools) * state.meter.ratio
    if fixed > 0.6 * limit and state.says_once("fixed"):
        emit(
            Said(
                text=f"System prompt and tools alone take {round(fixed):,} of {limit:,} tokens: "
                "compaction cannot help. Choose a model with a larger window or load fewer tools; "
                f'if it has one, [models."{provider.model.name}"] window says so.',
                level="warning",
            )
        )


async def compact_now(
    session: Book,
    provider: Provider,
    tools: Tools,
    config: Config,
    emit: Emit,
    trigger: Trigger,
    focus: str = "",
    facts_only: bool = False,
) -> CompactOutcome:
    """Compact whatever the size: `/compact`, the compact tool, a request refused as too long."""
    now = planned(session, provider, tools, config, Wishes(forced=trigger))
    if now.full is None:
        lines = [] if trigger == "overflow" else [NOTHING]  # there the server's own words are shown
        for line in lines:
            emit(Said(text=line))
        size = round(now.load.size)
        return CompactOutcome(reason=NOTHING, lines=lines, tokens_before=size, tokens_after=size)
    job = _job(session, provider, tools, config, emit, now.full)
    # While automatic compaction rests no summary is paid for, yet no session dies of its size.
    is_resting = trigger == "overflow" and job.state.guard.is_resting
    job.focus, job.facts_only = focus, facts_only or is_resting
    return await compact(job)


def request(session: Book, provider: Provider, tools: Tools, config: Config) -> Request:
    """Return the next request as the view stands; its max_tokens is what the Meter leaves."""
    state = state_of(session, provider)
    size = state.meter.size(state.measured(tools).estimate)
    room = room_of(provider.model, config.compaction)
    return Request(
        messages=request_messages(session),
        tools=tool_specs(session.view, tools),
        max_tokens=max(room.max_tokens(size), LEAST_OUTPUT),
        protect=config.compaction.protect,
        min_chars=config.compaction.min_chars,
        is_paused=state.last_stop == "pause_turn" and not state.awaits_reply(),
    )


def fits(session: Book, provider: Provider, tools: Tools, config: Config) -> bool:
    """Tell whether the next request is within the model's window as it is known now, answer included."""
    load = planned(session, provider, tools, config).load
    room = room_of(provider.model, config.compaction)
    return not is_over_window(load, room) and room.max_tokens(load.size) >= LEAST_OUTPUT


def picture(session: Book, provider: Provider, tools: Tools, config: Config) -> Picture:
    """Return what `/context` shows."""
    state = state_of(session, provider)
    now = planned(session, provider, tools, config)
    room = room_of(provider.model, config.compaction)
    return picture_of(session, state, now, room, state.fixed_parts(tools))


def preview(session: Book, provider: Provider, tools: Tools, config: Config) -> Preview:
    """Return what `/compact` would do now; changes nothing."""
    now = planned(session, provider, tools, config, Wishes(forced="manual"))
    price = provider.model.price
    return preview_of(session, now.full, config, (price.input, price.output))


def line_too_long(
    session: Book,
    provider: Provider,
    tools: Tools,
    config: Config,
    line: str,
    blocks: Sequence[Block] = (),
) -> str:
    """Return why a line, with blocks behind it, cannot be sent whatever is compacted; empty if it can."""
    state = state_of(session, provider)
    ratio = state.meter.ratio
    room = room_of(provider.model, config.compaction)
    sized = measure({"role": "user", "content": [text_block(line), *blocks]}, {})
    if sized.n_bytes > MAX_BYTES or sized.n_images > MAX_IMAGES:
        what = f"{sized.n_bytes / 2**20:.1f} MB, {sized.n_images} images"
        return f"This line is too large to send: {what}; {MAX_BYTES >> 20} MB and {MAX_IMAGES} images fit."
    size = sized.tokens * ratio
    free = room.limit - state.fixed(tools) * ratio
    if size <= (free if free > 0 else room.limit):  # where nothing has room, no shorter line would help
        return ""
    room_for = round(max(free, 0))
    return f"This line is too long to send: about {round(size):,} tokens, and there is room for {room_for:,}."


def next_cost(session: Book, provider: Provider, tools: Tools, _config: Config) -> float:
    """Return about what the next call costs at least, in dollars: its input, the cached part read."""
    state = state_of(session, provider)
    view = state.measured(tools)
    model = provider.model
    cache = state.cache(model)
    size = state.meter.size(view.estimate)
    cached = 0.0
    if cache.exists and not cache.is_cold:
        held = sum(message.tokens for message in view.messages[: cache.n_messages])
        cached = min(size, state.meter.ratio * (view.fixed + held))
    fresh = model.price.cache_write if cache.exists and model.price.cache_write else model.price.input
    return (cached * model.price.cache_read + (size - cached) * fresh) / 1e6


def owes(session: Book, config: Config) -> Message | None:
    """Return the reminder that is due before a run ends with an item in progress, or None."""
    items = session.view.todo
    if not config.reminder.enabled or not any(item.status == "in_progress" for item in items):
        return None
    return user(reminder_text(items))
