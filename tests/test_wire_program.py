"""What the wire promises a user of the program: what a start asks, what resuming sends, setup, models, sizes."""

import json
import re
import stat
from pathlib import Path

from bareagent.context.tokens import fast_tokens
from tests.program import PROGRAM, environment, logs, run
from tests.screen import Terminal, repl
from tests.server import Model
from tests.server.fixtures import StartServer
from tests.server.server import Server

MARK = re.compile(rb',"cache_control":\{[^}]*\}')
PROMPT_FIELDS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
MAX_HEAD_TOKENS = 4_000


def n_listed(server: Server) -> int:
    """How often the list of models was asked for."""
    return [record.path for record in server.all].count("/v1/models")


def test_resuming_within_the_caches_life_sends_the_same_bytes(
    start_server: StartServer, tmp_path: Path
) -> None:
    work = {
        "thinking": "I should count.",
        "text": "I count.",
        "calls": [{"name": "bash", "input": {"command": "seq 1 200"}}],
    }
    server = start_server([work, work, "Counted.", work, "Counted again."])
    home = tmp_path / "home"
    mode = ["--mode", "bypass"]
    with repl(tmp_path, home=home, server=server, arguments=mode) as t:
        t.wait(lambda _: n_listed(server) == 1)
        t.enter("count")
        t.wait("Counted.")
        t.wait_prompt()
        t.enter("/exit")
        assert t.ended() == 0
    with repl(tmp_path, home=home, server=server, arguments=[*mode, "--continue"]) as t:
        t.enter("again")
        t.wait("Counted again.")
        t.wait_prompt()
        assert t.leave() == 0
    server.check_done()
    last, first = (MARK.sub(b"", server.requests[n].raw) for n in (2, 3))
    assert last.endswith(b"]}")
    assert first.startswith(last[:-2]), "the messages go on where they ended, byte for byte"
    before, after = server.requests[2].usage, server.requests[3].usage
    was_prompt = sum(before[name] for name in PROMPT_FIELDS)
    assert after["cache_read_input_tokens"] == was_prompt - before["input_tokens"] > 0
    assert server.prefix_breaks() == []
    assert b"epoch" not in logs(tmp_path)[0].read_bytes()
    assert n_listed(server) == 1, "what the server said of its models is kept for a day"


def test_another_effort_after_a_resume_is_an_epoch(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(default="Yes.")
    home = tmp_path / "home"
    for number, effort in enumerate(["low", "low", "high"]):
        arguments = ["-p", "again", *(["--continue"] if number else [])]
        env = {"BAREAGENT_THINKING_EFFORT": effort}
        assert run(arguments, tmp_path, home=home, server=server, env=env).returncode == 0
    lines = [json.loads(line) for line in logs(tmp_path)[0].read_text().splitlines()]
    epochs = [line["reason"] for line in lines if line["type"] == "epoch"]
    assert epochs == ["thinking changed since the session was left"]


def test_system_prompt_and_tools_are_small(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(["Hello."])
    assert run(["-p", "hi"], tmp_path, home=tmp_path / "home", server=server).returncode == 0
    body = server.requests[0].body
    head = json.dumps([body["system"], body["tools"]], ensure_ascii=False, separators=(",", ":"))
    assert len(body["tools"]) > 10
    assert 1_000 < fast_tokens(head) < MAX_HEAD_TOKENS


def test_models_are_listed_with_the_servers_word(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server([], models=[Model("house-model", window=123_000, max_output=4_000)])
    home = tmp_path / "home"
    done = run(["models"], tmp_path, home=home, server=server)
    rows = {row.split()[1]: row for row in done.stdout.splitlines() if row.startswith("* ")}
    assert "123,000" in rows["house-model"]
    assert rows["house-model"].split()[-1] == "-"
    assert "claude-haiku-4-5" in done.stdout
    assert run(["models"], tmp_path, home=home, server=server).stdout == done.stdout
    assert n_listed(server) == 1
    alone = run(["models"], tmp_path, home=tmp_path / "other")
    assert (alone.returncode, alone.stderr) == (0, "")
    assert "house-model" not in alone.stdout
    assert "claude-haiku-4-5" in alone.stdout
    closed = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1", "ANTHROPIC_API_KEY": "k"}
    offline = run(["models"], tmp_path, home=tmp_path / "third", env=closed)
    assert (offline.returncode, offline.stdout, offline.stderr) == (0, alone.stdout, "")


def test_setup_tries_a_key_and_keeps_it_private(start_server: StartServer, tmp_path: Path) -> None:
    key = "house-key-0123456789"
    look = {"calls": [{"name": "bash", "input": {"command": "env"}}]}
    server = start_server(["ok", look, "Looked."], keys=[key], strict=False)
    home = tmp_path / "home"
    env = environment(home, None, ANTHROPIC_BASE_URL=server.url)
    wrong = setup(tmp_path, env, "not-the-key-98765")
    assert "refused the key" in wrong
    assert "not-the-key" not in wrong
    assert not list(home.rglob("keys.json"))
    right = setup(tmp_path, env, key)
    assert right.index("Trying the key with one small call") < right.index("The key works")
    assert key not in right
    (file,) = home.rglob("keys.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert str(file) in right.replace("\n", "")
    at = {"ANTHROPIC_BASE_URL": server.url}
    done = run(["-p", "look", "--mode", "bypass", "--debug"], tmp_path, home=home, env=at)
    assert (done.returncode, done.stdout) == (0, "Looked.\n"), done.stderr
    assert "PATH=" in server.requests[-1].last_text or "PATH=" in json.dumps(server.requests[-1].results())
    holders = [path for path in tmp_path.rglob("*") if path.is_file() and key.encode() in path.read_bytes()]
    assert holders == [file]
    assert key.encode() not in b"".join(record.raw for record in server.requests)


def test_setup_that_is_stopped_keeps_nothing_and_says_so(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server([{"text": "ok", "delay_s": 30}], strict=False)
    home = tmp_path / "home"
    env = environment(home, None, ANTHROPIC_BASE_URL=server.url)
    for is_asked in (True, False):
        t = Terminal([*PROGRAM, "setup"], tmp_path, env, rows=10, columns=120)
        try:
            t.wait("Key for anthropic")
            if not is_asked:
                t.send("house-key-0123456789\r")
                t.wait("Trying the key")
            t.send("\x03")
            assert t.ended() == 130
            assert "Nothing was kept." in t.rows
        finally:
            t.kill()
    assert not list(home.rglob("keys.json"))


def setup(cwd: Path, env: dict[str, str], key: str) -> str:
    """Give a key to `bareagent setup` in a terminal and return all that was shown."""
    t = Terminal([*PROGRAM, "setup"], cwd, env, rows=10, columns=120)
    try:
        t.wait("Key for anthropic")
        t.send(key + "\r")
        t.ended()
        return t.text
    finally:
        t.kill()
