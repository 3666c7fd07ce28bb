"""Commands about the program at work: model, mode, tools, skills, settings, looks, what is on the clipboard."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from bareagent import folders
from bareagent.config import MODES, Config
from bareagent.entries import Grant
from bareagent.errors import UsageError
from bareagent.repl.commands_context import last_answer
from bareagent.repl.face import Face, Row
from bareagent.repl.pickers import model_of, pick_mode, pick_model, switch_cost
from bareagent.repl.skills import skills_of
from bareagent.repl.styles import THEMES
from bareagent.repl.table import ANY, SHOWN, command
from bareagent.repl.view import cut
from bareagent.sanitize import one_line

THEME_NAMES = ("auto", *(name for name in THEMES if name != "plain"))
_SAMPLE = (
    "**Strong** and `code`, [a link](https://example.org)\n```python\nreturn answer(42, 'text')  # why\n```"
)


def _can_pick(face: Face) -> bool:
    """Tell whether a list can be put in front: during a run the run has the keys."""
    return face.is_terminal and not face.agent.is_running


@command("model", "[name]", argument="model", safe=SHOWN)
async def model(face: Face, argument: str) -> None:
    """Show or change the model.

    Another model's cache is cold: what the next call costs by that is said.
    """
    agent = face.agent
    name = argument or (await pick_model(face) if _can_pick(face) else "")
    if not name:
        face.say(f"Model: {agent.provider.name}/{agent.provider.model.name}")
        return
    before, warning = agent.provider.model.name, switch_cost(agent, model_of(agent, name))
    info = await agent.select_model(name)
    if info.name == before != name:
        raise UsageError(
            f"{agent.provider.name} has no model {one_line(name, 80)}: {before} stays in use.",
            "Another provider is chosen at the start: --provider NAME, or `bareagent setup`.",
        )
    face.say(f"Model: {agent.provider.name}/{info.name}, {info.window:,} tokens")
    if warning:
        face.say(warning, "warning")


async def _use_mode(face: Face, name: str) -> None:
    face.agent.set_mode(name)
    face.say(f"Mode: {face.agent.mode}", "warning" if name == "bypass" else "info")


@command("mode", "[name]", argument="mode", safe=SHOWN)
async def mode(face: Face, argument: str) -> None:
    """Show or change the permission mode."""
    name = argument or (await pick_mode(face) if _can_pick(face) else "")
    if name:
        await _use_mode(face, name)
    else:
        face.say(f"Mode: {face.agent.mode} (there are {', '.join(MODES)})")


@command("default")
async def default(face: Face, _argument: str) -> None:
    """Mode default: what changes something is asked for."""
    await _use_mode(face, "default")


@command("auto")
async def auto(face: Face, _argument: str) -> None:
    """Mode auto: edits inside the project need no question."""
    await _use_mode(face, "auto")


@command("plan")
async def plan(face: Face, _argument: str) -> None:
    """Mode plan: the model reads and plans, changes nothing."""
    await _use_mode(face, "plan")


@command("bypass")
async def bypass(face: Face, _argument: str) -> None:
    """Mode bypass: nothing is asked; only deny rules hold."""
    await _use_mode(face, "bypass")


@command("retry")
async def retry(face: Face, _argument: str) -> None:
    """Send again after a failure, or let a cut answer go on."""
    await face.retry()


@command("tools", safe=ANY)
async def tools(face: Face, _argument: str) -> None:
    """List the tools the model may call; * changes something."""
    found = face.agent.box.tools
    if not found:
        face.say("This model has no tools.")
        return
    size = max(len(tool.name) for tool in found)
    for tool in found:
        mark = " " if tool.is_read_only else "*"
        first = tool.description.strip().split("\n", 1)[0]
        face.say(cut(f"{mark} {tool.name:{size}}  {first}", face.width))


@command("skills", safe=ANY)
async def skills(face: Face, _argument: str) -> None:
    """List the skills; /skill-name sends one."""
    found = skills_of(face)
    if not found:
        face.say(
            "There are no skills. Skills are read from"
            f" {folders.config_folder() / 'skills'} and .bareagent/skills."
        )
    for skill in found:
        where = "project" if skill.is_project else "yours"
        face.say(cut(f"/{skill.name}  {skill.description} ({where})", face.width))


@command("config", "[rules | forget N]", words=("rules", "forget"), safe=("", "rules"))
async def config(face: Face, argument: str) -> None:
    """Show settings that were changed; rules: what was granted.

    Settings are listed where they differ from their defaults; rules lists the permission rules granted in
    this session. forget N takes a granted rule back. Settings are changed in the file that is named.
    """
    if argument == "rules":
        _show_rules(face)
    elif match := re.fullmatch(r"forget\s+(\d{1,4})", argument):
        _forget_rule(face, int(match[1]))
    elif argument:
        raise UsageError(
            f"/config does not know {one_line(argument, 40)}.", "/config, /config rules, /config forget N"
        )
    else:
        face.say(f"Your settings: {folders.config_folder() / 'config.toml'}")
        changed = list(changed_settings(face.agent.config))
        face.say("\n".join(changed) or "All settings are at their defaults.")


def changed_settings(config: Config) -> Iterator[str]:
    """Yield `table.key = value` for each setting that is not at its default; what headers hold is not told."""
    now, usual = msgspec.to_builtins(config), msgspec.to_builtins(Config())
    for path, value in _leaves(now):
        if value != dict(_leaves(usual)).get(path):
            shown = "…" if ".headers." in path else msgspec.json.encode(value).decode()
            yield one_line(f"{path} = {shown}", 400)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and (value or not path):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _show_rules(face: Face) -> None:
    rules = face.agent.session.view.grants
    if not rules:
        face.say("No rule was granted in this session.")
    for row, rule in enumerate(rules, 1):
        face.say(f"{row}  {one_line(rule, max(face.width - 6, 8))}")


def _forget_rule(face: Face, row: int) -> None:
    rules = face.agent.session.view.grants
    if not 1 <= row <= len(rules):
        raise UsageError(f"There is no rule {row}.", "/config rules lists them")
    rule = rules[row - 1]
    face.agent.session.record(Grant(rule=rule, is_removed=True))
    face.say(f"No longer granted: {one_line(rule, max(face.width - 20, 8))}")


@command("theme", "[name]", argument="theme", safe=SHOWN)
async def theme(face: Face, argument: str) -> None:
    """Change the colours: auto, dark, light, ansi or mono."""
    name = argument or (await _pick_theme(face) if _can_pick(face) else "")
    if not name:
        others = ", ".join(name for name in THEME_NAMES if name != face.theme)
        face.say(f"Theme: {face.theme} (there are also {others})")
        return
    if name not in THEME_NAMES:
        raise UsageError(f"There is no theme {one_line(name, 40)}.", f"Themes: {', '.join(THEME_NAMES)}")
    face.use_theme(name)
    face.say(f"Theme: {name}. To keep it, set ui.theme.")


async def _pick_theme(face: Face) -> str:
    rows = [_theme_row(face, name) for name in THEME_NAMES]
    picked = await face.pick("Choose a theme", lambda _: rows)
    return picked.key if picked else ""


def _theme_row(face: Face, name: str) -> Row:
    detail = "in use" if name == face.theme else ""
    return Row(key=name, text=name, detail=detail, sample=face.sample(name, _SAMPLE))


@command("copy", "[n]", safe=ANY)
async def copy(face: Face, argument: str) -> None:
    """Put the last answer, or the nth from the end, on the clipboard."""
    if argument and not re.fullmatch(r"[1-9]\d{0,3}", argument):
        raise UsageError("/copy takes a number: 1 is the last answer.")
    text = last_answer(face.agent.session, int(argument or 1))
    if not text:
        face.say("There is no such answer.")
    elif face.copy(text):
        face.say(f"Copied {len(text):,} characters.")
    else:
        face.say("This terminal has no clipboard to copy to.", "warning")
