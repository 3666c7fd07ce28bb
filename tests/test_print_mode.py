"""Print mode, through the real program: outcomes, exit codes, what stands on stdout, what is kept."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bareagent.entries import MessageEntry
from bareagent.session import Session, fold
from bareagent.store.transcripts import TranscriptManager
from tests.program import PROGRAM, environment, logs, result_of, run
from tests.server.fixtures import StartServer
from tests.server.script import load as load_script

SCRIPTS = Path(__file__).parent / "server" / "scripts"
TASK = "Write slug.py with a function slug(title), and a test for it."


def test_the_task_of_twelve_turns(start_server: StartServer, project: Path, home: Path) -> None:
    steps, options = load_script(SCRIPTS / "task.json")
    server = start_server(steps, **options)
    done = run(["-p", TASK, "--mode", "bypass", "--output", "json"], project, home=home, server=server)
    result = result_of(done)
    assert (done.returncode, result["stop"], result["turns"]) == (0, "end_turn", 12)
    assert result["is_error"] is False
    assert result["cost_usd"] > 0
    tested = subprocess.run(
        [sys.executable, "-B", "-m", "unittest", "test_slug"], cwd=project, check=False, timeout=60
    )
    assert tested.returncode == 0
    assert server.refused == []
    assert server.prefix_breaks() == []
    server.check_done()
    (log,) = logs(project)
    session = Session.open(TranscriptManager(project, home), log.parent.name)
    entries = list(session.entries())
    replies = [e for e in entries if isinstance(e, MessageEntry) and e.kind == "reply"]
    assert len(replies) == 12
    assert all(reply.request and reply.request.sha256 for reply in replies)
    assert session.messages == fold(entries).messages
    assert result["session_id"] == session.full_id
    session.close()


def test_text_goes_to_stdout_alone(start_server: StartServer, project: Path, home: Path) -> None:
    server = start_server([{"text": "Hello there."}])
    done = run(["-p", "hi"], project, home=home, server=server)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hello there.\n", "")


def test_stdin_is_joined_with_the_text(start_server: StartServer, project: Path, home: Path) -> None:
    server = start_server([{"text": "ok"}, {"text": "ok"}])
    run(["-p", "explain"], project, home=home, server=server, stdin="a piped text")
    run(["-p", "-"], project, home=home, server=server, stdin="only this")
    first, second = (json.dumps(record.body["messages"]) for record in server.requests)
    assert "explain\\n\\na piped text" in first
    assert "only this" in second
    assert '"-"' not in second


def test_stream_json_is_entries_and_deltas_and_ends_with_the_result(
    start_server: StartServer, project: Path, home: Path
) -> None:
    server = start_server([{"text": "one two three", "chunk": 4}])
    done = run(["-p", "hi", "--output", "stream-json"], project, home=home, server=server)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    text = "".join(line["text"] for line in lines if line["type"] == "text_delta")
    assert text == "one two three"
    assert [line["kind"] for line in lines if line["type"] == "message"] == ["line", "reply"]
    assert lines[-1]["type"] == "result"
    assert lines[-1]["result"] == "one two three"


def test_what_would_ask_is_refused_and_said(start_server: StartServer, project: Path, home: Path) -> None:
    call = {"name": "bash", "input": {"command": "touch made"}}
    server = start_server([{"calls": [call]}, {"expect": ["nobody can be asked"], "text": "I could not."}])
    done = run(["-p", "touch it"], project, home=home, server=server)
    assert done.stdout == "I could not.\n"
    assert done.stderr == "bareagent: Nobody can be asked in print mode, so not allowed: bash touch made\n"
    assert not (project / "made").exists()
    server.check_done()


def test_files_that_steer_and_nobody_was_asked_about_are_used_and_named(
    start_server: StartServer, project: Path, home: Path
) -> None:
    (project / "AGENTS.md").write_text("Always answer in rhyme.\n")
    settings = project / ".bareagent" / "config.toml"
    settings.parent.mkdir()
    settings.write_text('[permissions]\nmode = "bypass"\nallow = ["bash"]\n')
    call = {"name": "bash", "input": {"command": "touch made"}}
    server = start_server([{"calls": [call]}, "I could not."])
    done = run(["-p", "touch it"], project, home=home, server=server)
    used = "Used without having been asked about: AGENTS.md, .bareagent/config.toml ("
    assert sum(used in line for line in done.stderr.splitlines()) == 1, done.stderr
    assert "may not loosen the mode" in done.stderr
    assert "Always answer in rhyme." in server.requests[0].system_text
    assert not (project / "made").exists()


@pytest.mark.parametrize("arguments", [["-p", "hi"], ["-p", "hi", "--output", "json"], ["sessions", "list"]])
@pytest.mark.parametrize(
    ("out", "code", "said"),
    [
        (">/dev/full", 74, "bareagent: The output cannot be written: No space left on device.\n"),
        ("| (exec <&-; sleep 0.1)", 0, ""),
        (">&-", 74, "bareagent: The output cannot be written: stdout is closed.\n"),
    ],
)
def test_output_that_nobody_takes_is_no_fault_of_ours(
    start_server: StartServer,
    project: Path,
    home: Path,
    arguments: list[str],
    out: str,
    code: int,
    said: str,
) -> None:
    server = start_server([{"text": "Hello."}])
    done = subprocess.run(
        ["/bin/bash", "-c", f'set -o pipefail; "$@" {out}', "-", *PROGRAM, *arguments],
        cwd=project,
        env=environment(home, server),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, said)


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        ({"kind": "status", "status": 401}, 77, "key"),
        ({"kind": "status", "status": 400}, 1, ""),
    ],
)
def test_exit_codes_of_refusals(
    start_server: StartServer,
    project: Path,
    home: Path,
    fault: dict[str, object],
    code: int,
    said: str,
) -> None:
    server = start_server([{"fault": fault}])
    done = run(["-p", "hi", "--output", "json"], project, home=home, server=server)
    result = result_of(done)
    assert done.returncode == code, done.stderr
    assert result["stop"] == "error"
    assert result["is_error"] is True
    assert said in result["error"].lower()
    assert "Traceback" not in done.stderr
    (log,) = logs(project)
    assert '"hi"' in log.read_text()


def test_an_unknown_model_is_69(start_server: StartServer, project: Path, home: Path) -> None:
    server = start_server([])
    done = run(["-p", "hi", "--model", "nope-1"], project, home=home, server=server)
    assert done.returncode == 69
    assert "nope-1" in done.stderr
    assert done.stdout == ""


def test_try_later_is_75_after_all_attempts(start_server: StartServer, project: Path, home: Path) -> None:
    server = start_server([{"fault": {"kind": "status", "status": 529, "times": 99}}])
    env = {"BAREAGENT_RETRY_BASE_S": "0", "BAREAGENT_RETRY_MAX_ATTEMPTS": "3"}
    done = run(["-p", "hi"], project, home=home, server=server, env=env)
    assert done.returncode == 75
    assert len(server.requests) == 3
    assert done.stdout == ""


def test_no_server_is_69_and_no_key_is_77(project: Path, home: Path) -> None:
    env = {
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
        "ANTHROPIC_API_KEY": "k",
        "BAREAGENT_RETRY_BASE_S": "0",
        "BAREAGENT_RETRY_MAX_ATTEMPTS": "2",
    }
    assert run(["-p", "hi"], project, home=home, env=env).returncode == 69
    done = run(["-p", "hi"], project, home=home)
    assert done.returncode == 77
    assert len(done.stderr.strip().splitlines()) <= 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--nonsense"], 2),
        (["nonsense"], 2),
        (["-p", "  "], 2),
        (["-p", "hi", "--resume", "20200101-000000-aaaa"], 66),
        (["-p", "hi", "--continue"], 66),
        (["-p", "hi", "--config", "no.toml"], 66),
        (["-p", "hi", "--provider", "nobody"], 78),
    ],
)
def test_bad_input_is_one_or_two_lines_and_a_code(
    start_server: StartServer, project: Path, home: Path, arguments: list[str], code: int
) -> None:
    server = start_server([])
    done = run(arguments, project, home=home, server=server)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert 1 <= len(done.stderr.strip().splitlines()) <= 2
    assert done.stderr.startswith("bareagent: ")


def test_limits_end_with_4(start_server: StartServer, project: Path, home: Path) -> None:
    call = {"name": "glob", "input": {"pattern": "*"}}
    steps = [{"calls": [{"name": "glob", "input": {"pattern": f"*{n}"}}]} for n in range(4)]
    server = start_server([*steps, {"text": "done"}])
    done = run(["-p", "hi", "--max-turns", "3", "--output", "json"], project, home=home, server=server)
    assert (done.returncode, result_of(done)["stop"], result_of(done)["turns"]) == (
        4,
        "max_turns",
        3,
    )
    assert len(server.requests) == 3
    dear = start_server([{"calls": [call], "usage_output": 100_000}, {"text": "never"}])
    done = run(["-p", "hi", "--max-cost", "0.5", "--output", "json"], project, home=home, server=dear)
    assert (done.returncode, result_of(done)["stop"]) == (4, "max_cost")
    assert " on top of $" in result_of(done)["error"]
    assert result_of(done)["error"].endswith(" spent; the limit is $0.5.")
    assert len(dear.requests) == 1


def test_continue_goes_on_with_the_same_prefix(start_server: StartServer, project: Path, home: Path) -> None:
    server = start_server([{"text": "first answer"}, {"text": "second answer"}])
    run(["-p", "one"], project, home=home, server=server)
    done = run(["-p", "two", "--continue", "--output", "json"], project, home=home, server=server)
    assert result_of(done)["result"] == "second answer"
    assert server.prefix_breaks() == []
    assert len(logs(project)) == 1
    assert "first answer" in json.dumps(server.requests[1].body["messages"])


def test_an_answer_cut_at_its_limit_goes_on_once(
    start_server: StartServer, project: Path, home: Path
) -> None:
    server = start_server([{"text": "half and ", "stop_reason": "max_tokens"}, {"text": "the other half"}])
    done = run(["-p", "hi", "--output", "json"], project, home=home, server=server)
    assert done.returncode == 0
    assert result_of(done)["result"] == "half and the other half"


@pytest.mark.parametrize("step", [{"empty": True}, {"thinking": "only this", "text": ""}])
def test_an_empty_answer_is_continued_once_then_said(
    start_server: StartServer, project: Path, home: Path, step: dict[str, object]
) -> None:
    server = start_server([step, step])
    done = run(["-p", "hi", "--output", "json"], project, home=home, server=server)
    assert (done.returncode, result_of(done)["stop"]) == (1, "error")
    assert len(server.requests) == 2
    assert server.refused == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGQUIT, 131)])
def test_a_signal_ends_the_tree_with_its_code(
    number: int, code: int, start_server: StartServer, project: Path, home: Path
) -> None:
    call = {"name": "bash", "input": {"command": "echo $$ > pid; sleep 300"}}
    server = start_server([{"calls": [call]}])
    program = subprocess.Popen(
        [*PROGRAM, "-p", "sleep", "--mode", "bypass"],
        cwd=project,
        env=environment(home, server),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    pid_file = project / "pid"
    deadline = time.monotonic() + 30
    while not (pid_file.exists() and pid_file.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child = int(pid_file.read_text())
    program.send_signal(number)
    program.communicate(timeout=20)
    assert program.returncode == code
    assert not Path(f"/proc/{child}").exists()
    (log,) = logs(project)
    assert "interrupted by the user" in log.read_text()


@pytest.mark.parametrize(
    ("steps", "stop", "code"),
    [
        ([{"text": "I will not.", "stop_reason": "refusal"}], "refusal", 1),
        ([{"text": "cut ", "stop_reason": "max_tokens"}] * 2, "max_tokens", 4),
    ],
)
def test_how_a_run_can_stop(
    start_server: StartServer,
    project: Path,
    home: Path,
    steps: list[dict[str, object]],
    stop: str,
    code: int,
) -> None:
    server = start_server(steps)
    done = run(["-p", "hi", "--output", "json"], project, home=home, server=server)
    result = result_of(done)
    assert (done.returncode, result["stop"], result["is_error"]) == (code, stop, True)
    assert set(result) == {
        *("type", "session_id", "result", "stop", "is_error", "error"),
        *("turns", "usage", "cost_usd", "duration_s"),
    }


def test_an_interrupt_is_a_result_too(start_server: StartServer, project: Path, home: Path) -> None:
    server = start_server([{"text": "words " * 50, "delay_s": 0.2}])
    program = subprocess.Popen(
        [*PROGRAM, "-p", "talk", "--output", "stream-json"],
        cwd=project,
        env=environment(home, server),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    for line in program.stdout:
        if "words" in line:
            break
    program.send_signal(signal.SIGINT)
    rest, _ = program.communicate(timeout=20)
    result = json.loads(rest.strip().splitlines()[-1])
    assert (program.returncode, result["type"], result["stop"]) == (130, "result", "interrupted")


def test_a_fault_of_its_own_is_70_and_a_report(project: Path, home: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "anthropic"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text('raise RuntimeError("a broken\x1b[2J installation")\n')
    env = {"PYTHONPATH": str(broken.parent), "ANTHROPIC_API_KEY": "sk-ant-none"}
    done = run(["-p", "hi"], project, home=home, env=env)
    assert done.returncode == 70, done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr
    (report,) = home.rglob("crash-*.txt")
    assert "broken" in report.read_text()
    assert str(report) in done.stderr


def test_nothing_is_kept_without_a_session(start_server: StartServer, project: Path, home: Path) -> None:
    server = start_server([{"text": "ok"}])
    assert run(["-p", "hi", "--no-session"], project, home=home, server=server).returncode == 0
    assert not (project / ".transcripts").exists()


def test_a_stray_config_is_said_and_not_read(start_server: StartServer, project: Path, home: Path) -> None:
    (project / "config.toml").write_text('[permissions]\nmode = "bypass"\n')
    server = start_server([{"text": "ok"}])
    done = run(["-p", "hi"], project, home=home, server=server)
    assert done.returncode == 0
    assert "config.toml is not read" in done.stderr


def test_a_failure_before_the_run_is_a_result_object_too(project: Path, home: Path) -> None:
    done = run(["-p", "hi", "--output", "json"], project, home=home)
    result = result_of(done)
    assert (done.returncode, result["stop"], result["is_error"]) == (77, "error", True)
    assert "key" in result["error"]


def test_debug_writes_a_log_without_the_key(start_server: StartServer, project: Path, home: Path) -> None:
    server = start_server([{"text": "ok"}])
    done = run(["-p", "hi", "--debug"], project, home=home, server=server)
    assert done.stdout == "ok\n"
    (log,) = home.rglob("debug.log")
    text = log.read_text()
    assert '"type":"message"' in text
    assert server.env["ANTHROPIC_API_KEY"] not in text
    assert log.stat().st_mode & 0o777 == 0o600
