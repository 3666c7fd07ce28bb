"""Puts a program together: settings, provider, session, tools, agent. The only composition there is."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bareagent import debuglog, folders
from bareagent.agent import Agent
from bareagent.calls import Toolbox
from bareagent.config import Config
from bareagent.config_load import Loaded, load
from bareagent.errors import BareAgentError, SessionError, SessionLocked, SessionNotFound, UsageError
from bareagent.options import Options
from bareagent.provider import chosen_name, find_key, make_provider
from bareagent.provider.embedded import EmbeddedProvider
from bareagent.provider.local import is_demo_ready, weights
from bareagent.seams import Ask, Emit, Provider, Tool
from bareagent.session import Session
from bareagent.spawn import Spawner
from bareagent.store.places import project_root
from bareagent.store.transcripts import TranscriptManager
from bareagent.tools import standard_tools, trust
from bareagent.tools.background import Jobs
from bareagent.tools.rules import Rules
from bareagent.tools.skills import LoadSkill, skill_folders
from bareagent.tools.subagent import Subagent
from bareagent.tools.systemprompt import ProjectHead

if TYPE_CHECKING:
    from bareagent.repl.door import Door

LOCAL = "local"
PICK = "?"
"""What `--resume` says for choosing from a list."""


class Setting(msgspec.Struct, kw_only=True):
    """Where the program stands: folder, project, settings; `notes` are lines to show at the start.

    `steering` are the project's files that would steer the program; they are used if `is_trusted`.
    """

    cwd: Path
    root: Path
    loaded: Loaded
    steering: list[Path] = msgspec.field(default_factory=list)
    is_trusted: bool = True
    notes: list[str] = msgspec.field(default_factory=list)

    @property
    def config(self) -> Config:
        """The merged settings."""
        return self.loaded.config


class Program(msgspec.Struct, kw_only=True):
    """A program put together."""

    agent: Agent
    setting: Setting
    manager: TranscriptManager


def settings(options: Options, env: Mapping[str, str] = os.environ) -> Setting:
    """Read the settings for the working directory. Raises: ConfigError.

    A project the user said no to is read as if it had no files of its own.
    """
    cwd = working_directory()
    root = project_root(cwd)
    user_file = options.config or folders.config_folder() / "config.toml"
    if options.config is not None and not options.config.is_file():
        raise SessionNotFound(f"{options.config}: no such file", "check --config")
    steering = trust.steering_files(cwd, root)
    is_trusted = not steering or _is_welcome(root)
    project_file = root / ".bareagent" / "config.toml" if is_trusted else None
    loaded = load(user_file, project_file, env, _flags(options))
    permissions = loaded.config.permissions
    Rules.of(permissions.allow, permissions.ask, permissions.deny)
    setting = Setting(cwd=cwd, root=root, loaded=loaded, steering=steering, is_trusted=is_trusted)
    setting.notes += loaded.refused
    stray = cwd / "config.toml"
    if stray.is_file() and stray != user_file:
        setting.notes.append(f"{stray} is not read; settings belong into {user_file}")
    return setting


def _is_welcome(root: Path) -> bool:
    """Tell whether a project's files may steer: until the user says no, they may."""
    data = folders.data_folder()
    return not trust.is_answered(root, data) or trust.is_trusted(root, data)


def is_new_folder(setting: Setting) -> bool:
    """Tell whether the user is to be asked if the project's own files may steer the program."""
    return bool(setting.steering) and not trust.is_answered(setting.root, folders.data_folder())


def remember_trust(setting: Setting, *, is_trusted: bool) -> None:
    """Keep the user's answer; where it cannot be kept it holds for this time only."""
    with contextlib.suppress(OSError):
        trust.remember(setting.root, folders.data_folder(), is_trusted=is_trusted)


def _flags(options: Options) -> dict[str, Any]:
    flags = {
        "permissions.mode": options.mode,
        "limits.turns": options.max_turns,
        "limits.cost_usd": options.max_cost,
        "session.dir": str(options.transcripts.absolute()) if options.transcripts else "",
    }
    return {key: value for key, value in flags.items() if value}


