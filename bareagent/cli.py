"""The command line: flags, subcommands, and the border where every error becomes a line and an exit code.

Only Typer is loaded here; what a command needs is composed in `compose.py`, loaded when it runs.
"""

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer.exceptions import Abort, Exit, TyperException

from bareagent import __version__
from bareagent.errors import BareAgentError, UsageError

if TYPE_CHECKING:
    from bareagent.options import Options

EXIT_FAULT = 70
EXIT_OUTPUT = 74
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="bareagent",
    help="A terminal agent whose memory forgets on purpose and never loses anything.",
    add_completion=False,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
sessions_app = typer.Typer(help="List, show, check, repair, remove and export saved sessions.")
local_app = typer.Typer(help="The embedded model.")
app.add_typer(sessions_app, name="sessions")
app.add_typer(local_app, name="local")

Output = Literal["text", "json", "stream-json"]
Mode = Literal["default", "auto", "plan", "bypass"]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bareagent {__version__}")
        raise typer.Exit


PrintText = Annotated[
    str | None,
    typer.Option("-p", "--print", metavar="TEXT", help="Answer TEXT and leave; - reads stdin."),
]
Continue = Annotated[bool, typer.Option("-c", "--continue", help="Go on with this project's newest session.")]


def _named(value: str | None) -> str | None:
    # An empty variable in a script must not begin a new session unseen.
    if value is not None and not value.strip():
        raise UsageError("--resume needs a session.", "? picks one, sessions list shows them")
    return value


Resume = Annotated[
    str | None,
    typer.Option("-r", "--resume", metavar="ID", callback=_named, help="Go on with a session; ? picks one."),
]
OutputForm = Annotated[
    Output,
    typer.Option(metavar="FORM", show_default=False, help="What -p prints: text, json or stream-json."),
]
ModeName = Annotated[
    Mode | None, typer.Option(metavar="MODE", help="Permission mode: default, auto, plan or bypass.")
]
ProviderName = Annotated[str, typer.Option(metavar="NAME", help="A preset, a provider of yours, or local.")]
SessionsFolder = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where sessions are saved.")]
SettingsFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Settings instead of the user's file.")
]


def _limit(value: float) -> float:
    if value < 0:
        raise UsageError("--max-turns and --max-cost take no negative number.")
    return value


MaxTurns = Annotated[
    int,
    typer.Option(metavar="N", callback=_limit, show_default=False, help="Model replies in a run; 0: as set."),
]
MaxCost = Annotated[
    float,
    typer.Option(metavar="USD", callback=_limit, show_default=False, help="Dollars in all; 0: as set."),
]
Version = Annotated[
    bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
]


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    print_text: PrintText = None,
    output: OutputForm = "text",
    continue_: Continue = False,
    resume: Resume = None,
    mode: ModeName = None,
    model: Annotated[str, typer.Option("-m", "--model", metavar="NAME", help="The model.")] = "",
    provider: ProviderName = "",
    max_turns: MaxTurns = 0,
    max_cost: MaxCost = 0.0,
    no_session: Annotated[bool, typer.Option("--no-session", help="Save nothing.")] = False,
    transcripts: SessionsFolder = None,
    config: SettingsFile = None,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Write a debug log; show tracebacks.")] = False,
    _: Version = False,
) -> None:
    """Start a conversation, or answer one text with -p."""
    from bareagent.options import Options

    options = Options(
        text=print_text,
        output=output,
        go_on=continue_,
        resume=resume or "",
        mode=mode or "",
        model=model,
        provider=provider,
        max_turns=max_turns,
        max_cost=max_cost,
        is_unsaved=no_session,
        transcripts=transcripts,
        config=config,
        has_colour=not no_color,
        is_debug=debug,
    )
    context.obj = options
    if context.invoked_subcommand is None:
        raise typer.Exit(_start(options))


def _start(options: "Options") -> int:
    if options.text is None:
        from bareagent.front import start_repl

        return start_repl(options)
    from bareagent.compose import start_face

    return start_face(options)


