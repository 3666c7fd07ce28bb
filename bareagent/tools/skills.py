"""Skills: folders with a SKILL.md that say how a kind of work is done, loaded when they are needed."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from bareagent.errors import ConfigError
from bareagent.messages import Message, calls, text_of
from bareagent.sanitize import clean, one_line
from bareagent.seams import Need, Output
from bareagent.tools import frontmatter
from bareagent.tools.base import NOTHING, Params, ToolContext, ToolError, text_for_model
from bareagent.tools.rules import parse_rule
from bareagent.tools.sensitive import is_inside, real

FILE = "SKILL.md"
PROJECT_FOLDER = Path(".bareagent", "skills")
MAX_SKILLS = 40
MAX_LINE_CELLS = 200
MAX_BYTES = 64 * 1024
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """One skill; `allowed` are tools or rules its front matter names (None: it names none)."""

    name: str
    description: str
    folder: Path
    is_project: bool = False
    allowed: tuple[str, ...] | None = None

    def body(self) -> str:
        """Return the instructions, front matter left out. Raises: ToolError where they cannot be read."""
        return frontmatter.split(_read(self.folder))[1]


def find_skills(root: Path, *, user_folder: Path | None = None, is_trusted: bool = True) -> tuple[Skill, ...]:
    """Return all skills by name; the user's own go before a project's of the same name.

    `user_folder` is the folder that holds the user's `skills/`. An untrusted project's are left out.
    """
    own = _in_folder(user_folder / "skills", is_project=False) if user_folder else []
    of_project = _in_folder(root / PROJECT_FOLDER, is_project=True) if is_trusted else []
    by_name = {skill.name: skill for skill in (*of_project, *own)}
    return tuple(by_name[name] for name in sorted(by_name))


def skill_folders(root: Path, *, user_folder: Path | None = None) -> tuple[Path, ...]:
    """Return the folders skills lie in: the gate lets them be read without asking."""
    return (root / PROJECT_FOLDER, *([user_folder / "skills"] if user_folder else []))


def _in_folder(folder: Path, *, is_project: bool) -> list[Skill]:
    try:
        children = sorted(folder.iterdir())
    except OSError:
        return []
    found = (_skill(child, is_project=is_project) for child in children if child.is_dir())
    return [skill for skill in found if skill is not None]


def _skill(folder: Path, *, is_project: bool) -> Skill | None:
    try:
        fields, _ = frontmatter.split(_read(folder))
    except ToolError:
        return None
    name = _text(fields.get("name")) or folder.name.lower()
    description = one_line(_text(fields.get("description")), MAX_LINE_CELLS)
    if not _NAME.fullmatch(name) or not description:
        return None
    allowed = fields.get("allowed-tools")
    return Skill(
        name=name,
        description=description,
        folder=folder,
        is_project=is_project,
        allowed=None if allowed is None else tuple(_items(allowed)),
    )


def _text(value: str | list[str] | None) -> str:
    return value.strip() if isinstance(value, str) else ""


def _items(value: str | list[str]) -> list[str]:
    return value if isinstance(value, list) else frontmatter.items(value)


def _read(folder: Path) -> str:
    """Read a SKILL.md that lies in its own folder; a link that leads elsewhere is not followed."""
    path, home = real(folder / FILE), real(folder)
    if path is None or home is None or not is_inside(path, home) or not path.is_file():
        raise ToolError(f"{folder.name} has no {FILE}")
    try:
        with path.open("rb") as file:
            return clean(file.read(MAX_BYTES).decode(errors="replace"))
    except OSError as error:
        raise ToolError(f"{path} cannot be read: {error.strerror}") from None


def listing(skills: Sequence[Skill]) -> str:
    """Return the list for the system prompt, a line each, capped; empty without skills."""
    lines = [f"- {skill.name}: {skill.description}" for skill in skills[:MAX_SKILLS]]
    if len(skills) > MAX_SKILLS:
        lines.append(f"- and {len(skills) - MAX_SKILLS} more: {_names(skills[MAX_SKILLS:])}")
    return "\n".join(lines)


def _names(skills: Sequence[Skill]) -> str:
    return one_line(", ".join(skill.name for skill in skills), 2 * MAX_LINE_CELLS)


def as_text(skill: Skill) -> str:
    """Return a skill as the model reads it: where it lies, what it may use, its instructions."""
    may = f"\nTools it may use: {', '.join(skill.allowed) or 'none'}." if skill.allowed is not None else ""
    files = sorted(path.name for path in skill.folder.iterdir() if path.name != FILE)[:20]
    more = f"\nFiles beside it: {', '.join(files)}." if files else ""
    return f"{_title(skill)}{may}{clean(more)}\n\n{skill.body()}"


def _title(skill: Skill) -> str:
    return f"Skill {skill.name} (folder {skill.folder})."


def invocation(skill: Skill, arguments: str) -> str:
    """Return the line that `/skill-name arguments` sends; `$ARGUMENTS` in the skill is replaced.

    Raises: ToolError where the skill cannot be read.
    """
    text = as_text(skill)
    if "$ARGUMENTS" in text:
        return text.replace("$ARGUMENTS", arguments.strip())
    return f"{text}\n\n{arguments.strip() or 'Do this now.'}"


def may_use_skills(run: Sequence[Message]) -> bool:
    """Tell, without a look at the disk, whether a skill may be in use in these messages of a run."""
    return bool(loaded_names(run)) or _first_text(run).startswith("Skill ")


def in_force(run: Sequence[Message], skills: Sequence[Skill]) -> list[Skill]:
    """Return the skills in use in a run that say what tools they use.

    A skill is in use when a call loaded it, or when the run's line is its `/skill-name`.
    """
    names, line = set(loaded_names(run)), _first_text(run)
    return [
        skill
        for skill in skills
        if skill.allowed is not None and (skill.name in names or line.startswith(_title(skill)))
    ]


def _first_text(run: Sequence[Message]) -> str:
    return text_of(run[0]) if run and run[0]["role"] == "user" else ""


def loaded_names(messages: Iterable[Message]) -> list[str]:
    """Return the names of skills that calls in these messages loaded."""
    found = [call for message in messages if message["role"] == "assistant" for call in calls(message)]
    inputs = [call.get("input") for call in found if call.get("name") == "load_skill"]
    names = [given.get("name") for given in inputs if isinstance(given, dict)]
    return [name.strip().lstrip("/") for name in names if isinstance(name, str)]


def rules_of(skill: Skill, tool_names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the allow and ask rules that hold while a skill is in use.

    The user's own skill may allow what it names; a project's only narrows: what it does not name asks.
    A rule that cannot be read allows nothing.
    """
    named = [_own_name(rule) for rule in skill.allowed or ()]
    if not skill.is_project:
        return [rule for rule in named if _is_rule(rule)], []
    tools = {rule.partition("(")[0] for rule in named}
    return [], [name for name in tool_names if name not in tools and name != "load_skill"]


