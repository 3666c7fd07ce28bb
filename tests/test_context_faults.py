"""Faults that users of other agents met in long conversations, provoked through the program's doors."""

import asyncio
import contextlib
import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bareagent.entries import CallEnded, Compaction, MessageEntry, Said, TextDelta
from bareagent.errors import BadRequest, LimitReached, TryLater
from bareagent.messages import text_of
from bareagent.store.export import exported
from tests.conversation import Conversation, config_of, conversation
from tests.server.fixtures import MakeServer
from tests.server.models import Model
from tests.server.record import Record

SUMMARY = {"summary": True, "text": "The work goes on.", "repeat": True}


def bash(command: str, **more: Any) -> dict[str, Any]:
    return {"calls": [{"name": "bash", "input": {"command": command}}], **more}


async def until(condition: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + 10
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)


def said(talk: Conversation, part: str) -> list[str]:
    return [heard.text for heard in talk.heard if isinstance(heard, Said) and part in heard.text]


@pytest.mark.parametrize("overflow", ["refuse", "length"])
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


@pytest.mark.parametrize("tail_turns", [0, 2])
async def test_a_refused_call_with_thinking_and_results_can_be_compacted_and_gone_on_from(
    make_server: MakeServer, tmp_path: Path, tail_turns: int
) -> None:
    refused = {"kind": "status", "status": 400, "message": "tools.0: this one is not to your liking"}
    server = await make_server(
        [
            SUMMARY,
            {"thinking": "I look first.", **bash("echo one")},
            {"text": "x", "fault": refused},
            "on",
        ]
    )
    config = config_of(compaction={"tail_turns": tail_turns})
    async with conversation(server, tmp_path, config) as talk:
        with pytest.raises(BadRequest):
            await talk.agent.run("go")
        assert await talk.agent.compact()
        assert (await talk.agent.run("and now?")).text == "on"


async def test_a_call_that_was_interrupted_is_summarised_away_with_its_result(
    make_server: MakeServer, tmp_path: Path
) -> None:
    calls = [bash("touch begun; sleep 60")["calls"][0], bash("touch never")["calls"][0]]
    server = await make_server([SUMMARY, {"calls": calls}], default="echo")
    async with conversation(server, tmp_path, config_of(compaction={"tail_turns": 0})) as talk:
        running = asyncio.create_task(talk.agent.run("go"))
        await until((tmp_path / "begun").exists)
        talk.agent.interrupt()
        assert (await running).reason == "interrupted"
        assert await talk.agent.compact()
        await talk.agent.run("and now?")
        assert [len(record.results()) for record in server.requests[1:]] == [0, 2]
        assert await talk.agent.compact()
        await talk.agent.run("and then?")
        assert "tool_result" not in json.dumps(server.requests[-1].body)


async def test_results_stand_in_call_order_though_the_last_call_ended_first(
    make_server: MakeServer, tmp_path: Path
) -> None:
    waits = {"first": 0.3, "second": 0.2, "third": 0.1}
    helpers = [{"name": "subagent", "input": {"task": f"the {name}"}} for name in waits]
    steps = [
        {
            "match": f"the {name}",
            "text": f"{name} is done",
            "fault": {"kind": "stall", "at": "headers", "seconds": s},
        }
        for name, s in waits.items()
    ]
    server = await make_server([{"match": "go", "calls": helpers}, *steps, "all done"])
    async with conversation(server, tmp_path) as talk:
        await talk.agent.run("go")
        ended = [heard.result["content"][0]["text"] for heard in talk.heard if isinstance(heard, CallEnded)]
        assert ended == ["third is done", "second is done", "first is done"]
        assert talk.results() == ended[::-1]


