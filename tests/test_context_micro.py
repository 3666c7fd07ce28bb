"""Micro-compaction: what is cleared, when, and that nothing is lost by it."""

import pytest

from bareagent import context
from bareagent.config import Compaction as Rules
from bareagent.context import micro
from bareagent.context.measure import Measurer, Sized
from bareagent.context.working import state_of
from bareagent.entries import Cleared, Usage
from bareagent.messages import Message, is_cleared, results, text_of, user
from bareagent.seams import CacheLife, Price
from tests.context_play import PRICED, UNCACHED, Play, rules, words
from tests.fakes import FakeProvider, call, result, said
from tests.fakes import results as answered


def cleared_of(messages: list[Message]) -> list[bool]:
    return [is_cleared(block) for message in messages for block in results(message)]


def sized(messages: list[Message]) -> list[Sized]:
    return Measurer().measure(messages)


def rounds(*texts: str, tool: str = "bash") -> list[Message]:
    messages = [user("go")]
    for n, text in enumerate(texts):
        messages += [said(call(tool, f"c{n}")).message, answered(result(text, f"c{n}"))]
    return messages


def chosen(messages: list[Message], *, is_frugal: bool = True, **given: object) -> list[int]:
    config = Rules(**given)  # type: ignore[arg-type]  # keys of any type
    return [slot.message for slot in micro.candidates(sized(messages), config, is_frugal=is_frugal)]


LONG = words(6_000)


class TestWhat:
    def test_the_newest_three_messages_with_results_stay(self) -> None:
        messages = rounds(*[LONG] * 6)
        assert chosen(messages, keep_tokens=0) == [2, 4, 6]

    def test_no_more_than_three_rounds_clear_nothing(self) -> None:
        assert chosen(rounds(*[LONG] * 3), keep_tokens=0) == []

    def test_a_result_no_reply_follows_is_not_seen(self) -> None:
        messages = [user("go"), said(*[call("bash", f"c{n}") for n in range(4)]).message]
        messages += [answered(result(LONG, f"c{n}")) for n in range(4)]
        assert chosen(messages, keep_tokens=0) == []

    def test_short_results_protected_tools_and_placeholders_stay(self) -> None:
        messages = rounds("x" * 100, "x " * 60, "[truncated: bash result, 9 chars]" + LONG, LONG, LONG, LONG)
        assert chosen(messages, keep_tokens=0) == [4]
        assert chosen(messages, keep_tokens=0, protect=["bash"]) == []

    def test_an_image_goes_whatever_its_text(self) -> None:
        messages = rounds(*[LONG] * 4)
        image = {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "QUJD" * 999},
        }
        messages[2]["content"][0]["content"] = [image]
        assert chosen(messages, keep_tokens=0) == [2]

    def test_newest_tokens_are_kept_and_the_straddling_result_is_not(self) -> None:
        sizes = (3_000, 3_000, 1_000, 1_000, 1_000, 1_000, 1_000)
        messages = rounds(*[words(size) for size in sizes])
        total = [slot.result.tokens for slot in micro.candidates(sized(messages), Rules(keep_tokens=0))]
        assert len(total) == 4
        assert chosen(messages, keep_tokens=10_000) == [2]
        assert chosen(messages, keep_tokens=7_000) == [2, 4]

    def test_eager_leaves_out_keep_tokens_and_the_least_saving(self) -> None:
        messages = rounds("a b c d " * 5, *[LONG] * 5)
        assert chosen(messages, min_chars=10, keep_tokens=0) == [4, 6]
        assert chosen(messages, min_chars=10, is_frugal=False) == [2, 4, 6]


