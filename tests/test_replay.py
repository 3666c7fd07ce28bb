"""Requests of the past, made again from the log alone."""

from pathlib import Path

import pytest

from bareagent.entries import Epoch, MessageEntry, Said
from bareagent.errors import SessionNotFound
from bareagent.messages import system
from bareagent.provider.replay import answered, replay
from tests.conversation import config_of, conversation
from tests.server.fixtures import MakeServer


async def test_every_request_is_made_again_byte_for_byte(make_server: MakeServer, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("line\n" * 400)
    read = {"calls": [{"name": "read_file", "input": {"file_path": "a.txt"}}]}
    steps = [{**read, "thinking": "I should look."}, *[read] * 5, {"text": "done"}, {"text": "more"}]
    server = await make_server(steps)
    eager = config_of(compaction={"micro": "eager"}, thinking={"effort": "low"})
    async with conversation(server, tmp_path, eager) as talk:
        await talk.agent.run("go")
        talk.session.append(system("a notice"), "notice")
        await talk.agent.run("again")
        entries = list(talk.session.entries())
        assert len(answered(entries)) == len(server.requests) == 8
        for number, record in enumerate(server.requests, 1):
            made = replay(entries, number)
            assert made.body == record.raw
            assert made.is_exact
        assert b"[truncated: read_file" in server.requests[-1].raw
        with pytest.raises(SessionNotFound, match="no request 9"):
            replay(entries, 9)


async def test_a_changed_log_is_not_called_exact(make_server: MakeServer, tmp_path: Path) -> None:
    server = await make_server(["one"])
    async with conversation(server, tmp_path) as talk:
        await talk.agent.run("my key is hidden")
        entries = list(talk.session.entries())
        line = next(entry for entry in entries if isinstance(entry, MessageEntry) and entry.kind == "line")
        line.message["content"][0]["text"] = "my *** is hidden"
        assert not replay(entries, 1).is_exact


BOUND = (
    "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation. "
    'Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)


# Between two lines nothing is missed; amid calls this server wants the newest reply's thinking back.
LEARNED = {
    "micro": ["earlier thinking", "thinking before the newest reply"],
    "full": ["earlier thinking"],
}


@pytest.mark.parametrize("way", ["micro", "full"])
async def test_thinking_bound_to_a_history_that_was_changed_is_left_out_once_and_for_all(
    make_server: MakeServer, tmp_path: Path, way: str
) -> None:
    """The calls go on, the epoch is told, later thinking is kept, and the log gives the same bytes."""
    (tmp_path / "a.txt").write_text("line\n" * 400)
    call = {"name": "read_file", "input": {"file_path": "a.txt"}}
    read = [{"thinking": f"I should look {n}.", "calls": [call]} for n in range(7)]
    bound = {"kind": "status", "status": 400, "error_type": "invalid_request_error", "message": BOUND}
    summary = {"summary": True, "text": "Files were read."}
    steps = {
        "micro": [*read[:4], {**read[4], "fault": bound}, *read[4:], "done"],
        "full": [
            read[0],
            read[1],
            "looked",
            read[2],
            "looked",
            summary,
            {**read[3], "fault": bound},
            *read[4:],
            "done",
        ],
    }
    server = await make_server(steps[way], strict=False)
    config = config_of(compaction={"micro": "eager" if way == "micro" else "off"})
    async with conversation(server, tmp_path, config) as talk:
        await talk.agent.run("go")
        if way == "full":
            await talk.agent.run("more")
            assert await talk.agent.compact()
            await talk.agent.run("and on")
        entries = list(talk.session.entries())
        told = [heard.text for heard in talk.heard if isinstance(heard, Said)]
        assert [text for text in told if "refuses" in text] == [
            f"anthropic refuses {what}: left out from here on." for what in LEARNED[way]
        ]
        assert not [text for text in told if "fault of bareagent" in text]
        assert len([e for e in entries if isinstance(e, Epoch) and "thinking" in e.reason]) == 1
        at = next(n for n, record in enumerate(server.requests) if record.status == 400)
        thoughts = [record.raw.count(b'"type":"thinking"') for record in server.requests[at : at + 5]]
        assert thoughts[0] > 0
        assert thoughts[1:4] == [0, 1, 2]
        turns = [r for r in server.requests if r.status == 200 and not r.is_summary]
        for number, record in enumerate(turns, 1):
            assert replay(entries, number).body == record.raw, number
