"""Sizes: the classic estimate, the fast one, the Meter."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bareagent.context.tokens import Meter, estimate_tokens, fast_tokens
from bareagent.messages import system, user
from tests.fakes import call, result, results


def slow_estimate(text: str) -> float:
    total = 0.0
    for char in text:
        code = ord(char)
        ranges = ((0x3000, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xAC00, 0xD7AF), (0xF900, 0xFAFF))
        far = ((0x20000, 0x2A6DF), (0x2F800, 0x2FA1F))
        if any(low <= code <= high for low, high in ranges + far):
            total += 1.5
        elif (char.isascii() and char.isalnum()) or char.isspace():
            total += 0.25
        else:
            total += 0.5
    return total


@given(st.text(st.characters(exclude_categories=[])))
def test_the_classic_estimate_counts_each_character(text: str) -> None:
    assert estimate_tokens(text) == math.ceil(slow_estimate(text))


def test_both_vectors() -> None:
    assert estimate_tokens([user("你好abc123"), user("ok"), results(result("结果42"))]) == 9
    assert estimate_tokens([{"role": "user", "content": "你好abc123"}]) == 5
    assert estimate_tokens([call("bash", command="ls -la", timeout_s=5)]) == 13


def test_other_dicts_and_values_count_as_compact_json() -> None:
    assert estimate_tokens([{"type": "odd", "é": [1, 2]}]) == estimate_tokens('{"type":"odd","é":[1,2]}')
    assert estimate_tokens([None, 12, True]) == math.ceil(4 * 0.25 + 2 * 0.25 + 4 * 0.25)
    assert estimate_tokens({"type": "tool_use", "name": "x", "input": "a b"}) == estimate_tokens('x"a b"')
    assert estimate_tokens([]) == 0


def test_it_is_rounded_up_once() -> None:
    assert estimate_tokens([user("a"), user("b"), user("c"), user("d")]) == 1


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("The quick brown fox jumps over the lazy dog and runs away. " * 20, 220, 300),
        ("def main() -> None:\n    print('hello', 42)\n" * 20, 230, 330),
        ("请读取配置文件，然后告诉我结果。" * 20, 160, 320),
        ("Привет, как дела сегодня? " * 20, 90, 220),
        ("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" * 10, 250, 480),
    ],
)
def test_the_fast_estimate_is_near_a_tokenizer(text: str, low: int, high: int) -> None:
    assert low <= fast_tokens(text) <= high


@given(st.text(st.characters(exclude_categories=[])))
def test_the_fast_estimate_takes_any_text(text: str) -> None:
    assert 1 <= fast_tokens(text) <= 6 * len(text.encode("utf-8", "surrogatepass")) + 2


def test_a_large_text_is_the_sum_of_its_parts() -> None:
    line = "2026-11-30 INFO request /api/items took 12 ms\n"
    assert fast_tokens(line * 20_000) == pytest.approx(200 * fast_tokens(line * 100), rel=0.02)


class TestMeter:
    def test_before_any_usage_the_factor_counts(self) -> None:
        assert Meter(1.75).size(1_000) == 1_750

    def test_the_last_bill_and_what_came_after(self) -> None:
        meter = Meter(1.0)
        meter.learn(10_000, 9_000)
        assert meter.reading(9_500) == 10_500

    def test_it_learns_the_ratio_from_growth(self) -> None:
        meter = Meter(1.0)
        rng = random.Random(1)
        billed = estimate = 5_000.0
        for _ in range(200):
            growth = rng.randint(100, 3_000)
            estimate += growth
            billed += growth * 1.3
            meter.learn(round(billed), estimate)
        assert meter.ratio == pytest.approx(1.3, abs=0.01)
        assert meter.size(estimate + 1_000) == pytest.approx(billed + 1_300, rel=0.01)

    def test_the_ratio_is_held_within_bounds(self) -> None:
        meter = Meter(1.0)
        for step in range(1, 100):
            meter.learn(step * 100_000, step * 1_000)
        assert meter.ratio == 2.5

    def test_never_below_the_full_estimate(self) -> None:
        meter = Meter(1.0)
        meter.learn(1_000, 9_000)
        assert meter.size(9_000) == 9_000
        assert meter.reading(9_000) == 1_000

    def test_what_was_cleared_is_taken_off(self) -> None:
        meter = Meter(1.0)
        meter.learn(20_000, 18_000)
        meter.clear(5_000)
        assert meter.reading(13_000) == 15_000

    def test_void_keeps_the_ratio(self) -> None:
        meter = Meter(1.0)
        meter.learn(10_000, 10_000)
        meter.learn(40_000, 30_000)
        ratio = meter.ratio
        meter.void()
        assert meter.size(1_000) == 1_000 * ratio > 1_000


def test_system_items_count_too() -> None:
    assert estimate_tokens([system("abcd")]) == 1
