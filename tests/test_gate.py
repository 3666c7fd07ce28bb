"""The gate of calls from outside: what runs when, side by side or not, with whose leave, and what it leaves."""

import asyncio
import contextlib
import threading
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bareagent.entries import CallStarted, Grant, UsageEntry
from bareagent.seams import Answer, Need, Output, Question, Tool
from bareagent.tools.base import Params, ToolContext
from bareagent.tools.skills import LoadSkill, find_skills, invocation
from tests.conversation import Conversation, config_of, conversation
from tests.program import run
from tests.server.fixtures import MakeServer, StartServer
from tests.test_loop import bash, until
from tests.test_tools_files import png

DEFAULT = config_of(permissions={"mode": "default"})


def yes(_question: Question) -> Answer:
    return Answer(verdict="yes")


def always(question: Question) -> Answer:
    return Answer(verdict="always" if question.rule else "yes")


class Looking:
    """A reading tool that counts how many of it run at once."""

    name = "look"
    description = "Looks."
    params: type[msgspec.Struct] = Params
    is_read_only = True

    def __init__(self) -> None:
        self.n_now = self.n_most = 0

    def needs(self, _params: Params, _ctx: ToolContext) -> list[Need]:
        return [Need(kind="none")]

    async def run(self, _params: Params, _ctx: ToolContext) -> Output:
        self.n_now += 1
        self.n_most = max(self.n_most, self.n_now)
        await asyncio.sleep(0.02)
        self.n_now -= 1
        return Output(text="seen")


class Slow(Looking):
    """A tool whose judgement waits for the loop to go on."""

    name = "slow"

    def __init__(self) -> None:
        super().__init__()
        self.is_free = threading.Event()
        self.was_free = False

    def needs(self, _params: Params, _ctx: ToolContext) -> list[Need]:
        self.was_free = self.is_free.wait(10)
        return [Need(kind="none")]


def with_tool(talk: Conversation, tool: Tool) -> None:
    talk.agent.box.tools.append(tool)


async def test_at_most_eight_reading_calls_run_side_by_side(make_server: MakeServer, tmp_path: Path) -> None:
    # Different ones between, so that no four are equal in a row.
    calls: list[dict[str, Any]] = [
        {"name": name, "input": {}} for _ in range(12) for name in ("look", "peek")
    ]
    server = await make_server([{"calls": calls}, {"text": "done"}])
    async with conversation(server, tmp_path) as talk:
        look = Looking()
        peek = Looking()
        peek.name = "peek"
        peek.run = look.run  # type: ignore[method-assign]  # both count together
        with_tool(talk, look)
        with_tool(talk, peek)
        await talk.agent.run("go")
        assert talk.results() == ["seen"] * 24
        assert look.n_most == 8


async def test_a_long_judgement_does_not_hold_the_screen(make_server: MakeServer, tmp_path: Path) -> None:
    server = await make_server([{"calls": [{"name": "slow", "input": {}}]}, {"text": "done"}])
    async with conversation(server, tmp_path) as talk:
        slow = Slow()
        with_tool(talk, slow)
        asyncio.get_running_loop().call_later(0.5, slow.is_free.set)
        await talk.agent.run("go")
        assert slow.was_free
        assert talk.results() == ["seen"]


@pytest.mark.parametrize("reason", ["refusal", "max_tokens", "model_context_window_exceeded"])
async def test_a_whole_call_in_a_reply_that_is_none_never_runs(
    make_server: MakeServer, tmp_path: Path, reason: str
) -> None:
    """The call's JSON is whole; what ended the reply forbids it."""
    steps = [{"calls": [bash("touch ran")], "stop_reason": reason}] * 3
    server = await make_server([*steps, {"text": "no more"}, {"text": "no more"}])
    async with conversation(server, tmp_path) as talk:
        stop = await talk.agent.run("go")
        assert stop.reason == ("refusal" if reason == "refusal" else "max_tokens")
        assert len(server.requests) == (1 if reason == "refusal" else 3)
        assert not (tmp_path / "ran").exists()
        assert not [heard for heard in talk.heard if isinstance(heard, CallStarted)]
        assert all(text.startswith("not run: ") for text in talk.results())


