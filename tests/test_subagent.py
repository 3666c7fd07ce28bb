"""Subagents through the real program: side by side, their own session, cost in the parent."""

import json
from pathlib import Path

from tests.program import logs, result_of, run
from tests.server.fixtures import StartServer


def test_two_subagents_side_by_side(start_server: StartServer, tmp_path: Path) -> None:
    project = tmp_path / "p"
    project.mkdir()
    (project / "a.txt").write_text("alpha\n")
    helpers = [
        {"name": "subagent", "input": {"task": "task-one", "type": "explore"}},
        {"name": "subagent", "input": {"task": "task-two"}},
    ]
    server = start_server(
        [
            {"match": "start", "calls": helpers},
            {"match": "task-one", "calls": [{"name": "read_file", "input": {"file_path": "a.txt"}}]},
            {"match": "task-two", "text": "second report"},
            {"match_re": "^1: alpha", "text": "first report: alpha"},
            {"expect": ["first report: alpha", "second report"], "text": "both are done"},
        ]
    )
    done = run(
        ["-p", "start", "--output", "json", "--mode", "bypass"],
        project,
        home=tmp_path / "h",
        server=server,
    )
    result = result_of(done)
    assert (done.returncode, result["result"]) == (0, "both are done"), done.stderr
    assert server.refused == []
    billed = sum(record.usage["output_tokens"] for record in server.requests if record.usage)
    assert result["usage"]["output"] == billed
    (log,) = logs(project)
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert "task-one" not in [
        e["message"]["content"][0].get("text") for e in entries if e["type"] == "message"
    ]
    assert [e["purpose"] for e in entries if e["type"] == "usage"] == ["subagent", "subagent"]
    assert not (log.parent / "agents").exists()
    explorer = next(r for r in server.requests if "task-one" in r.last_text)
    names = {tool["name"] for tool in explorer.body["tools"]}
    assert "read_file" in names
    assert not names & {"write_file", "edit_file", "ask_user"}


def test_a_subagents_log_is_kept_on_wish(start_server: StartServer, tmp_path: Path) -> None:
    project = tmp_path / "p"
    project.mkdir()
    call = {"name": "subagent", "input": {"task": "write it"}}
    write = {"name": "write_file", "input": {"file_path": "made.txt", "content": "x\n"}}
    server = start_server([{"calls": [call]}, {"calls": [write]}, {"text": "written"}, {"text": "all done"}])
    done = run(
        ["-p", "go", "--mode", "bypass"],
        project,
        home=tmp_path / "h",
        server=server,
        env={"BAREAGENT_SUBAGENT_KEEP_LOG": "true"},
    )
    assert done.stdout == "all done\n", done.stderr
    (log,) = logs(project)
    kept = (log.parent / "agents" / "a1" / "log.jsonl").read_text()
    assert "write it" in kept
    assert (project / "made.txt").read_text() == "x\n"


def test_a_subagent_in_the_background_reports_by_a_notice(start_server: StartServer, tmp_path: Path) -> None:
    project = tmp_path / "p"
    project.mkdir()
    call = {"name": "subagent", "input": {"task": "look-around", "run_in_background": True}}
    wait = {"name": "bash_output", "input": {"id": "b1"}}
    server = start_server(
        [
            {"match": "look-around", "text": "nothing to see"},
            {"match": "begin", "calls": [call]},
            {"expect": ["Subagent b1 works"], "calls": [wait]},
            {"expect": ["nothing to see", "task b1: done (exit 0)"], "text": "ok"},
        ]
    )
    done = run(["-p", "begin", "--mode", "bypass"], project, home=tmp_path / "h", server=server)
    assert done.stdout == "ok\n", done.stderr
    server.check_done()
