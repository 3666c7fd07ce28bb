"""The agent loop: prepare, call the model, answer its calls, again, until it is done.

How a reply ends a run is decided in `turn.py`; what a call's result is, in `calls.py`.
"""

from collections.abc import Sequence

from bareagent import context
from bareagent.calls import Toolbox
from bareagent.config import Config
from bareagent.messages import calls
from bareagent.seams import Ask, Emit, Prepare, Provider, Tool
from bareagent.session import Session
from bareagent.turn import Run, Stop


async def agent_loop(
    session: Session,
    provider: Provider,
    tools: Sequence[Tool] | Toolbox,
    config: Config,
    emit: Emit,
    ask: Ask,
    prepare: Prepare = context.prepare,
) -> Stop:
    """Run until the model is done and return how it ended.

    The view must end with a user message. `prepare` makes the view ready before every model call.
    A cancelled run first records what was said and what ran, then raises CancelledError.
    Raises: ProviderError, with the view valid and the user's line in the log.
    """
    run = Run(session, provider, Toolbox.of(tools, session), config, emit, ask)
    for turn in range(1, config.limits.turns + 1):
        run.deliver_notices()
        await prepare(session, provider, run.box.tools, config, emit)
        reply = await run.reply()
        stop = run.take(reply)
        if stop is None and calls(reply.message):
            stop = await run.answer(reply)
        if stop is not None:
            return run.ended(stop, turn)
    return run.ended(Stop(reason="max_turns"), config.limits.turns)
