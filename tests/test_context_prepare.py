"""Before each model call: nag, micro, full, in this order, and what each may and may not do."""

import pytest

from bareagent import context
from bareagent.config import Config, Reminder
from bareagent.context.reminder import reminder_text
from bareagent.context.working import state_of
from bareagent.entries import Cleared, Compaction, MessageEntry, Prompt, Todo, TodoItem, Usage
from bareagent.errors import ServerUnreachable
from bareagent.messages import n_images, text_of, user
from bareagent.messages import results as results_of
from bareagent.seams import ModelInfo
from bareagent.session import Session, fold
from tests.context_play import PRICED, UNCACHED, Play, rules, words
from tests.fakes import FakeProvider, call, results, said

OPEN = [TodoItem(id="t1", text="read the files"), TodoItem(id="t2", text="write", status="in_progress")]
DONE = [TodoItem(id="t1", text="read the files", status="completed")]


def small(window: int = 8_000) -> ModelInfo:
    return ModelInfo(name="small", window=window, max_output=1_024, token_factor=1.0)


class TestOrder:
    async def test_nag_then_micro_then_full(self) -> None:
        play = Play(rules(threshold=20_000), FakeProvider(model=UNCACHED))
        play.line("go")
        play.round(2_000)
        play.session.record(Todo(items=OPEN, next_id=3))
        for size in (4_000, 4_000, 9_000):
            await play.prepare()
            play.check()
            play.round(size)
        assert play.happened() == ["reply"] * 4
        await play.prepare()
        play.check()
        assert play.happened() == [*["reply"] * 4, "nag", "micro", "full"]
        marks = [e.n for e in play.session.entries() if isinstance(e, MessageEntry | Cleared | Compaction)]
        assert marks == sorted(marks)
        assert "t2 [in_progress] (normal) write" in play.text()
        assert "<nag-reminder>" not in play.text()

    async def test_all_three_in_one_call(self) -> None:
        play = Play(rules(threshold=20_000, micro="eager"))
        play.line("go")
        play.session.record(Todo(items=OPEN, next_id=3))
        for _ in range(5):
            play.round(9_000)
        await play.prepare()
        assert play.happened()[-3:] == ["nag", "micro", "full"]
        play.check()


class TestNag:
    async def test_due_after_three_rounds_and_again_after_three(self) -> None:
        play = Play()
        play.line("go")
        play.session.record(Todo(items=OPEN, next_id=3))
        seen = []
        for _ in range(8):
            await play.prepare()
            seen.append(play.happened().count("nag"))
            play.round(10)
        assert seen == [0, 0, 0, 1, 1, 1, 2, 2]

    @pytest.mark.parametrize("items", [[], DONE])
    async def test_never_without_an_open_item(self, items: list[TodoItem]) -> None:
        play = Play()
        play.line("go")
        play.session.record(Todo(items=items, next_id=3))
        for _ in range(6):
            play.round(10)
            await play.prepare()
        assert "nag" not in play.happened()

    async def test_never_right_after_an_update_even_at_each_call(self) -> None:
        play = Play(Config(reminder=Reminder(rounds=0)))
        play.line("go")
        play.round(10)
        play.session.record(Todo(items=OPEN, next_id=3))
        await play.prepare()
        assert "nag" not in play.happened()
        play.round(10)
        await play.prepare()
        play.round(10)
        await play.prepare()
        assert play.happened().count("nag") == 1

    async def test_switched_off(self) -> None:
        play = Play(Config(reminder=Reminder(enabled=False)))
        play.line("go")
        play.session.record(Todo(items=OPEN, next_id=3))
        for _ in range(6):
            play.round(10)
            await play.prepare()
        assert "nag" not in play.happened()
        assert context.owes(play.session, play.config) is None

    def test_its_form(self) -> None:
        lines = reminder_text([*OPEN, *DONE]).split("\n")
        assert lines[0] == "<nag-reminder>"
        assert "open items" in lines[1]
        assert lines[2:] == [
            "- t1 [pending] (normal) read the files",
            "- t2 [in_progress] (normal) write",
            "</nag-reminder>",
        ]

    async def test_it_is_a_system_item_and_appends_only(self) -> None:
        play = Play()
        play.line("go")
        play.session.record(Todo(items=OPEN, next_id=3))
        for _ in range(3):
            play.round(10)
        before = list(play.messages)
        await play.prepare()
        assert play.messages[: len(before)] == before
        assert [m["role"] for m in play.messages[len(before) :]] == ["system"]

    def test_owed_when_an_item_is_in_progress(self) -> None:
        play = Play()
        assert context.owes(play.session, play.config) is None
        play.session.record(Todo(items=OPEN[:1], next_id=2))
        assert context.owes(play.session, play.config) is None
        play.session.record(Todo(items=OPEN, next_id=3))
        owed = context.owes(play.session, play.config)
        assert owed is not None
        assert owed["role"] == "user"
        assert text_of(owed) == reminder_text(OPEN)


