"""Commands, driven through a face: what they print, what they do to the session, where they refuse."""

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bareagent.cells import cells
from bareagent.config import Compaction, Config, ModelEntry, ProviderEntry
from bareagent.entries import Grant, Name, Todo, TodoItem
from bareagent.messages import text_of, user
from bareagent.provider.embedded import EmbeddedProvider
from bareagent.provider.local import Weights
from bareagent.repl import commands_doc
from bareagent.repl.commands import COMMANDS, dispatch, is_safe, ordered
from bareagent.repl.commands_doc import as_sections, as_table, renewed
from bareagent.repl.face import Picked
from bareagent.repl.pickers import cards_here
from bareagent.sanitize import clean
from bareagent.seams import ModelInfo, Price, Reply
from bareagent.tools.skills import LoadSkill
from tests.face import FaceMaker, FakeFace, faces_in
from tests.fakes import FakeProvider, call, said
from tests.source import ROOT


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
    assert "one slash" not in await face.type("/help nosuch")
    assert "/help lists all commands" in await face.type("/")
    assert "! runs a command" in await face.type("!")
    assert face.sent == []


def test_only_what_changes_nothing_is_safe() -> None:
    assert {name for name, each in COMMANDS.items() if each.safe is None} >= {"help", "cost"}
    shows = ["/help compact", "/model", "/mode ", "/theme", "/config rules", "/compact preview", "/name"]
    assert all(map(is_safe, shows))
    changes = [
        "/model x",
        "/theme light",
        "/config forget 1",
        "/compact undo",
        "/compact preview it",
        "/name y",
    ]
    assert not any(map(is_safe, [*changes, "/new", "/compact", "hello", "//help", "/nothing"]))


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


async def test_a_model_that_the_embedded_one_is_not_changes_nothing(make: FaceMaker) -> None:
    face = make(EmbeddedProvider(Weights(Path("none.gguf"), "house"), Config()))
    face.agent.session.append(user("hello"), "line")
    face.agent.note_model()
    entries = len(list(face.agent.session.entries()))
    text = await face.type("/model foo")
    assert "local has no model foo: house stays in use." in text
    assert "cache" not in text
    assert "Model:" not in text
    assert len(list(face.agent.session.entries())) == entries
    assert "Model: local/house" in await face.type("/model house")


def reads(path: str, id: str = "c1") -> Reply:
    return said("let me look", call("read_file", id=id, file_path=path))


async def test_rewind_gives_the_line_back_and_names_what_stays_changed(make: FaceMaker) -> None:
    write = said("I write", call("write_file", id="w1", file_path="new\x1b[2J.txt", content="x"))
    shell = said("I run", call("bash", id="b1", command="true"))
    face = make(FakeProvider([said("hello"), write, shell, said("done")]))
    face.agent.set_mode("bypass")
    await face.agent.run("say hello")
    before = [*face.agent.session.messages]
    await face.agent.run("write the file")
    text = await face.type("/rewind 1")
    assert face.agent.session.messages == before
    assert face.draft == "write the file"
    assert "new.txt" in text
    assert "\x1b" not in text
    assert "1 command ran" in text
    assert (face.agent.box.cwd / "new\x1b[2J.txt").read_text() == "x"
    assert "number from 1" in await face.type("/rewind 9")
    await face.type("/rewind 1")
    assert face.agent.session.messages == []
    assert await face.type("/rewind") == "There is no line to go back to."


async def test_rewind_by_the_picker(make: FaceMaker) -> None:
    face = make()
    await talk(face, "one", "two", "three")
    face.picks = [1]
    await face.type("/rewind")
    assert [row.text for row in face.offered[0]] == ["three", "two", "one"]
    assert face.draft == "two"
    assert [text_of(m) for m in face.agent.session.messages] == ["one", "An answer to one."]
    face.picks = [None]
    await face.type("/rewind")
    assert len(face.agent.session.messages) == 2


