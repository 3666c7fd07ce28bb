"""Nothing leaves the machine but requests to the configured provider: every other socket is refused.

The sockets of the program and of its Python children are watched from inside (`watched/sitecustomize.py`).
"""

import json
from pathlib import Path

import pytest

from tests.program import run
from tests.server.fixtures import StartServer
from tests.server.script import load as load_script
from tests.server.server import Server

HERE = Path(__file__).parent
TASK = "Write slug.py with a function slug(title), and a test for it."


class Watched:
    """Runs the program with its sockets watched; `seen` are the addresses it reached for."""

    def __init__(self, folder: Path, server: Server | None = None) -> None:
        self.project = folder / "project"
        self.project.mkdir()
        self.home = folder / "home"
        self.notes = folder / "notes"
        self.notes.touch()
        self.server = server
        self.address = server.url.removeprefix("http://") if server else ""

    def run(self, *arguments: str, **env: str) -> "tuple[int, str, str]":
        watched = {
            "PYTHONPATH": str(HERE / "watched"),
            "WATCHED_NOTES": str(self.notes),
            "WATCHED_ALLOWED": self.address,
            **env,
        }
        done = run(arguments, self.project, home=self.home, server=self.server, env=watched)
        return done.returncode, done.stdout, done.stderr

    def _noted(self, *, programs: bool) -> set[str]:
        lines = [line.split(" ", 1) for line in self.notes.read_text().splitlines()]
        return {what for event, what in lines if (event == "subprocess.Popen") == programs}

    @property
    def seen(self) -> set[str]:
        """The addresses it reached for, and the names it looked up."""
        return self._noted(programs=False)

    @property
    def started(self) -> set[str]:
        """The programs it started."""
        return {Path(program).name for program in self._noted(programs=True)}


def test_a_whole_task_reaches_for_the_provider_alone(start_server: StartServer, tmp_path: Path) -> None:
    steps, options = load_script(HERE / "server" / "scripts" / "task.json")
    watched = Watched(tmp_path, start_server(steps, **options))
    code, out, err = watched.run("-p", TASK, "--mode", "bypass", "--output", "json")
    assert code == 0, err
    assert json.loads(out.splitlines()[-1])["turns"] == 12
    assert watched.seen == {watched.address}
    assert watched.started <= {"bash", "sh", "rg", "git"}


def test_without_a_server_named_the_provider_s_own_is_all_it_reaches_for(tmp_path: Path) -> None:
    """That the watch sees and refuses is shown here too."""
    watched = Watched(tmp_path)
    code, out, err = watched.run(
        "-p", "hi", ANTHROPIC_API_KEY="sk-ant-test", BAREAGENT_RETRY_MAX_ATTEMPTS="1"
    )
    assert (code, out) == (69, ""), err
    assert watched.seen == {"api.anthropic.com:443"}
    assert watched.started <= {"git"}


@pytest.mark.parametrize("command", [("--version",), ("paths",), ("models",), ("sessions", "list")])
def test_what_needs_no_model_reaches_for_nothing(tmp_path: Path, command: tuple[str, ...]) -> None:
    watched = Watched(tmp_path)
    code, _, err = watched.run(*command)
    assert code == 0, err
    assert watched.seen == set()


def test_doctor_looks_for_servers_on_this_machine_only(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.run("doctor")
    assert watched.seen, "it looks for local servers"
    assert {address.rpartition(":")[0] for address in watched.seen} <= {"127.0.0.1", "localhost", "::1"}
