"""The doctor finds what is here and what is missing, on real folders, locks and sockets."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bareagent import doctor, platform
from bareagent.config_load import load
from bareagent.doctor import Check, Scene
from bareagent.errors import BadKey, ServerUnreachable
from bareagent.sanitize import clean
from tests.program import run
from tests.server.fixtures import StartServer

SECRET = "sk-ant-never-shown-0123456789"
HOUSE = '[provider]\nname = "house"\n[providers.house]\nbase_url = "http://127.0.0.1:9"\nmodel = "m"\n'


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)


def scene(tmp_path: Path, env: Mapping[str, str] | None = None, toml: str = "", project: str = "") -> Scene:
    files = []
    for name, text in (("user.toml", toml), ("project.toml", project)):
        (tmp_path / name).write_text(text, encoding="utf-8")
        files.append(tmp_path / name)
    loaded = load(files[0], files[1], {})
    return Scene(loaded=loaded, env=env or {}, cwd=tmp_path, sessions=tmp_path / "p" / ".transcripts")


def report(checks: list[Check]) -> str:
    return "\n".join(doctor.lines(checks))


@pytest.mark.parametrize("variable", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
async def test_it_says_where_the_key_is_and_never_the_key(tmp_path: Path, variable: str) -> None:
    checks = await doctor.examine(scene(tmp_path, {variable: SECRET}))
    (found,) = (check for check in checks if check.name == "key")
    assert found.ok
    assert variable in found.detail
    assert SECRET not in report(checks) + repr(checks)


@pytest.mark.parametrize(
    ("env", "toml", "expected", "is_ok"),
    [
        ({}, "", "no provider and no key", False),
        ({}, '[provider]\nname = "deepseek"', "deepseek: none found", False),
        ({}, '[provider]\nname = "ollama"', "none needed", True),
        ({"DEEPSEEK_API_KEY": SECRET}, '[provider]\nname = "deepseek"', "from DEEPSEEK_API_KEY", True),
        ({"ANTHROPIC_API_KEY": SECRET + "\nsecond"}, "", "more than a key", False),
        ({}, '[provider]\nname = "nobody"', "nobody", False),
        ({}, HOUSE + 'api_key_env = "HOUSE_KEY"', "house: none found", False),
        ({"HOUSE_KEY": SECRET}, HOUSE + 'api_key_env = "HOUSE_KEY"', "house: from HOUSE_KEY", True),
        ({}, HOUSE, "none needed", True),
        ({"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}, "", "none needed", True),
    ],
)
def test_keys(tmp_path: Path, env: dict[str, str], toml: str, expected: str, is_ok: bool) -> None:
    found = doctor.key(scene(tmp_path, env, toml))
    assert expected in found.detail
    assert found.ok is is_ok
    assert found.ok or found.fix


def test_a_missing_key_is_told_once_with_its_variable(tmp_path: Path) -> None:
    one = scene(tmp_path, {}, HOUSE + 'api_key_env = "HOUSE_KEY"')
    found = doctor.key(one)
    assert found.fix == "set HOUSE_KEY, or run `bareagent --provider house setup`"
    assert doctor.pinger(one) is None


@pytest.mark.parametrize("model", ["", 'model = "m"\n'])
async def test_a_local_server_that_is_not_running_is_told_at_once(tmp_path: Path, model: str) -> None:
    toml = f'[provider]\nname = "ollama"\n{model}[providers.ollama]\nbase_url = "http://127.0.0.1:9"\n'
    began = time.monotonic()
    (found,) = await doctor.server(doctor.pinger(scene(tmp_path, {}, toml)))
    assert found.detail == "nothing answers at http://127.0.0.1:9: is ollama running?"
    assert "network" not in found.fix
    assert time.monotonic() - began < 2


def test_without_a_key_the_doctor_is_content_but_says_so(tmp_path: Path) -> None:
    found = doctor.key(scene(tmp_path))
    assert not found.ok
    assert doctor.exit_code([found]) == 0
    assert "ANTHROPIC_API_KEY" in report([found])


async def refused() -> None:
    raise BadKey("The server does not take the key (401).", "copy the key again", status=401)


async def down() -> None:
    raise ServerUnreachable("Nothing answers at http://127.0.0.1:9.", "start it")


async def fine() -> None:
    return None


@pytest.mark.parametrize(
    ("ping", "expected", "code"),
    [(fine, "answers", 0), (refused, "copy the key again", 1), (down, "Nothing answers", 1)],
)
async def test_the_server_is_asked_once(
    ping: Callable[[], Awaitable[None]], expected: str, code: int
) -> None:
    found = await doctor.server(ping)
    assert expected in report(found)
    assert doctor.exit_code(found) == code


SCRIPT = """
import os, sys
from pathlib import Path
from bareagent import doctor
from bareagent.config_load import load
here = Path.cwd()
sys.exit(doctor.run(doctor.Scene(loaded=load(None, None, {}), env=os.environ, cwd=here, sessions=here / "s")))
"""


def run_doctor(folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    whole = {"PATH": os.environ["PATH"], "HOME": str(folder), **env}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=folder, env=whole, capture_output=True, text=True
    )


def test_it_asks_the_real_provider_once(tmp_path: Path, start_server: StartServer) -> None:
    server = start_server(default="ok")
    done = run_doctor(tmp_path, ANTHROPIC_BASE_URL=server.url, ANTHROPIC_API_KEY=SECRET)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "answers, and takes the key and the model" in done.stdout
    assert SECRET not in done.stdout + done.stderr


def test_a_wrong_key_fails_with_what_to_do(tmp_path: Path, start_server: StartServer) -> None:
    server = start_server(default="ok", keys=["another"], strict=False)
    done = run_doctor(tmp_path, ANTHROPIC_BASE_URL=server.url, ANTHROPIC_API_KEY=SECRET)
    assert done.returncode == 1, done.stdout + done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("!!"))
    assert line.split()[1] == "server"
    assert SECRET not in done.stdout + done.stderr


def test_it_can_be_read_where_the_terminal_has_no_unicode(tmp_path: Path) -> None:
    done = run_doctor(tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "UTF-8" in done.stdout


@asynccontextmanager
async def answering(answer: bytes | None) -> AsyncIterator[int]:
    """A server on the loopback that gives the same answer to everything; None: it never answers."""
    seen = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answer is None:
            await reader.read()
        else:
            writer.write(answer)
        writer.close()
        seen.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
        yield listener.sockets[0].getsockname()[1]
        await seen.wait()


def http(body: Any, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n\r\n{json.dumps(body)}".encode()


MODELS = {"data": [{"id": f"m{number}"} for number in range(7)]}


async def test_a_model_server_on_the_loopback_is_found() -> None:
    async with answering(http(MODELS)) as port:
        (found,) = await doctor.local_servers({"ollama": ("Ollama", port)})
    assert found.ok
    assert f"Ollama at 127.0.0.1:{port}: m0, m1, m2, m3, m4 and 2 more" in found.detail
    assert "--provider ollama" in found.detail


@pytest.mark.parametrize(
    "answer",
    [
        http(MODELS, "401 Unauthorized"),
        http({"data": 5}),
        http({"data": [{"name": "x"}]}),
        http([]),
        b"HTTP/1.1 200 OK\r\n\r\n<html>",
        b"\xff\xfe",
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000,
    ],
)
async def test_what_is_no_model_server_is_left_out(answer: bytes) -> None:
    async with answering(answer) as port:
        assert await doctor.local_servers({"vllm": ("vLLM", port)}) == []


async def test_a_silent_server_costs_half_a_second() -> None:
    began = time.monotonic()
    async with answering(None) as port:
        assert await doctor.local_servers({"a": ("A", port), "b": ("B", 1)}) == []
    assert time.monotonic() - began < 5 * doctor.PROBE_S


def test_a_session_that_a_program_writes_is_named(tmp_path: Path) -> None:
    for name in ("20260101-000000-aaaa", "20260101-000000-bbbb"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.jsonl").touch()
        (tmp_path / name / "lock").write_text("pid 12 on host\x1b[31m since noon\n")
    with (tmp_path / "20260101-000000-bbbb" / "log.jsonl").open("ab") as held:
        assert platform.try_lock(held)
        found = list(doctor.writers(tmp_path))
    assert [check.detail.partition(":")[0] for check in found] == ["20260101-000000-bbbb"]
    assert "pid 12 on host since noon" in report(found)
    assert list(doctor.writers(tmp_path)) == []


def test_locks_are_tried_on_the_disk_of_the_sessions(tmp_path: Path) -> None:
    found = doctor.lock(tmp_path / "not" / "made" / "yet")
    assert found.ok
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert doctor.folder("x", tmp_path).ok
    assert "not made yet" in doctor.folder("x", tmp_path / "a" / "b").detail
    found = doctor.folder("sessions", tmp_path / "file" / ".transcripts")
    assert not found.ok
    assert doctor.exit_code([found]) == 1
    assert str(tmp_path / "file") in found.fix


def test_what_a_project_may_not_set_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.toml").touch()
    looked = scene(tmp_path, project='[provider]\nbase_url = "http://elsewhere"\n')
    found = doctor.settings(looked.loaded, looked.cwd)
    assert not found.ok
    assert "base_url" in found.detail
    assert f"{tmp_path / 'config.toml'} is not read" in found.detail


async def test_the_report_is_clean_lines_and_nothing_is_written(tmp_path: Path) -> None:
    hostile = tmp_path / "pro\x1b]0;owned\x07ject"
    looked = Scene(
        loaded=scene(tmp_path).loaded, env={"TERM": "xt\nerm\x1b[2J"}, cwd=tmp_path, sessions=hostile
    )
    before = sorted(tmp_path.rglob("*"))
    checks = await doctor.examine(looked)
    written = list(doctor.lines(checks))
    assert all(clean(line) == line and "\n" not in line for line in written)
    assert sorted(tmp_path.rglob("*")) == before
    assert {"versions", "settings", "key", "local model", "sessions", "lock", "terminal", "git", "rg"} <= {
        check.name for check in checks
    }
    assert all(check.fix for check in checks if not check.ok)


def test_looking_imports_nothing_heavy() -> None:
    script = (
        "import sys, bareagent.doctor; print({'anthropic', 'xllamacpp', 'prompt_toolkit'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


def test_a_broken_settings_file_is_part_of_the_report(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    broken = tmp_path / "broken.toml"
    broken.write_text("[ui]\nfoo = 1\n")
    done = run(["--config", str(broken), "doctor"], project, home=tmp_path / "home")
    assert done.returncode == 1
    assert f"{broken}:2: [ui] foo: no such setting" in done.stdout
    assert "versions" in done.stdout
