"""A stream by itself: events of any shape and cut, and the reply they make."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bareagent import errors
from bareagent.provider import failures
from bareagent.provider.client import call_failures
from bareagent.provider.stream import Assembler, events_of, usage_of

AIM = failures.Aim("anthropic", "http://x.test", "some-model")


def test_usage_of_every_kind_is_read() -> None:
    usage = usage_of({
        "input_tokens": 5, "cache_read_input_tokens": None, "cache_creation_input_tokens": 9,
        "cache_creation": {"ephemeral_1h_input_tokens": 4}, "output_tokens": 7,
        "output_tokens_details": {"thinking_tokens": 3},
    })  # fmt: skip
    assert (usage.uncached, usage.cache_read, usage.cache_write, usage.cache_write_1h) == (5, 0, 9, 4)
    assert (usage.output, usage.thinking, usage.prompt) == (7, 3, 14)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON), st.lists(st.integers(1, 9), min_size=1), st.text())
@settings(max_examples=80, deadline=None)
def test_arguments_are_the_same_however_they_are_cut(
    value: dict[str, Any], cuts: list[int], text: str
) -> None:
    raw = json.dumps(value)
    pieces: list[str] = []
    while raw:
        size = cuts[len(pieces) % len(cuts)]
        pieces.append(raw[:size])
        raw = raw[size:]
    assembler = Assembler()
    assembler.feed({"type": "message_start", "message": {}})
    start = {"type": "tool_use", "id": "1", "name": "n"}
    assembler.feed({"type": "content_block_start", "index": 4, "content_block": start})
    for piece in pieces:
        delta = {"type": "input_json_delta", "partial_json": piece}
        assembler.feed({"type": "content_block_delta", "index": 4, "delta": delta})
    assembler.feed({"type": "content_block_stop", "index": 4})
    assembler.feed(
        {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": text}}
    )
    assembler.feed({"type": "content_block_stop", "index": 2})
    assembler.feed({"type": "message_delta", "delta": {"stop_reason": "tool_use"}})
    assert assembler.whole() is None
    assembler.feed({"type": "message_stop"})
    whole = assembler.whole()
    assert whole is not None
    assert whole.message["content"] == [{"type": "text", "text": text}, {**start, "input": value}]
    assert not whole.broken


def test_a_call_that_was_not_closed_is_broken() -> None:
    assembler = Assembler()
    call = {"type": "tool_use", "id": "1", "name": "n", "input": {}}
    for event in events_of({"content": [call], "stop_reason": "max_tokens"}):
        if event["type"] != "content_block_stop":
            assembler.feed(event)
    whole = assembler.whole()
    assert whole is not None
    assert whole.broken == {0: ""}


def test_unknown_growth_is_kept() -> None:
    assembler = Assembler()
    delta = {"type": "content_block_delta", "index": 0}
    assembler.feed({"type": "content_block_start", "index": 0, "content_block": {"type": "future", "a": "x"}})
    for value in ({"a": "y"}, {"a": "z", "b": [1]}, {"b": [2], "c": {"d": 1}}):
        assembler.feed({**delta, "delta": {"type": "future_delta", **value}})
    assembler.feed({"type": "future_event", "x": 1})
    assembler.feed({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    assembler.feed({"type": "message_stop"})
    whole = assembler.whole()
    assert whole is not None
    assert whole.message["content"] == [{"type": "future", "a": "xyz", "b": [1, 2], "c": {"d": 1}}]


ODD_EVENTS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ["message_start", "content_block_start", "content_block_delta", "message_delta", "x"]
        )
    },
    optional={
        "index": st.integers(0, 2) | JSON,
        "message": st.dictionaries(st.sampled_from(["usage", "model"]), JSON) | JSON,
        "content_block": st.dictionaries(st.sampled_from(["type", "text", "input", "thinking"]), JSON) | JSON,
        "delta": st.dictionaries(st.sampled_from(["type", "text", "partial_json", "stop_reason", "a"]), JSON)
        | JSON,
        "usage": JSON,
    },
)
A_BLOCK: dict[str, Any] = {
    "type": "content_block_start",
    "index": 0,
    "content_block": {"type": "text", "text": "a"},
}
THE_END: list[dict[str, Any]] = [
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
    {"type": "message_stop"},
]


@given(st.lists(ODD_EVENTS, max_size=5))
@settings(max_examples=60, deadline=None)
def test_events_of_any_shape_are_taken_or_refused_as_garbled(events: list[dict[str, Any]]) -> None:
    assembler, refusal = Assembler(), None
    try:
        for event in (A_BLOCK, *events, *THE_END):
            assembler.feed(event)
        whole = assembler.whole()
    except call_failures() as error:
        refusal, whole = failures.explain(error, AIM, has_begun=True), None
    assert isinstance(refusal, errors.CutOff) != (whole is not None)
    json.dumps(whole and whole.message)
