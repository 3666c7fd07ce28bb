"""The context engine through the program's doors: whole conversations over HTTP, and in a terminal."""

import json
from pathlib import Path
from typing import Any

import pytest

from bareagent.context.working import state_of
from bareagent.entries import Cleared, Compaction, Said, UsageEntry
from bareagent.errors import LineTooLong
from bareagent.messages import text_of
from tests.conversation import Conversation, config_of, conversation
from tests.program import logs
from tests.screen import repl
from tests.server.fixtures import MakeServer, StartServer
from tests.server.record import Record

SUMMARY = {"summary": True, "text": "The work goes on.", "repeat": True}
SMALL = {"model": "test-small"}


def bash(command: str, **more: Any) -> dict[str, Any]:
    return {"calls": [{"name": "bash", "input": {"command": command}}], **more}


def logged(talk: Conversation, kind: type) -> list[Any]:
    return [entry for entry in talk.session.entries() if isinstance(entry, kind)]


def context_size(talk: Conversation) -> float:
    """The tokens of the next request, as the engine reckons them."""
    agent = talk.agent
    working = state_of(talk.session, agent.provider)
    return working.meter.size(working.measured(agent.box.tools).estimate)


def lines(talk: Conversation) -> list[str]:
    return [heard.text for heard in talk.heard if isinstance(heard, Said)]


@pytest.mark.parametrize("micro", ["auto", "off"])
async def test_forty_turns_with_long_answers_in_one_run(
    make_server: MakeServer, tmp_path: Path, micro: str
) -> None:
    long = [bash(f"echo {n}", text="a long answer " * 1_500) for n in range(40)]
    server = await make_server([SUMMARY, *long, "finished"])
    async with conversation(server, tmp_path, config_of(compaction={"micro": micro})) as talk:
        stop = await talk.agent.run("go")
        assert (stop.reason, stop.text) == ("end_turn", "finished")
        n_compactions = len(logged(talk, Compaction))
        assert n_compactions >= 2
        assert len(server.prefix_breaks()) == n_compactions + len(logged(talk, Cleared))


async def test_ten_compactions_cost_no_more_than_the_second(make_server: MakeServer, tmp_path: Path) -> None:
    def talked(record: Record) -> Any:
        return "ok" if record.results() else bash("seq 1 900", text=f"I look, {record.number}.")

    server = await make_server([{**SUMMARY, "text": "What was done so far. " * 60}], default=talked)
    async with conversation(server, tmp_path) as talk:
        for n in range(10):
            for k in range(4):
                await talk.agent.run(f"line {n}.{k}")
            assert await talk.agent.compact()
        asked = [record for record in server.requests if record.is_summary]
        assert len(asked[9].raw) <= 1.2 * len(asked[1].raw)
        assert json.dumps(asked[9].body).count("<previous-summary>") == 1


async def test_a_server_that_always_bills_over_the_limit(make_server: MakeServer, tmp_path: Path) -> None:
    usage = {"input_tokens": 900_000}
    turns = [bash(f"seq {n} 300", usage=usage) for n in range(20)]
    server = await make_server([SUMMARY, *turns, {"text": "done", "usage": usage, "repeat": True}])
    async with conversation(server, tmp_path, config_of(provider={"model": "test-model"})) as talk:
        stop = await talk.agent.run("go")
        assert stop.text == "done"
        assert len([r for r in server.requests if r.is_summary]) <= 3
        assert sum("rests" in line for line in lines(talk)) == 1
        assert (await talk.agent.run("and now?")).text == "done"


async def test_a_stream_without_its_start_does_not_teach_how_large_the_view_is(
    make_server: MakeServer, tmp_path: Path
) -> None:
    """Such a reply tells of its own tokens alone; llama.cpp sends one where an answer begins with an emoji."""
    faults = [{"kind": "no_usage", "value": "prompt"}, {"kind": "drop", "events": ["message_start"]}]
    headless = {"text": "fine", "faults": faults}
    sizes = {}
    for name, odd in (("whole", "fine"), ("headless", headless)):
        server = await make_server(["fine", "fine", odd, "fine", "fine", odd, "fine"])
        async with conversation(server, tmp_path / name) as talk:
            for n in range(6):
                await talk.agent.run(f"line {n} " + "and some words " * 300)
            before = context_size(talk)
            left = talk.session.id
        async with conversation(server, tmp_path / name, resume=left) as talk:
            sizes[name] = (before, context_size(talk))
    assert sizes["headless"] == pytest.approx(sizes["whole"], rel=0.1)


