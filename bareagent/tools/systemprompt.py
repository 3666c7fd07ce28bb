"""Composes the system prompt: the common text, where it works, skills, instructions; no clock, no git state."""

import sys
from collections.abc import Sequence
from pathlib import Path

from bareagent import prompts
from bareagent.sanitize import one_line
from bareagent.tools import instructions as project
from bareagent.tools.instructions import Instructions
from bareagent.tools.skills import Skill, find_skills, listing


def system_prompt(
    cwd: Path,
    root: Path,
    *,
    instructions: Instructions | None = None,
    skills: Sequence[Skill] = (),
    platform: str = sys.platform,
    is_demo: bool = False,
) -> str:
    """Return the system prompt; the same arguments give the same bytes."""
    if is_demo:
        return prompts.text("system_demo")
    told = project.as_text(instructions) if instructions is not None else ""
    listed = listing(skills)
    parts = [
        prompts.text("system"),
        _place(cwd, root, platform),
        f"# Skills (load_skill reads one)\n{listed}" if listed else "",
        f"# Instructions of the user and the project\nFollow them; what lies deeper goes first.\n\n{told}"
        if told
        else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _place(cwd: Path, root: Path, platform: str) -> str:
    lines = ["# Where you are", f"Working directory: {one_line(str(cwd), 1000)}"]
    if root != cwd:
        lines.append(f"Project root: {one_line(str(root), 1000)}")
    return "\n".join([*lines, f"Platform: {platform}"])


class ProjectHead:
    """The system prompt of a working directory, and the news of its instructions."""

    def __init__(
        self, cwd: Path, root: Path, *, user_folder: Path | None = None, is_trusted: bool = True
    ) -> None:
        """Read nothing yet; `user_folder` holds the user's own AGENTS.md and skills."""
        self._cwd = cwd
        self._root = root
        self._user_folder = user_folder
        self._is_trusted = is_trusted
        self._known: Instructions | None = None

    @property
    def instructions(self) -> Instructions:
        """The instructions the model was last told of."""
        if self._known is None:
            self._known = project.load(
                self._cwd, self._root, user_folder=self._user_folder, is_trusted=self._is_trusted
            )
        return self._known

    def skills(self) -> tuple[Skill, ...]:
        """Return the skills there are now."""
        return find_skills(self._root, user_folder=self._user_folder, is_trusted=self._is_trusted)

    def text(self, *, is_demo: bool = False) -> str:
        """Return the system prompt with what lies on disk now."""
        self._known = None
        return system_prompt(
            self._cwd, self._root, instructions=self.instructions, skills=self.skills(), is_demo=is_demo
        )

    def changed(self) -> str | None:
        """Return what to tell of instructions that changed since they were last told; None for nothing."""
        found = project.changed(self.instructions)
        if found is None:
            return None
        self._known, text = found
        return text
