"""Requests: what any view becomes, held against the rules of the API by the test server's own checks."""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bareagent.config import Thinking
from bareagent.entries import ToolSpec
from bareagent.errors import InvalidRequest
from bareagent.messages import Block, Message, answer, system, text_block, user
from bareagent.provider import models
from bareagent.provider.lower import CLOSE_TAG, OPEN_TAG, Lowered, lower
from bareagent.provider.request import Builder, Built, PrefixWatch, broke_at, build, rebuild
from bareagent.provider.validate import check
from bareagent.seams import ModelInfo, Request
from tests.server import Model
from tests.server import validate as server
from tests.server.ledger import Ledger

TOOL = ToolSpec(name="bash", description="Runs.", input_schema={"type": "object", "properties": {}})
CLAUDE = models.look_up("claude-sonnet-5-5")
SERVER_MODEL = Model("claude-sonnet-5-5", 1_000_000, 128_000, frozenset({"adaptive", "between_tools"}), True)


def call(call_id: str, name: str = "bash") -> Block:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"command": "ls"}}


def said(*blocks: Block) -> Message:
    return {"role": "assistant", "content": list(blocks)}


def results(*blocks: Block) -> Message:
    return {"role": "user", "content": list(blocks)}


def thought(text: str = "hm", signature: str = "sig") -> Block:
    return {"type": "thinking", "thinking": text, "signature": signature}


def body_of(messages: Sequence[Message], **fields: Any) -> dict[str, Any]:
    tools = fields.pop("tools", [TOOL])
    model = fields.pop("model_info", CLAUDE)
    built = build(Request(messages=messages, tools=tools, max_tokens=4096, **fields), model)
    value: dict[str, Any] = json.loads(built.body)
    return value


def marked(body: dict[str, Any]) -> list[str]:
    places = [
        f"{i}.{j}"
        for i, message in enumerate(body["messages"])
        for j, block in enumerate(message["content"])
        if "cache_control" in block
    ]
    heads = [part for part in ("system", "tools") if any("cache_control" in b for b in body.get(part, ()))]
    return heads + places


TEXTS = st.sampled_from(
    ["go", "a line\nand more", " ", "", "读文件", "\ud800 half", "</system-message>", "x" * 200]
)
LINES = TEXTS.filter(str.strip)  # a face sends no blank line
THOUGHTS = st.sampled_from([thought(), thought(signature=""), {"type": "redacted_thinking", "data": "abc"}])


@st.composite
def turns(draw: st.DrawFn, index: int) -> list[Message]:
    """A user line, then replies with calls and their results, system items strewn between."""
    messages: list[Message] = [user(draw(LINES))]
    for n in range(draw(st.integers(0, 3))):
        calls = [call(f"t{index}.{n}.{k}") for k in range(draw(st.integers(0, 3)))]
        blocks = [*draw(st.lists(THOUGHTS, max_size=2)), *map(text_block, draw(st.lists(TEXTS, max_size=2)))]
        messages.append(said(*blocks, *calls))
        messages += [system(draw(TEXTS)) for _ in range(draw(st.integers(0, 1)))]
        answers = [answer(one, draw(TEXTS)) for one in draw(st.permutations(calls))]
        if answers:
            messages.append(results(*answers))
            messages += [system(draw(TEXTS)) for _ in range(draw(st.integers(0, 1)))]
        elif draw(st.booleans()):
            messages.append(user(draw(LINES)))
    return messages


@st.composite
def views(draw: st.DrawFn) -> list[Message]:
    head = [system(draw(TEXTS)) for _ in range(draw(st.integers(0, 2)))]
    runs = [draw(turns(index)) for index in range(draw(st.integers(1, 4)))]
    return [*head, user("first"), *(message for run in runs for message in run), user("last")]


@given(views())
@settings(max_examples=150, deadline=None)
def test_what_is_built_is_what_the_api_takes(view: list[Message]) -> None:
    body = body_of(view)
    assert body.pop("stream") is True
    server.check(body, SERVER_MODEL, server.Rules(Ledger(b"x"), verify_thinking=False))
    assert len(marked(body)) <= 4


