"""Rows 22, 23, 28, 47 to 56, 63 to 68: what needs the loop, the tools or the request builder."""

import itertools
from typing import Any

import msgspec
import pytest

from bareagent import context
from bareagent.context.room import room_of
from bareagent.context.tokens import Meter, estimate_tokens
from bareagent.context.working import state_of
from bareagent.entries import Cleared, Compaction, MessageEntry, Prompt, Todo, TodoItem, Usage
from bareagent.errors import TooLong
from bareagent.loop import agent_loop
from bareagent.messages import calls, is_cleared, results, system, text_of
from bareagent.provider.failures import OVERFLOW
from bareagent.provider.request import build
from bareagent.seams import Answer, ModelInfo, Question, Request
from bareagent.tools import standard_tools
from bareagent.toolspec import spec
from tests.context_play import PRICED, Play, rules, seed_rules, words
from tests.fakes import FakeProvider, call, said

BOTH = pytest.mark.parametrize("profile", ["seed", "default"])
OPEN = [TodoItem(id="t1", text="do it", status="pending")]


async def yes(_question: Question) -> Answer:
    return Answer(verdict="yes")


def config_of(profile: str, **given: Any) -> Any:
    return seed_rules(**given) if profile == "seed" else rules(**given)


async def run(play: Play, **given: Any) -> Any:
    tools = standard_tools(play.config)
    return await agent_loop(play.session, play.provider, tools, play.config, play.heard.append, yes, **given)


@BOTH
async def test_row_22_prepared_at_the_start_of_each_round(profile: str) -> None:
    rounds = [said(call("todo_write", f"c{n}", items=[])) for n in range(2)]
    provider = FakeProvider([*rounds, said("done")])
    play = Play(config_of(profile), provider)
    seen: list[int] = []

    async def watched(*given: Any) -> None:
        seen.append(len(play.messages))
        await context.prepare(*given)

    play.line("go")
    await run(play, prepare=watched)
    assert len(seen) == 3


async def test_row_23_first_nag_then_micro_then_full() -> None:
    play = Play(seed_rules(threshold=20_000))
    play.line("go")
    play.session.record(Todo(items=OPEN, next_id=2))
    for _ in range(5):
        play.round(6_000)
    await play.prepare()
    assert play.happened()[-3:] == ["nag", "micro", "full"]


@BOTH
async def test_row_47_the_compact_tool_only_marks(profile: str) -> None:
    first = said("I compact.", call("compact", "a", focus="the goal"), call("todo_write", "b", items=[]))
    provider = FakeProvider([first, said("the summary"), said("done")])
    play = Play(config_of(profile), provider)
    play.line("first")
    play.reply("ok")
    play.line("go")
    await run(play)
    (entry,) = play.logged(Compaction)
    assert entry.trigger == "tool"
    results_logged = [e for e in play.logged(MessageEntry) if e.kind == "results"]
    assert text_of(results_logged[0].message["content"][0]) == "Compressing..."
    assert len(results(results_logged[0].message)) == 2
    assert results_logged[0].n < entry.n
    assert text_of(play.messages[-1]) == "done"


async def test_row_48_and_the_run_returns_to_the_user() -> None:
    provider = FakeProvider([said(call("compact", "a")), said("the summary"), said("never asked")])
    play = Play(rules(exit_after_tool=True), provider)
    play.line("first")
    play.reply("ok")
    play.line("go")
    await run(play)
    assert len(provider.requests) == 2


@BOTH
async def test_row_49_it_says_so_on_the_screen(profile: str) -> None:
    play = Play(config_of(profile, threshold=10_000))
    play.line("go")
    for _ in range(6):
        play.round(4_000)
    await play.prepare()
    assert any(line.startswith("Context compacted: ") for line in play.said())


async def test_row_50_messages_are_only_appended_between_epochs() -> None:
    play = Play(rules(threshold="auto"))
    play.session.record(Prompt(system="You are."))
    play.line("go")
    before: list[Any] = []
    n_epochs = 0
    for _ in range(30):
        await play.prepare()
        now = context.request(play.session, play.provider, [], play.config).messages
        if len(play.logged(Cleared)) == n_epochs:
            assert list(now[: len(before)]) == before
        n_epochs = len(play.logged(Cleared))
        before = msgspec.json.decode(msgspec.json.encode(now))
        play.round(1_500)
    assert 0 < n_epochs < 6


