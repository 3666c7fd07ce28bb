"""What Tab offers: commands, their arguments, the project's files; hostile names are not offered."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from bareagent.repl.commands import COMMANDS, ordered
from bareagent.repl.completion import Completions, ranked
from bareagent.tools.search import list_files
from tests.face import FaceMaker, faces_in
from tests.fakes import FakeProvider, said


@pytest.fixture
def make(tmp_path: Path) -> Iterator[FaceMaker]:
    with faces_in(tmp_path) as maker:
        yield maker


async def offered(completer: Completions, text: str) -> list[str]:
    """The drafts that the candidates make, the best first."""
    document = Document(text)
    found = completer.get_completions_async(document, CompleteEvent(completion_requested=True))
    return [text[: len(text) + each.start_position] + each.text async for each in found]


async def test_commands_come_with_their_help(make: FaceMaker) -> None:
    completer = Completions(make())
    assert await offered(completer, "/") == [f"/{each.name}" for each in ordered()]
    assert (await offered(completer, "/comp"))[0] == "/compact"
    assert "/resume" in await offered(completer, "/saved")
    (first, *_) = completer.get_completions(Document("/comp"), CompleteEvent())
    assert first.display_meta_text == COMMANDS["compact"].help
    assert await offered(completer, "no /comp") == []


async def test_arguments(make: FaceMaker) -> None:
    face = make(FakeProvider([said("one"), said("two")]))
    completer = Completions(face)
    assert await offered(completer, "/mode p") == ["/mode plan"]
    assert await offered(completer, "/compact ") == ["/compact preview", "/compact undo", "/compact --facts"]
    assert "/help rewind" in await offered(completer, "/help re")
    assert await offered(completer, "/theme li") == ["/theme light"]
    assert "/model fake" in await offered(completer, "/model fa")
    assert await offered(completer, "/nothing ") == []
    await face.agent.run("about fish")
    first = face.agent.session.id
    face.agent.new()
    await face.agent.run("about birds")
    assert await offered(completer, "/resume ") == [f"/resume {first}"]
    assert await offered(completer, "/resume fish") == [f"/resume {first}"]


async def test_paths_of_the_project(make: FaceMaker) -> None:
    face = make()
    top = face.agent.box.cwd
    for name in ("src/main.py", "src/deep/maker.py", "a file.txt", "build/out.bin", "docs/map.md"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text("x")
    (top / ".gitignore").write_text("build/\n")
    (top / "evil\x1b[31m.py").write_text("x")
    completer = Completions(face)
    assert (await offered(completer, "look at @main"))[0] == "look at @src/main.py "
    assert (await offered(completer, "@mkr"))[0] == "@src/deep/maker.py "
    assert (await offered(completer, "@src/"))[0] == "@src/"
    assert '@"a file.txt" ' in await offered(completer, "@afile")
    assert '@"a file.txt" ' in await offered(completer, '@"a fi')
    everything = await offered(completer, "@")
    assert not any("build" in each or "evil" in each for each in everything)
    assert await offered(completer, "mail me@main") == []


async def test_listing_files_ends_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(60):
        (tmp_path / f"f{k}").touch()
    for program in ("", "none"):
        monkeypatch.setenv("BAREAGENT_RG", program)
        assert len(await list_files(tmp_path, 25)) == 25
        assert len(await list_files(tmp_path, 1000)) == 60
    assert await list_files(tmp_path / "gone", 10) == []


@given(st.lists(st.text("abc/.", min_size=1), unique=True), st.text("abcABC.*[", max_size=4))
async def test_what_is_found_holds_the_typed_characters_in_order(paths: list[str], wanted: str) -> None:
    found = await ranked(paths, wanted)
    for path in found:
        letters = iter(path.casefold())
        assert all(letter in letters for letter in wanted.casefold())
    if wanted and any(path.casefold().startswith(wanted.casefold()) for path in paths):
        assert wanted.casefold() in found[0].casefold()
