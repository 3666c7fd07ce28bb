"""Commands about sessions: begin, go on, list, name, go back, fork, save elsewhere."""

from bareagent.repl.face import Face
from bareagent.repl.pickers import cards_here, pick_session, session_lines
from bareagent.repl.table import command


@command("new", "[name]")
async def new(face: Face, argument: str) -> None:
    """Begin a new conversation; the present one stays saved."""
    face.agent.new(argument)


@command("clear", "[name]")
async def clear(face: Face, argument: str) -> None:
    """Begin a new conversation and clear the screen."""
    face.agent.new(argument)
    face.clear_screen()


@command("sessions", is_safe=True)
async def sessions(face: Face, _argument: str) -> None:
    """List this project's saved sessions; /resume takes the number of a row."""
    cards = cards_here(face.agent)
    face.agent.listed = [card.id for card in cards]
    if not cards:
        face.say("No saved sessions.")
        return
    face.show(session_lines(cards, face.width, current=face.agent.session.id))


@command("resume", "[session]", argument="session")
async def resume(face: Face, argument: str) -> None:
    """Go on with a saved session: a row of the list, an id or its beginning, ID.N, or a name.

    Without a session: choose one. An older generation (ID.N) goes on as a fork.
    """
    wanted = argument or await pick_session(face)
    if wanted:
        face.agent.resume(wanted, face.agent.listed)
    elif not face.is_terminal:
        await sessions(face, "")