async def test_results_larger_than_the_window_cost_three_summaries_not_one_each(
    make_server: MakeServer, tmp_path: Path
) -> None:
    huge = [bash(f"seq {n} 20000") for n in range(12)]
    server = await make_server([SUMMARY, *huge, "read"])
    async with conversation(server, tmp_path, config_of(provider=SMALL)) as talk:
        stop = await talk.agent.run("read them all; never change one")
        assert stop.text == "read"
        assert len([r for r in server.requests if r.is_summary]) == 3
        assert sum("rests" in line for line in lines(talk)) == 1
        assert "never change one" in json.dumps(talk.session.messages)


async def test_a_dead_summariser_with_a_full_window(make_server: MakeServer, tmp_path: Path) -> None:
    dead = {"summary": True, "fault": {"kind": "status", "status": 500}, "repeat": True}
    server = await make_server([dead, *[bash(f"seq {n} 3000") for n in range(12)], "done"])
    async with conversation(server, tmp_path, config_of(provider=SMALL)) as talk:
        stop = await talk.agent.run("go on. You must not use the network.")
        assert stop.text == "done"
        assert all(entry.summary == "" for entry in logged(talk, Compaction))
        assert "You must not use the network." in json.dumps(talk.session.messages)


async def test_a_summariser_that_returns_its_input(make_server: MakeServer, tmp_path: Path) -> None:
    def answered(record: Record) -> Any:
        if record.is_summary:
            return record.last_text[:4_000]
        return bash(f"seq {record.number} 4000", text="look") if record.number < 8 else "done"

    server = await make_server([], default=answered)
    async with conversation(server, tmp_path) as talk:
        before = talk.session.full_id
        await talk.agent.run("go")
        assert not await talk.agent.compact()
        assert talk.session.full_id == before
        assert "repeats the conversation. Nothing changed." in lines(talk)[-1]
        assert sum(entry.usage.output for entry in logged(talk, UsageEntry)) > 0


async def test_undo_after_a_resume_brings_all_back_before_what_was_said_since(
    make_server: MakeServer, tmp_path: Path
) -> None:
    server = await make_server([SUMMARY], default="echo")
    async with conversation(server, tmp_path) as talk:
        for n in range(8):
            await talk.agent.run(f"line {n}")
        whole = list(talk.session.messages)
        assert await talk.agent.compact()
        await talk.agent.run("since the first")
        assert await talk.agent.compact()
        await talk.agent.run("since the second")
        name = talk.session.id
    async with conversation(server, tmp_path, resume=name) as talk:
        talk.agent.undo()
        talk.agent.undo()
        said = [text_of(message) for message in talk.session.messages]
        assert said[: len(whole)] == [text_of(message) for message in whole]
        assert said[len(whole) :: 2] == ["since the first", "since the second"]
        await talk.agent.run("and on")
    kept = [text_of(message) for message in talk.session.messages]
    assert kept[: len(said)] == said


async def test_images_count_where_a_line_cannot_fit(make_server: MakeServer, tmp_path: Path) -> None:
    server = await make_server([])

    def image(n_chars: int) -> dict[str, Any]:
        source = {"type": "base64", "media_type": "image/png", "data": "A" * n_chars}
        return {"type": "image", "source": source}

    async with conversation(server, tmp_path, config_of(provider=SMALL)) as talk:
        with pytest.raises(LineTooLong, match="there is room for"):
            await talk.agent.run("look", [image(2_000)] * 5)
        with pytest.raises(LineTooLong, match="24 MB and 90 images fit"):
            await talk.agent.run("look", [image(13_000_000)] * 2)
        assert talk.session.messages == []
        assert server.requests == []


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def used(call_id: Any, given: Any = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "bash", "input": given or {"command": "ls"}}


