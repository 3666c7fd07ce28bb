"""What a session cost, from its log alone."""

import pytest

from bareagent.entries import (
    AnyEntry,
    Cleared,
    Compaction,
    Epoch,
    MessageEntry,
    Rewound,
    Sent,
    Usage,
    UsageEntry,
)
from bareagent.messages import user
from bareagent.provider import models
from bareagent.provider.cost import account, is_explained
from bareagent.seams import Price

HAIKU = "claude-haiku-4-5"
PRICE = models.look_up(HAIKU).price


def prices(name: str) -> Price:
    return models.look_up(name).price


def reply(n: int, usage: Usage, model: str = HAIKU) -> MessageEntry:
    cost = prices(model).cost(usage)
    return MessageEntry(n=n, message=user("x"), kind="reply", usage=usage, model=model, cost_usd=cost)


def test_an_empty_log_costs_nothing() -> None:
    cost = account([], prices)
    assert (cost.total.cost_usd, cost.hit_rate, cost.models) == (0.0, 0.0, [])


def test_all_calls_are_counted_by_model_and_purpose() -> None:
    small, large = (
        Usage(uncached=1000, output=10),
        Usage(cache_read=9000, cache_write=1000, output=90, thinking=5),
    )
    entries: list[AnyEntry] = [
        reply(1, small),
        MessageEntry(n=2, message=user("line"), kind="line"),
        reply(3, large),
        UsageEntry(n=4, usage=small, model="claude-opus-5-5", purpose="subagent", cost_usd=1.5),
        Compaction(n=5, summary="s", generation=1, usage=small, model=HAIKU, cost_usd=0.5),
        Rewound(n=6, to=3),
    ]
    cost = account(entries, prices)
    assert cost.total.n_calls == 4
    assert cost.total.usage == Usage(uncached=3000, cache_read=9000, cache_write=1000, output=120, thinking=5)
    assert cost.total.cost_usd == pytest.approx(2.0 + PRICE.cost(small) + PRICE.cost(large))
    assert [total.name for total in cost.models] == ["claude-opus-5-5", HAIKU]
    assert {total.name: total.n_calls for total in cost.purposes} == {"turn": 2, "subagent": 1, "summary": 1}
    assert cost.hit_rate == pytest.approx(9000 / 13000)


def test_caching_saves_what_fresh_input_would_have_cost() -> None:
    cost = account([reply(1, Usage(cache_read=1_000_000, cache_write=1_000_000))], prices)
    assert cost.saved_by_caching_usd == pytest.approx(2 * 1.0 - (0.1 + 1.25))


def test_an_epoch_is_priced_by_the_call_behind_it() -> None:
    entries: list[AnyEntry] = [
        reply(1, Usage(cache_write=100_000)),
        Cleared(n=2, at="t", handles=["r1", "r2"], reason="rent", tokens=50_000),
        reply(3, Usage(cache_read=40_000, cache_write=10_000)),
        reply(4, Usage(cache_read=50_000)),
        Epoch(n=5, reason="resume after the cache's life"),
    ]
    cost = account(entries, prices)
    cleared, last = cost.epochs
    paid = 10_000 * (1.25 - 0.1) / 1e6
    assert (cleared.n, cleared.tokens, cleared.reason) == (2, 10_000, "cleared 2 results: rent")
    assert cleared.cost_usd == pytest.approx(paid)
    assert (last.n, last.cost_usd) == (5, 0.0)
    assert cost.saved_by_clearing_usd == pytest.approx(2 * 50_000 * 0.1 / 1e6 - paid)


def test_what_comes_before_the_first_call_is_no_epoch() -> None:
    assert account([Epoch(n=1, reason="model"), reply(2, Usage(uncached=5))], prices).epochs == []


def test_a_break_is_explained_by_an_epoch_since_the_last_reply_only() -> None:
    said = MessageEntry(n=1, message=user("x"), kind="reply", usage=Usage(output=1), request=Sent(sha256="a"))
    line = MessageEntry(n=2, message=user("y"), kind="line")
    assert is_explained([line])
    assert not is_explained([said, line])
    assert is_explained([said, Cleared(n=3, handles=["r1"]), line])
    assert not is_explained([said, Cleared(n=3, handles=["r1"]), said, line])