def _is_rule(text: str) -> bool:
    try:
        parse_rule(text)
    except ConfigError:
        return False
    return True


_OTHER_NAMES = {
    "read": "read_file",
    "write": "write_file",
    "edit": "edit_file",
    "multiedit": "edit_file",
    "todowrite": "todo_write",
    "task": "subagent",
}


def _own_name(rule: str) -> str:
    """Skills written for other agents name the same tools in another way."""
    tool, bracket, rest = rule.strip().partition("(")
    if rest.endswith(" *)"):
        rest = f"{rest[:-3]}:*)"
    return _OTHER_NAMES.get(tool.lower(), tool.lower()) + bracket + rest


class SkillParams(Params):
    """Which skill."""

    name: Annotated[str, Meta(min_length=1)]


class LoadSkill:
    """Gives the model a skill's instructions."""

    name = "load_skill"
    description = text_for_model("load_skill")
    params: type[msgspec.Struct] = SkillParams
    is_read_only = True

    def __init__(self, user_folder: Path | None = None, *, is_trusted: bool = True) -> None:
        """Look for skills in the user's folder and, where it is trusted, in the project."""
        self._user_folder = user_folder
        self._is_trusted = is_trusted

    def available(self, root: Path) -> tuple[Skill, ...]:
        """Return the skills that can be loaded in a project, by name."""
        return find_skills(root, user_folder=self._user_folder, is_trusted=self._is_trusted)

    def needs(self, _params: SkillParams, _ctx: ToolContext) -> list[Need]:
        """Touch nothing but the folders of skills, which are open to reading."""
        return NOTHING

    async def run(self, params: SkillParams, ctx: ToolContext) -> Output:
        """Return the instructions. Raises: ToolError for an unknown name."""
        skills = self.available(ctx.root)
        skill = next((each for each in skills if each.name == params.name.strip().lstrip("/")), None)
        if skill is None:
            raise ToolError(f"There is no skill {params.name[:64]!r}. There are: {_names(skills) or 'none'}.")
        return Output(text=as_text(skill), shown=f"skill {skill.name}: {skill.description}")