class TestWhen:
    async def test_without_a_cache_all_candidates_go_at_once(self) -> None:
        play = Play(provider=FakeProvider(model=UNCACHED))
        play.line("go")
        for _ in range(6):
            play.round(4_000)
        await play.prepare()
        assert cleared_of(play.messages) == [True, True, True, False, False, False]
        assert play.logged(Cleared)[0].reason == "no cache"

    async def test_a_provider_that_never_reports_cache_fields_counts_as_one_without(self) -> None:
        play = Play()
        play.is_billed = False
        play.line("go")
        for _ in range(7):
            made = said(call("bash", "c"), usage=context_usage())
            play.session.append(made.message, "reply", made)
            play.session.append(answered(result(words(4_000), "c")), "results")
        await play.prepare()
        assert [entry.reason for entry in play.logged(Cleared)] == ["no cache"]

    async def test_the_rent_rule_waits_until_it_pays(self) -> None:
        play = Play(rules(threshold="auto"))
        play.line("go")
        reasons = []
        for _ in range(30):
            play.round(2_000)
            await play.prepare()
            reasons.append(len(play.logged(Cleared)))
        assert reasons[6] == 0
        assert 1 <= reasons[-1] <= 6
        assert {entry.reason for entry in play.logged(Cleared)} == {"rent"}

    def test_the_sum_behind_it(self) -> None:
        view = sized(rounds(*[words(2_000)] * 8))
        cache = micro.Cache(n_messages=len(view) - 1)
        slots = micro.candidates(view, Rules(keep_tokens=0))
        batch = micro.weigh(view, slots, cache, PRICED.price, 1.0)
        rewritten = sum(message.tokens for message in view[2 : len(view) - 1])
        assert batch.rewritten == pytest.approx(rewritten)
        assert batch.cost == pytest.approx(1.15 * rewritten - 1.25 * batch.freed)
        assert batch.saving == pytest.approx(0.1 * batch.freed)
        due = micro.decide(view, Rules(keep_tokens=0), cache, PRICED.price, 1.0)
        assert due.reason is None
        rich = micro.Cache(n_messages=len(view) - 1, rent=batch.cost)
        assert micro.decide(view, Rules(keep_tokens=0), rich, PRICED.price, 1.0).reason == "rent"

    def test_an_hours_cache_has_its_own_price(self) -> None:
        price = Price(input=3.0, cache_read=0.3, cache_write=3.75, cache_write_1h=6.0)
        assert micro.relative_prices(micro.Cache(life_s=300), price) == pytest.approx((0.1, 1.25))
        assert micro.relative_prices(micro.Cache(life_s=3_600), price) == pytest.approx((0.1, 2.0))
        assert micro.relative_prices(micro.Cache(), Price()) == pytest.approx((0.1, 1.25))

    async def test_a_cold_cache_clears_at_once(self) -> None:
        now = 1_000.0
        play = Play()
        state_of(play.session, play.provider, lambda: now)
        play.line("go")
        for _ in range(8):
            play.round(2_000)
        await play.prepare()
        assert play.logged(Cleared) == []
        now += PRICED.cache_life.seconds + 1
        await play.prepare()
        assert [entry.reason for entry in play.logged(Cleared)] == ["cold"]

    async def test_a_changed_model_is_a_cold_cache(self) -> None:
        play = Play()
        play.line("go")
        for _ in range(8):
            play.round(2_000)
        await play.prepare()
        assert play.logged(Cleared) == []
        play.provider.model = PRICED.__class__(name="another", cache_life=CacheLife())
        await play.prepare()
        assert [entry.reason for entry in play.logged(Cleared)] == ["cold"]

    async def test_at_the_limit_it_brings_the_request_to_three_quarters(self) -> None:
        play = Play(rules(threshold=50_000))
        play.line("go")
        for _ in range(20):
            play.round(2_450)
            await play.prepare()
        assert play.happened().count("full") == 0
        reasons = [entry.reason for entry in play.logged(Cleared)]
        assert "rent" in reasons or "limit" in reasons
        assert context.estimate_tokens(play.messages) <= 50_000

    async def test_what_is_cleared_is_said_in_one_dim_line(self) -> None:
        play = Play(provider=FakeProvider(model=UNCACHED))
        play.line("go")
        for _ in range(6):
            play.round(4_000)
        await play.prepare()
        (line,) = play.said("dim")
        assert line.startswith("Cleared 3 old results: ")
        assert "no cost" in line

    async def test_off_clears_nothing(self) -> None:
        play = Play(rules(micro="off"), FakeProvider(model=UNCACHED))
        play.line("go")
        for _ in range(8):
            play.round(4_000)
        await play.prepare()
        assert play.logged(Cleared) == []


def context_usage() -> Usage:
    return Usage(uncached=9_000, output=10)


async def test_only_results_are_touched_and_originals_come_back() -> None:
    play = Play(provider=FakeProvider(model=UNCACHED))
    play.line("go " + LONG)
    for _ in range(6):
        play.round(4_000, text="thinking aloud " * 50)
    before = [text_of(message) for message in play.messages]
    await play.prepare()
    for index, message in enumerate(play.messages):
        if not results(message):
            assert text_of(message) == before[index]
    for handle in play.logged(Cleared)[0].handles:
        index, block = play.session.find(handle)
        assert is_cleared(block)
        assert text_of(play.session.original(handle)) == before[index]
    play.check()