async def test_a_fork_goes_on_by_itself_and_the_parent_stays(make: FaceMaker) -> None:
    face = make()
    await talk(face, "one", "two")
    await face.type("/name the trunk")
    parent, whole = face.agent.session.id, [*face.agent.session.messages]
    assert parent in await face.type("/fork")
    session = face.agent.session
    assert session.id != parent
    assert session.messages == whole
    assert session.view.session is not None
    assert session.view.session.parent is not None
    assert session.view.session.parent.id == parent
    assert session.view.name == "the trunk (fork)"
    await talk(face, "three")
    await face.type("/resume the trunk")
    assert (face.agent.session.id, face.agent.session.messages) == (parent, whole)
    await face.type("/fork 1")
    assert [text_of(m) for m in face.agent.session.messages] == ["one", "An answer to one."]
    assert face.draft == "two"
    assert "not saved" in await make(is_saved=False).type("/fork")


async def test_a_name_is_kept_over_compaction_and_resume(make: FaceMaker) -> None:
    face = make()
    await talk(face, "first words", "more")
    assert face.agent.session.view.name == "first words"
    assert "my  name" not in await face.type("/name my \x1b]0;evil\x07 name")
    await face.type("/compact")
    first = face.agent.session.id
    await face.type("/new")
    await face.type("/resume my name")
    assert face.agent.session.id == first
    assert await face.type("/name") == "Session name: my name"


async def test_export_never_overwrites(make: FaceMaker) -> None:
    face = make()
    await talk(face, "one")
    top = face.agent.session.cwd
    await face.type("/export talk.md")
    assert "An answer to one." in (top / "talk.md").read_text()
    assert (top / "talk.md").stat().st_mode & 0o777 == 0o600
    assert "not overwritten" in await face.type("/export talk.md")
    await face.type("/export json whole")
    assert json.loads((top / "whole").read_text())["id"] == face.agent.session.full_id
    await face.type("/compact")
    assert "md, json or jsonl, not pdf" in await face.type("/export pdf")
    assert not (face.agent.session.cwd / "pdf").exists()
    await face.type("/export jsonl")
    (lines,) = top.glob("bareagent-*.1.jsonl")
    said_lines = [json.loads(line) for line in lines.read_text().splitlines()]
    assert "An answer to one." in text_of(said_lines[2])
    assert "cannot be written" in await face.type("/export no/such/folder/x.md")
    await face.type("/transcript")
    assert "An answer to one." in face.paged


async def test_pins(make: FaceMaker) -> None:
    face = make(config=Config(compaction=Compaction(pin_tokens=64)))
    assert "Nothing is pinned" in await face.type("/pins")
    assert "no answer" in await face.type("/pin last")
    assert "/pin TEXT" in await face.type("/pin")
    await talk(face, "one")
    await face.type("/pin never touch the \x1b[31mdatabase")
    await face.type("/pin last")
    assert "An answer to one." in await face.type("/pins")
    assert "\x1b" not in face.text
    await face.type("/compact --facts")
    assert "database" in text_of(face.agent.session.messages[0])
    assert "allowed" in await face.type("/pin " + "long " * 100)
    await face.type("/unpin 1")
    assert face.agent.session.view.pins == ["An answer to one."]
    assert "no pin" in await face.type("/unpin 7")
    assert "number" in await face.type("/unpin last")


async def test_compact_takes_preview_undo_and_facts_only_as_the_whole_argument(make: FaceMaker) -> None:
    provider = FakeProvider()
    face = make(provider)
    assert await face.type("/compact preview") == "Nothing to compact."
    await talk(face, "one", "two", "three")
    before = [*face.agent.session.messages]
    preview = await face.type("/compact preview")
    assert "Into the summary" in preview
    assert "nothing was changed" in preview
    assert face.agent.session.messages == before
    n_requests = len(provider.requests)
    await face.type("/compact --facts")
    assert len(provider.requests) == n_requests
    assert face.agent.session.generation == 1
    assert "undone" in await face.type("/compact undo")
    assert face.agent.session.messages == before
    assert "no compaction to undo" in await face.type("/compact undo")
    await face.type("/compact preview the plan")
    assert "preview the plan" in text_of(provider.requests[-1].messages[-1])


