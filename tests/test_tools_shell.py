"""The bash tool through its door: every kind of command returns in time and leaves nothing alive."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bareagent.config import Config
from bareagent.seams import Output
from bareagent.store.redact import Redactor
from bareagent.tools.base import ToolContext, ToolError
from bareagent.tools.family import rows_of_proc, rows_of_ps
from tests.tool_bench import TOOLS, Bench, gone, marked_processes, with_tools

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="leavers are found by /proc")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, outputs=tmp_path / ".outputs")


async def timed(bench: Bench, command: str, **arguments: object) -> tuple[Output, float]:
    started = time.monotonic()
    output = await bench.output("bash", command=command, **arguments)
    return output, time.monotonic() - started


async def test_output_exit_code_and_duration_are_told(bench: Bench) -> None:
    good = await bench.output("bash", command="echo out; echo err >&2")
    assert good.text.splitlines()[:2] == ["out", "err"]
    assert "[exit code 0, 0." in good.text
    assert not good.is_error
    bad = await bench.output("bash", command="printf x; exit 7")
    assert bad.text.startswith("x\n[exit code 7, ")
    assert bad.is_error
    silent = await bench.text("bash", command="true")
    assert silent.startswith("(no output)\n[exit code 0")
    killed = await bench.output("bash", command="kill -SEGV $$")
    assert "[killed by SIGSEGV" in killed.text
    assert killed.is_error


# Each must come back by itself, well before its limit: nothing to read from, no terminal, no editor.
WAITERS = {
    "cat": ("cat; echo after", "after"),
    "read": ("read x; echo got=$x.", "got=."),
    "python": (f"{sys.executable}; echo after", "after"),
    "input": (f"{sys.executable} -c 'input()'", "EOFError"),
    "less": ("less /etc/hostname || more /etc/hostname || cat /etc/hostname", ""),
    "tty": ("exec 3<>/dev/tty || echo no terminal", "no terminal"),
    "editor": ('"$EDITOR" f; "$VISUAL" f; echo $PAGER', "cat"),
    "sudo": ("sudo -n true </dev/tty; echo after", "after"),
}


@pytest.mark.parametrize("name", WAITERS)
async def test_what_would_wait_for_a_person_ends_at_once(bench: Bench, name: str) -> None:
    command, expected = WAITERS[name]
    output, seconds = await timed(bench, command, timeout_s=30)
    assert "timed out" not in output.text
    assert expected in output.text
    assert seconds < 15


@pytest.mark.skipif(not shutil.which("git"), reason="git is not here")
async def test_git_opens_no_editor_and_asks_for_no_password(bench: Bench) -> None:
    setup = (
        "git init -q . && git config user.email a@b.c && git config user.name n && "
        "for i in 1 2 3; do echo $i > f; git add f; git commit -qm $i; done; echo 4 > f"
    )
    await bench.text("bash", command=setup)
    assert "empty commit message" in await bench.text("bash", command="git commit -a", timeout_s=20)
    rebased = await bench.output("bash", command="git checkout -q f; git rebase -i HEAD~2", timeout_s=20)
    assert "timed out" not in rebased.text
    assert not rebased.is_error


@pytest.mark.skipif(not shutil.which("ssh"), reason="ssh is not here")
async def test_ssh_to_an_unknown_host_fails_instead_of_asking(bench: Bench) -> None:
    output, seconds = await timed(bench, "ssh -o ConnectTimeout=2 nobody@127.0.0.1 true", timeout_s=20)
    assert output.is_error
    assert seconds < 10


# Children that outlive the shell: the call returns when the shell exits, and they are ended.
LEAVERS = {
    "child with the pipe open": "sleep 3001 &",
    "child without the pipe": "sleep 3001 >/dev/null 2>&1 </dev/null &",
    "nohup": "nohup sleep 3001 >/dev/null 2>&1 &",
    "setsid": "setsid sleep 3001 &",
    "double fork": "(setsid sh -c 'sleep 3001 & sleep 3001 &' &) ; sleep 0.2",
    "deaf": "(trap '' TERM HUP INT; sleep 3001) & sleep 0.1",
    "deaf and away": "setsid sh -c \"trap '' TERM; sleep 3001; sleep 3001\" >/dev/null & sleep 0.2",
    "nameless": "env -i setsid sh -c 'sleep 3001 >/dev/null 2>&1 & sleep 3001 &' >/dev/null & sleep 0.3",
    "stopped": "sleep 3001 & kill -STOP $!",
}


@on_linux
@pytest.mark.parametrize("name", LEAVERS)
async def test_what_outlives_the_shell_is_ended_and_named(bench: Bench, name: str) -> None:
    command = LEAVERS[name].replace("3001", f"3001.{os.getpid()}{len(name)}")
    output, seconds = await timed(bench, f"{command}\necho started", timeout_s=30)
    assert "started" in output.text
    assert "Ended when the shell exited: " in output.text
    assert "sleep (pid " in output.text or "sh (pid " in output.text
    assert "run_in_background" in output.text
    assert seconds < 5
    assert await gone(f"3001.{os.getpid()}{len(name)}")


@on_linux
@pytest.mark.parametrize("name", LEAVERS)
async def test_time_up_ends_all_the_command_had_started(bench: Bench, name: str) -> None:
    mark = f"3002.{os.getpid()}{len(name)}"
    command = LEAVERS[name].replace("3001", mark)
    output, seconds = await timed(bench, f"echo begun; {command}\nsleep {mark}", timeout_s=0.6)
    assert output.text.startswith("begun\n")
    assert "[timed out, killed by SIG" in output.text
    assert output.is_error
    assert seconds < 0.6 + 2.0
    assert await gone(mark)


@on_linux
async def test_a_pipeline_without_end_is_ended_whole(bench: Bench) -> None:
    mark = f"x{os.getpid()}q"
    output, seconds = await timed(bench, f"yes {mark} | grep -c {mark} | sort {mark}.none -", timeout_s=0.5)
    assert "timed out" in output.text
    assert seconds < 3
    assert await gone(mark)
    assert os.getpgid(0) == os.getpgrp(), "and we are still here"


@on_linux
async def test_a_cancelled_call_is_ended_within_a_second_and_gives_what_it_printed(bench: Bench) -> None:
    mark = f"3003.{os.getpid()}"
    ctx = bench.of_call("bash", {})
    command = f"echo so far; trap '' TERM; setsid sleep {mark} & sleep {mark}"
    task = asyncio.create_task(_run(ctx, command))
    await heard(bench, "so far")
    started = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - started < 3  # a second, and what a busy machine adds
    assert ctx.partial == "so far\n"
    assert not marked_processes(mark)


@on_linux
@pytest.mark.parametrize("n_steps", range(12))
async def test_a_call_cancelled_at_its_start_leaves_nothing(
    bench: Bench, tmp_path: Path, n_steps: int
) -> None:
    mark = f"3006.{os.getpid()}{n_steps}"
    ctx = bench.of_call("bash", {})
    command = f"echo begun; touch begun; (sleep {mark} &); sleep {mark}"
    task = asyncio.create_task(_run(ctx, command))
    for _ in range(n_steps):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 3)
    assert not marked_processes(mark)
    assert ctx.partial == "begun\n" or not (tmp_path / "begun").exists()


async def heard(bench: Bench, word: str) -> None:
    """Wait until a running command has printed a word."""
    for _ in range(500):
        if word in bench.live():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{word!r} was not heard")


async def _run(ctx: ToolContext, command: str) -> Output:
    tool = TOOLS["bash"]
    return await tool.run(tool.params(command=command), ctx)


async def test_output_is_heard_while_the_command_runs(bench: Bench) -> None:
    command = "echo one; until [ -e go ]; do sleep 0.05; done; echo two"
    task = asyncio.create_task(bench.text("bash", command=command))
    await heard(bench, "one")
    assert not task.done()
    assert "two" not in bench.live()
    (bench.ctx.cwd / "go").touch()
    await task
    assert bench.live() == "one\ntwo\n"


async def test_bytes_that_are_no_text_are_replaced_and_the_rest_is_kept(bench: Bench) -> None:
    text = await bench.text("bash", command=r"printf '\xff\xfe\x80ok\n'; printf '\xc4\xe3\xba\xc3 gbk\n'")
    assert text.startswith("\ufffd\ufffd\ufffdok\n")
    assert " gbk\n" in text
    halves = r"printf 'a\xe4\xbd'; sleep 0.2; printf '\xa0b\n'"
    assert (await bench.text("bash", command=halves)).startswith("a你b\n")
    assert bench.live().endswith("a你b\n")
    assert (await bench.text("bash", command=r"printf 'a\0b'")).startswith("a\ufffdb\n")


async def test_a_command_may_delete_its_own_folder(bench: Bench, tmp_path: Path) -> None:
    bench.ctx.cwd = tmp_path / "gone"
    bench.ctx.cwd.mkdir()
    assert "[exit code 0" in await bench.text("bash", command='rm -rf "$PWD"; echo done')
    with pytest.raises(ToolError, match=r"working directory .*gone"):
        await bench.text("bash", command="ls")


async def test_a_command_with_nul_is_refused(bench: Bench) -> None:
    with pytest.raises(ToolError, match="NUL"):
        await bench.text("bash", command="echo a\0b")


SECRETS = ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "GH_TOKEN", "AWS_SECRET_ACCESS_KEY",
           "DB_PASSWORD", "npm_config_authToken", "MY_PLACE", "X_SECRET")  # fmt: skip


async def test_the_programs_secrets_are_not_in_a_commands_environment(tmp_path: Path) -> None:
    kept = {
        "HOME": "/tmp",
        "PATH": os.environ["PATH"],
        "KEYBOARD": "us",
        "MONKEY": "1",
        "TOKENIZERS_PARALLELISM": "0",
    }
    bench = Bench(tmp_path, environ={**kept, **dict.fromkeys(SECRETS, "s3cret-value")})
    config = with_tools(Config(), bash={"env_pass": ["GH_*"]})
    config.provider.api_key_env = "MY_PLACE"
    bench.ctx.config = config
    text = await bench.text("bash", command="env")
    assert text.count("s3cret-value") == 1
    assert "GH_TOKEN=s3cret-value" in text
    for name in kept:
        assert f"{name}=" in text


async def test_cd_lasts_only_where_it_is_asked_for(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    await bench.text("bash", command="cd sub")
    assert str(tmp_path / "sub") not in await bench.text("bash", command="pwd")
    bench.ctx.config = with_tools(Config(), bash={"keep_cwd": True})
    await bench.text("bash", command="cd sub; false")
    assert (await bench.text("bash", command="pwd")).startswith(f"{tmp_path / 'sub'}\n")
    await bench.text("bash", command="cd / && exit 3")
    assert (await bench.text("bash", command="pwd")).startswith("/\n")


async def test_the_configured_time_counts_where_the_call_names_none(bench: Bench) -> None:
    bench.ctx.config = with_tools(Config(), bash={"timeout_s": 0.3})
    output, seconds = await timed(bench, "sleep 20")
    assert "timed out" in output.text
    assert seconds < 3


async def test_a_long_output_is_head_and_tail_and_a_file(bench: Bench, tmp_path: Path) -> None:
    output = await bench.output("bash", command="seq 1 200000; exit 5")
    assert output.text.startswith("1\n2\n3\n")
    assert "\n200000\n[exit code 5, " in output.text
    assert len(output.text) <= 30_000
    stored = tmp_path / ".outputs" / f"r{bench.n_calls}.txt"
    assert str(stored) in output.text
    assert stored.read_text() == "".join(f"{i}\n" for i in range(1, 200_001))
    assert stored.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in stored.parent.iterdir()] == [stored.name]


async def test_without_a_folder_head_and_tail_remain(tmp_path: Path) -> None:
    text = await Bench(tmp_path).text("bash", command="seq 1 200000")
    assert text.startswith("1\n2\n")
    assert "200000\n[exit code 0" in text
    assert "not kept" in text


async def test_of_an_endless_writer_the_first_and_last_32_mib_are_stored_in_order(bench: Bench) -> None:
    size, side = 70_000_000, 32 << 20
    writer = r"for i in $(seq 48 117); do head -c 1000000 /dev/zero | tr '\0' \\$(printf %o $i); done"
    output = await bench.output("bash", command=writer, timeout_s=100)
    assert "[exit code 0" in output.text
    stored = (Path(str(bench.ctx.outputs)) / f"r{bench.n_calls}.txt").read_bytes()
    whole = b"".join(bytes([i]) * 1_000_000 for i in range(48, 118))
    assert stored.startswith(whole[:side])
    assert stored.endswith(whole[-side:])
    assert stored[side:-side] == f"\n[... {size - 2 * side:,} bytes are missing here ...]\n".encode()


async def test_two_hundred_megabytes_on_one_line(bench: Bench) -> None:
    command = f"{sys.executable} -c \"import sys; [sys.stdout.write('x' * 1000000) for _ in range(200)]\""
    output, seconds = await timed(bench, command, timeout_s=100)
    assert "[exit code 0" in output.text
    assert len(output.text) <= 30_000
    assert seconds < 60
    stored = next(Path(str(bench.ctx.outputs)).iterdir())
    assert stored.stat().st_size < (64 << 20) + 100
    assert "column=" in await bench.text("read_file", file_path=str(stored), column=1000)


async def test_stored_outputs_hold_no_secrets_and_are_given_back_whole(bench: Bench) -> None:
    bench.session.redactor = Redactor()
    key = "sk-ant-" + "a1B2" * 10
    folder = Path(str(bench.ctx.outputs))
    for n_lines in (8_000, 60_000):
        command = f"seq {n_lines}; echo 'key {key}'; seq {n_lines}"
        output = await bench.output("bash", command=command)
        stored = folder / f"r{bench.n_calls}.txt"
        assert str(stored) in output.text
        text = stored.read_text()
        assert key not in text
        assert "key [secret: anthropic-key" in text
        line = text.partition("key [secret")[0].count("\n") + 1
        assert key in await bench.text("read_file", file_path=str(stored), offset=line, limit=1)
    assert {path.suffix for path in folder.iterdir()} == {".txt"}


@on_linux
def test_ps_and_proc_tell_the_same_of_a_process() -> None:
    with subprocess.Popen(["sleep", "30"], start_new_session=True) as child:
        try:
            by_ps, by_proc = rows_of_ps()[child.pid], rows_of_proc(child.pid)[child.pid]
            assert (by_ps.name, by_ps.parent, by_ps.group) == ("sleep", os.getpid(), child.pid)
            assert (by_proc.name, by_proc.parent, by_proc.group) == ("sleep", os.getpid(), child.pid)
            assert by_proc.session == child.pid
        finally:
            child.kill()