def result(call_id: Any, content: Any = "out") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
ODD: dict[str, list[tuple[str, list[Any]]]] = {
    "a result without its call": [
        ("user", [text("a")]),
        ("assistant", [text("b")]),
        ("user", [result("zz")]),
    ],
    "a call without its result": [("user", [text("a")]), ("assistant", [used("c1")]), ("user", [text("b")])],
    "results amid text": [
        ("user", [text("a")]),
        ("assistant", [used("c1")]),
        ("user", [text("b"), result("c1"), result("c9"), text("c")]),
    ],
    "twice a result": [
        ("user", [text("a")]),
        ("assistant", [used("c1")]),
        ("user", [result("c1"), result("c1")]),
    ],
    "twice an id": [
        ("user", [text("a")]),
        ("assistant", [used("c1"), used("c1")]),
        ("user", [result("c1"), result("c1")]),
    ],
    "no ids, no input, no content": [
        ("user", [text("a")]),
        ("assistant", [used(None, "ls")]),
        ("user", [result(None, None)]),
    ],
    "blank and other texts": [
        ("user", [text(" "), {"type": "text", "text": 5}]),
        ("assistant", [text(""), {"type": "text", "text": None}]),
        ("user", []),
    ],
    "only thinking": [("user", [text("a")]), ("assistant", [THOUGHT])],
    "an unknown block": [("user", [text("a")]), ("assistant", [{"type": "strange", "data": 1}, text("b")])],
    "no beginning": [("assistant", [text("b")]), ("user", [text("a")])],
    "only items": [("system", [text("one")]), ("system", [text("two")])],
    "a giant line": [("user", [text("word " * 60_000)]), ("assistant", [text("b")])],
    "ten documents": [
        (
            "user",
            [
                {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQK"},
                }
            ]
            * 10,
        ),
        ("assistant", [text("b")]),
    ],
}


@pytest.mark.parametrize("history", ODD.values(), ids=list(ODD))
async def test_an_odd_log_breaks_neither_the_next_request_nor_a_compaction(
    make_server: MakeServer, tmp_path: Path, history: list[tuple[str, list[Any]]]
) -> None:
    """Logs of another writer: whole in their lines, odd in what they say."""
    server = await make_server([SUMMARY], default="echo", strict=False, verify_thinking=False)
    async with conversation(server, tmp_path) as talk:
        talk.session.append({"role": "user", "content": [text("x")]}, "line")
        name, log = talk.session.id, talk.session.folder / "log.jsonl"  # type: ignore[operator]  # it is saved
    head, entry = log.read_text().splitlines()[:2]
    entries = [
        {**json.loads(entry), "n": n, "kind": KINDS[role], "message": {"role": role, "content": content}}
        for n, (role, content) in enumerate(history, 2)
    ]
    log.write_text("\n".join([head, *map(json.dumps, entries)]) + "\n")
    async with conversation(server, tmp_path, resume=name) as talk:
        for line in ("one", "two"):
            assert (await talk.agent.run(line)).reason == "end_turn"
            assert await talk.agent.compact()
        talk.agent.undo()
        assert (await talk.agent.run("three")).reason == "end_turn"
    assert [refused.verdict for refused in server.refused if "'strange'" not in refused.verdict] == []
    assert len(server.refused) <= 1


KINDS = {"user": "line", "assistant": "reply", "system": "other"}


def test_a_cancelled_summary_lets_the_queue_go_out_and_keeps_the_draft(
    start_server: StartServer, tmp_path: Path
) -> None:
    stalled = {"summary": True, "text": "never", "fault": {"kind": "stall", "at": "headers"}}
    server = start_server(["first answer", stalled, "second answer", "third answer"], strict=False)
    project = tmp_path / "project"
    project.mkdir()
    with repl(project, home=tmp_path / "home", server=server) as t:
        t.enter("line one")
        t.wait("first answer")
        t.wait_prompt()
        t.enter("/compact")
        server.wait(2)
        t.enter("line two")
        t.enter("line three")
        t.type("a draft")
        t.wait(lambda t: t.draft == "a draft")
        t.press("c-c")
        t.wait("Context compaction cancelled. Nothing changed.")
        t.wait("third answer")
        t.wait_prompt()
        t.wait(lambda t: t.draft == "a draft")
        t.press("c-c")
        t.leave()
    sent = [record.last_text for record in server.requests if not record.is_summary]
    assert sent == ["line one", "line two", "line three"]
    kinds = [json.loads(line)["type"] for line in logs(project)[0].read_text().splitlines()]
    assert "compaction" not in kinds