async def test_the_picker_renames_and_deletes(make: FaceMaker) -> None:
    face = make()
    await talk(face, "about fish")
    first = face.agent.session.id
    await face.type("/new")
    await talk(face, "about birds")
    present = face.agent.session.id
    face.picks = [Picked(key=first, action="rename", text="old \x1b[1mfish"), None]
    await face.type("/resume")
    assert face.agent.session.id == present
    face.picks = [None]
    await face.type("/resume")
    assert [row.text for row in face.offered[-2]] == ["old fish"]
    face.picks = [Picked(key=present, action="delete")]
    assert "open here" in await face.type("/resume")
    face.picks = [Picked(key=first, action="delete"), None]
    await face.type("/resume")
    assert [card.id for card in cards_here(face.agent)] == [present]


async def test_a_session_that_another_program_writes_is_offered_in_three_ways(make: FaceMaker) -> None:
    other = make()
    await talk(other, "one")
    held = other.agent.session.id
    face = make()
    face.picks = [None]
    assert "open in another place" in await face.type(f"/resume {held}")
    face.picks = [Picked(key="read")]
    await face.type(f"/resume {held}")
    assert face.agent.session.id == held
    assert face.agent.session.is_read_only
    assert "read only" in await face.type("/status")
    await face.type("/new")
    face.picks = [Picked(key="fork")]
    await face.type(f"/resume {held}")
    assert face.agent.session.id != held
    assert face.agent.session.messages == other.agent.session.messages
    face.picks = [Picked(key="wait")]
    waiting = asyncio.create_task(face.type(f"/resume {held}"))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    other.agent.session.close()
    assert f"Resumed session: {held}" in await waiting
    assert face.agent.session.id == held
    plain = make(is_terminal=False)
    assert "open in another place" in await plain.type(f"/resume {held}")


async def test_the_same_name_in_two_projects_asks(make: FaceMaker) -> None:
    other = make(project="q")
    await talk(other, "one")
    await other.type("/name fish")
    face = make()
    await talk(face, "two")
    here = face.agent.session.id
    await face.type("/name fish")
    await face.type("/new")
    face.picks = [None]
    await face.type("/resume fish")
    assert len(face.offered[-1]) == 2
    assert face.agent.session.id != here
    face.picks = [next(k for k, row in enumerate(face.offered[-1]) if row.key == here)]
    await face.type("/resume fish")
    assert face.agent.session.id == here
    other.agent.session.close()
    face.agrees = False
    await face.type("/name birds")
    await face.type("/resume fish")
    assert face.questions
    assert face.agent.session.id == here
    face.agrees = True
    await face.type("/resume fish")
    assert face.agent.session.id == other.agent.session.id


async def test_resume_tells_the_price_stale_files_and_the_last_words(make: FaceMaker) -> None:
    price = Price(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75)
    model = ModelInfo(name="claude-x", price=price, token_factor=1.0)
    face = make(FakeProvider([reads("a.txt"), said("It is about fish.")], model=model))
    path = face.agent.box.cwd / "a.txt"
    path.write_text("fish\n" * 500)
    await face.agent.run("what is in a.txt?")
    first = face.agent.session.id
    await face.type("/new")
    os.utime(path, (2e9, 2e9))
    text = await face.type(f"/resume {first}")
    assert "what is in a.txt?" in text
    assert "It is about fish." in text
    assert "Changed on disk since the session saw them: a.txt" in text
    assert re.search(r"as is ≈ \$[\d.]+ \(cache (cold|warm)\) · after /compact ≈ \$[\d.]+", text)


async def test_context_cost_and_status(make: FaceMaker) -> None:
    face = make(FakeProvider([reads("a.txt"), said("ok")]))
    assert "$0.00" in await face.type("/cost")
    (face.agent.box.cwd / "a.txt").write_text("fish\n" * 900)
    await face.agent.run("look")
    text = await face.type("/context")
    for word in (
        "system",
        "tools",
        "user",
        "assistant",
        "thinking",
        "results",
        "cleared",
        "free",
        "Micro",
        "r",
    ):
        assert word in text
    assert "read_file result" in text
    assert "hit rate" in await face.type("/cost")
    assert "never broken" in await face.type("/cost --cache")
    await face.type("/compact")
    assert "compaction (manual)" in await face.type("/cost --cache")
    assert "does not know" in await face.type("/cost me")
    assert face.agent.session.full_id in await face.type("/status")


