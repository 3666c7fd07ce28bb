"""Faults that users of other agents met in long conversations, provoked through the program's doors."""

import contextlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from bareagent.entries import Said
from bareagent.errors import LimitReached
from tests.conversation import Conversation, config_of, conversation
from tests.program import run
from tests.screen import repl
from tests.server.fixtures import MakeServer, StartServer
from tests.server.models import Model
from tests.server.record import Record

SUMMARY = {"summary": True, "text": "The work goes on.", "repeat": True}


def test_an_empty_answer_is_followed_by_a_line_that_says_why_and_no_line_of_the_users(
    start_server: StartServer, project: Path, home: Path
) -> None:
    server = start_server([{"empty": True}, "here I am", "and on"])
    with repl(project, home=home, server=server) as t:
        t.enter("are you there")
        t.wait("here I am")
        t.wait_prompt()
        assert "The answer was empty; asked to go on." in t.text
        t.enter("/retry")
        t.wait("and on")
        t.wait_prompt()
        assert "The answer ended; asked to go on." in t.text
        assert "> Continue." not in t.text
        assert t.leave() == 0
    assert "Continue." in json.dumps(server.requests[1].body)


def bash(command: str, **more: Any) -> dict[str, Any]:
    return {"calls": [{"name": "bash", "input": {"command": command}}], **more}


def said(talk: Conversation, part: str) -> list[str]:
    return [heard.text for heard in talk.heard if isinstance(heard, Said) and part in heard.text]


OVERFLOWS = ("refuse", "length")


@pytest.mark.parametrize("overflow", OVERFLOWS)
async def test_a_window_smaller_than_it_counts_as_is_learned_from_the_refusal_said_once_and_kept_to(
    make_server: MakeServer, tmp_path: Path, overflow: str
) -> None:
    small = Model("claude-sonnet-4-5-small", window=12_000, max_output=64_000)
    turns = [bash(f"seq {n} 700", text="I look at it. " * 200) for n in range(12)]
    server = await make_server([SUMMARY, *turns, "done"], models=[small], overflow=overflow)
    async with conversation(server, tmp_path, config_of(provider={"model": small.id})) as talk:
        assert talk.agent.provider.model.window == 200_000
        stop = await talk.agent.run("go")
        assert (stop.reason, stop.text) == ("end_turn", "done")
        assert talk.agent.provider.model.window == 12_000
        assert talk.agent.picture().limit == 9_000
    (line,) = said(talk, "The window of")
    assert line.startswith("The window of claude-sonnet-4-5-small is 12,000 tokens here, not 200,000; ")
    assert [record.number for record in server.requests if record.verdict != "ok"] == [1]
    assert any(record.is_summary for record in server.requests)


async def test_subagents_side_by_side_spend_from_one_purse(make_server: MakeServer, tmp_path: Path) -> None:
    helpers = [{"name": "subagent", "input": {"task": f"task {n}"}} for n in range(6)]

    def answered(record: Record) -> Any:
        return {"text": "done", "usage_output": 500} if "task" in record.last_text else "all done"

    server = await make_server([{"match": "go", "calls": helpers}], default=answered)
    async with conversation(server, tmp_path) as talk:
        await talk.agent.run("go")
        free = talk.session.view.cost_usd
    server.add({"match": "go", "calls": helpers})
    limit = free * 0.6
    async with conversation(server, tmp_path, config_of(limits={"cost_usd": limit})) as talk:
        with contextlib.suppress(LimitReached):
            await talk.agent.run("go")
        assert talk.session.view.cost_usd <= limit
        assert 1 <= talk.results().count("done") < 6
        assert any("The next call would cost about" in text for text in talk.results())


def png(side: int) -> bytes:
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + head + b"\0" * 40


def read(name: str) -> dict[str, Any]:
    return {"name": "read_file", "input": {"file_path": name}}


async def test_an_image_that_is_too_large_among_many_goes_and_the_run_goes_on(
    make_server: MakeServer, tmp_path: Path
) -> None:
    (tmp_path / "large.png").write_bytes(png(2_500))
    for n in range(20):
        (tmp_path / f"{n}.png").write_bytes(png(100))
    many = {"calls": [read(f"{n}.png") for n in range(20)]}
    server = await make_server([{"calls": [read("large.png")]}, many, "seen", "and on"], strict=False)
    async with conversation(server, tmp_path) as talk:
        assert (await talk.agent.run("look at them")).text == "seen"
        assert (await talk.agent.run("and?")).text == "and on"
        assert [record.number for record in server.requests if record.verdict != "ok"] == [3]
        assert talk.results()[0].startswith("[truncated: read_file result, ")
        assert sum(text.startswith("[truncated") for text in talk.results()) == 1
        assert len(said(talk, "1 result with images cleared, since the server refused: ")) == 1


