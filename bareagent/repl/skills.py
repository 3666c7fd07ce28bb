"""The skills that may be called by a line: `/skill-name arguments`."""

from bareagent.repl.face import Face
from bareagent.tools.skills import LoadSkill, Skill


def skills_of(face: Face) -> tuple[Skill, ...]:
    """Return the skills that the model may load, too; none where it has no tool for it."""
    tool = face.agent.box.find("load_skill")
    return tool.available(face.agent.box.root) if isinstance(tool, LoadSkill) else ()
