"""Rows 1 to 8, 37, 41 to 43: old results give way to placeholders."""

import copy

import pytest

from bareagent.context.tokens import fast_tokens
from bareagent.messages import Message, calls, is_cleared, results, system, text_of, user
from bareagent.seams import Capabilities, ModelInfo
from bareagent.view import placeholder
from tests.fakes import call, result, said
from tests.fakes import results as answered
from tests.seed.rows import Bench, history

FAST = fast_tokens("x" * 45_000) + 3
BOTH = pytest.mark.parametrize("profile", ["seed", "default"])


def shown(messages: list[Message]) -> list[str]:
    return [text_of(block) for message in messages for block in results(message)]


def cleared(messages: list[Message]) -> list[bool]:
    return [is_cleared(block) for message in messages for block in results(message)]


@BOTH
async def test_row_01_micro_then_full_in_one_call(profile: str) -> None:
    bench = Bench(profile, threshold=4_000, keep_tokens=0, micro="eager")
    messages = history(8, 8_000)
    await bench(messages)
    assert "[Context Compressed]\nthe summary" in text_of(messages[0])
    asked = text_of(bench.provider.requests[0].messages[-1])
    assert asked.count("[truncated: bash result, 8000 chars]") == (5 if profile == "seed" else 0)


async def test_row_02_micro_runs_at_every_call_far_below_the_threshold() -> None:
    bench = Bench()
    messages = history(3)
    for n in range(3, 6):
        await bench(messages)
        assert sum(cleared(messages)) == n - 3
        messages += history(1)[1:]
    assert bench.provider.requests == []


@BOTH
async def test_row_03_only_results_are_touched(profile: str) -> None:
    bench = Bench(profile, micro="eager")
    messages = [system("item " * 200), user("line " * 200), *history(6)[1:]]
    messages[2] = said("text " * 200, call("bash", "id0", command="long " * 200)).message
    before = copy.deepcopy(messages)
    await bench(messages)
    for old, new in zip(before, messages, strict=True):
        assert [b for b in old["content"] if b["type"] != "tool_result"] == [
            b for b in new["content"] if b["type"] != "tool_result"
        ]
    assert sum(cleared(messages)) == 3


@BOTH
async def test_row_04_names_come_from_the_calls_unknown_without_one(profile: str) -> None:
    bench = Bench(profile, micro="eager")
    messages = [
        user("go"),
        said("hm").message,
        answered(result("y" * 500, "lost")),
        *history(4, tool="grep")[1:],
    ]
    await bench(messages)
    assert shown(messages)[:2] == [
        "[truncated: unknown result, 500 chars]",
        "[truncated: grep result, 900 chars]",
    ]


async def test_row_05_the_newest_three_messages_with_results_stay() -> None:
    messages = [user("go")]
    for n in range(5):
        messages.append(said(call("bash", f"a{n}"), call("grep", f"b{n}")).message)
        messages.append(answered(result("short", f"a{n}"), result("x" * 300, f"b{n}")))
    await Bench()(messages)
    assert cleared(messages) == [True] * 4 + [False] * 6


async def test_row_05_default_keeps_short_protected_and_new_output() -> None:
    messages = [*history(1, 99), *history(1, 9_000, "load_skill")[1:], *history(2, 300_000)[1:]]
    messages += history(3, 9_000)[1:]
    plain = ModelInfo(name="plain", token_factor=1.0, capabilities=Capabilities(cache=False))
    await Bench("default", model=plain, threshold=10**6)(messages)
    assert cleared(messages) == [False, False, True, True, False, False, False]
    messages = history(7, 45_000)
    await Bench("default", model=plain, threshold=10**6)(messages)
    kept = cleared(messages).index(False)
    assert kept == 4 - sum(FAST * n <= 10_000 for n in range(4, 8))


@BOTH
async def test_row_06_the_replacement_is_exact(profile: str) -> None:
    messages = history(4, 1_204)
    await Bench(profile, micro="eager")(messages)
    assert shown(messages)[0] == "[truncated: bash result, 1204 chars]"


@BOTH
async def test_row_07_a_placeholder_is_not_replaced_again(profile: str) -> None:
    bench = Bench(profile, micro="eager")
    messages = history(6, 1_204)
    await bench(messages)
    once = copy.deepcopy(messages)
    await bench(messages)
    assert messages == once


@BOTH
async def test_row_08_the_list_is_changed_in_place(profile: str) -> None:
    messages = history(6)
    same = messages
    await Bench(profile, micro="eager")(messages)
    assert messages is same
    assert sum(cleared(same)) == 3


@BOTH
async def test_row_37_the_newest_three_are_never_touched(profile: str) -> None:
    bench = Bench(profile, micro="eager", threshold=10**6)
    for n in range(1, 9):
        messages = history(n, 60_000)
        await bench(messages)
        assert cleared(messages)[-3:] == [False] * min(n, 3)


async def test_row_41_read_file_may_be_kept() -> None:
    messages = history(6, tool="read_file")
    await Bench(protect=["read_file"])(messages)
    assert not any(cleared(messages))


async def test_row_42_results_of_at_most_a_hundred_characters_are_kept() -> None:
    messages = [*history(2, 100), *history(2, 101)[1:], *history(3)[1:]]
    await Bench("default", micro="eager")(messages)
    assert cleared(messages) == [False, False, True, True, False, False, False]


def test_row_43_other_forms_are_superseded() -> None:
    """Rows 5, 6, 20, 35 and 62 say how it is done here; nothing of the other forms is left."""
    assert placeholder("bash", 12) == "[truncated: bash result, 12 chars]"
    assert [call["name"] for call in calls(history(1)[1])] == ["bash"]