async def test_model_and_mode_by_the_picker(make: FaceMaker) -> None:
    face = make(config=Config(models={"mine": ModelEntry(window=1000, input=2.0)}))
    await talk(face, "one")
    face.picks = [1]
    text = await face.type("/model")
    assert face.agent.provider.model.name == "mine"
    assert "cache goes cold" in text
    assert "in use" in face.offered[0][0].detail
    assert "cache goes cold" in face.offered[0][1].preview
    face.picks = [0]
    await face.type("/mode")
    assert face.agent.mode == "plan"


async def test_settings_rules_tools_and_skills(make: FaceMaker) -> None:
    secret = ProviderEntry(base_url="http://x", headers={"authorization": "s3cret"})
    face = make(config=Config(providers={"own": secret}, compaction=Compaction(tail_turns=1)))
    text = await face.type("/config")
    assert "compaction.tail_turns = 1" in text
    assert "s3cret" not in text
    face.agent.session.record(Grant(rule="bash(ls:*)"))
    assert "bash(ls:*)" in await face.type("/config rules")
    await face.type("/config forget 1")
    assert face.agent.session.view.grants == []
    assert "* bash" in await face.type("/tools")
    assert "no skills" in await face.type("/skills")
    folder = face.agent.box.root / ".bareagent" / "skills" / "deploy"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: deploy\ndescription: ships it\n---\nShip $ARGUMENTS now.")
    face.agent.box.tools.append(LoadSkill())
    assert "ships it" in await face.type("/skills")
    assert "/deploy" in await face.type("/help")
    await face.type("/deploy to moon")
    assert "Ship to moon now." in face.sent[0]


async def test_the_rest(make: FaceMaker) -> None:
    face = make()
    assert "no such answer" in await face.type("/copy")
    await talk(face, "one", "two")
    await face.type("/copy")
    assert face.copied == "An answer to two."
    await face.type("/copy 2")
    assert face.copied == "An answer to one."
    assert "number" in await face.type("/copy x")
    await face.type("/theme light")
    assert face.themes == ["light"]
    assert "no theme" in await face.type("/theme pink")
    assert "no todo" in await face.type("/todo")
    face.agent.session.record(Todo(items=[TodoItem(id="t1", text="wash \x1b[5mup")], next_id=2))
    assert "wash up" in await face.type("/todo")
    await face.type("/retry")
    assert face.n_retried == 1
    await face.type("/clear")
    assert face.n_cleared == 1
    assert face.agent.session.messages == []


async def test_hostile_names_never_steer_the_terminal(make: FaceMaker) -> None:
    evil = "a\x1b[2J\x1b]0;t\x07\u202eb\x9b31m[/red]\r\n" + "世" * 300
    face = make(width=40)
    await talk(face, evil)
    face.agent.session.record(Name(name=evil))
    await face.type("/pin " + evil)
    lines: list[str] = []
    for line in (
        "/sessions",
        "/status",
        "/pins",
        "/name",
        "/rewind 1",
        "/context",
        "/compact preview",
        "/export a\x1bb",
    ):
        lines += (await face.type(line)).split("\n")
        if line in {"/sessions", "/context"}:
            assert max(map(cells, face.lines)) <= 40
    assert clean("\n".join(lines)) == "\n".join(lines)


@pytest.mark.parametrize(("page", "made"), [("README.md", as_table), ("docs/commands.md", as_sections)])
def test_the_pages_list_what_the_table_holds(page: str, made: Callable[[], str]) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert renewed(text, made()) == text, f"python -m {commands_doc.__name__} README.md docs/commands.md"


async def test_every_command_says_no_more_than_fits_a_row(make: FaceMaker) -> None:
    face = make(width=100)
    await face.type("/help")
    assert not [row for row in face.lines if row.endswith("…")]