@given(views())
@settings(max_examples=100, deadline=None)
def test_a_longer_view_begins_with_the_shorter_one(view: list[Message]) -> None:
    ends = [
        i for i, (a, b) in enumerate(pairwise(view), 1) if a["role"] == "user" and b["role"] == "assistant"
    ]
    built = [build(Request(messages=view[:end], tools=[TOOL]), CLAUDE) for end in [*ends, len(view)]]
    watch = PrefixWatch()
    assert [watch.check(one) for one in built] == [""] * len(built)
    for shorter, longer in pairwise(built):
        assert longer.chunks[: len(shorter.chunks)] == shorter.chunks


def outcome(make: Callable[..., Built], request: Request) -> Built | str:
    try:
        return make(request, CLAUDE)
    except InvalidRequest as error:
        return str(error)


@given(views(), st.data())
@settings(max_examples=150, deadline=None)
def test_a_builder_that_remembers_gives_the_same_bytes_and_refusals(view: list[Message], data: Any) -> None:
    """Whatever is appended, taken back, put in another's place or left without an answer in between."""
    builder = Builder()
    for _ in range(data.draw(st.integers(2, 8))):
        if data.draw(st.booleans()):
            place = data.draw(st.integers(0, len(view) - 1))
            other = data.draw(st.sampled_from([user("other"), said(thought()), results(), system("an item")]))
            view = [*view[:place], other, *view[place + 1 :]]
        end = data.draw(st.integers(1, len(view)))
        protect = data.draw(st.sampled_from([(), ("bash",)]))
        n = data.draw(st.sampled_from([0, 100]))
        request = Request(messages=view[:end], tools=[TOOL], protect=protect, min_chars=n)
        assert outcome(builder.build, request) == outcome(build, request)


@given(views())
@settings(max_examples=50, deadline=None)
def test_marks_change_nothing_else_and_the_log_gives_the_request_again(view: list[Message]) -> None:
    request = Request(messages=view, tools=[TOOL])
    built = build(request, CLAUDE, Thinking(effort="low"))
    assert build(request, CLAUDE, Thinking(effort="low")).body == built.body
    uncached = build(
        request, models.look_up("claude-sonnet-5-5", said={"cache_life_s": 0}), Thinking(effort="low")
    )
    assert not uncached.marks
    assert unmarked(json.loads(built.body)) == json.loads(uncached.body)
    again = rebuild(view, [TOOL], built.sent)
    assert again.is_exact
    assert again.body == built.body
    assert not rebuild([*view[:-1], user("other")], [TOOL], built.sent).is_exact


def unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: unmarked(item) for key, item in value.items() if key != "cache_control"}
    return [unmarked(item) for item in value] if isinstance(value, list) else value


def test_the_head_of_the_view_is_the_system_field() -> None:
    body = body_of([system("You are."), system("Rules."), user("hi")])
    assert [block["text"] for block in body["system"]] == ["You are.", "Rules."]
    assert "system" not in body_of([user("hi")])


def test_system_items_are_tagged_where_they_stand() -> None:
    view = [
        user("a"),
        system("after a line"),
        said(text_block("b")),
        system(f"after a reply {CLOSE_TAG}"),
        user("c"),
    ]
    messages = body_of(view)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[0]["content"][1]["text"] == f"{OPEN_TAG}\nafter a line\n{CLOSE_TAG}"
    texts = [block["text"] for block in messages[2]["content"]]
    assert texts[0].count(CLOSE_TAG) == 1
    assert texts[1] == "c"


def test_results_come_first_and_in_call_order() -> None:
    one, two = call("1"), call("2")
    view = [user("a"), said(one, two), system("note"), results(answer(two, "2"), answer(one, "1"))]
    content = body_of([*view, user("more")])["messages"][2]["content"]
    assert [block.get("tool_use_id") for block in content] == ["1", "2", None, None]


def test_ids_that_a_server_repeats_pair_within_one_reply() -> None:
    view = [user("a")]
    for _ in range(3):
        view += [said(call("same")), results(answer(call("same"), "out"))]
    assert len(body_of(view)["messages"]) == 7