@app.command()
def doctor(context: typer.Context) -> None:
    """Check the installation, the key, the server and the terminal, and say what to do."""
    from bareagent.cli_checks import run_doctor

    raise typer.Exit(run_doctor(context.obj))


@app.command()
def paths(context: typer.Context) -> None:
    """List every folder and file the program uses."""
    from bareagent.cli_checks import list_paths

    for name, path in list_paths(context.obj):
        typer.echo(f"{name:12} {path}")


@app.command()
def models(context: typer.Context) -> None:
    """List the models known, with window and prices."""
    from bareagent.cli_checks import list_models

    for line in list_models(context.obj):
        typer.echo(line)


@app.command()
def setup(context: typer.Context) -> None:
    """Ask for a key, try it with one call and keep it in your configuration folder."""
    from bareagent.cli_checks import run_setup

    raise typer.Exit(run_setup(context.obj))


@local_app.command("demo")
def local_demo() -> None:
    """Fetch the weights of the demonstration model (93 MB)."""
    from bareagent.provider.local import fetch_demo

    typer.echo(f"The demonstration model is ready: {fetch_demo()}")


def main() -> None:
    """Run the program and leave with its exit code."""
    from bareagent import cli_sessions

    cli_sessions.register(sessions_app)
    _replace_closed_streams()
    sys.exit(_flushed(run(sys.argv[1:])))


def _replace_closed_streams() -> None:
    """Let a stream that the caller closed lead nowhere, so that no file of ours gets its number.

    What would be written to stdout must not get lost unseen: it can only be read, so that writing fails.
    """
    for name, mode, way in (
        ("stdin", "r", os.O_RDWR),
        ("stdout", "w", os.O_RDONLY),
        ("stderr", "w", os.O_RDWR),
    ):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, way), mode))


def _flushed(code: int) -> int:
    """Return the exit code; what stdout still holds is written, or goes nowhere where nobody takes it."""
    try:
        sys.stdout.flush()
    except OSError:
        # So that the interpreter's exit does not complain of it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def run(arguments: Sequence[str]) -> int:
    """Run the program with these arguments and return its exit code; errors are told on stderr."""
    is_debug = "--debug" in arguments
    try:
        result = app(args=list(arguments), prog_name="bareagent", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except Exit as left:
        return left.exit_code
    except SystemExit:
        # Typer's end where nobody reads stdout any more: who closed the pipe has had enough, that is no fault.
        return 0
    except TyperException as error:
        return _tell(UsageError(error.format_message(), "bareagent --help lists flags and commands"))
    except (KeyboardInterrupt, Abort):
        return EXIT_INTERRUPTED
    except BareAgentError as error:
        if is_debug:
            raise
        return _tell(error)
    except Exception as error:
        if is_debug:
            raise
        return _no_room(error) if _is_without_room(error) else _crash(error)


def _tell(error: BareAgentError) -> int:
    from bareagent.sanitize import clean

    _write(f"bareagent: {clean(str(error))}")
    if error.hint:
        _write(f"  {clean(error.hint)}")
    return error.exit_code


def _is_without_room(error: Exception) -> bool:
    """A write failed, not the opening of a file, which would have its name: its place is full or closed."""
    if not isinstance(error, OSError) or error.filename is not None:
        return False
    return error.errno in _FULL or (error.errno == errno.EBADF and sys.__stdout__ is None)


def _no_room(error: Exception) -> int:
    number = getattr(error, "errno", errno.EIO)
    words = "stdout is closed" if number == errno.EBADF else os.strerror(number)
    _write(f"bareagent: The output cannot be written: {words}.")
    return EXIT_OUTPUT


def _crash(error: Exception) -> int:
    from bareagent.crash import report

    _write(report(error))
    return EXIT_FAULT


def _write(line: str) -> None:
    """Write to stderr what its encoding can say; a closed stderr is no fault."""
    try:
        sys.stderr.write(line.encode("utf-8", "replace").decode("utf-8") + "\n")
    except (OSError, UnicodeError, ValueError):
        return
