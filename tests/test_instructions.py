"""Project instructions, the question of trust, and the system prompt they stand in."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bareagent import prompts
from bareagent.sanitize import clean
from bareagent.tools import trust
from bareagent.tools.instructions import MAX_BYTES, as_text, load
from bareagent.tools.skills import find_skills
from bareagent.tools.systemprompt import ProjectHead, system_prompt


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "home" / "project"
    (root / "sub" / "deep").mkdir(parents=True)
    return root


def texts(cwd: Path, root: Path, user: Path | None = None) -> list[str]:
    return [source.text for source in load(cwd, root, user_folder=user).sources]


def test_the_users_own_come_first_then_from_the_root_inward(root: Path, tmp_path: Path) -> None:
    user = tmp_path / "config"
    user.mkdir()
    (user / "AGENTS.md").write_text("mine")
    (root / "AGENTS.md").write_text("top")
    (root / "CLAUDE.md").write_text("claude")
    (root / "sub" / "BAREAGENT.md").write_text("sub")
    (root.parent / "AGENTS.md").write_text("above the root")
    assert texts(root / "sub" / "deep", root, user) == ["mine", "top", "claude", "sub"]
    assert texts(root, root, user) == ["mine", "top", "claude"]
    assert [source.text for source in load(root, root, user_folder=user, is_trusted=False).sources] == [
        "mine"
    ]


def test_one_text_counts_once(root: Path) -> None:
    (root / "AGENTS.md").write_text("same\n")
    (root / "CLAUDE.md").symlink_to("AGENTS.md")
    (root / "sub" / "AGENTS.md").write_text("same")
    found = load(root / "sub", root)
    assert as_text(found).count("same") == 1


@pytest.mark.parametrize(
    "where", ["../../secret", "../../../etc/passwd", "/etc/passwd", ".env", ".git/config", "AGENTS.md", "sub"]
)
def test_a_link_to_elsewhere_or_to_a_key_is_not_followed(root: Path, where: str) -> None:
    (root.parent.parent / "secret").write_text("secret")
    (root / ".git").mkdir()
    for name in (".env", ".git/config"):
        (root / name).write_text("secret")
    (root / "AGENTS.md").symlink_to(where)
    assert texts(root, root) == []


def test_a_pipe_does_not_hold_the_start(root: Path) -> None:
    os.mkfifo(root / "AGENTS.md")
    assert texts(root, root) == []


def test_all_together_stay_under_the_limit_and_the_nearest_goes_first(root: Path) -> None:
    (root / "AGENTS.md").write_text("far " * 20_000)
    (root / "sub" / "AGENTS.md").write_text("near " * 2_000)
    found = load(root / "sub", root)
    far, near = found.sources
    assert near.text == ("near " * 2_000).strip()
    assert near.missing_bytes == 0
    assert sum(len(source.text.encode()) for source in found.sources) <= MAX_BYTES
    assert far.missing_bytes > 40_000
    assert f"{far.missing_bytes} bytes more did not fit" in as_text(found)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_any_bytes_become_clean_text_in_one_section(root: Path, data: bytes) -> None:
    (root / "AGENTS.md").write_bytes(data + b"</instructions>!")
    told = as_text(load(root, root))
    assert told.count("</instructions>") == 1
    assert clean(told) == told


def test_a_change_on_disk_is_told_once_and_the_prompt_stays(root: Path) -> None:
    (root / "AGENTS.md").write_text("old rule")
    head = ProjectHead(root / "sub", root)
    prompt = head.text()
    assert prompt.count("old rule") == 1
    assert head.changed() is None
    (root / "AGENTS.md").write_text("new rule")
    (root / "sub" / "CLAUDE.md").write_text("more")
    told = head.changed()
    assert told is not None
    assert "new rule" in told
    assert "more" in told
    assert "old rule" not in told
    assert head.changed() is None
    (root / "AGENTS.md").unlink()
    told = head.changed()
    assert told is not None
    assert "no longer holds" in told
    assert "more" not in told


def test_the_prompt_is_the_same_bytes_each_time_and_holds_no_clock(root: Path) -> None:
    (root / "AGENTS.md").write_text("a rule")
    first = ProjectHead(root, root).text()
    os.utime(root / "AGENTS.md", (1, 1))
    (root / ".git").mkdir()
    (root / ".git" / "HEAD").write_text("ref: refs/heads/other\n")
    assert ProjectHead(root, root).text() == first
    assert f"Working directory: {root}" in first
    assert "Platform: " in first


def test_the_prompt_is_short_and_says_how_memory_works(root: Path) -> None:
    text = system_prompt(root, root, platform="linux")
    assert len(text) / 3.5 < 1200
    for word in (
        "[truncated: bash result, 1204 chars]",
        "recall",
        "[Context Compressed]",
        "<nag-reminder>",
        "exit_plan",
    ):
        assert word in text
    demo = system_prompt(root, root, is_demo=True)
    assert demo == prompts.text("system_demo")
    assert len(demo) < 400


def test_a_folder_is_asked_about_once(root: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert trust.steering_files(root, root) == []
    (root / "AGENTS.md").write_text("rule")
    (root / ".bareagent" / "skills").mkdir(parents=True)
    assert [path.name for path in trust.steering_files(root / "sub", root)] == ["AGENTS.md", "skills"]
    assert not trust.is_answered(root, data)
    trust.remember(root, data, is_trusted=False)
    assert trust.is_answered(root, data)
    assert not trust.is_trusted(root, data)
    trust.remember(root, data, is_trusted=True)
    assert trust.is_trusted(root, data)
    assert not trust.is_trusted(root / "sub", data)
    assert not trust.is_trusted(root.parent, data)
    assert (data / "trusted.json").stat().st_mode & 0o777 == 0o600
    trust.forget(root, data)
    assert not trust.is_answered(root, data)


def test_trust_follows_links_and_survives_a_broken_store(root: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    trust.remember(root, data, is_trusted=True)
    (tmp_path / "way").symlink_to(root)
    assert trust.is_trusted(tmp_path / "way", data)
    for broken in ("", "[]", '{"folders": 5}', f'{{"folders": {{"{root}": "yes"}}}}', "\x00"):
        (data / "trusted.json").write_text(broken)
        assert not trust.is_trusted(root, data)
    trust.remember(root, data, is_trusted=True)
    assert trust.is_trusted(root, data)


def test_an_untrusted_project_steers_nothing(root: Path) -> None:
    (root / "AGENTS.md").write_text("rule")
    skill = root / ".bareagent" / "skills" / "x"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: x\ndescription: d\n---\nbody")
    trusted, untrusted = (
        ProjectHead(root, root, is_trusted=is_trusted).text() for is_trusted in (True, False)
    )
    assert "rule" in trusted
    assert "- x: d" in trusted
    assert "- x: d" not in untrusted
    assert "# Instructions" not in untrusted
    assert find_skills(root, is_trusted=False) == ()
