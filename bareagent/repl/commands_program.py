"""Commands about the program at work: model, mode."""

from bareagent.config import MODES
from bareagent.repl.face import Face
from bareagent.repl.pickers import pick_mode, pick_model
from bareagent.repl.table import command


@command("model", "[name]", argument="model")
async def model(face: Face, argument: str) -> None:
    """Show or change the model; another model's cache is cold, which is said with its price."""
    agent = face.agent
    name = argument or await pick_model(face)
    if not name:
        face.say(f"Model: {agent.provider.name}/{agent.provider.model.name}")
        return
    info = await agent.select_model(name)
    face.say(f"Model: {agent.provider.name}/{info.name}, {info.window:,} tokens")


async def _use_mode(face: Face, name: str) -> None:
    face.agent.set_mode(name)
    face.say(f"Mode: {face.agent.mode}", "warning" if name == "bypass" else "info")


@command("mode", "[name]", argument="mode")
async def mode(face: Face, argument: str) -> None:
    """Show or change the permission mode: plan, default, auto, bypass."""
    name = argument or await pick_mode(face)
    if name:
        await _use_mode(face, name)
    else:
        face.say(f"Mode: {face.agent.mode} (there are {', '.join(MODES)})")


@command("default")
async def default(face: Face, _argument: str) -> None:
    """Permission mode default: what changes something is asked for."""
    await _use_mode(face, "default")


@command("auto")
async def auto(face: Face, _argument: str) -> None:
    """Permission mode auto: edits inside the project run without a question."""
    await _use_mode(face, "auto")


@command("plan")
async def plan(face: Face, _argument: str) -> None:
    """Permission mode plan: the model reads and plans, nothing is changed."""
    await _use_mode(face, "plan")


@command("bypass")
async def bypass(face: Face, _argument: str) -> None:
    """Permission mode bypass: nothing is asked; only deny rules hold."""
    await _use_mode(face, "bypass")
