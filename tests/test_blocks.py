"""Blocks of any shape in a saved session: what is read of them can be shown, sent and written again."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bareagent.entries import AnyEntry, MessageEntry
from bareagent.messages import Message, Role, user
from bareagent.provider.lower import lower
from bareagent.provider.validate import check
from bareagent.session import Session
from bareagent.store.blocks import are_sound, mended
from bareagent.store.export import FORMATS, document
from bareagent.store.lines import encode_body, encode_line, parse
from bareagent.store.transcripts import TranscriptManager
from tests.play import MODEL

AT = "2026-01-01T00:00:00.000Z"
KEY = "20260101-000000-aaaa"
KEYS = [
    "type",
    "text",
    "id",
    "name",
    "input",
    "tool_use_id",
    "content",
    "is_error",
    "source",
    "thinking",
    "data",
]
TYPES = ["text", "tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document", "alien"]
scalars = (
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", " ", "a", "text", "base64", *TYPES])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=8,
)
blocks = values | st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES)}, optional={key: values for key in KEYS if key != "type"}
)
contents = st.lists(blocks, max_size=5) | values


def line_of(n: int, role: str, content: Any) -> bytes:
    message = {"role": role, "content": content}
    return json.dumps({"v": 1, "n": n, "at": AT, "type": "message", "message": message}).encode()


@given(contents, st.sampled_from(["user", "assistant", "system"]))
def test_a_message_of_any_content_is_read_in_shape_and_stays_so(content: Any, role: str) -> None:
    parsed = parse(line_of(2, role, content))
    entry = parsed.entry
    assert isinstance(entry, MessageEntry), parsed.reason
    assert are_sound([entry])
    assert mended(entry) is entry
    again = parse(encode_line(encode_body(entry), 2, AT).rstrip(b"\n"))
    assert (again.entry, again.reason) == (entry, "")


SOUND: list[dict[str, Any]] = [
    {"type": "text", "text": ""},
    {"type": "tool_use", "id": "c", "name": "bash", "input": {"command": ["odd", None]}, "more": 1},
    {"type": "tool_result", "tool_use_id": "c", "content": []},
    {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "alien", "x": 1}], "is_error": True},
    {"type": "thinking", "thinking": "…", "signature": "s"},
    {"type": "thinking", "thinking": "cut off"},
    {"type": "image", "source": {"type": "url", "url": "https://x"}},
    {"type": "server_tool_use", "anything": None},
]


@pytest.mark.parametrize("block", SOUND)
def test_a_sound_block_is_kept_as_it_was_received(block: dict[str, Any]) -> None:
    role: Role = "user" if block["type"] in {"tool_result", "image"} else "assistant"
    message: Message = {"role": role, "content": [block]}
    entry: AnyEntry = MessageEntry(message=message, n=2)
    assert mended(entry) is entry
    parsed = parse(line_of(2, role, [block]))
    assert parsed.reason == ""
    assert isinstance(parsed.entry, MessageEntry)
    assert parsed.entry.message["content"] == [block]


@given(contents, contents, contents)
def test_a_session_of_odd_messages_can_be_sent_and_exported(one: Any, two: Any, three: Any) -> None:
    start = {"v": 1, "n": 1, "at": AT, "type": "session", "id": KEY}
    messages = [("user", one), ("assistant", two), ("user", three)]
    rows = [json.dumps(start).encode(), *(line_of(n, *each) for n, each in enumerate(messages, 2))]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, ".transcripts", KEY, "log.jsonl")
        log.parent.mkdir(parents=True)
        log.write_bytes(b"\n".join(rows) + b"\n")
        session = Session.open(TranscriptManager(Path(folder), Path(folder, "data")), KEY)
        try:
            assert are_sound(session.entries())
            for form in FORMATS:
                assert "".join(document(form, session.full_id, session.view, session.entries()))
            check(lower([*session.messages, user("and now?")], MODEL).messages)
        finally:
            session.close()
