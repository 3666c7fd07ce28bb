"""Requests of the past, made again from the log alone."""

from pathlib import Path

import pytest

from bareagent.entries import MessageEntry
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