class TestThreshold:
    async def test_over_it_a_summary_takes_the_place_of_the_history(self) -> None:
        play = Play(rules(threshold=20_000, micro="off"))
        play.line("Read it all. Do not touch main.py.")
        for _ in range(6):
            play.round(5_000)
        await play.prepare()
        (entry,) = play.logged(Compaction)
        assert entry.trigger == "auto"
        assert play.said() == [
            f"Context compacted: {entry.tokens_before:,} → {entry.tokens_after:,} tokens (memory.1)"
        ]
        assert "Do not touch main.py." in play.text()
        assert context.estimate_tokens(play.messages) < 20_000
        play.check()

    async def test_the_next_call_does_not_compact_again(self) -> None:
        play = Play(rules(threshold=20_000, micro="off"))
        play.line("go")
        for _ in range(6):
            play.round(5_000)
        await play.prepare()
        await play.prepare()
        play.reply("done")
        play.line("and now?")
        await play.prepare()
        assert len(play.logged(Compaction)) == 1

    async def test_auto_means_the_window_alone(self) -> None:
        play = Play(rules(threshold="auto", micro="off"), FakeProvider(model=small(60_000)))
        play.line("go")
        while play.tokens() < 30_000:
            play.round(5_000)
        await play.prepare()
        assert play.logged(Compaction) == []
        while play.tokens() < 55_000:
            play.round(5_000)
        await play.prepare()
        assert len(play.logged(Compaction)) == 1

    async def test_automatic_false_leaves_it_to_the_user(self) -> None:
        play = Play(rules(threshold=20_000, micro="off", automatic=False))
        play.line("go")
        for _ in range(6):
            play.round(5_000)
        await play.prepare()
        assert play.logged(Compaction) == []
        await play.compact()
        assert len(play.logged(Compaction)) == 1

    async def test_forty_large_turns_in_one_run_go_on(self) -> None:
        for micro in ("auto", "off"):
            play = Play(rules(micro=micro))
            play.line("Go through all files. Never delete one.")
            for _ in range(40):
                await play.prepare()
                play.check()
                assert context.estimate_tokens(play.messages) <= 50_000
                play.round(5_000, text="I read on. " * 40)
            assert play.logged(Compaction) or micro == "auto"
            assert "Never delete one." in play.text()

    async def test_too_many_images_compact(self) -> None:
        play = Play()
        play.line("look")
        image = {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "QUJD" * 100},
        }
        for _ in range(95):
            play.session.append({"role": "user", "content": [image]}, "line")
            play.reply("seen")
        play.line("and?")
        await play.prepare()
        assert len(play.logged(Compaction)) == 1
        assert sum(b["type"] == "image" for m in play.messages for b in m["content"]) <= 90

    async def test_pending_images_that_no_request_can_hold_are_left_out(self) -> None:
        image = {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "A" * 900_000},
        }
        play = Play(rules(threshold="auto"), FakeProvider(model=PRICED))
        play.line("look at all")
        blocks = [call("read_file", f"c{n}", file_path=f"{n}.png") for n in range(40)]
        play.reply(*blocks)
        answers = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": [image]} for block in blocks
        ]
        entry = play.session.append(results(*answers), "results")
        await play.prepare()
        assert len(play.check()) < 24 * 2**20
        shown = [bool(n_images(block)) for block in results_of(play.messages[-1])]
        assert shown == sorted(shown)  # the newest stay
        assert True in shown
        assert play.session.original(f"r{entry.n}")["content"] == [image]
        assert fold(play.session.entries()).messages == play.messages