async def test_a_reply_is_in_the_log_before_its_calls_run_and_their_results_behind_it(
    make_server: MakeServer, tmp_path: Path
) -> None:
    server = await make_server([bash("cp .transcripts/*/log.jsonl seen"), "done"])
    async with conversation(server, tmp_path) as talk:
        await talk.agent.run("go")
        kinds = [e.kind for e in talk.session.entries() if isinstance(e, MessageEntry)]
    seen = [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
    assert [entry["kind"] for entry in seen if entry["type"] == "message"] == ["line", "reply"]
    assert kinds == ["line", "reply", "results", "reply"]


async def test_a_path_that_was_left_by_a_rewind_is_in_no_compaction(
    make_server: MakeServer, tmp_path: Path
) -> None:
    server = await make_server([SUMMARY, "one", bash("echo abandoned-output"), "lost"], default="echo")
    async with conversation(server, tmp_path) as talk:
        await talk.agent.run("begin")
        await talk.agent.run("never take the abandoned-path")
        left = next(i for i, m in enumerate(talk.session.messages) if "abandoned-path" in text_of(m))
        talk.agent.rewind(talk.session.view.ids[left])
        for n in range(3):
            await talk.agent.run(f"the other path {n}")
        assert await talk.agent.compact()
        await talk.agent.run("on")
        assert talk.session.folder is not None
        files = [file.read_text() for file in (talk.session.folder / "snapshots").iterdir()]
    told = [json.dumps(record.body) for record in server.requests[3:]]
    assert len(files) == 2
    assert not [text for text in (*told, *files) if "abandoned" in text]


async def test_what_is_asked_right_below_the_threshold_is_what_is_done_after_the_compaction(
    make_server: MakeServer, tmp_path: Path
) -> None:
    server = await make_server(
        [SUMMARY, bash("echo x > old.py"), "old.py is written", bash("rm old.py"), "gone " * 500],
        default="echo",
    )
    config = config_of(compaction={"threshold": 3_000, "tail_turns": 1, "tail_tokens": 500})
    async with conversation(server, tmp_path, config) as talk:
        await talk.agent.run("Write old.py. Do not use tabs. " + "Take care. " * 900)
        await talk.agent.run("Delete old.py.")
        stop = await talk.agent.run("Now write new.py.")
        assert stop.text == "echo: Now write new.py."
        (asked,) = [record for record in server.requests if record.is_summary]
        assert "Now write new.py." not in json.dumps(asked.body)
        assert "mark finished work as finished" in json.dumps(asked.body)
        header, *_, last = server.requests[-1].messages
        assert [block["text"] for block in last["content"]] == ["Now write new.py."]
        past = text_of(header).partition("taken up already; what they demand or forbid holds\n- ")[2]
        assert past.startswith("Delete old.py.\n\n")
        assert "- Do not use tabs." in past
        assert "open request" not in text_of(header)


async def test_only_open_items_of_a_plan_stand_behind_a_compaction(
    make_server: MakeServer, tmp_path: Path
) -> None:
    items = [
        {
            "text": f"step number {n}",
            "status": "completed" if n < 10 else "in_progress" if n == 10 else "pending",
        }
        for n in range(1, 44)
    ]
    planned = {"calls": [{"name": "todo_write", "input": {"items": items}}]}
    server = await make_server(
        [SUMMARY, planned, "nine are done", "", "still ten"], default="echo", strict=False
    )
    async with conversation(server, tmp_path, config_of(compaction={"tail_turns": 0})) as talk:
        await talk.agent.run("plan")
        assert await talk.agent.compact()
        await talk.agent.run("next")
        header = text_of(server.requests[-1].messages[0])
        found = re.findall(r"^- t\d+ \[(\w+)\] \(normal\) step number (\d+)$", header, re.MULTILINE)
        assert found == [("in_progress", "10"), *(("pending", str(n)) for n in range(11, 44))]
        (asked,) = [record for record in server.requests if record.is_summary]
        assert "What is needed for the next steps, the very next one first." in asked.last_text


async def test_a_summary_is_stored_without_the_summarisers_private_part(
    make_server: MakeServer, tmp_path: Path
) -> None:
    private = "<analysis>\nThe user seems to be in a bad mood.\n</analysis>\n"
    told = {
        "summary": True,
        "thinking": "a bad mood",
        "text": f"{private}<summary>\nOne was said.\n</summary>",
    }
    server = await make_server([told], default="echo")
    async with conversation(server, tmp_path) as talk:
        for line in ("one", "two", "three"):
            await talk.agent.run(line)
        assert await talk.agent.compact()
        await talk.agent.run("four")
        assert talk.session.folder is not None
        stored = (talk.session.folder / "log.jsonl").read_text()
        assert text_of(talk.session.messages[0]).startswith("[Context Compressed]\nOne was said.\n\n")
    assert "One was said." in stored
    assert "bad mood" not in stored + json.dumps(server.requests[-1].body)


async def test_a_new_conversation_begins_with_a_guard_that_counts_from_nothing(
    make_server: MakeServer, tmp_path: Path
) -> None:
    huge = [bash(f"seq {n} 20000") for n in range(12)]
    server = await make_server([SUMMARY, *huge, "read"], default="echo")
    async with conversation(server, tmp_path, config_of(provider={"model": "test-small"})) as talk:
        await talk.agent.run("read them all")
        assert len(said(talk, "rests")) == 1
        tripped = talk.session.id
        talk.agent.new()
        await talk.agent.run("hi")
        await talk.agent.run("word " * 2_400)
        await talk.agent.run("word " * 2_400)
        assert len(said(talk, "rests")) == 1
        assert sum(isinstance(entry, Compaction) for entry in talk.session.entries()) == 1
    async with conversation(
        server, tmp_path, config_of(provider={"model": "test-small"}), resume=tripped
    ) as talk:
        await talk.agent.run("hi")
        assert said(talk, "rests") == []


async def test_a_session_is_found_after_compactions_by_each_id_it_ever_had(
    make_server: MakeServer, tmp_path: Path
) -> None:
    server = await make_server([SUMMARY], default="echo")
    async with conversation(server, tmp_path) as talk:
        shown = [talk.session.full_id]
        for n in range(2):
            for k in range(3):
                await talk.agent.run(f"line {n}.{k}")
            assert await talk.agent.compact()
            shown.append(talk.session.full_id)
        assert shown == [shown[0], f"{shown[0]}.1", f"{shown[0]}.2"]
    for name, starts, is_same in (
        (shown[2], "line 1.1", True),
        (shown[0], "line 1.1", True),
        (shown[1], "line 0.1", False),
    ):
        async with conversation(server, tmp_path, resume=name) as talk:
            lines = [
                text_of(m)
                for m, kind in zip(talk.session.messages, talk.session.view.kinds, strict=True)
                if kind == "line"
            ]
            assert (lines[0], talk.session.id == shown[0]) == (starts, is_same), name


async def test_sizes_shown_of_a_compaction_are_near_the_next_bill(
    make_server: MakeServer, tmp_path: Path
) -> None:
    turns = [bash(f"seq {n} 900", text="I look at it.") for n in range(10)]
    server = await make_server([SUMMARY, *turns, "done", "on"])
    async with conversation(server, tmp_path) as talk:
        await talk.agent.run("go " + "and count on " * 200)
        before = talk.agent.context_tokens()
        billed = [record.usage for record in server.requests if record.usage][-1]
        assert before == pytest.approx(sum_of(billed), rel=0.05)
        assert await talk.agent.compact()
        (entry,) = [entry for entry in talk.session.entries() if isinstance(entry, Compaction)]
        assert f"{entry.tokens_before:,} → {entry.tokens_after:,} tokens" in said(talk, "→")[0]
        assert entry.tokens_before == before
        await talk.agent.run("on")
        assert entry.tokens_after == pytest.approx(sum_of(server.requests[-1].usage), rel=0.2)


def sum_of(usage: Any) -> int:
    prompt = sum(usage.get(f"{kind}input_tokens", 0) for kind in ("", "cache_read_", "cache_creation_"))
    return int(prompt + usage["output_tokens"])


async def test_a_cleared_result_says_so_and_is_found_again(make_server: MakeServer, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The nonce is 71c5e0.\n" + "filler line\n" * 400)
    reads = [bash(f"seq {n} 4000") for n in range(8)]
    found = {"calls": [{"name": "recall", "input": {"query": "nonce"}}]}
    server = await make_server([{"calls": [read("a.txt")]}, *reads, found, "71c5e0"])
    async with conversation(server, tmp_path, config_of(compaction={"micro": "eager"})) as talk:
        await talk.agent.run("look")
        last = server.requests[-2].messages
        shown = [
            text_of(block)
            for message in last
            for block in message["content"]
            if block["type"] == "tool_result"
        ]
        assert re.fullmatch(r"\[truncated: read_file result, \d+ chars\]", shown[0])
        assert "71c5e0" not in json.dumps(last)
        assert "71c5e0" in talk.results()[-1]
        assert "[truncated:" in json.dumps(server.requests[0].body["tools"])
        assert len(said(talk, "Cleared ")) >= 1


async def test_clearing_old_results_makes_compactions_rarer(make_server: MakeServer, tmp_path: Path) -> None:
    counted, n_runs = {}, 8
    for micro in ("off", "auto"):
        turns = [
            step for n in range(n_runs) for step in (*[bash(f"seq {n}{k} 1200") for k in range(4)], "done")
        ]
        server = await make_server([SUMMARY, *turns])
        config = config_of(compaction={"micro": micro, "threshold": 20_000})
        async with conversation(server, tmp_path / micro, config) as talk:
            for n in range(n_runs):
                await talk.agent.run(f"line {n}")
            counted[micro] = sum(isinstance(entry, Compaction) for entry in talk.session.entries())
    assert counted["auto"] < counted["off"], counted


async def test_pieces_of_a_stream_are_no_rounds_and_a_reminder_is_no_answer(
    make_server: MakeServer, tmp_path: Path
) -> None:
    planned = {"calls": [{"name": "todo_write", "input": {"items": [{"text": "a step"}]}}]}
    long = {"text": "x" * 2_000, "chunk": 4}
    server = await make_server([planned, "planned", long, long])
    async with conversation(server, tmp_path) as talk:
        await talk.agent.run("plan")
        await talk.agent.run("talk")
        await talk.agent.run("and more")
        assert sum(isinstance(heard, TextDelta) for heard in talk.heard) > 1_000
        assert "nag-reminder" not in json.dumps([record.body for record in server.requests])
        assert "nag-reminder" not in "".join(
            exported("md", "x", talk.session.view, talk.session.conversation())
        )
        rounds = [bash(f"echo {n}") for n in range(4)]
        server.add(*rounds, "worked")
        await talk.agent.run("work")
        assert "nag-reminder" in json.dumps(server.requests[-1].body)
        kinds = [
            (e.kind, e.message["role"])
            for e in talk.session.entries()
            if isinstance(e, MessageEntry) and "<nag" in text_of(e.message)
        ]
        assert kinds == [("reminder", "system")]


async def test_bytes_count_where_tokens_do_not(make_server: MakeServer, tmp_path: Path) -> None:
    """A few large pictures are few tokens and more bytes than a server takes."""
    for n in range(6):
        (tmp_path / f"{n}.png").write_bytes(png(100 + n) + b"\0" * 3_500_000)
    many = [{"calls": [read(f"{n}.png"), read(f"{n + 1}.png")]} for n in (0, 2, 4)]
    server = await make_server([SUMMARY, *many, "seen", "on"])
    config = config_of(compaction={"micro": "off"})
    async with conversation(server, tmp_path, config) as talk:
        assert (await talk.agent.run("look at all")).text == "seen"
        assert (await talk.agent.run("and now?")).text == "on"
        assert 15 * 2**20 < max(len(record.raw) for record in server.requests) < 25 * 2**20
        assert any(isinstance(entry, Compaction) for entry in talk.session.entries())


async def test_an_overloaded_server_is_not_taken_for_a_full_window(
    make_server: MakeServer, tmp_path: Path
) -> None:
    busy = {
        "text": "x",
        "fault": {"kind": "status", "status": 529, "error_type": "overloaded_error", "times": 3},
    }
    minute = {
        "text": "x",
        "fault": {"kind": "status", "status": 429, "preset": "tokens_per_minute", "times": 3},
    }
    server = await make_server([SUMMARY, "one " * 900, busy, minute], default="echo")
    async with conversation(server, tmp_path) as talk:
        await talk.agent.run("hello")
        for line in ("two", "three"):
            with pytest.raises(TryLater):
                await talk.agent.run(line)
        assert not any(record.is_summary for record in server.requests)
        assert (await talk.agent.retry()).reason == "end_turn"


async def test_a_summary_is_asked_for_from_this_conversation_alone(
    make_server: MakeServer, tmp_path: Path
) -> None:
    for name, text in (("assigned", "print(1)"), ("sibling", "a rich problem of another kind")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "PROBLEM.md").write_text(text)
    server = await make_server([SUMMARY], default="echo")
    async with conversation(server, tmp_path / "sibling") as other:
        for n in range(3):
            await other.agent.run(f"solve the sibling {n}")
    async with conversation(server, tmp_path / "assigned") as talk:
        for n in range(3):
            await talk.agent.run(f"solve the assigned {n}")
        assert await talk.agent.compact()
        (asked,) = [record for record in server.requests if record.is_summary]
        assert "sibling" not in json.dumps(asked.body).replace(str(tmp_path), "")
        assert "Name only files and problems the session truly worked on." in asked.last_text
        assert [message["role"] for message in asked.messages] == ["user"]