async def test_control_characters_in_arguments_are_taken(make_server: MakeServer, tmp_path: Path) -> None:
    raw = '{"file_path": "a.txt", "content": "tab\there\nnext\x01end"}'
    server = await make_server([{"calls": [{"name": "write_file", "raw_input": raw}]}, {"text": "done"}])
    async with conversation(server, tmp_path) as talk:
        assert (await talk.agent.run("go")).text == "done"
        assert (tmp_path / "a.txt").read_text() == "tab\there\nnext\x01end"


async def test_equal_calls_with_another_between_are_not_stopped(
    make_server: MakeServer, tmp_path: Path
) -> None:
    read = {"name": "bash_output", "input": {"id": "b1"}}
    asked = [{"calls": [bash("echo again >> count"), read]}] * 6
    server = await make_server([{"calls": [bash("true", run_in_background=True)]}, *asked, {"text": "ok"}])
    async with conversation(server, tmp_path) as talk:
        await talk.agent.run("go")
        assert (tmp_path / "count").read_text() == "again\n" * 6


async def test_a_sessions_own_outputs_are_read_without_asking(
    make_server: MakeServer, tmp_path: Path
) -> None:
    server = await make_server([{"calls": [bash("seq 1 20000")]}, {"text": "long"}])
    async with conversation(server, tmp_path, DEFAULT, yes) as talk:
        await talk.agent.run("go")
        folder = talk.session.folder
        assert folder is not None
        (stored,) = (folder / "outputs").iterdir()
        assert str(stored) in talk.results()[0]
        server.add({"summary": True, "text": "They counted."})
        assert await talk.agent.compact()
        paths = [stored, *sorted((folder / "snapshots").iterdir())]
        calls = [{"name": "read_file", "input": {"file_path": str(path), "limit": 2}} for path in paths]
        other = {"name": "read_file", "input": {"file_path": str(folder / "log.jsonl")}}
        server.add({"calls": calls}, {"calls": [other]}, {"text": "done"})
        await talk.agent.run("read them")
        assert talk.results()[0].startswith("1: 1\n2: 2\n")
        assert [question.title for question in talk.asked] == ["bash", "read_file"]


async def test_a_skill_in_use_opens_or_narrows(make_server: MakeServer, tmp_path: Path) -> None:
    own, project = tmp_path / "own", tmp_path / "p"
    for folder, name in ((own, "mine"), (project / ".bareagent", "theirs")):
        skill = folder / "skills" / name
        skill.mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: d\nallowed-tools: bash(make:*), Bash(rm && x)\n---\nDo it.\n"
        (skill / "SKILL.md").write_text(text)
    made, read = bash("make --version"), {"name": "read_file", "input": {"file_path": "a.txt"}}
    (project / "a.txt").write_text("alpha\n")

    def use(name: str) -> dict[str, Any]:
        return {"name": "load_skill", "input": {"name": name}}

    steps = [
        [{"calls": [made]}],
        [{"calls": [use("mine")]}, {"calls": [made, read]}],
        [{"calls": [made]}],
        [{"calls": [use("theirs")]}, {"calls": [read, made]}],
        [{"calls": [read]}],
    ]
    server = await make_server([step for run in steps for step in [*run, {"text": "done"}]])
    async with conversation(server, project, DEFAULT, yes) as talk:
        with_tool(talk, LoadSkill(own))
        talk.agent.box.skills = partial(find_skills, project, user_folder=own)
        n_asked = []
        for line in ("plain", "mine", "plain again", "theirs", "plain at last"):
            before = len(talk.asked)
            await talk.agent.run(line)
            n_asked.append(len(talk.asked) - before)
        # A project's skill allows nothing of its own, and what it does not name asks.
        assert n_asked == [1, 0, 1, 2, 0]


async def test_a_skill_called_by_a_line_is_in_use(make_server: MakeServer, tmp_path: Path) -> None:
    folder = tmp_path / ".bareagent" / "skills" / "narrow"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: narrow\ndescription: d\nallowed-tools: grep\n---\nLook.\n")
    (tmp_path / "a.txt").write_text("alpha\n")
    read = {"name": "read_file", "input": {"file_path": "a.txt"}}
    server = await make_server([{"calls": [read]}, {"text": "done"}])
    async with conversation(server, tmp_path, DEFAULT) as talk:
        talk.agent.box.skills = partial(find_skills, tmp_path)
        await talk.agent.run(invocation(find_skills(tmp_path)[0], "now"))
        assert len(talk.asked) == 1
        assert "did not allow" in talk.results()[0]


