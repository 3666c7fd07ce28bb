"""Skills: front matter, folders, the list, the tool, and what a skill may allow."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bareagent.messages import Message, text_block
from bareagent.tools import frontmatter, skills
from bareagent.tools.base import ToolError
from bareagent.tools.skills import LoadSkill, Skill, SkillParams, as_text, find_skills, invocation, listing
from bareagent.toolspec import spec
from tests.fakes import call
from tests.tool_bench import Bench


def make(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(text)
    return folder


def head(name: str, more: str = "", description: str = "what it is for") -> str:
    return f"---\nname: {name}\ndescription: {description}\n{more}---\n# How\nDo it.\n"


@pytest.fixture
def user(tmp_path: Path) -> Path:
    return tmp_path / "config"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "project"


def project(root: Path) -> Path:
    return root / ".bareagent" / "skills"


@pytest.mark.parametrize(
    ("text", "fields", "body"),
    [
        ("---\nname: a\n---\nbody\n", {"name": "a"}, "body"),
        ("---\nname: 'a: b'\ndescription: \"c\"\n---\n", {"name": "a: b", "description": "c"}, ""),
        (
            "---\nallowed-tools: [bash(git:*, x), read_file]\n---\nb",
            {"allowed-tools": ["bash(git:*, x)", "read_file"]},
            "b",
        ),
        ("---\nallowed-tools:\n- a\n- b\n---\nb", {"allowed-tools": ["a", "b"]}, "b"),
        ("---\ndescription: >\n  one\n  two\nname: n\n---\nb", {"description": "one two", "name": "n"}, "b"),
        ("---\ndescription: one\n  two # note\n---\nb", {"description": "one two # note"}, "b"),
        ("---\nname: a # note\n---\nb", {"name": "a"}, "b"),
        ("\ufeff---\r\nname: a\r\n---\r\nb\r\n", {"name": "a"}, "b"),
        ("no front matter", {}, "no front matter"),
        ("---\nname: a\nnever ended", {}, "---\nname: a\nnever ended"),
        ("", {}, ""),
    ],
)
def test_front_matter(text: str, fields: dict[str, object], body: str) -> None:
    assert frontmatter.split(text) == (fields, body)


@given(st.text(max_size=200))
def test_any_front_matter_is_read(text: str) -> None:
    fields, _ = frontmatter.split(f"---\n{text}\n---\nbody")
    assert all(isinstance(key, str) for key in fields)


def test_skills_of_user_and_project_the_users_first(root: Path, user: Path) -> None:
    make(project(root) / "b", head("b"))
    make(project(root) / "same", head("same", description="the project's"))
    make(user / "skills" / "same", head("same", description="the user's"))
    make(user / "skills" / "a", head("a"))
    found = find_skills(root, user_folder=user)
    assert [(skill.name, skill.is_project) for skill in found] == [("a", False), ("b", True), ("same", False)]
    assert listing(found).splitlines()[2] == "- same: the user's"


def test_what_is_no_skill_is_left_out(root: Path) -> None:
    make(project(root) / "fine", head("fine"))
    make(project(root) / "nameless", "---\ndescription: d\n---\nx")
    make(project(root) / "silent", "---\nname: silent\n---\nx")
    make(project(root) / "odd", head("Odd Name"))
    (project(root) / "empty").mkdir()
    (project(root) / "file").write_text("x")
    (root / "elsewhere").write_text(head("linked"))
    (project(root) / "linked").mkdir()
    (project(root) / "linked" / "SKILL.md").symlink_to(root / "elsewhere")
    assert [skill.name for skill in find_skills(root)] == ["fine", "nameless"]


def test_the_list_is_capped_and_each_is_one_clean_line(root: Path) -> None:
    for number in range(60):
        make(
            project(root) / f"s{number:02}",
            head(f"s{number:02}", description="long \x1b[31m" + "word " * 200),
        )
    lines = listing(find_skills(root)).splitlines()
    assert len(lines) == skills.MAX_SKILLS + 1
    assert "and 20 more: s40, s41" in lines[-1]
    assert max(map(len, lines)) <= 2 * skills.MAX_LINE_CELLS + 30
    assert "\x1b" not in "".join(lines)


async def test_the_tool_gives_the_instructions_and_the_folder(user: Path, tmp_path: Path) -> None:
    folder = make(user / "skills" / "deploy", head("deploy", "allowed-tools: bash(make:*), read_file\n"))
    (folder / "run.sh").write_text("x")
    bench = Bench(tmp_path)
    output = await LoadSkill(user).run(SkillParams(name="/deploy"), bench.ctx)
    assert str(folder) in output.text
    assert "run.sh" in output.text
    assert "Tools it may use: bash(make:*), read_file." in output.text
    assert output.text.endswith("# How\nDo it.")
    with pytest.raises(ToolError, match="There are: deploy"):
        await LoadSkill(user).run(SkillParams(name="other"), bench.ctx)


def test_a_slash_command_carries_its_arguments(root: Path) -> None:
    make(project(root) / "a", head("a"))
    make(project(root) / "b", head("b") + "Do $ARGUMENTS twice.")
    plain, placed = find_skills(root)
    assert invocation(plain, " x y ").endswith("Do it.\n\nx y")
    assert invocation(placed, "x").endswith("Do x twice.")
    assert invocation(plain, "").startswith("Skill a (folder ")


def skill(*allowed: str, is_project: bool) -> Skill:
    return Skill(name="s", description="d", folder=Path("/s"), is_project=is_project, allowed=allowed)


def test_a_projects_skill_may_only_narrow() -> None:
    tools = ["bash", "read_file", "edit_file", "load_skill"]
    assert skills.rules_of(skill("Bash(git status:*)", "Read", is_project=False), tools) == (
        ["bash(git status:*)", "read_file"],
        [],
    )
    allow, ask = skills.rules_of(skill("Bash", "Read", is_project=True), tools)
    assert (allow, ask) == ([], ["edit_file"])
    assert skills.rules_of(skill(is_project=True), tools) == ([], ["bash", "read_file", "edit_file"])


def test_loaded_skills_are_known_by_the_calls() -> None:
    def loads(name: object) -> Message:
        content = [{"type": "tool_use", "id": "c", "name": "load_skill", "input": {"name": name}}]
        return {"role": "assistant", "content": [*content, call("bash", command="ls")]}

    odd = {"type": "tool_use", "id": "c", "name": "load_skill", "input": "s"}
    run: list[Message] = [
        {"role": "user", "content": [text_block("x")]},
        loads(" /a"),
        loads(5),
        {"role": "assistant", "content": [odd]},
    ]
    assert skills.loaded_names(run) == ["a"]
    known = [skill("bash", is_project=True)]
    assert skills.in_force(run, known) == []
    assert skills.in_force([*run, loads("s")], known) == known


def test_a_rule_that_cannot_be_read_allows_nothing() -> None:
    own = skill("Bash(git add *)", "Bash(rm && x)", "Bash(make:*)", "???", is_project=False)
    assert skills.rules_of(own, ["bash"]) == (["bash(git add:*)", "bash(make:*)"], [])


def test_the_text_for_the_model_is_short() -> None:
    sent = spec(LoadSkill())
    assert list(sent.input_schema["properties"]) == ["name"]
    assert len(sent.description) < 200


def test_a_skill_that_went_away_is_told(root: Path) -> None:
    folder = make(project(root) / "a", head("a"))
    (found,) = find_skills(root)
    (folder / "SKILL.md").unlink()
    with pytest.raises(ToolError, match=r"has no SKILL\.md"):
        as_text(found)
