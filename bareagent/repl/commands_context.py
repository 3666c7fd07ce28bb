"""Commands about the context: compact it, look at it, what it costs, what it must keep."""

from bareagent.provider.cost import account
from bareagent.repl import charts
from bareagent.repl.face import Face
from bareagent.repl.pickers import price_of
from bareagent.repl.table import command


@command("compact", "[focus | preview | undo | --facts]", words=("preview", "undo", "--facts"))
async def compact(face: Face, argument: str) -> None:
    """Compact the conversation now, with an optional focus for the summary.

    preview shows what would go and changes nothing; undo takes the newest compaction back;
    --facts compacts without a summary, by facts alone. Any other text is the focus.
    """
    agent = face.agent
    match argument:
        case "undo":
            agent.undo()
        case "preview":
            face.show(charts.preview_lines(agent.preview(), face.width, face.styles))
        case "--facts":
            await agent.compact(facts_only=True)
        case _:
            await agent.compact(argument)


@command("cost", "[--cache]", words=("--cache",), is_safe=True)
async def cost(face: Face, argument: str) -> None:
    """Show what this session cost, by model; --cache lists each break of the cache and its price."""
    bill = account(face.agent.session.entries(), lambda name: price_of(face.agent, name))
    draw = charts.epoch_lines if argument == "--cache" else charts.cost_lines
    face.show(draw(bill, face.width, face.styles))