@pytest.mark.parametrize("empty", [said(), said(text_block("  ")), said(thought())])
def test_a_reply_that_says_nothing_is_left_out(empty: Message) -> None:
    messages = body_of([user("a"), empty, user("Continue.")])["messages"]
    assert [block["text"] for block in messages[0]["content"]] == ["a", "Continue."]
    assert len(messages) == 1


def test_blank_text_is_never_sent() -> None:
    view = [
        user("a"),
        said(text_block(""), call("1")),
        results(answer(call("1"), [text_block(" ")])),
        user(""),
    ]
    messages = body_of(view)["messages"]
    assert [block["type"] for block in messages[1]["content"]] == ["tool_use"]
    assert messages[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "1", "content": [], "cache_control": {"type": "ephemeral"}}
    ]


def test_thinking_goes_back_byte_for_byte_or_not_at_all() -> None:
    odd = {"type": "thinking", "thinking": "", "signature": "s+/=", "other": [1, 2.5, None, {"b": 1, "a": 2}]}
    view = [user("a"), said(odd, text_block("b")), user("c")]
    built = build(Request(messages=view), CLAUDE)
    assert (
        b'{"type":"thinking","thinking":"","signature":"s+/=","other":[1,2.5,null,{"b":1,"a":2}]}'
        in built.body
    )
    unsigned = [user("a"), said(thought(signature=""), text_block("b")), user("c")]
    assert b"hm" not in build(Request(messages=unsigned), CLAUDE).body
    other = models.look_up("kimi-k3", said={"thinking": "adaptive"})
    assert b"hm" in build(Request(messages=unsigned), other).body
    assert b"hm" not in build(Request(messages=view), models.look_up("test-plain")).body
    more = [*view, said(thought("new"), text_block("d")), user("e")]
    refused = build(Request(messages=more), CLAUDE, n_without_thinking=2)
    assert b"s+/=" not in refused.body
    assert b"new" in refused.body


def test_unknown_blocks_go_back_as_they_came() -> None:
    odd = {"type": "server_tool_use", "id": "srv", "name": "web", "input": {}, "x": {"z": 1, "a": "\u2028"}}
    content = body_of([user("a"), said(odd, text_block("b")), user("c")])["messages"][1]["content"]
    assert content[0] == odd


def test_ids_and_names_that_claude_refuses_are_made_plain() -> None:
    odd = call("functions.bash:0", "no such tool!")
    view = [user("a"), said(odd), results(answer(odd, "x")), user("b")]
    messages = body_of(view)["messages"]
    assert messages[1]["content"][0]["id"] == messages[2]["content"][0]["tool_use_id"] == "functions_bash_0"
    assert messages[1]["content"][0]["name"] == "no_such_tool_"
    other = body_of(view, model_info=models.look_up("kimi-k3"))["messages"]
    assert other[1]["content"][0]["id"] == "functions.bash:0"


def test_what_is_no_unicode_becomes_a_replacement_character() -> None:
    assert "\ufffd" in body_of([user("half \ud800 pair")])["messages"][0]["content"][0]["text"]


# Marks.


def long_view(n: int, text: str = "x" * 200) -> list[Message]:
    view = [system("You are."), user("go")]
    for k in range(n):
        view += [said(call(str(k))), results(answer(call(str(k)), text))]
    return view


def test_marks_stand_at_system_tail_and_clear_boundary() -> None:
    view = long_view(5)
    assert marked(body_of(view)) == ["system", "1.0", "10.0"]
    for message in view[3:6:2]:
        message["content"][0]["content"] = [text_block("[truncated: bash result, 200 chars]")]
    assert marked(body_of(view)) == ["system", "5.0", "10.0"]


def test_the_boundary_stands_still_while_the_view_grows() -> None:
    places = {body_marks[1] for n in range(2, 9) if (body_marks := marked(body_of(long_view(n))))}
    assert places == {"1.0"}


