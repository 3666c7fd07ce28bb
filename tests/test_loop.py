"""The loop and the gate of calls, over the real provider and SDK against the scripted server."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bareagent.entries import CallStarted, Grant, Interrupted, MessageEntry, Said, TextDelta, UsageEntry
from bareagent.errors import BadRequest, LimitReached, LineTooLong, TryLater
from bareagent.messages import text_of
from bareagent.seams import Answer, Question
from tests.conversation import Conversation, config_of, conversation
from tests.server.fixtures import MakeServer

GATE = "until [ -e go ]; do sleep 0.05; done"


def bash(command: str, **more: Any) -> dict[str, Any]:
    return {"name": "bash", "input": {"command": command, **more}}


async def until(condition: Any, timeout_s: float = 15.0) -> None:
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)


def said(talk: Conversation) -> str:
    return "\n".join(heard.text for heard in talk.heard if isinstance(heard, Said))


async def test_results_stand_in_call_order_whatever_ends_first(
    make_server: MakeServer, tmp_path: Path
) -> None:
    for name, size in (("a", 3), ("b", 2), ("c", 1)):
        (tmp_path / name).write_text(f"{name}\n" * size)
    calls = [{"name": "read_file", "input": {"file_path": name}} for name in "abc"]
    server = await make_server([{"calls": [*calls, bash("echo last")]}, {"text": "done"}])
    async with conversation(server, tmp_path) as talk:
        assert (await talk.agent.run("go")).text == "done"
        first_lines = [result.splitlines()[0] for result in talk.results()]
        assert first_lines[:3] == ["1: a", "1: b", "1: c"]
        assert "last" in talk.results()[3]


async def test_wrong_calls_get_results_that_say_what_was_wrong(
    make_server: MakeServer, tmp_path: Path
) -> None:
    calls = [
        {"name": "read_fil", "input": {}},
        {"name": "read_file", "input": {"file_path": None}},
        {"name": "read_file", "input": {"file_path": "x", "colour": 1}},
        {"name": "read_file", "input": {}, "raw_input": '{"file_path": "x'},
        {"name": "read_file", "input": {"file_path": "missing.txt"}},
    ]
    server = await make_server([{"calls": calls}, {"text": "done"}])
    async with conversation(server, tmp_path) as talk:
        await talk.agent.run("go")
        unknown, null, extra, broken, missing = talk.results()
        assert "did you mean read_file" in unknown
        assert "file_path" in null
        assert "colour" in extra
        assert "no whole JSON" in broken
        assert "missing.txt" in missing
        assert not [e for e in talk.heard if isinstance(e, CallStarted)][1:]


async def test_a_call_cut_by_max_tokens_never_runs_and_stops_after_three(
    make_server: MakeServer, tmp_path: Path
) -> None:
    step = {
        "calls": [{"name": "write_file", "raw_input": '{"file_path": "x.txt", "content": "ha'}],
        "stop_reason": "max_tokens",
    }
    server = await make_server([step, step, step, {"text": "never"}])
    async with conversation(server, tmp_path) as talk:
        stop = await talk.agent.run("go")
        assert stop.reason == "max_tokens"
        assert len(server.requests) == 3
        assert not (tmp_path / "x.txt").exists()
        assert all("cut at its token limit" in result for result in talk.results())


async def test_the_same_call_five_times_running_is_stopped(make_server: MakeServer, tmp_path: Path) -> None:
    step = {"calls": [bash("echo again >> count")]}
    server = await make_server([step] * 5 + [{"text": "ok"}])
    async with conversation(server, tmp_path) as talk:
        await talk.agent.run("go")
        assert (tmp_path / "count").read_text() == "again\n" * 4
        assert "same call" in talk.results()[4]


async def test_interrupt_in_text_keeps_what_was_said(make_server: MakeServer, tmp_path: Path) -> None:
    server = await make_server(
        [
            {"text": "half an answer", "fault": {"kind": "stall", "at": "text"}},
            {"text": "whole"},
        ]
    )
    async with conversation(server, tmp_path) as talk:
        run = asyncio.create_task(talk.agent.run("first"))
        await until(lambda: any(isinstance(heard, TextDelta) for heard in talk.heard))
        assert talk.agent.interrupt()
        assert (await run).reason == "interrupted"
        last = talk.session.messages[-1]
        assert last["role"] == "assistant"
        assert text_of(last).endswith("[interrupted by the user]")
        server.release()
        assert (await talk.agent.run("second")).text == "whole"
        assert server.prefix_breaks() == []


async def test_interrupt_before_any_text_leaves_only_the_line(
    make_server: MakeServer, tmp_path: Path
) -> None:
    server = await make_server(
        [{"text": "x", "fault": {"kind": "stall", "at": "headers"}}, {"text": "whole"}]
    )
    async with conversation(server, tmp_path) as talk:
        run = asyncio.create_task(talk.agent.run("first"))
        await server.arrived(1)
        talk.agent.interrupt()
        assert (await run).reason == "interrupted"
        assert [message["role"] for message in talk.session.messages] == ["user"]
        server.release()
        await talk.agent.run("second")
        sent = server.requests[-1].messages
        assert [message["role"] for message in sent] == ["user"]


async def test_interrupt_in_a_tool_tells_what_ran(make_server: MakeServer, tmp_path: Path) -> None:
    calls = [bash("echo one > one"), bash("echo begun; touch two; sleep 60"), bash("touch three")]
    server = await make_server([{"calls": calls}, {"text": "ok"}])
    async with conversation(server, tmp_path) as talk:
        run = asyncio.create_task(talk.agent.run("go"))
        await until((tmp_path / "two").exists)
        talk.agent.interrupt()
        assert (await asyncio.wait_for(run, 3)).reason == "interrupted"
        ran, cut, never = talk.results()
        assert "exit" in ran or "(no output)" in ran
        assert "interrupted by the user" in cut
        assert "begun" in cut
        assert "not run" in never
        assert not (tmp_path / "three").exists()
        kept = [e for e in talk.session.entries() if isinstance(e, Interrupted)]
        assert len(kept[0].calls) == 2
        await talk.agent.run("and now")
        assert server.refused == []


async def test_a_cancelled_caller_stops_the_run_too(make_server: MakeServer, tmp_path: Path) -> None:
    server = await make_server([{"calls": [bash("touch begun; sleep 60")]}])
    async with conversation(server, tmp_path) as talk:
        run = asyncio.create_task(talk.agent.run("go"))
        await until((tmp_path / "begun").exists)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert "interrupted by the user" in talk.results()[0]


async def test_a_failed_call_keeps_the_line_and_retry_sends_it(
    make_server: MakeServer, tmp_path: Path
) -> None:
    server = await make_server(
        [{"fault": {"kind": "status", "status": 500, "times": 3}}, {"text": "finally"}]
    )
    async with conversation(server, tmp_path) as talk:
        with pytest.raises(TryLater):
            await talk.agent.run("keep me")
        assert text_of(talk.session.messages[-1]) == "keep me"
        assert (await talk.agent.retry()).text == "finally"
        assert len(talk.session.messages) == 2


@pytest.mark.parametrize("reason", ["stop_sequence", "something_new"])
async def test_other_ends_are_ends(make_server: MakeServer, tmp_path: Path, reason: str) -> None:
    server = await make_server([{"text": "so", "stop_reason": reason}])
    async with conversation(server, tmp_path) as talk:
        stop = await talk.agent.run("go")
        assert (stop.reason, stop.text) == ("end_turn", "so")
        assert ("something_new" in said(talk)) == (reason == "something_new")


async def test_pause_turn_is_sent_back_as_it_is(make_server: MakeServer, tmp_path: Path) -> None:
    server = await make_server([{"text": "thinking on", "stop_reason": "pause_turn"}, {"text": " and done"}])
    async with conversation(server, tmp_path) as talk:
        assert (await talk.agent.run("go")).reason == "end_turn"
        assert server.requests[1].messages[-1]["role"] == "assistant"


async def test_a_refusal_is_said_and_kept_out(make_server: MakeServer, tmp_path: Path) -> None:
    server = await make_server(
        [
            {"text": "I will not", "stop_reason": "refusal", "stop_details": {"category": "cyber"}},
            {"text": "fine"},
        ]
    )
    async with conversation(server, tmp_path) as talk:
        stop = await talk.agent.run("bad")
        assert stop.reason == "refusal"
        assert "cyber" in said(talk)
        await talk.agent.run("good")
        assert "I will not" not in str(server.requests[1].body)
        bills = [e.purpose for e in talk.session.entries() if isinstance(e, UsageEntry)]
        assert bills == ["refusal"]


async def test_a_full_window_compacts_and_goes_on_by_a_visible_line(
    make_server: MakeServer, tmp_path: Path
) -> None:
    server = await make_server(
        [
            {"text": "long " * 8000},
            {"text": "half", "stop_reason": "model_context_window_exceeded"},
            {"summary": True, "text": "The user greets; the answer was long."},
            {"text": "whole now"},
        ]
    )
    async with conversation(server, tmp_path) as talk:
        await talk.agent.run("hello " * 4000)
        stop = await talk.agent.run("go on")
        assert stop.text == "whole now", said(talk)
        kinds = [e.kind for e in talk.session.entries() if isinstance(e, MessageEntry)]
        assert kinds.count("continue") == 1
        assert talk.session.full_id.endswith(".1"), said(talk)
        assert server.refused == []


async def test_an_unfinished_item_is_owed_once(make_server: MakeServer, tmp_path: Path) -> None:
    todo = {
        "name": "todo_write",
        "input": {"items": [{"text": "the work", "status": "in_progress"}]},
    }
    server = await make_server([{"calls": [todo]}, {"text": "done?"}, {"text": "done."}])
    async with conversation(server, tmp_path) as talk:
        assert (await talk.agent.run("go")).text == "done."
        assert "the work" in server.requests[2].last_text


async def test_permission_yes_always_no_and_edit(make_server: MakeServer, tmp_path: Path) -> None:
    steps = [{"calls": [bash(f"make-{n}; touch {n}")]} for n in range(4)]
    server = await make_server([*steps, {"text": "done"}])
    answers = iter(
        [
            Answer(verdict="yes"),
            Answer(verdict="no", text="not this one"),
            Answer(verdict="edit", text="touch edited"),
            Answer(verdict="no"),
        ]
    )
    config = config_of(permissions={"mode": "default"})
    async with conversation(server, tmp_path, config, lambda _question: next(answers)) as talk:
        await talk.agent.run("go")
        yes, no, edited, plain_no = talk.results()
        assert (tmp_path / "0").exists()
        assert "They said: not this one" in no
        assert "the user changed the command to: touch edited" in edited
        assert (tmp_path / "edited").exists()
        assert not (tmp_path / "1").exists()
        assert not (tmp_path / "3").exists()
        assert "did not allow" in plain_no
        assert talk.asked[0].detail.startswith("make-0")
        assert yes


async def test_a_question_shows_arguments_as_they_are_read(make_server: MakeServer, tmp_path: Path) -> None:
    lone: dict[str, object] = {"file_path": "a b"}
    several: dict[str, object] = {"file_path": "x\nlimit: 9", "limit": 3}
    inputs: list[tuple[str, dict[str, object]]] = [
        ("read_file", lone),
        ("read_file", several),
        ("bash", {"command": "true", "run_in_background": True}),
    ]
    steps = [{"calls": [{"name": name, "input": given} for name, given in inputs]}, "Ready."]
    config = config_of(permissions={"mode": "default", "ask": ["read_file", "bash"]})
    answer = Answer(verdict="no")
    async with conversation(await make_server(steps), tmp_path, config, lambda _question: answer) as talk:
        await talk.agent.run("go")
        shown = {question.detail: question.is_background for question in talk.asked}
        assert shown == {"a b": False, 'file_path: "x\\nlimit: 9"\nlimit: 3': False, "true": True}


async def test_always_grants_for_the_session(make_server: MakeServer, tmp_path: Path) -> None:
    steps = [
        {"calls": [{"name": "write_file", "input": {"file_path": f"src/{n}", "content": "x"}}]}
        for n in range(3)
    ]
    server = await make_server([*steps, {"text": "done"}])
    config = config_of(permissions={"mode": "default"})

    def always(question: Question) -> Answer:
        return Answer(verdict="always") if question.rule else Answer(verdict="yes")

    async with conversation(server, tmp_path, config, always) as talk:
        await talk.agent.run("go")
        grants = [e.rule for e in talk.session.entries() if isinstance(e, Grant)]
        assert len(grants) == 1
        assert len(talk.asked) == 1
        assert sorted(path.name for path in (tmp_path / "src").iterdir()) == ["0", "1", "2"]


async def test_money_stops_before_the_next_call(make_server: MakeServer, tmp_path: Path) -> None:
    server = await make_server([{"text": "dear", "usage_output": 900_000}, {"text": "never"}])
    async with conversation(server, tmp_path, config_of(limits={"cost_usd": 0.02})) as talk:
        await talk.agent.run("one")
        with pytest.raises(LimitReached):
            await talk.agent.run("two")
        assert len(server.requests) == 1


async def test_money_counts_an_answer_of_mean_length_and_at_least_500_tokens(
    make_server: MakeServer, tmp_path: Path
) -> None:
    """A million tokens of output cost $10; the prompt about $0.008 at first, next to nothing from the cache."""
    server = await make_server([{"text": "an answer", "usage_output": 1_000}])
    async with conversation(server, tmp_path, config_of(limits={"cost_usd": 0.012})) as talk:
        with pytest.raises(LimitReached, match=r"about \$0\.013"):
            await talk.agent.run("500 tokens more would cost half a cent")
    async with conversation(server, tmp_path, config_of(limits={"cost_usd": 0.024})) as talk:
        await talk.agent.run("there is enough for one")
        with pytest.raises(LimitReached, match=r"about \$0\.01"):
            await talk.agent.run("a second answer like the first would pass the limit")
        assert len(server.requests) == 1


async def test_a_summary_that_would_pass_the_limit_is_not_asked_for(
    make_server: MakeServer, tmp_path: Path
) -> None:
    server = await make_server([{"text": "word " * 400, "usage_output": 1_000}, {"text": "again"}])
    async with conversation(server, tmp_path, config_of(limits={"cost_usd": 0.0265})) as talk:
        await talk.agent.run("one")
        await talk.agent.run("two")
        assert not await talk.agent.compact()
        assert len(server.requests) == 2
        said = [heard.text for heard in talk.heard if isinstance(heard, Said)]
        assert said[-1].endswith("would pass the money limit (limits.cost_usd). Nothing changed.")


async def test_a_steered_line_goes_out_after_the_batch(make_server: MakeServer, tmp_path: Path) -> None:
    server = await make_server([{"calls": [bash(f"touch begun; {GATE}")]}, {"text": "seen"}])
    async with conversation(server, tmp_path) as talk:
        run = asyncio.create_task(talk.agent.run("go"))
        await until((tmp_path / "begun").exists)
        talk.agent.box.steered.append("turn left")
        (tmp_path / "go").touch()
        await run
        assert "turn left" in str(server.requests[1].messages[-1])
        assert len(server.requests) == 2


async def test_a_background_end_is_noticed_before_the_next_call(
    make_server: MakeServer, tmp_path: Path
) -> None:
    server = await make_server(
        [
            {"calls": [bash("echo from-behind; touch go", run_in_background=True)]},
            {"calls": [bash(f"{GATE}; sleep 1")]},
            {"text": "ok"},
        ]
    )
    async with conversation(server, tmp_path) as talk:
        await talk.agent.run("go")
        assert "<background-notifications>" in str(server.requests[2].body)
        assert "Task b1: done (exit 0) - from-behind" in str(server.requests[2].body)
        assert server.prefix_breaks() == []


async def test_a_bad_request_is_not_tried_again(make_server: MakeServer, tmp_path: Path) -> None:
    server = await make_server([{"fault": {"kind": "status", "status": 400, "message": "odd [/red]"}}])
    async with conversation(server, tmp_path) as talk:
        with pytest.raises(BadRequest, match=r"odd \[/red\]"):
            await talk.agent.run("go")
        assert len(server.requests) == 1


async def test_a_secret_reaches_the_model_but_not_the_disk(make_server: MakeServer, tmp_path: Path) -> None:
    secret = "sk-ant-api03-" + "Ab1" * 20
    (tmp_path / "notes.txt").write_text(f"key: {secret}\n")
    read = {"name": "read_file", "input": {"file_path": "notes.txt"}}
    server = await make_server([{"calls": [read]}, {"text": "seen"}, {"text": "again"}])
    async with conversation(server, tmp_path) as talk:
        await talk.agent.run("read it")
        assert secret in str(server.requests[1].body)
        assert talk.session.folder is not None
        assert secret not in (talk.session.folder / "log.jsonl").read_text()
        await talk.agent.run("more")
        assert server.prefix_breaks() == []
        folder_id = talk.session.id
    async with conversation(server, tmp_path, resume=folder_id) as talk:
        server.add({"text": "masked now"})
        await talk.agent.run("after a resume")
        assert secret not in str(server.requests[-1].body)
        assert server.refused == []


async def test_a_line_that_cannot_fit_is_not_sent_nor_logged(make_server: MakeServer, tmp_path: Path) -> None:
    server = await make_server([])
    async with conversation(server, tmp_path, config_of(provider={"model": "test-small"})) as talk:
        with pytest.raises(LineTooLong, match="there is room for"):
            await talk.agent.run("words " * 20_000)
        assert talk.session.messages == []
        assert server.requests == []


async def test_a_resumed_sessions_size_is_near_its_last_bill(make_server: MakeServer, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("The mill grinds grain by the river.\n" * 400)
    read = {"name": "read_file", "input": {"file_path": "long.txt"}}
    server = await make_server([{"calls": [read]}, {"text": "seen"}])
    async with conversation(server, tmp_path) as talk:
        await talk.agent.run("read it")
        before, name = talk.agent.context_tokens(), talk.session.id
    async with conversation(server, tmp_path, resume=name) as talk:
        talk.agent.begin()
        assert talk.agent.context_tokens() == pytest.approx(before, rel=0.05)