class TestGuards:
    async def test_a_summariser_that_returns_its_input_is_refused(self) -> None:
        play = Play(rules(threshold=20_000, micro="off"))
        play.provider.summary = lambda request: said(text_of(request.messages[-1]))
        play.line("go")
        for _ in range(6):
            play.round(5_000)
        before = list(play.messages)
        await play.prepare()
        assert play.messages == before
        assert "repeats the conversation" in play.said("warning")[0]

    async def test_after_three_failures_it_rests_until_the_next_line(self) -> None:
        play = Play(rules(threshold=20_000, micro="off"))
        play.provider.summary = ServerUnreachable("no answer")
        play.line("go")
        for _ in range(6):
            play.round(5_000)
        for _ in range(6):
            await play.prepare()
        assert len(play.provider.requests) == 3
        assert sum("rests" in line for line in play.said()) == 1
        play.line("again")
        await play.prepare()
        assert len(play.provider.requests) == 4

    async def test_three_compactions_without_progress_rest(self) -> None:
        play = Play(rules(threshold=15_000, micro="off"))
        play.line("go")
        for _ in range(12):
            play.round(12_000)
            await play.prepare()
        assert len(play.logged(Compaction)) == 3
        assert sum("rests" in line for line in play.said()) == 1

    async def test_a_server_that_always_says_full_does_not_loop(self) -> None:
        play = Play(rules(micro="off"))
        play.line("go")
        for _ in range(20):
            usage = Usage(uncached=500_000, cache_read=1, output=9)
            made = said("more", usage=usage)
            play.session.append(made.message, "reply", made)
            play.session.append(user("Continue."), "continue")
            await play.prepare()
        assert len(play.logged(Compaction)) <= 3

    async def test_a_dead_summariser_with_a_full_window_keeps_the_facts(self) -> None:
        play = Play(rules(threshold="auto", micro="off"), FakeProvider(model=small(20_000)))
        play.provider.summary = ServerUnreachable("no answer")
        play.line("Build it. You must not use the network.")
        for _ in range(5):
            play.round(4_000)
        await play.prepare()
        (entry,) = play.logged(Compaction)
        assert entry.summary == ""
        assert "You must not use the network." in entry.facts
        play.check()

    async def test_a_crowded_window_is_said_once_and_never_compacted(self) -> None:
        play = Play(provider=FakeProvider(model=small(8_000)))
        play.session.record(Prompt(system=words(6_500)))
        play.line("go")
        for _ in range(5):
            play.round(1_000)
            await play.prepare()
        assert play.logged(Compaction) == []
        assert sum("System prompt and tools alone" in line for line in play.said()) == 1

    async def test_five_reads_in_one_run_of_a_small_window(self) -> None:
        play = Play(rules(threshold="auto"), FakeProvider(model=small(8_000)))
        play.line("read five files")
        for _ in range(5):
            await play.prepare()
            play.check()
            play.round(2_500)
        await play.prepare()
        assert play.request().max_tokens >= 256
        play.check()

    async def test_thirty_parallel_results_larger_than_the_tail(self) -> None:
        play = Play()
        play.line("do all")
        play.round(*[2_500] * 30)
        await play.prepare()
        assert len(play.logged(Compaction)) == 1
        assert context.estimate_tokens(play.messages) < 50_000
        play.check()


class TestOverflow:
    async def test_a_reply_cut_by_the_window_forces_a_compaction(self) -> None:
        play = Play()
        play.line("go")
        for _ in range(4):
            play.round(3_000)
        play.reply("half an ans", stop="model_context_window_exceeded")
        play.session.append(user("Continue."), "continue")
        await play.prepare()
        (entry,) = play.logged(Compaction)
        assert entry.trigger == "overflow"
        assert "half an ans" in play.text()
        play.check()

    async def test_also_after_a_restart(self) -> None:
        play = Play()
        play.line("go")
        for _ in range(4):
            play.round(3_000)
        play.reply("half an ans", stop="model_context_window_exceeded")
        play.session.append(user("Continue."), "continue")
        other = restarted(play)
        await other.prepare()
        assert [entry.trigger for entry in other.logged(Compaction)] == ["overflow"]
        await other.prepare()
        assert len(other.logged(Compaction)) == 1
        again = restarted(other)
        await again.prepare()
        assert len(again.logged(Compaction)) == 1

    async def test_refused_as_too_long_fits_only_when_smaller_and_within(self) -> None:
        play = Play()
        play.line("go")
        for _ in range(6):
            play.round(5_000)
        outcome = await play.compact(trigger="overflow")
        assert outcome.fits
        assert outcome.tokens_after < outcome.tokens_before

    async def test_replies_that_are_always_cut_do_not_compact_for_ever(self) -> None:
        play = Play()
        play.line("go")
        for _ in range(12):
            play.round(3_000)
            play.reply("half", stop="model_context_window_exceeded")
            play.session.append(user("Continue."), "continue")
            await play.prepare()
        assert 1 <= len(play.logged(Compaction)) <= 3


class TestUndo:
    async def test_automatic_compaction_waits_for_the_window_after_an_undo(self) -> None:
        play = Play(rules(threshold=20_000, micro="off"))
        play.line("go")
        for _ in range(6):
            play.round(5_000)
        await play.prepare()
        play.line("tell me")
        play.reply("told")
        play.session.undo()
        play.line("go on")
        await play.prepare()
        assert len(play.logged(Compaction)) == 1
        assert "told" in play.text()
        assert restarted_plan(play).full is None
        while play.tokens() < 190_000:
            play.round(9_000)
        await play.prepare()
        assert len(play.logged(Compaction)) == 2

    async def test_the_restored_part_stands_before_what_was_said_since(self) -> None:
        play = Play(rules(micro="off"))
        play.line("first")
        play.round(500)
        play.reply("one")
        play.line("second")
        play.round(500)
        play.reply("two")
        whole = list(play.messages)
        await play.compact()
        play.line("third")
        play.session.undo()
        assert play.messages == [*whole, user("third")]


def restarted(play: Play) -> Play:
    other = Play(play.config, FakeProvider(model=PRICED))
    other.session = Session.in_memory()
    for entry in play.session.entries():
        if entry.n > 1:
            other.session.record(entry)
    other.session.working.clear()
    return other


def restarted_plan(play: Play) -> context.Plan:
    other = restarted(play)
    assert fold(other.session.entries()).messages == play.messages
    wishes = context.wishes_of(state_of(other.session, other.provider))
    return context.planned(other.session, other.provider, [], other.config, wishes)