def test_results_that_are_never_cleared_are_no_boundary() -> None:
    view = [*long_view(2, "short"), *long_view(2)[2:]]
    view[2:6] = [
        said(call("a", "load_skill")),
        results(answer(call("a", "load_skill"), "s" * 500)),
        *view[2:4],
    ]
    assert marked(body_of(view, protect=["load_skill"], min_chars=100)) == ["system", "5.0", "8.0"]
    assert marked(body_of(view, protect=["load_skill"])) == ["system", "3.0", "8.0"]


def test_marks_never_stand_on_thinking() -> None:
    view = [user("a"), said(text_block("b"), thought(), call("1")), results(answer(call("1"), "x"))]
    content = view[1]["content"]
    content[1], content[2] = content[2], content[1]
    body = body_of([*view, said(text_block("c")), user("d")])
    for message in body["messages"]:
        assert all("cache_control" not in b for b in message["content"] if b["type"] == "thinking")


def test_a_wide_turn_marks_the_previous_tail() -> None:
    calls = [call(str(n)) for n in range(15)]
    view = [
        *long_view(2),
        said(text_block("c")),
        user("wide"),
        said(*calls),
        results(*(answer(c, "o") for c in calls)),
    ]
    assert marked(body_of(view)) == ["system", "1.0", "6.0", "8.14"]
    assert marked(body_of(view[:-2])) == ["system", "1.0", "6.0"]


def test_tools_are_marked_where_no_system_prompt_covers_them() -> None:
    assert marked(body_of([user("a")])) == ["tools", "0.0"]


def test_an_hour_of_cache_is_asked_for_where_the_model_has_it() -> None:
    model = models.look_up("claude-sonnet-5-5", said={"cache_life_s": 3600})
    built = build(Request(messages=[user("a")]), model)
    assert b'"cache_control":{"type":"ephemeral","ttl":"1h"}' in built.body
    assert rebuild([user("a")], [], built.sent).is_exact


# Breaks of the prefix.


BREAKS: dict[str, Callable[[list[Message]], Request]] = {
    "system": lambda view: Request(messages=[system("other"), *view[1:]], tools=[TOOL]),
    "tools": lambda view: Request(messages=view, tools=[]),
    "block 2": lambda view: Request(messages=[*view[:3], results(answer(call("0"), "new"))], tools=[TOOL]),
}


@pytest.mark.parametrize("where", BREAKS)
def test_a_break_of_the_prefix_is_found(where: str) -> None:
    view = long_view(1)
    first = build(Request(messages=view, tools=[TOOL]), CLAUDE)
    assert broke_at(first, build(BREAKS[where](view), CLAUDE)) == where


def test_another_conversation_is_no_break() -> None:
    watch = PrefixWatch()
    one, two = (build(Request(messages=[user(text)]), CLAUDE) for text in ("one", "two"))
    assert (watch.check(one, "a"), watch.check(two, "b"), watch.check(one, "a")) == ("", "", "")
    assert watch.check(two, "a") == "block 0"


def test_model_and_thinking_changes_are_found() -> None:
    request = Request(messages=[user("a")])
    first = build(request, CLAUDE)
    assert broke_at(first, build(request, models.look_up("claude-opus-5-5"))) == "model"
    assert broke_at(first, build(request, CLAUDE, Thinking(mode="off"))) == "thinking"
    assert broke_at(first, build(request, CLAUDE, Thinking(effort="max"))) == "thinking"


# Thinking.


@pytest.mark.parametrize(
    ("name", "config", "fields"),
    [
        ("claude-sonnet-5-5", Thinking(), {"thinking": {"type": "adaptive", "display": "summarized"}}),
        ("claude-sonnet-5-5", Thinking(mode="off"), {"thinking": {"type": "between_tools"}}),
        ("claude-opus-5-5", Thinking(mode="off"), {"output_config": {"effort": "low"}}),
        ("claude-haiku-5-5", Thinking(mode="off"), {"thinking": {"type": "disabled"}}),
        ("claude-opus-4-6", Thinking(mode="off"), {}),
        ("claude-haiku-4-5", Thinking(), {"thinking": {"type": "enabled", "budget_tokens": 3072}}),
        (
            "claude-haiku-4-5",
            Thinking(effort="low"),
            {"thinking": {"type": "enabled", "budget_tokens": 2048}},
        ),
        ("claude-haiku-4-5", Thinking(mode="off"), {}),
        ("some-model", Thinking(effort="high"), {}),
    ],
)
def test_thinking_is_asked_for_in_the_models_form(
    name: str, config: Thinking, fields: dict[str, Any]
) -> None:
    built = build(Request(messages=[user("a")], max_tokens=4096), models.look_up(name), config)
    body = json.loads(built.body)
    assert {key: body[key] for key in ("thinking", "output_config") if key in body} == fields


