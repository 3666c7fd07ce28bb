"""The gate: rules, modes, what a grant would be, and that bash runs no more than was judged."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bareagent.errors import ConfigError
from bareagent.seams import Need
from bareagent.tools.permissions import Verdict, judge, judge_in, places_of
from bareagent.tools.rules import Rules, parse_rule
from bareagent.tools.shellparse import parse

MODES = ["plan", "default", "auto", "bypass"]


class Gate:
    """A workspace and what is judged in it."""

    def __init__(self, top: Path) -> None:
        self.home = top / "home"
        self.root = self.home / "work"
        self.session = self.root / ".transcripts" / "s1"
        for folder in (self.root / "src" / "deep", self.home / "other", self.session / "outputs"):
            folder.mkdir(parents=True)

    def judge(self, need: Need, tool: str, mode: str = "default", **rules: list[str]) -> Verdict:
        return judge(
            [need],
            tool=tool,
            mode=mode,
            rules=Rules.of(**rules),
            root=self.root,
            home=self.home,
            session_folder=self.session,
            program_paths=[self.home / ".config" / "bareagent"],
        )

    def read(self, path: str, mode: str = "default", **rules: list[str]) -> Verdict:
        return self.judge(Need(kind="read", target=path), "read_file", mode, **rules)

    def write(self, path: str, mode: str = "default", **rules: list[str]) -> Verdict:
        return self.judge(Need(kind="write", target=path), "write_file", mode, **rules)

    def run(self, command: str, mode: str = "default", **rules: list[str]) -> Verdict:
        return self.judge(Need(kind="run", target=command), "bash", mode, **rules)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("bash", "all"), ("bash(*)", "all"), ("bash(git status:*)", "prefix"), ("bash(npm test)", "exact"),
        (" bash( ls ) ", "exact"), ("edit_file(src/**)", "path"), ("read_file(~/.ssh/**)", "path"),
        ("read_file(/etc/hosts)", "path"), ("write_file(./x)", "path"), ("subagent(explore)", "target"),
        ("bash(echo '(hi; you)')", "exact"), ("bash(python -c 'print(1)')", "exact"),
    ],
)  # fmt: skip
def test_a_rule_reads_as_what_it_says(text: str, form: str) -> None:
    assert parse_rule(text).form == form


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not a permission rule"), ("Bash(ls)", "not a permission rule"), ("bash(ls", "not a permission rule"),
        ("bash()", "nothing between"), ("bash(ls *)", "star"), ("bash(ls; rm x)", "one simple command"),
        ("bash(ls && rm:*)", "one simple command"), ("bash($(x):*)", "one simple command"),
        ("bash('x)", "cannot be read"), ("edit_file(../x)", "`..`"), ("edit_file(!x)", "cannot be used"),
        ("read_file(~root/x)", "cannot be used"),
    ],
)  # fmt: skip
def test_a_bad_rule_is_told_with_what_is_wrong(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        parse_rule(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("rule", "inside", "outside"),
    [
        ("edit_file(src/**)", ["src/a", "src/deep/b", "./src/a"], ["a", "srcs/a", "other/src/a", "../src/a"]),
        ("edit_file(*.py)", ["a.py", "src/deep/a.py"], ["a.pyc", "a"]),
        ("edit_file(./a.py)", ["a.py", "src/../a.py"], ["src/a.py"]),
        ("write_file(src)", ["src/a"], ["a"]),
        ("edit_file(~/other/**)", ["~/other/x", "../other/x"], ["~/x", "~/work/x"]),
    ],
)
def test_path_rules_hold_for_what_they_name(
    gate: Gate, rule: str, inside: list[str], outside: list[str]
) -> None:
    for path in inside:
        assert gate.write(path, allow=[rule]).decision == "allow", path
    for path in outside:
        assert gate.write(path, allow=[rule]).decision == "ask", path


def test_a_rule_is_about_where_a_path_leads(gate: Gate) -> None:
    (gate.root / "src" / "way").symlink_to(gate.home / "other")
    assert gate.write("src/way/x", allow=["edit_file(src/**)"]).decision == "ask"
    assert gate.read("src/way/x", allow=["read_file(~/other/**)"]).decision == "allow"
    assert gate.read("src/way/x", "bypass", deny=["read_file(~/other/**)"]).decision == "deny"
    assert gate.read("src/way/x", "bypass", deny=["read_file(src/way/**)"]).decision == "deny"


def test_deny_beats_ask_beats_allow(gate: Gate) -> None:
    table: list[tuple[str, dict[str, list[str]]]] = [
        ("deny", {"allow": ["bash(ls:*)"], "ask": ["bash(ls:*)"], "deny": ["bash(ls:*)"]}),
        ("ask", {"allow": ["bash(ls:*)"], "ask": ["bash(ls:*)"]}),
        ("allow", {"allow": ["bash(ls:*)"]}),
        ("ask", {}),
        ("allow", {"grants": ["bash(ls:*)"]}),
        ("deny", {"grants": ["bash(ls:*)"], "deny": ["bash(ls:*)"]}),
    ]
    for decision, rules in table:
        assert gate.run("ls", "default", **rules).decision == decision, rules
    for mode in MODES:
        assert gate.write("a", mode, deny=["edit_file"], allow=["edit_file"]).decision == "deny"
        assert gate.read("A.TXT", mode, deny=["read_file(a.txt)"]).decision == "deny"


def test_path_rules_reach_into_commands(gate: Gate) -> None:
    deny = ["read_file(src/**)"]
    for command in ("cat src/a", "cat < src/a", "cd src && cat a", "head -n1 ./src/../src/a", "grep x src/a"):
        assert gate.run(command, "auto", deny=deny).decision == "deny", command
    assert gate.run("echo x > src/a", "auto", deny=["edit_file(src/**)"]).decision == "deny"
    assert gate.run("echo x > src/a", allow=["bash(echo:*)"]).decision == "ask"
    assert gate.run("echo x > src/a", allow=["bash(echo:*)", "edit_file(src/**)"]).decision == "allow"


@pytest.mark.parametrize(
    ("need", "tool", "decisions"),
    [
        (Need(kind="none"), "todo_write", "allow allow allow allow"),
        (Need(kind="other"), "strange", "deny ask ask allow"),
        (Need(kind="read", target="src/a"), "read_file", "allow allow allow allow"),
        (Need(kind="read", target="/etc/hosts"), "read_file", "ask ask ask allow"),
        (Need(kind="read", target="/dev/null"), "read_file", "allow allow allow allow"),
        (Need(kind="write", target="src/a"), "edit_file", "deny ask allow allow"),
        (Need(kind="write", target="/tmp/a"), "write_file", "deny ask ask allow"),
        (Need(kind="write", target=".env"), "write_file", "deny ask ask allow"),
        (Need(kind="run", target="ls"), "bash", "allow ask allow allow"),
        (Need(kind="run", target="npm test"), "bash", "deny ask ask allow"),
        (Need(kind="run", target="mkdir a"), "bash", "deny ask allow allow"),
        (Need(kind="run", target="cat .env"), "bash", "ask ask ask allow"),
        (Need(kind="run", target="ls > a"), "bash", "deny ask allow allow"),
        (Need(kind="run", target="'"), "bash", "deny ask ask allow"),
    ],
)
def test_the_table_of_modes(gate: Gate, need: Need, tool: str, decisions: str) -> None:
    assert [gate.judge(need, tool, mode).decision for mode in MODES] == decisions.split()
    assert gate.judge(need, tool, "a mode of the future").decision == decisions.split(maxsplit=1)[0]


def test_a_tool_that_declares_nothing_is_asked_for(gate: Gate) -> None:
    places = places_of(gate.root, gate.home)
    verdict = judge_in([], tool="strange", mode="auto", rules=Rules(), places=places)
    assert (verdict.decision, verdict.rule) == ("ask", "strange")
    allowed = Rules.of(grants=[verdict.rule])
    assert judge_in([], tool="strange", mode="auto", rules=allowed, places=places).decision == "allow"


def test_the_strictest_need_decides(gate: Gate) -> None:
    needs = [Need(kind="read", target="a"), Need(kind="write", target="/x"), Need(kind="none")]
    places = places_of(gate.root, gate.home)
    assert judge_in(needs, tool="t", mode="auto", rules=Rules(), places=places).decision == "ask"


def test_own_snapshots_and_outputs_are_read_without_asking(gate: Gate) -> None:
    base = gate.session
    for mode in MODES[:3]:
        assert gate.read(str(base / "outputs" / "r17.2.txt"), mode).decision == "allow"
        assert gate.run(f"cat {base}/snapshots/0001-compact.jsonl", "auto").decision == "allow"
        assert gate.read(str(base / "log.jsonl"), mode).decision == "ask"
        assert gate.read(str(base.parent / "s2" / "outputs" / "r1.txt"), mode).decision == "ask"
        assert gate.write(str(base / "outputs" / "r17.2.txt"), mode).decision != "allow"


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("git commit -m x", "bash(git commit:*)"),
        ("npm run build", "bash(npm run build:*)"),
        ("npm test -- --watch", "bash(npm test:*)"),
        ("python -m pytest -q", "bash(python -m pytest:*)"),
        ("python3 tool.py a", "bash(python3 tool.py:*)"),
        ("python3 -B -m unittest test_a", "bash(python3 -B -m unittest:*)"),
        ("python3 -B tool.py a", "bash(python3 -B tool.py:*)"),
        ("uv run pytest -q", "bash(uv run pytest:*)"),
        ("pytest -q tests", "bash(pytest:*)"),
        ("ls -la", "bash(ls:*)"),
        ("rm -r build", "bash(rm -r build)"),
        ("rm 'a b'", "bash(rm 'a b')"),
        ("npm test 2>&1 | tail -5", "bash(npm test:*)"),
        ("cd src && make all", "bash(make all:*)"),
        ("npm test && npm test", "bash(npm test:*)"),
        ("npm test && rm x", ""),
        ("python -c 'print(1)'", ""),
        ("FOO=1 npm test", ""),
        ("$X y", ""),
        ("sudo rm x", ""),
        ("cat .env", ""),
        ("awk 'BEGIN{system(1)}'", ""),
    ],
)
def test_what_always_would_grant_is_narrow_and_enough(gate: Gate, command: str, rule: str) -> None:
    verdict = gate.run(command)
    assert (verdict.decision, verdict.rule) == ("ask", rule)
    if rule:
        assert gate.run(command, grants=[rule]).decision == "allow"
        assert gate.run(f"{command}; rm other", grants=[rule]).decision == "ask"


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("README.md", "edit_file(./README.md)"),
        ("src/a.py", "edit_file(src/**)"),
        ("src/deep/b [1].py", "edit_file(src/deep/**)"),
        ("we*ird.py", r"edit_file(./we\*ird.py)"),
        (".env", ""),
        ("a(b).py", ""),
    ],
)
def test_what_always_would_grant_for_a_path(gate: Gate, path: str, rule: str) -> None:
    verdict = gate.write(path)
    assert (verdict.decision, verdict.rule) == ("ask", rule)
    if rule:
        assert gate.write(path, grants=[rule]).decision == "allow"
        assert gate.write("other/x.py", grants=[rule]).decision == "ask"


def test_exact_rules_cover_code_and_prefixes_never_do(gate: Gate) -> None:
    command = "python -c 'print(1)'"
    assert gate.run(command, allow=["bash(python -c 'print(1)')"]).decision == "allow"
    for rule in ("bash(python:*)", "bash(python -c:*)", "bash(python -c 'print(1)':*)", "bash", "bash(*)"):
        assert gate.run(command, "auto", allow=[rule]).decision == "ask", rule
    assert gate.run("uv run python -c 1", allow=["bash(uv run:*)"]).decision == "ask"
    assert gate.run("npm exec -c 'rm x'", allow=["bash(npm:*)"]).decision == "ask"
    assert gate.run("git -c core.pager=x log", allow=["bash(git:*)"]).decision == "ask"


def test_reasons_say_what_is_the_matter(gate: Gate) -> None:
    assert "background" in gate.run("npm test &", "auto").reason
    assert "variable" in gate.run("A=1 npm test", "auto").reason
    assert "outside" in gate.read("/etc/hosts").reason
    assert "keys" in gate.read(".env").reason
    assert "plan mode" in gate.write("a", "plan").reason
    assert "bash(rm:*)" in gate.run("rm x", deny=["bash(rm:*)"]).reason


def test_git_in_a_repository_that_names_programs_asks(gate: Gate) -> None:
    subprocess.run(["git", "init", "-q", gate.root], check=True)
    assert gate.run("git status", "auto").decision == "allow"
    config = gate.root / ".git" / "config"
    plain = config.read_text()
    for line in (
        "[core]\n\tfsmonitor = ./x",
        "[diff]\n\texternal=./x",
        '[filter "x"]\n\tclean = ./x',
        "[include]\n\tpath = x",
    ):
        config.write_text(f"{plain}{line}\n")
        assert gate.run("git status", "auto").decision == "ask", line
    config.write_text(plain)
    bare = gate.root / "src" / "bare"
    subprocess.run(["git", "init", "-q", "--bare", bare], check=True)
    assert gate.run("cd src/bare && git status", "auto").decision == "ask"


def test_a_program_that_lies_in_the_workspace_is_not_the_systems_own(gate: Gate) -> None:
    fake = gate.root / "bin"
    fake.mkdir()
    shutil.copy("/bin/ls", fake / "ls")
    need = [Need(kind="run", target="ls")]
    for path, decision in (
        (f"{fake}:/usr/bin:/bin", "ask"),
        ("bin:/usr/bin", "ask"),
        ("/usr/bin:/bin", "allow"),
    ):
        places = places_of(gate.root, gate.home, search_path=path)
        verdict = judge_in(need, tool="bash", mode="auto", rules=Rules(), places=places)
        assert verdict.decision == decision, path


def test_a_search_through_a_folder_with_keys_asks(gate: Gate) -> None:
    assert gate.run("grep -rn x src", "auto").decision == "allow"
    (gate.root / "src" / "deep" / ".env").write_text("K=1")
    assert gate.run("grep -rn x src", "auto").decision == "ask"
    assert gate.run("grep -rn x .", "auto").decision == "ask"
    assert gate.run("rg x src", "auto").decision == "allow"
    assert gate.run("rg x src -g '*'", "auto").decision == "ask"


def test_the_working_directory_is_where_paths_stand(gate: Gate) -> None:
    places = places_of(gate.root, gate.home, cwd=gate.root / "src")
    for target, decision in (("cat ../a", "allow"), ("cat ../../a", "ask"), ("cd .. && cat ../a", "ask")):
        verdict = judge_in(
            [Need(kind="run", target=target)], tool="bash", mode="auto", rules=Rules(), places=places
        )
        assert verdict.decision == decision, target


@pytest.mark.parametrize(
    ("command", "decision"),
    [
        ("$(" * 500 + "ls" + ")" * 500, "ask"),
        ("(" * 2000 + "ls" + ")" * 2000, "ask"),
        ("(" * 2000, "ask"),
        ("ls;" * 6000, "ask"),
        ("ls;" * 100, "allow"),
        ("echo " + "a " * 9000, "allow"),
        ("echo " * 50_000, "ask"),
        ("echo " + "{a," * 800, "allow"),
        ("cat " + "{a," * 800, "ask"),
        ("x" * 9000, "ask"),
        ("echo " + "$((" * 300 + "1" + "))" * 300, "ask"),
        ("env " * 100 + "ls", "ask"),
    ],
    ids=range(12),
)
def test_long_and_deep_commands_are_judged_in_time(gate: Gate, command: str, decision: str) -> None:
    assert gate.run(command, "auto").decision == decision


PIECES = [
    "ls", "echo a", "cat f", "evil", " ", " ", "\n", "\\\n", ";", "&&", "||", "|", "&", "$(", ")", "`",
    "(", "{ ", "; }",
    "'", '"', "\\", "#", "$'", "<<E\n", "<<'E'\n", "<<-E\n", "\nE\n", "\n\tE\n", "<(", ">/dev/null", "<f", "2>&1", "$X",
    "${X}", "{a,b}", "*", "~", "!", "[ ", " ]", "[[ ", " ]]", "if ", "; then ", "; fi", "for x in ", "; do ", "; done",
    "case a in a) ", ";; esac", "$((", "))", "<<<", "=", "A=", "\t", "\r", "é", "\u00a0", "time ", "env ", "xargs ",
]  # fmt: skip


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a workspace and a PATH of five programs, one of which leaves a mark."""
    top = tmp_path_factory.mktemp("sandbox")
    (top / "bin").mkdir()
    (top / "work").mkdir()
    (top / "work" / "f").write_text("evil\n")
    for name in ("ls", "cat", "env", "xargs"):
        (top / "bin" / name).symlink_to(str(shutil.which(name)))
    evil = top / "bin" / "evil"
    evil.write_text(f"#!/bin/sh\n: > {top}/mark\n")
    evil.chmod(0o755)
    return top


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=9))
def test_bash_runs_no_more_than_was_judged(sandbox: Path, pieces: list[str]) -> None:
    command = "".join(pieces)
    places = places_of(sandbox / "work", sandbox, search_path=str(sandbox / "bin"))
    need = [Need(kind="run", target=command)]
    if judge_in(need, tool="bash", mode="plan", rules=Rules(), places=places).decision != "allow":
        return
    subprocess.run(
        [shutil.which("bash") or "bash", "-c", command],
        cwd=sandbox / "work",
        env={"PATH": str(sandbox / "bin")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=10,
        check=False,
    )
    assert not (sandbox / "mark").exists(), command
    assert [path.name for path in (sandbox / "work").iterdir()] == ["f"]


def test_the_mark_is_left_when_the_bad_program_runs(sandbox: Path) -> None:
    subprocess.run(
        ["bash", "-c", "cat f | xargs env"],
        cwd=sandbox / "work",
        env={"PATH": f"{sandbox}/bin:/bin"},
        check=True,
    )
    assert (sandbox / "mark").exists()
    (sandbox / "mark").unlink()


@given(st.text(max_size=60))
def test_any_text_is_read_without_an_error(text: str) -> None:
    script = parse(text)
    assert script.faults or not script.is_opaque


@pytest.mark.parametrize("name", ["a\u200bb.txt", "x\x1b[2J.txt", "\u202etxt.py", "two\nlines"])
@pytest.mark.parametrize("folder", ["", "../other/"])
def test_a_name_that_looks_like_another_says_so(gate: Gate, name: str, folder: str) -> None:
    assert "invisible or control characters" in gate.write(folder + name).reason
    assert "invisible" not in gate.write(folder + "plain.txt").reason
