"""The ways out of the workspace through the loop's own gate and the real tools, with a user who says no."""

from pathlib import Path
from typing import Any

import pytest

from bareagent.calls import Toolbox, answer_calls
from bareagent.config import Config
from bareagent.entries import Mode
from bareagent.messages import Block
from bareagent.seams import Answer, Question
from bareagent.session import Session
from bareagent.tools import standard_tools
from bareagent.tools.background import Jobs
from tests.fakes import said

SECRET = "the-secret-word"


class Place:
    """A workspace with ways out, secrets behind each, and a user who refuses all."""

    def __init__(self, top: Path) -> None:
        self.root = top / "home" / "work"
        self.outside = top / "outside"
        for folder in (self.root / "src", self.outside, top / "home" / ".ssh"):
            folder.mkdir(parents=True)
        self.secrets = [self.outside / "secret.txt", top / "home" / ".ssh" / "id_rsa", self.root / ".env"]
        for path in self.secrets:
            path.write_text(f"{SECRET}\n")
        (self.root / "src" / "a.py").write_text("print(1)\n")
        (self.root / "link").symlink_to(self.outside / "secret.txt")
        (self.root / "folder").symlink_to(self.outside)
        (self.root / "chain").symlink_to(self.root / "folder")
        (self.root / "dangling").symlink_to(self.outside / "new.txt")
        (self.root / "keys").symlink_to("../.ssh")
        self.asked: list[Question] = []
        self.session = Session.in_memory(self.root)
        self.box = Toolbox(tools=standard_tools(Config()), cwd=self.root, root=self.root, jobs=Jobs())

    async def refuse(self, question: Question, /) -> Answer:
        self.asked.append(question)
        return Answer(verdict="no")

    async def call(self, name: str, mode: str, **arguments: Any) -> str:
        self.session.record(Mode(mode=mode))
        block: Block = {"type": "tool_use", "id": "c1", "name": name, "input": arguments}
        await answer_calls(said(block), self.session, self.box, Config(), lambda _: None, self.refuse)
        (result,) = self.session.messages[-1]["content"]
        return str(result["content"])

    def outside_is_whole(self) -> bool:
        return [path.name for path in self.outside.iterdir()] == ["secret.txt"] and all(
            path.read_text() == f"{SECRET}\n" for path in self.secrets
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


PATHS_OUT = [
    "link", "folder/secret.txt", "chain/secret.txt", "../../outside/secret.txt", "src/../../.ssh/id_rsa",
    "keys/id_rsa", "folder/../outside/secret.txt", "./link", "src/../link", ".env", "./src/../.env",
]  # fmt: skip
NEW_PATHS_OUT = [
    "dangling",
    "folder/new.txt",
    "chain/new.txt",
    "../../outside/new.txt",
    "keys/new",
    ".git/hooks/x",
    ".ENV",
]


@pytest.mark.parametrize("mode", ["plan", "default", "auto"])
@pytest.mark.parametrize("path", PATHS_OUT)
async def test_no_tool_reads_what_lies_outside(place: Place, path: str, mode: str) -> None:
    for name, arguments in (
        ("read_file", {"file_path": path}),
        ("read_file", {"file_path": str(place.root / path)}),
        ("grep", {"pattern": ".", "path": path}),
        ("bash", {"command": f"cat {path}"}),
        ("bash", {"command": f"cat < '{path}'"}),
        ("bash", {"command": f"cd src && cat ../{path}"}),
    ):
        assert SECRET not in await place.call(name, mode, **arguments), arguments
    assert place.asked or mode == "plan"


@pytest.mark.parametrize("mode", ["plan", "default", "auto"])
@pytest.mark.parametrize("path", PATHS_OUT + NEW_PATHS_OUT)
async def test_no_tool_writes_what_lies_outside(place: Place, path: str, mode: str) -> None:
    for name, arguments in (
        ("write_file", {"file_path": path, "content": "x"}),
        ("edit_file", {"file_path": path, "old_text": SECRET, "new_text": "x"}),
        ("bash", {"command": f"echo x > {path}"}),
        ("bash", {"command": f"echo x >> '{path}'"}),
        ("bash", {"command": f"touch {path}"}),
    ):
        await place.call(name, mode, **arguments)
    assert place.outside_is_whole()
    assert not (place.root / ".git").exists()
    assert not (place.root / ".ENV").exists()
    assert place.asked or mode == "plan"


@pytest.mark.parametrize("name", ["grep", "glob"])
async def test_no_search_shows_what_a_direct_look_would_ask_for(place: Place, name: str) -> None:
    for arguments in (
        {"pattern": SECRET},
        {"pattern": SECRET, "path": "src/.."},
        {"pattern": SECRET, "include": ".env"},
        {"pattern": SECRET, "include": "*"},
        {"pattern": ".", "output_mode": "content"},
    ):
        given = arguments if name == "grep" else {"pattern": "../../**/*", "path": arguments.get("path", ".")}
        told = await place.call(name, "auto", **given)
        assert SECRET not in told.replace(f"'{SECRET}'", ""), (given, told)
        assert "id_rsa" not in told


async def test_what_is_inside_needs_no_question(place: Place) -> None:
    assert "print(1)" in await place.call("read_file", "default", file_path="src/a.py")
    assert "print(1)" in await place.call("bash", "auto", command="cat src/a.py")
    await place.call("write_file", "auto", file_path="src/b.py", content="x")
    assert (place.root / "src" / "b.py").read_text() == "x"
    assert place.asked == []