def working_directory() -> Path:
    """Return the working directory. Raises: UsageError where it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError("The working directory no longer exists.", "cd to another one") from None


async def build(options: Options, setting: Setting, env: Mapping[str, str], emit: Emit, ask: Ask) -> Program:
    """Put the program together. Raises: BareAgentError."""
    if options.is_debug:
        emit = _debugged(options, setting, env, emit)
    provider = await choose_provider(options, setting, env)
    manager = saved_sessions(setting, options, env)
    session = open_session(options, setting, manager)
    session.listeners.append(emit)
    box = _toolbox(setting, provider, env)
    head = PromptHead(setting, provider)
    box.skills = head.project.skills
    box.spawn = Spawner(session, provider, box, setting.config, emit, ask, head)
    agent = Agent(session, provider, box, setting.config, emit, ask, head=head, manager=manager)
    await _bring_in_line(agent, options)
    return Program(agent=agent, setting=setting, manager=manager)


def _debugged(options: Options, setting: Setting, env: Mapping[str, str], emit: Emit) -> Emit:
    key = find_key(setting.config, env, options.provider).key
    path = debuglog.start([key] if key else [])
    setting.notes.append(f"Debug log: {path}" if path else "No debug log could be written.")
    return debuglog.heard_by(emit)


def saved_sessions(setting: Setting, options: Options, env: Mapping[str, str]) -> TranscriptManager:
    """Return the project's saved sessions; the program's own key is masked in them, whatever its shape."""
    key = find_key(setting.config, env, options.provider).key
    table = setting.config.session
    return TranscriptManager(
        setting.root,
        folders.data_folder(),
        table.dir,
        redact=table.redact,
        keys=[key] if key else [],
    )


async def choose_provider(options: Options, setting: Setting, env: Mapping[str, str]) -> Provider:
    """Return the provider meant; with none and a terminal, the embedded model. Raises: ProviderError."""
    config = setting.config
    name = chosen_name(config, env, options.provider)
    if name == LOCAL:
        return _embedded(config)
    if not name and options.text is None and is_demo_ready():
        setting.notes += demo_notes()
        return _embedded(config)
    return await make_provider(config, env, name=options.provider, model=options.model)


def _embedded(config: Config) -> EmbeddedProvider:
    entry = config.providers.get(LOCAL)
    return EmbeddedProvider(weights(entry.model_file if entry else ""), config)


def demo_notes() -> list[str]:
    """Return the screen of five lines for a start without a key."""
    return [
        "No key was found. To talk to a real model:",
        "  bareagent setup                      asks for a key and keeps it (or set ANTHROPIC_API_KEY)",
        "  bareagent --provider ollama          uses a server of your own (doctor finds those that run)",
        "  [providers.local] model_file = PATH  runs a GGUF file of your own, with all tools",
        "What runs now is a small demonstration model: it chats, often wrongly, and has no tools.",
    ]


def open_session(options: Options, setting: Setting, manager: TranscriptManager) -> Session:
    """Return the session meant: resumed, continued, new, or in memory. Raises: SessionError."""
    if options.is_unsaved:
        return Session.in_memory(setting.cwd)
    if options.resume == PICK and options.text is not None:
        raise UsageError("--resume ? asks which session, which print mode cannot.", "give an id")
    if options.resume and options.resume != PICK:
        return Session.open(manager, options.resume)
    if options.go_on:
        newest = manager.newest()
        if newest is None:
            raise SessionNotFound("No saved sessions.", "start without --continue")
        return Session.open(manager, newest.id)
    try:
        return Session.new(manager, setting.cwd)
    except SessionError as error:
        setting.notes.append(f"{error} This conversation lives in memory only.")
        return Session.in_memory(setting.cwd)


def _toolbox(setting: Setting, provider: Provider, env: Mapping[str, str]) -> Toolbox:
    own = folders.config_folder()
    tools: list[Tool] = []
    if provider.model.capabilities.tools:
        skill = LoadSkill(own, is_trusted=setting.is_trusted)
        tools = [*standard_tools(setting.config), skill, Subagent()]
    return Toolbox(
        tools=tools,
        cwd=setting.cwd,
        root=setting.root,
        jobs=Jobs(),
        program_paths=folders.program_folders(),
        free_paths=skill_folders(setting.root, user_folder=own),
        environ=dict(env),
    )


class PromptHead:
    """The system prompt of a folder; the embedded demonstration has its own short one."""

    def __init__(self, setting: Setting, provider: Provider) -> None:
        """Read nothing yet."""
        self.project = ProjectHead(
            setting.cwd,
            setting.root,
            user_folder=folders.config_folder(),
            is_trusted=setting.is_trusted,
        )
        self._provider = provider

    def text(self) -> str:
        """Return the system prompt."""
        return self.project.text(is_demo=self._provider.model.is_demo)

    def changed(self) -> str | None:
        """Return what to tell of changed instructions."""
        return None if self._provider.model.is_demo else self.project.changed()


async def _bring_in_line(agent: Agent, options: Options) -> None:
    """Give a resumed session the model and mode it had, unless the command line says another."""
    view = agent.session.view
    agent.restore()
    if options.mode:
        agent.set_mode(options.mode)
    if view.model and not options.model and view.provider == agent.provider.name:
        await agent.provider.select(view.model)
    agent.note_model()


def start_face(options: Options) -> int:
    """Run print mode or the REPL and return the exit code."""
    return asyncio.run(_print(options) if options.text is not None else _repl(options))


async def _print(options: Options) -> int:
    from bareagent.headless import Printer, answer_once, prompt_text, report_failure

    printer = Printer(options.output, sys.stdout, sys.stderr)
    try:
        text = prompt_text(options.text or "", sys.stdin)
        setting = _settings_unasked(options)
        program = await build(options, setting, os.environ, printer, printer.refuse)
    except BareAgentError as error:
        report_failure(error, options.output, printer)
        raise
    for note in [*setting.notes, *program.agent.session.notes]:
        printer.note(note)
    try:
        return await answer_once(program.agent, text, options.output, printer)
    finally:
        await program.agent.close()


async def furnish(door: "Door", options: Options) -> None:
    """Put a program behind a first prompt. Raises: BareAgentError."""
    from bareagent.repl.app import Repl

    setting = settings(options)
    repl = Repl(
        setting.config.ui,
        setting.root,
        door.hands,
        has_colour=options.has_colour,
        is_debug=options.is_debug,
    )
    door.opened = repl
    if is_new_folder(setting):
        setting = await _after_asking(setting, options, repl.confirm)
    first = "/resume" if options.resume == PICK else ""
    try:
        program = await build(options, setting, os.environ, repl.emit, repl.ask)
    except SessionLocked:
        # The conversation begins in a new session; /resume then offers what can be done with that one.
        first = f"/resume {options.resume or _newest(setting, options)}"
        fresh = msgspec.structs.replace(options, go_on=False, resume="")
        program = await build(fresh, setting, os.environ, repl.emit, repl.ask)
    door.history.keep(program.agent.session.mask)
    repl.begin(program.agent, [*setting.notes, *program.agent.session.notes], is_trusted=setting.is_trusted)
    if first:
        repl.take(first)


def _newest(setting: Setting, options: Options) -> str:
    newest = saved_sessions(setting, options, os.environ).newest()
    return newest.id if newest else ""


async def _after_asking(
    setting: Setting, options: Options, confirm: Callable[[str], Awaitable[bool]]
) -> Setting:
    """Ask once whether a project's own files may steer; what was said holds from here on."""
    is_trusted = await confirm(
        f"This folder has files that would steer the program: {_steering_names(setting)}. Use them?"
    )
    remember_trust(setting, is_trusted=is_trusted)
    return settings(options)


def _steering_names(setting: Setting) -> str:
    names = ", ".join(str(path.relative_to(setting.root)) for path in setting.steering[:5])
    return names + (f" and {len(setting.steering) - 5} more" if len(setting.steering) > 5 else "")


def _settings_unasked(options: Options) -> Setting:
    """Read the settings where nobody can be asked: a new folder's own files are used, and that is said."""
    setting = settings(options)
    if is_new_folder(setting):
        used = f"Used without having been asked about: {_steering_names(setting)}"
        setting.notes.append(f"{used} (bareagent in a terminal asks once, and keeps a no)")
    return setting


async def _repl(options: Options) -> int:
    """Talk in plain lines."""
    from bareagent.repl.app import bordered
    from bareagent.repl.plain import PlainRepl

    setting = _settings_unasked(options)
    repl = PlainRepl(setting.config.ui, partial(bordered, is_debug=options.is_debug))
    program = await build(options, setting, os.environ, repl.emit, repl.ask)
    notes = [*setting.notes, *program.agent.session.notes]
    first = "/resume" if options.resume == PICK else ""
    return await repl.run(program.agent, notes, is_trusted=setting.is_trusted, first=first)