async def test_what_is_granted_to_a_helper_is_granted_in_front(
    make_server: MakeServer, tmp_path: Path
) -> None:
    def write(name: str) -> dict[str, Any]:
        return {"calls": [{"name": "write_file", "input": {"file_path": f"src/{name}", "content": "x"}}]}

    helper = {"calls": [{"name": "subagent", "input": {"task": "write"}}]}
    steps = [helper, write("a"), {"text": "written"}, helper, write("b"), {"text": "written"}, write("c")]
    server = await make_server([*steps, {"text": "done"}])
    async with conversation(server, tmp_path, DEFAULT, always) as talk:
        assert (await talk.agent.run("go")).text == "done"
        assert sorted(path.name for path in (tmp_path / "src").iterdir()) == ["a", "b", "c"]
        assert len(talk.asked) == 1
        assert talk.session.view.grants == ["edit_file(src/**)"]
        talk.session.record(Grant(rule="edit_file(src/**)", is_removed=True))
        server.add(helper, write("d"), {"text": "written"}, {"text": "done"})
        await talk.agent.run("again")
        assert len(talk.asked) == 2


async def test_a_helper_follows_the_mode_in_front(make_server: MakeServer, tmp_path: Path) -> None:
    def write(name: str) -> dict[str, Any]:
        return {"calls": [{"name": "write_file", "input": {"file_path": name, "content": "x"}}]}

    helper = {"calls": [{"name": "subagent", "input": {"task": "write"}}]}
    server = await make_server([helper, write("a"), write("b"), {"text": "tried"}, {"text": "done"}])

    def turned(question: Question) -> Answer:
        talk.agent.set_mode("plan")
        return yes(question)

    async with conversation(server, tmp_path, DEFAULT, turned) as talk:
        await talk.agent.run("go")
        assert (tmp_path / "a").exists()
        assert not (tmp_path / "b").exists()
        assert "plan mode" in server.requests[3].last_text


async def test_a_helpers_large_result_is_kept_and_read_without_asking(
    make_server: MakeServer, tmp_path: Path
) -> None:
    secret = "sk-ant-api03-" + "Ab1" * 20
    (tmp_path / "big.txt").write_text(f"key {secret}\n" + "line\n" * 20_000)
    helper = {"calls": [{"name": "subagent", "input": {"task": "print it"}}]}
    server = await make_server([helper, {"calls": [bash("cat big.txt")]}])
    async with conversation(server, tmp_path, DEFAULT, yes) as talk:
        folder = talk.session.folder
        assert folder is not None
        stored = folder / "outputs" / "a1" / "r6.txt"
        read = {"name": "read_file", "input": {"file_path": str(stored), "limit": 1}}
        server.add({"expect": [str(stored)], "calls": [read]}, {"expect": [secret], "text": "ok"})
        server.add({"text": "done"})
        assert (await talk.agent.run("go")).text == "done", server.refused
        assert len(talk.asked) == 1
        assert secret not in stored.read_text()
        assert stored.read_text().count("line\n") == 20_000


async def test_an_interrupt_reaches_a_helper_and_what_it_runs(
    make_server: MakeServer, tmp_path: Path
) -> None:
    helper = {"calls": [{"name": "subagent", "input": {"task": f"wait {n}"}} for n in range(2)]}
    server = await make_server(
        [
            {"match": "start", **helper},
            {"match": "wait 0", "calls": [bash("touch begun0; sleep 60; touch late")]},
            {"match": "wait 1", "calls": [bash("touch begun1; sleep 60; touch late")]},
        ]
    )
    async with conversation(server, tmp_path) as talk:
        running = asyncio.create_task(talk.agent.run("start"))
        await until(lambda: all((tmp_path / f"begun{n}").exists() for n in range(2)))
        talk.agent.interrupt()
        stop = await asyncio.wait_for(running, 5)
        assert stop.reason == "interrupted"
        assert all("interrupted by the user" in text for text in talk.results())
        bills = [entry for entry in talk.session.entries() if isinstance(entry, UsageEntry)]
        assert [bill.purpose for bill in bills] == ["subagent", "subagent"]
        assert talk.session.view.cost_usd > sum(bill.cost_usd for bill in bills) > 0