def test_summaries_do_not_think() -> None:
    body = body_of([user("a")], purpose="summary", model_info=models.look_up("claude-haiku-5-5"))
    assert body["thinking"] == {"type": "disabled"}


def test_max_tokens_is_the_models_largest_where_none_is_named() -> None:
    built = build(Request(messages=[user("a")]), ModelInfo(name="m", max_output=77))
    assert json.loads(built.body)["max_tokens"] == 77


# The validator.

BAD: dict[str, list[Lowered]] = {
    "there is none": [],
    "the first message": [Lowered("assistant", [text_block("a")])],
    "the last message": [Lowered("user", [text_block("a")]), Lowered("assistant", [text_block("b")])],
    "in a row": [Lowered("user", [text_block("a")]), Lowered("user", [text_block("b")])],
    "is empty": [Lowered("user", [])],
    "blank text": [Lowered("user", [text_block(" \n")])],
    "no type": [Lowered("user", [{"text": "a"}])],
    "results ['1'] do not answer": [Lowered("user", [answer(call("1"), "x")])],
    "holds blank text": [
        Lowered("user", [text_block("a")]),
        Lowered("assistant", [call("1")]),
        Lowered("user", [answer(call("1"), [text_block("")])]),
    ],
    "do not answer the calls ['1', '2']": [
        Lowered("user", [text_block("a")]),
        Lowered("assistant", [call("1"), call("2")]),
        Lowered("user", [answer(call("2"), "x"), answer(call("1"), "x")]),
    ],
    "do not answer the calls ['1']": [
        Lowered("user", [text_block("a")]),
        Lowered("assistant", [call("1")]),
        Lowered("user", [text_block("b")]),
    ],
    "stands behind": [
        Lowered("user", [text_block("a")]),
        Lowered("assistant", [call("1")]),
        Lowered("user", [text_block("b"), answer(call("1"), "x")]),
    ],
    "same id": [Lowered("user", [text_block("a")]), Lowered("assistant", [call("1"), call("1")])],
    "no object": [Lowered("user", [text_block("a")]), Lowered("assistant", [{**call("1"), "input": "ls"}])],
    "a result stands in a reply": [
        Lowered("user", [text_block("a")]),
        Lowered("assistant", [answer(call("1"), "x")]),
    ],
    "a thinking block stands": [Lowered("user", [thought()])],
    "without a result": [Lowered("user", [text_block("a")]), Lowered("assistant", [call("1")])],
}


@pytest.mark.parametrize("reason", BAD)
def test_what_the_api_refuses_is_not_sent(reason: str) -> None:
    with pytest.raises(InvalidRequest, match=r"messages") as caught:
        check(
            BAD[reason],
            is_paused=reason not in {"the last message", "without a result"} and bool(BAD[reason]),
        )
    assert reason in str(caught.value) or reason == "without a result"


def test_only_a_paused_reply_may_stand_last() -> None:
    view = [user("a"), said(text_block("b"))]
    with pytest.raises(InvalidRequest, match="last message"):
        build(Request(messages=view), CLAUDE)
    assert (
        json.loads(build(Request(messages=view, is_paused=True), CLAUDE).body)["messages"][-1]["role"]
        == "assistant"
    )


def test_lowering_leaves_the_view_as_it_is() -> None:
    view = [
        user("a"),
        said(text_block(" "), call("1")),
        results(answer(call("1"), "")),
        system("x"),
        user("b"),
    ]
    before = json.dumps(view)
    lower(view, CLAUDE)
    body_of(view)
    assert json.dumps(view) == before