async def test_row_52_tools_are_the_same_bytes_with_a_log_and_without() -> None:
    tools = standard_tools(rules())
    logged, bare = Play(), Play()
    logged.session.record(Prompt(system="", tools=[spec(tool) for tool in tools]))
    sent = []
    for play in (logged, bare):
        play.line("go")
        made = context.request(play.session, play.provider, tools, play.config)
        sent.append(build(made, PRICED).tools)
    assert sent[0] == sent[1]
    names = [tool["name"] for tool in msgspec.json.decode(b"[" + sent[0] + b"]")]
    assert names == [tool.name for tool in tools]


async def test_row_51_cache_marks_and_row_53_blocks() -> None:
    play = Play()
    play.session.record(Prompt(system="You are."))
    play.line("go")
    play.round(100)
    built = build(play.request(), PRICED)
    assert built.marks[0] == "system"
    assert built.marks[-1] == "2.0"
    assert len(built.marks) <= 4
    bare = Request(messages=[system("s"), {"role": "user", "content": "bare"}])  # type: ignore[typeddict-item]  # a foreign form
    assert b'"content":[{"type":"text"' in build(bare, PRICED).body.replace(b" ", b"")


def test_row_52_the_tool_order_never_changes() -> None:
    names = [tool.name for tool in standard_tools(rules())]
    assert names == [tool.name for tool in standard_tools(rules())]


@BOTH
async def test_row_54_size_is_the_last_usage_and_what_came_after(profile: str) -> None:
    play = Play(config_of(profile))
    play.line("go")
    await play.prepare()
    made = said("ok", usage=Usage(uncached=9_000, cache_read=500, cache_write=400, output=100))
    play.session.append(made.message, "reply", made)
    play.line(words(1_000))
    planned = context.planned(play.session, play.provider, [], play.config)
    assert planned.load.size == pytest.approx(10_000 + planned.view[-1].tokens)
    assert Meter(1.0).size(7_000) == 7_000


@BOTH
async def test_row_55_usage_from_before_a_compaction_is_void(profile: str) -> None:
    play = Play(config_of(profile))
    for _ in range(4):
        play.line("go")
        made = said("ok", usage=Usage(uncached=90_000, cache_read=1, output=10))
        play.session.append(made.message, "reply", made)
    await play.compact()
    play.line("next")
    assert context.planned(play.session, play.provider, [], play.config).load.size < 1_000


@pytest.mark.parametrize(
    ("output", "window", "reserve"),
    [(1_000, 200_000, 8_192), (8_192, 200_000, 12_288), (64_000, 200_000, 20_000), (8_192, 16_000, 4_000)],
)
def test_row_56_the_reserve(output: int, window: int, reserve: int) -> None:
    room = room_of(ModelInfo(name="m", window=window, max_output=output), rules().compaction)
    assert (room.reserve, room.limit) == (reserve, window - reserve)


@BOTH
async def test_row_63_a_reply_cut_by_the_window_forces_a_compaction(profile: str) -> None:
    half = said("half an ans", stop="model_context_window_exceeded")
    provider = FakeProvider([half, said("the summary"), said("whole answer")])
    play = Play(config_of(profile), provider)
    play.line("first " + words(4_000))
    play.reply("ok")
    play.line("go")
    await run(play)
    assert [entry.trigger for entry in play.logged(Compaction)] == ["overflow"]
    logged = "\n".join(text_of(e.message) for e in play.logged(MessageEntry))
    assert "half an ans" in logged
    assert "Continue." in logged
    assert text_of(play.messages[-1]) == "whole answer"


@BOTH
async def test_row_64_refused_as_too_long_compacts_and_retries_once(profile: str) -> None:
    provider = FakeProvider([TooLong("prompt is too long"), said("the summary"), said("fine")])
    play = Play(config_of(profile), provider)
    for _ in range(4):
        play.line(words(2_000))
        play.reply("ok")
    play.line("go")
    await run(play)
    assert len(provider.requests) == 3
    assert text_of(play.messages[-1]) == "fine"