async def test_a_damaged_image_does_not_stand_in_the_way_of_all_later_calls(
    make_server: MakeServer, tmp_path: Path
) -> None:
    (tmp_path / "bad.png").write_bytes(png(90))
    (tmp_path / "good.png").write_bytes(png(80))
    refused = {"kind": "status", "status": 400, "message": "messages.4.content.0: Could not process image"}
    server = await make_server(
        [{"calls": [read("good.png")]}, {"calls": [read("bad.png")]}, {"text": "x", "fault": refused}, "seen"]
    )
    async with conversation(server, tmp_path) as talk:
        assert (await talk.agent.run("look")).text == "seen"
        assert [text.startswith("[truncated") for text in talk.results()] == [False, True]


async def test_an_answer_cut_short_by_the_full_window_is_compacted_and_gone_on_with(
    make_server: MakeServer, tmp_path: Path
) -> None:
    """Some servers say only that the token limit was reached, after fifty tokens of thousands."""
    cut = {
        "text": "The answer beg",
        "stop_reason": "max_tokens",
        "usage": {"input_tokens": 199_000},
        "usage_output": 50,
    }
    server = await make_server(
        [SUMMARY, "first", "second", cut, "ins and ends here."], strict=False, default="echo"
    )
    window = {"window": 200_000, "max_output": 8_000}
    async with conversation(
        server,
        tmp_path,
        config_of(models={"claude-sonnet-4-5": window}, provider={"model": "claude-sonnet-4-5"}),
    ) as talk:
        await talk.agent.run("one " * 400)
        await talk.agent.run("two " * 400)
        stop = await talk.agent.run("three")
        assert (stop.reason, stop.text) == ("end_turn", "ins and ends here.")
        assert sum(record.is_summary for record in server.requests) == 1
        assert "three" in json.dumps(server.requests[-1].body["messages"])
        assert "The answer beg" in json.dumps(server.requests[-1].body["messages"])
        assert len(said(talk, "asked to go on")) == 1


def test_a_window_set_too_small_for_the_system_prompt_is_said_once_and_stops_nothing(
    start_server: StartServer, project: Path, home: Path
) -> None:
    (project / "AGENTS.md").write_text("Always be kind. " * 2_000)
    settings = home / ".config" / "bareagent" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        '[models."claude-sonnet-4-5"]\nwindow = 8000\n[provider]\nmodel = "claude-sonnet-4-5"\n'
    )
    server = start_server(default="echo")
    done = run([], project, home=home, server=server, stdin="one\ntwo\nthree\n")
    assert "echo: three" in done.stdout, done.stdout
    assert done.stdout.count("System prompt and tools alone take") == 1, done.stdout
    assert [record.is_summary for record in server.requests] == [False] * 3


def test_project_instructions_stand_once_in_each_request_after_a_compaction_too(
    start_server: StartServer, project: Path, home: Path
) -> None:
    rule = "End each answer with the line -- checked --.\n"
    (project / "AGENTS.md").write_text(rule + "More words of advice. " * 1_300)
    server = start_server([SUMMARY], default="echo")
    lines = "one\ntwo\nthree\n/compact\nfour\n"
    done = run([], project, home=home, server=server, stdin=lines)
    assert "Context compaction finished." in done.stdout, done.stdout
    turns = [record for record in server.requests if not record.is_summary]
    assert [json.dumps(record.body).count("-- checked --") for record in turns] == [1] * 4
    assert all(rule in record.system_text for record in turns)
    (asked,) = [record for record in server.requests if record.is_summary]
    assert "-- checked --" not in json.dumps(asked.body)
    assert len(turns[3].raw) < len(turns[2].raw) + 1_000


def test_a_skill_called_by_a_line_is_not_called_again_after_a_compaction(
    start_server: StartServer, project: Path, home: Path
) -> None:
    skill = project / ".bareagent" / "skills" / "release" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: release\ndescription: Releases.\n---\nStep one: tag $ARGUMENTS at once.\n")
    server = start_server([SUMMARY], default="echo")
    lines = "hello\n/release 1.2\none\ntwo\n/compact\nthanks\n"
    done = run([], project, home=home, server=server, stdin=lines)
    assert "Context compaction finished." in done.stdout, done.stdout
    called, last = server.requests[1], server.requests[-1]
    assert "Step one: tag 1.2 at once." in called.last_text
    assert last.last_text == "thanks"
    before, _, after = json.dumps(last.body["messages"], ensure_ascii=False).partition("taken up already")
    assert "Step one" not in before
    assert "Step one: tag 1.2 at once." in after
