"""Rows 9 to 21, 24 to 40, 44 to 46, 57 to 62: the history gives way to a summary."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bareagent import context
from bareagent.config import Config
from bareagent.context.full import ACKNOWLEDGEMENTS
from bareagent.context.readable import readable
from bareagent.context.tokens import estimate_tokens
from bareagent.entries import Compaction, MessageEntry
from bareagent.errors import ServerUnreachable
from bareagent.messages import COMPRESSED_HEADER, Message, results, system, text_of, user
from bareagent.session import Session
from tests.context_play import Play, rules, words
from tests.fakes import FakeProvider, call, result, said
from tests.fakes import results as answered
from tests.seed.rows import CHINESE_ACKNOWLEDGEMENT, Bench, history, manager, talk

BOTH = pytest.mark.parametrize("profile", ["seed", "default"])


@pytest.fixture
def play_on_disk(tmp_path: Path) -> Iterator[Play]:
    play = Play()
    play.session = Session.new(manager(tmp_path), tmp_path)
    yield play
    play.session.close()


def names_of(play: Play) -> list[str]:
    assert play.session.folder is not None
    return sorted(path.name for path in (play.session.folder / "snapshots").iterdir())


def asked(bench: Bench) -> str:
    return text_of(bench.provider.requests[-1].messages[-1])


@BOTH
async def test_row_09_only_over_the_threshold_or_forced(profile: str) -> None:
    bench = Bench(profile, threshold=1_000, micro="off")
    at = [user("x" * 2_000), user("x" * 2_000)]
    over = [*history(4, 1_000), said("y" * 400).message, user("go")]
    assert estimate_tokens(at) == 1_000
    await bench(at)
    assert bench.provider.requests == []
    await bench(over)
    assert len(bench.provider.requests) == 1
    await bench(talk(5), force=True)
    assert len(bench.provider.requests) == 2


@BOTH
async def test_row_10_a_last_user_message_comes_back_unchanged_at_the_end(profile: str) -> None:
    messages = [*talk(5), user("the pending line")]
    await Bench(profile)(messages, force=True)
    assert messages[-1] == user("the pending line")
    assert text_of(messages[0]).startswith(COMPRESSED_HEADER)


async def test_row_10_it_is_not_in_the_summary_request() -> None:
    bench = Bench()
    await bench([*talk(2), user("the pending line")], force=True)
    assert "the pending line" not in asked(bench)


@BOTH
async def test_row_11_a_pending_result_keeps_its_call(profile: str) -> None:
    messages = history(9, 6_000)
    last = messages[-2:]
    await Bench(profile, micro="off")(messages, force=True)
    assert messages[-2:] == last
    assert [message["role"] for message in messages][-3:] == ["user", "assistant", "user"]


@BOTH
async def test_row_12_system_items_are_not_summarised(profile: str) -> None:
    bench = Bench(profile)
    await bench([system("an injected item"), *talk(5)], force=True)
    assert "an injected item" not in asked(bench)


@BOTH
async def test_row_13_nothing_to_summarise_changes_nothing(profile: str) -> None:
    bench = Bench(profile)
    for messages in ([], [system("only")], [system("only"), user("pending")]):
        before = list(messages)
        await bench(messages, force=True)
        assert messages == before
    assert bench.provider.requests == []


@BOTH
async def test_row_14_the_request_is_a_fixed_prompt_and_one_message_without_tools(profile: str) -> None:
    bench = Bench(profile)
    await bench(talk(5), force=True)
    await bench([*history(3), user("more")], force=True)
    first, second = bench.provider.requests
    assert [message["role"] for message in first.messages] == ["system", "user"]
    assert first.messages[0] == second.messages[0]
    assert not first.tools


@BOTH
async def test_row_15_what_it_asks_for(profile: str) -> None:
    bench = Bench(profile)
    await bench(talk(5), force=True)
    question = asked(bench).split("</conversation>")[1].lower()
    for word in ("goal", "work done", "constraints", "important paths", "next steps", "state", "decisions"):
        assert word in question


async def test_row_16_written_in_chinese() -> None:
    bench = Bench()
    await bench(talk(), force=True)
    assert "Write it in Chinese" in asked(bench)


async def test_row_16_default_takes_the_users_language() -> None:
    for line, language in (("please", "English"), ("请继续", "Chinese")):
        bench = Bench("default")
        await bench([*talk(5), user(line), said("ok").message], force=True)
        assert f"Write it in {language}" in asked(bench)


@BOTH
def test_row_17_the_readable_form(profile: str) -> None:
    messages = [
        user("请读取配置"),
        said(call("read_file", "a", file_path="config.toml")).message,
        answered(result("1: [provider]\n2: ...", "a")),
    ]
    is_seed = profile == "seed"
    assert readable(messages, result_chars=0 if is_seed else 2_000, is_escaped=not is_seed) == (
        '[user]\n请读取配置\n\n[assistant]\n[tool_use:read_file] {"file_path": "config.toml"}\n\n'
        "[user]\n[tool_result:read_file] 1: [provider]\n2: ..."
    )


async def test_row_17_seed_neither_caps_nor_escapes() -> None:
    bench = Bench(micro="off")
    await bench([*history(1, 5_000), said("[user]").message], force=True)
    assert "x" * 5_000 in asked(bench)
    assert "\n[user]\n" in asked(bench).split("x" * 5_000)[1]


@BOTH
async def test_row_18_the_original_messages_are_saved_before_the_request(
    profile: str, tmp_path: Path
) -> None:
    sessions = manager(tmp_path)
    found = sessions.create()
    bench = Bench(profile, ServerUnreachable("down"), transcript_mgr=sessions, session_id=found.id)
    messages = talk(5)
    before = list(messages)
    await bench(messages, force=True)
    (path,) = (found.folder / "snapshots").iterdir()
    assert [json.loads(line) for line in path.read_text().splitlines()] == before


async def test_row_19_manual_and_automatic_save_one(play_on_disk: Play) -> None:
    play = play_on_disk
    play.config = rules(threshold=10_000, micro="off")
    for run in range(4):
        play.line(f"line {run}")
        play.reply("ok")
    await play.compact()
    for _ in range(8):
        play.round(2_000)
    await play.prepare()
    assert names_of(play) == ["0001-compact.jsonl", "0002-compacted.jsonl", "0003-auto.jsonl"]


async def test_row_20_the_list_afterwards() -> None:
    messages: list[Message] = [system("one"), *talk(2), system("two"), *talk(1), user("pending")]
    await Bench()(messages, force=True)
    assert messages == [
        system("one"),
        system("two"),
        user("[Context Compressed]\nthe summary"),
        said(CHINESE_ACKNOWLEDGEMENT).message,
        user("pending"),
    ]


@BOTH
async def test_row_21_a_failed_summary_warns_once_and_changes_nothing(profile: str) -> None:
    bench = Bench(profile, ServerUnreachable("connection refused"))
    messages = talk(5)
    before = list(messages)
    await bench(messages, force=True)
    assert messages == before
    assert bench.warnings() == ["Context compaction failed: connection refused. Nothing changed."]


@BOTH
async def test_row_24_forced_whatever_the_size(profile: str) -> None:
    messages = talk(1)
    await Bench(profile)(messages, force=True)
    assert text_of(messages[0]).startswith("[Context Compressed]\nthe summary")


async def test_row_25_and_26_another_snapshot_and_the_line_after_success(play_on_disk: Play) -> None:
    play = play_on_disk
    for run in range(4):
        play.line(f"line {run}")
        play.reply("ok")
    play.provider.summary = ServerUnreachable("down")
    failed = await play.compact()
    assert "Context compaction finished." not in failed.lines
    play.provider.summary = "fine"
    done = await play.compact()
    assert done.lines[0] == "Context compaction finished."
    assert "Context compaction finished." in play.said()
    assert play.session.folder is not None
    path = play.session.folder / "snapshots" / "0003-compacted.jsonl"
    assert [json.loads(line) for line in path.read_text().splitlines()] == play.messages
    assert done.lines[1].startswith(
        f"{done.tokens_before:,} → {done.tokens_after:,} tokens · {play.session.full_id}"
    )


@BOTH
async def test_row_30_the_compactor_has_a_session_id(profile: str) -> None:
    compactor = Bench(profile, session_id="20260101-000000-aaaa").compactor
    assert compactor.get_session_id() == "20260101-000000-aaaa"
    compactor.set_session_id("20260101-000000-bbbb")
    assert compactor.get_session_id() == "20260101-000000-bbbb"


@BOTH
async def test_row_31_no_later_snapshot_lands_under_the_old_name(profile: str, tmp_path: Path) -> None:
    sessions = manager(tmp_path)
    old, new = sessions.create(), sessions.create()
    bench = Bench(profile, transcript_mgr=sessions, session_id=old.id)
    bench.compactor.set_session_id(new.id)
    await bench(talk(5), force=True)
    assert not (old.folder / "snapshots").exists()
    assert len(list((new.folder / "snapshots").iterdir())) == 1


async def test_row_31_a_rebound_session(play_on_disk: Play, tmp_path: Path) -> None:
    play = play_on_disk
    old = play.session.folder
    play.line("x")
    play.session.rebind(Session.new(manager(tmp_path), tmp_path))
    for run in range(4):
        play.line(f"line {run}")
        play.reply("ok")
    await play.compact()
    assert old is not None
    assert not (old / "snapshots").exists()
    assert len(names_of(play)) == 2


async def test_row_32_seed_keeps_every_system_item() -> None:
    items = ["You are.", "<nag-reminder>\n- t1\n</nag-reminder>", "job 1 ended", "skills: a, b"]
    messages = [system(items[0]), *talk(2), *map(system, items[1:]), *talk(1)]
    await Bench()(messages, force=True)
    assert [text_of(message) for message in messages if message["role"] == "system"] == items


async def test_row_32_default_drops_reminders() -> None:
    messages = [system("You are."), *talk(4), system("<nag-reminder>\n- t1\n</nag-reminder>"), *talk(1)]
    await Bench("default")(messages, force=True)
    assert [text_of(message) for message in messages if message["role"] == "system"] == ["You are."]


@BOTH
async def test_row_33_system_items_are_copied_deeply(profile: str) -> None:
    item = system("one")
    messages = [item, *talk(5)]
    await Bench(profile)(messages, force=True)
    assert messages[0] == item
    assert messages[0] is not item
    assert messages[0]["content"][0] is not item["content"][0]


async def test_row_34_seed_may_summarise_placeholders() -> None:
    bench = Bench()
    await bench([*history(6), said("ok").message], force=True)
    assert "[truncated: bash result, 900 chars]" in asked(bench)


async def test_row_34_default_summarises_the_originals() -> None:
    bench = Bench("default", micro="eager", tail_turns=0)
    messages = [*history(6), said("ok").message]
    await bench(messages)
    assert any(text_of(block).startswith("[truncated:") for message in messages for block in results(message))
    await bench(messages, force=True)
    assert "[truncated:" not in asked(bench)
    assert asked(bench).count("x" * 900) == 6


def test_row_35_the_estimate() -> None:
    assert estimate_tokens([user("你好abc123"), user("ok"), answered(result("结果42"))]) == 9
    assert estimate_tokens("\u3000\u30ff\u3400\u9fff\uac00\uf900\U00020000\U0002f800") == 12
    assert estimate_tokens("a \t!") == 2


def test_row_36_it_recurses() -> None:
    assert estimate_tokens([call("bash", command="ls -la", timeout_s=5)]) == 13
    assert estimate_tokens([{"role": "user", "content": [{"type": "x", "k": "é"}]}]) == estimate_tokens(
        '{"type":"x","k":"é"}'
    )


@BOTH
async def test_row_38_at_most_two_thousand_tokens_of_summary(profile: str) -> None:
    long = "\n".join(f"point {n} of the work that was done" for n in range(3_000))
    messages = [user(words(30_000)), said("ok").message]
    await Bench(profile, long, tail_turns=0)(messages, force=True)
    summary = text_of(messages[0]).removeprefix(COMPRESSED_HEADER).split("\n\n<facts>")[0]
    assert 1_500 < estimate_tokens(summary) <= 2_000


@BOTH
async def test_row_39_compaction_is_never_the_critical_path(profile: str) -> None:
    bench = Bench(profile, ServerUnreachable("down"), threshold=1_000)
    messages = history(4, 6_000)
    for _ in range(3):
        await bench(messages)
        messages += history(1, 6_000)[1:]
    assert text_of(messages[0]) == "do it"


def test_row_40_few_dependencies() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    listed = text.split("dependencies = [")[1].split("]")[0]
    for name in ("tiktoken", "tokenizers", "transformers", "numpy", "chroma", "faiss", "fastapi"):
        assert name not in listed


async def test_row_44_to_46_the_archive_is_named_in_the_summary_message(play_on_disk: Play) -> None:
    play = play_on_disk
    for run in range(4):
        play.line(f"line {run}")
        play.reply("ok")
    await play.compact()
    (entry,) = play.logged(Compaction)
    assert ".transcripts" in Path(entry.snapshot).parts
    assert entry.snapshot in text_of(play.messages[0])
    lines = Path(entry.snapshot).read_text().splitlines()
    assert json.loads(lines[0])["content"][0]["text"] == "line 0"


async def test_row_45_seed_names_no_path(tmp_path: Path) -> None:
    sessions = manager(tmp_path)
    bench = Bench(transcript_mgr=sessions, session_id=sessions.create().id)
    messages = talk()
    await bench(messages, force=True)
    assert str(tmp_path) not in text_of(messages[0])


async def test_row_57_at_most_two_turns_and_eight_thousand_tokens_stay() -> None:
    messages = talk(6)
    tail = messages[-4:]
    await Bench("default")(messages, force=True)
    assert messages[2:] == tail
    long = [message for k in range(4) for message in (user(f"q{k} " + words(6_000)), said("ok").message)]
    last = long[-2:]
    await Bench("default")(long, force=True)
    assert long[2:] == last


async def test_row_58_what_is_kept_never_begins_with_a_result() -> None:
    for size in (500, 2_000, 9_000, 40_000):
        messages = history(12, size)
        await Bench("default", micro="off")(messages, force=True)
        assert not results(messages[1])


@BOTH
async def test_row_59_never_two_of_one_role_in_a_row(profile: str) -> None:
    for messages in (talk(5), [*talk(5), user("pending")], history(9, 6_000), [*history(3), user("steer")]):
        await Bench(profile, micro="off")(messages, force=True)
        roles = [message["role"] for message in messages if message["role"] != "system"]
        if messages[-1] != user("steer"):
            assert all(one != other for one, other in itertools.pairwise(roles))


async def test_row_60_and_61_an_appended_entry_and_the_view_from_it() -> None:
    play = Play()
    for run in range(5):
        play.line(f"line {run}")
        play.reply(f"answer {run}")
    before = list(play.session.entries())
    await play.compact()
    after = list(play.session.entries())
    assert after[: len(before)] == before
    (entry,) = play.logged(Compaction)
    kept = [e.message for e in before if isinstance(e, MessageEntry) and e.n >= entry.first_kept_entry_id]
    assert text_of(play.messages[0]).startswith(COMPRESSED_HEADER + entry.summary)
    assert play.messages[1] == said(ACKNOWLEDGEMENTS[""]).message
    assert play.messages[2:] == kept


async def test_row_62_the_second_folds() -> None:
    bench = Bench("default", "first summary")
    messages = talk(6)
    await bench(messages, force=True)
    messages += talk(4)
    await bench(messages, force=True)
    assert asked(bench).startswith("<previous-summary>\nfirst summary\n</previous-summary>")
    assert "question 0" in asked(bench)
    assert "Context Compressed" not in asked(bench)


async def test_row_27_and_29_own_threshold_and_a_no_op() -> None:
    provider = FakeProvider()
    assert context.Compactor(provider).config.compaction.threshold == 50_000
    messages = history(200, 9_000)
    before = list(messages)
    await context.leave_alone(Session.in_memory(), provider, [], Config(), lambda _: None)
    assert messages == before