async def test_helpers_start_helpers_down_to_a_depth_of_three(
    make_server: MakeServer, tmp_path: Path
) -> None:
    deeper = {"calls": [{"name": "subagent", "input": {"task": "deeper"}}]}
    server = await make_server([deeper, deeper, deeper, deeper, {"text": "deep"}, *[{"text": "up"}] * 3])
    async with conversation(server, tmp_path) as talk:
        await talk.agent.run("go")
        offered = [any(tool["name"] == "subagent" for tool in r.body["tools"]) for r in server.requests]
        assert offered[:5] == [True, True, True, False, False]
        assert "there is no tool 'subagent'" in str(server.requests[4].body)
        assert talk.session.view.cost_usd > 0


async def test_a_helper_stays_within_the_limit_of_money(make_server: MakeServer, tmp_path: Path) -> None:
    helper = {"calls": [{"name": "subagent", "input": {"task": "spend"}}]}
    server = await make_server(
        [{**helper, "usage_output": 3000}, {"text": "never"}, {"text": "never"}, {"text": "never"}]
    )
    async with conversation(server, tmp_path, config_of(limits={"cost_usd": 0.08})) as talk:
        with contextlib.suppress(Exception):
            await talk.agent.run("go")
        spent = talk.session.view.cost_usd
        assert "LimitReached" in talk.results()[0] or spent <= 0.08
        assert spent <= 0.08


async def test_an_end_in_the_background_starts_a_run_where_the_face_asks(
    make_server: MakeServer, tmp_path: Path
) -> None:
    begun = bash("until [ -e go ]; do sleep 0.02; done; echo built", run_in_background=True)
    server = await make_server([{"calls": [begun]}, {"text": "waiting"}, {"text": "it is built"}])
    async with conversation(server, tmp_path) as talk:
        await talk.agent.run("build")
        assert await talk.agent.wake() is None
        (tmp_path / "go").touch()
        await until(lambda: talk.agent.box.jobs.has_news)
        stop = await talk.agent.wake()
        assert stop is not None
        assert stop.text == "it is built"
        assert "Task b1: done (exit 0) - built" in server.requests[-1].last_text
        assert await talk.agent.wake() is None
        assert server.prefix_breaks() == []


async def test_the_mode_survives_compaction(make_server: MakeServer, tmp_path: Path) -> None:
    server = await make_server([{"text": "long " * 3000}, {"summary": True, "text": "They spoke at length."}])
    async with conversation(server, tmp_path, DEFAULT) as talk:
        talk.agent.set_mode("plan")
        await talk.agent.run("hello")
        assert await talk.agent.compact()
        assert talk.agent.mode == "plan"
        server.add({"calls": [bash("touch made")]}, {"text": "done"})
        await talk.agent.run("write")
        assert "plan mode" in talk.results()[-1]
        assert not (tmp_path / "made").exists()


async def test_what_is_granted_holds_after_a_resume(make_server: MakeServer, tmp_path: Path) -> None:
    def write(name: str) -> dict[str, Any]:
        return {"calls": [{"name": "write_file", "input": {"file_path": f"src/{name}", "content": "x"}}]}

    server = await make_server([write("a"), {"text": "done"}, write("b"), {"text": "done"}])
    async with conversation(server, tmp_path, DEFAULT, always) as talk:
        await talk.agent.run("go")
        name = talk.session.id
        assert len(talk.asked) == 1
    async with conversation(server, tmp_path, DEFAULT, always, resume=name) as again:
        await again.agent.run("go on")
        assert again.asked == []
        assert (tmp_path / "src" / "b").exists()


def test_print_mode_stops_after_three_replies_cut_in_a_call(
    start_server: StartServer, tmp_path: Path
) -> None:
    project = tmp_path / "p"
    project.mkdir()
    cut = {"calls": [bash("touch ran")], "stop_reason": "max_tokens"}
    server = start_server([cut] * 3 + [{"text": "never"}])
    done = run(["-p", "go", "--mode", "bypass"], project, home=tmp_path / "h", server=server)
    assert len(server.requests) == 3
    assert done.returncode != 0
    assert "3 replies in a row were cut in a call" in done.stderr
    assert not (project / "ran").exists()


