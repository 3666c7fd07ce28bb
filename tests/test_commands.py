"""Commands, driven through a face: what they print, what they do to the session, where they refuse."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bareagent.repl.commands import COMMANDS, dispatch, is_safe, ordered
from tests.face import FaceMaker, FakeFace, faces_in
from tests.fakes import FakeProvider, said


@pytest.fixture
def make(tmp_path: Path) -> Iterator[FaceMaker]:
    with faces_in(tmp_path) as maker:
        yield maker


async def talk(face: FakeFace, *lines: str) -> None:
    provider = face.agent.provider
    assert isinstance(provider, FakeProvider)
    for line in lines:
        provider.answers.append(said(f"An answer to {line}."))
        await face.agent.run(line)


async def test_help_lists_every_command_once(make: FaceMaker) -> None:
    face = make()
    text = await face.type("/help")
    for each in ordered():
        assert sum(line.split()[:1] == [f"/{each.name}"] for line in face.lines) == 1
        assert each.help
        assert "\n" not in each.help
        assert each.help[:30] in text
    assert "summary" in await face.type("/help compact")
    assert "summary" in await face.type("/help /compact")


async def test_what_is_no_command_goes_to_the_model(make: FaceMaker) -> None:
    face = make()
    for line in ("hello", "/usr/lib is full", "/ what", "/1", "see /help", ""):
        assert not await dispatch(face, line)
    assert await dispatch(face, "//help me")
    assert face.sent == ["/help me"]


async def test_an_unknown_command_names_the_nearest(make: FaceMaker) -> None:
    face = make()
    assert "/compact" in await face.type("/compatc")
    assert "/exit" in await face.type("/quit")
    assert "/resume" in await face.type("/res")
    assert "\x1b" not in await face.type("/zz\x1b[31mz")
    assert face.sent == []


def test_only_what_changes_nothing_is_safe() -> None:
    assert {name for name, each in COMMANDS.items() if each.is_safe} >= {"help", "cost"}
    assert is_safe("/help compact")
    assert not any(map(is_safe, ["/new", "/compact", "hello", "//help", "/nothing"]))


async def test_the_strings_of_the_conversation(make: FaceMaker) -> None:
    face = make(FakeProvider(summary="It was about greetings."))
    first = face.agent.session.full_id
    assert await face.type("/sessions") == "No saved sessions."
    assert await face.type("/compact") == "Nothing to compact."
    await talk(face, "hello", "again")
    compacted = await face.type("/compact")
    assert face.lines[0] == "Context compaction finished."
    assert compacted.count("Context compaction finished.") == 1
    assert face.agent.session.full_id == f"{first}.1"
    assert await face.type("/new") == "New conversation started."
    assert face.agent.session.id != first
    assert f"Resumed session: {first}.1" in (await face.type(f"/resume {first}")).split("\n")
    assert face.agent.session.full_id == f"{first}.1"
    await face.type("/exit")
    assert face.has_left


async def test_a_failed_compaction_says_why_and_changes_nothing(make: FaceMaker) -> None:
    face = make(FakeProvider(summary=""))
    await talk(face, "hello", "again")
    before = [*face.agent.session.messages]
    text = await face.type("/compact")
    assert text.startswith("Context compaction failed: ")
    assert text.endswith("Nothing changed.")
    assert face.agent.session.messages == before


async def test_resume_takes_a_row_a_prefix_or_a_name(make: FaceMaker) -> None:
    face = make()
    first = face.agent.session.id
    await talk(face, "about fish")
    await face.type("/new birds")
    await talk(face, "about birds")
    second = face.agent.session.id
    rows = await face.type("/sessions")
    assert first in rows
    assert second in rows
    assert face.lines[0].startswith("1*")
    assert "birds" in face.lines[0]
    await face.type("/resume 2")
    assert face.agent.session.id == first
    await face.type(f"/resume {second[:-2]}")
    assert face.agent.session.id == second
    await face.type("/resume about fish")
    assert face.agent.session.id == first
    await face.type("/resume BIRDS")
    assert face.agent.session.id == second
    assert "no session" in await face.type("/resume nothing-like-it")
    assert face.agent.session.id == second


async def test_resume_without_a_terminal_lists(make: FaceMaker) -> None:
    face = make(is_terminal=False)
    assert await face.type("/resume") == "No saved sessions."
    await talk(face, "hello")
    assert face.agent.session.id in await face.type("/resume")


async def test_mode_and_model(make: FaceMaker) -> None:
    face = make(is_terminal=False)
    assert "default" in await face.type("/mode")
    for name in ("auto", "plan", "bypass", "default"):
        assert name in await face.type(f"/{name}")
        assert face.agent.mode == name
    await face.type("/mode plan")
    assert face.agent.mode == "plan"
    assert "no mode" in await face.type("/mode wild")
    assert "fake/fake" in await face.type("/model")
    assert "fake/other" in await face.type("/model other")
    assert face.agent.session.view.model == "other"