@BOTH
async def test_row_65_else_the_servers_own_error(profile: str) -> None:
    refused = TooLong("prompt is too long: 900 > 800")
    provider = FakeProvider([refused, said("the summary"), TooLong("still: 850 > 800")])
    play = Play(config_of(profile), provider)
    for _ in range(4):
        play.line(words(2_000))
        play.reply("ok")
    play.line("go")
    with pytest.raises(TooLong, match="still"):
        await run(play)
    assert len(provider.requests) == 3


async def test_row_66_automatic_false_leaves_manual_tool_and_overflow() -> None:
    play = Play(rules(automatic=False, threshold=10_000, micro="off"))
    play.line("go")
    for _ in range(6):
        play.round(4_000)
    await play.prepare()
    assert play.logged(Compaction) == []
    play.reply("half", stop="model_context_window_exceeded")
    play.line("on")
    await play.prepare()
    assert [entry.trigger for entry in play.logged(Compaction)] == ["overflow"]


@BOTH
async def test_row_67_no_loop_of_error_and_compaction(profile: str) -> None:
    provider = FakeProvider(summary=TooLong("prompt is too long"))
    play = Play(config_of(profile, threshold=10_000), provider)
    play.line("go")
    for _ in range(6):
        play.round(4_000)
    for _ in range(10):
        await play.prepare()
    assert len(provider.requests) == 3
    assert state_of(play.session, provider).guard.is_resting


@pytest.mark.parametrize("text", ["prompt is too long: 9 tokens > 8 maximum", "context_length_exceeded"])
def test_row_68_known_overflow_forms(text: str) -> None:
    assert OVERFLOW.search(text)


async def test_row_28_a_subagent_leaves_no_transcript() -> None:
    assert rules().subagent.keep_log is False


async def test_golden_trace_of_the_seed_profile() -> None:
    """Twelve calls, a nag, an automatic and a manual compaction, each list compared with the rows."""
    play = Play(seed_rules(threshold=12_000))
    play.session.record(Prompt(system="You are."))
    play.line("请修改配置")
    play.session.record(Todo(items=OPEN, next_id=2))
    for n in range(12):
        await play.prepare()
        check_classic(play)
        play.round(7_000 if n == 7 else 2_000)
    happened = play.happened()
    assert happened.count("nag") >= 1
    assert "full" in happened
    assert happened.index("nag") < happened.index("full")
    play.reply("做完了")
    n_before = len(play.logged(Compaction))
    outcome = await play.compact()
    assert outcome.lines[0] == "Context compaction finished."
    assert len(play.logged(Compaction)) == n_before + 1
    check_classic(play)
    assert [message["role"] for message in play.messages if message["role"] != "system"] == [
        "user",
        "assistant",
    ]
    assert play.messages[-1] == said("收到，我已理解之前的上下文，继续工作。").message
    for request in play.provider.requests:
        assert "中文" in text_of(request.messages[-1])
        assert "<previous-summary>" not in text_of(request.messages[-1])


def check_classic(play: Play) -> None:
    """Rows 5, 6, 9, 20 and 58 on the present list."""
    holders = [message for message in play.messages if results(message)]
    for message in holders[:-3]:
        assert all(is_cleared(block) for block in results(message))
    for message in holders[-3:]:
        assert not any(is_cleared(block) for block in results(message))
    assert estimate_tokens(play.messages) <= 12_000 or len(holders) <= 3
    spoken = [message for message in play.messages if message["role"] != "system"]
    if play.logged(Compaction):
        assert text_of(spoken[0]) == "[Context Compressed]\nA summary."
        assert spoken[1]["role"] == "assistant"
    for one, other in itertools.pairwise(spoken):
        assert one["role"] != other["role"]
        if results(other):
            assert [b["id"] for b in calls(one)] == [b["tool_use_id"] for b in results(other)]
    assert spoken[0]["role"] == "user"