def test_images_without_pillow(start_server: StartServer, tmp_path: Path) -> None:
    project, away = tmp_path / "p", tmp_path / "away" / "PIL"
    project.mkdir()
    away.mkdir(parents=True)
    (away / "__init__.py").write_text("raise ImportError('not here')\n")
    for name, side in (("small.png", 30), ("wide.png", 9000)):
        (project / name).write_bytes(png(side, 10))
    calls = [{"name": "read_file", "input": {"file_path": name}} for name in ("small.png", "wide.png")]
    server = start_server([{"calls": calls}, {"text": "seen"}])
    env = {"PYTHONPATH": f"{away.parent}:{Path(__file__).parents[1]}"}
    done = run(["-p", "look"], project, home=tmp_path / "h", server=server, env=env)
    assert done.stdout == "seen\n", done.stderr
    small, wide = server.requests[1].messages[-1]["content"][:2]
    assert [block["type"] for block in small["content"]] == ["text", "image"]
    assert [block["type"] for block in wide["content"]] == ["text"]
    assert '"images" extra' in str(wide)


def test_bypass_is_never_restored(start_server: StartServer, tmp_path: Path) -> None:
    project = tmp_path / "p"
    project.mkdir()
    steps = [[{"calls": [bash(f"make-x; touch {n}")]}, {"text": "ok"}] for n in range(2)]
    server = start_server([step for pair in steps for step in pair])
    run(["-p", "go", "--mode", "bypass"], project, home=tmp_path / "h", server=server)
    run(["-p", "again", "--continue"], project, home=tmp_path / "h", server=server)
    assert len(server.requests) == 4
    assert (project / "0").exists()
    assert not (project / "1").exists()


def test_changed_instructions_are_told_once_helpers_or_not(start_server: StartServer, tmp_path: Path) -> None:
    project = tmp_path / "p"
    project.mkdir()
    (project / "AGENTS.md").write_text("Say one.\n")
    change = bash("echo 'Say two.' > AGENTS.md")
    helper = {"name": "subagent", "input": {"task": "look"}}
    server = start_server(
        [
            {"calls": [change]},
            {"calls": [helper]},
            {"text": "helped"},
            {"text": "first"},
            {"calls": [helper]},
            {"text": "helped again"},
            {"text": "second"},
            {"text": "third"},
        ]
    )
    lines = "begin\nsecond line\nthird line\n"
    done = run(["--mode", "bypass"], project, home=tmp_path / "h", server=server, stdin=lines)
    assert len(server.requests) == 8, done.stderr
    bodies = [str(request.body) for request in server.requests]
    fronts = [bodies[n] for n in (0, 1, 3, 4, 6, 7)]
    assert "Say one." in fronts[0]
    assert [body.count("Say two.") - body.count("echo 'Say two.'") for body in fronts] == [0, 0, 0, 1, 1, 1]
    assert len({str(server.requests[n].body["system"]) for n in (0, 1, 3, 4, 6, 7)}) == 1
    assert "Say two." not in bodies[2]
    assert "Say two." in bodies[5]


def test_a_resumed_session_knows_which_instructions_hold(start_server: StartServer, tmp_path: Path) -> None:
    """Told of a change, left, changed again: the older note must not go before the newer prompt."""
    project = tmp_path / "p"
    project.mkdir()
    agents = project / "AGENTS.md"
    agents.write_text("Say one.\n")
    change = bash("echo 'Say two.' > AGENTS.md")
    server = start_server([{"calls": [change]}, {"text": "first"}, {"text": "second"}, {"text": "third"}])
    run(["--mode", "bypass"], project, home=tmp_path / "h", server=server, stdin="begin\nmore\n")
    agents.write_text("Say three.\n")
    run(["-p", "again", "--continue"], project, home=tmp_path / "h", server=server)
    assert "Say two." in str(server.requests[2].messages)
    last = server.requests[3]
    assert "Say three." in str(last.body["system"])
    assert "the system prompt goes before earlier notes" in last.last_text
