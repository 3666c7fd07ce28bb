"""The subagent tool: its types, what each may call, and what comes back."""

from pathlib import Path

import pytest

from bareagent.config import Config
from bareagent.seams import Output
from bareagent.tools import standard_tools, subagent
from bareagent.tools.base import BadArguments, ToolError, decode, spec
from bareagent.tools.skills import LoadSkill
from bareagent.tools.subagent import MAX_DEPTH, TYPES, Subagent, tools_for
from tests.fakes import call
from tests.tool_bench import Bench

TOOLS = [*standard_tools(Config()), LoadSkill(), Subagent()]
WRITERS = {"write_file", "edit_file", "subagent", "bash_kill"}


def test_every_type_has_its_text_and_keeps_the_order() -> None:
    assert set(TYPES) == set(spec(Subagent()).input_schema["properties"]["type"]["enum"])
    for name, kind in TYPES.items():
        assert kind.prompt
        allowed = [tool.name for tool in tools_for(name, TOOLS, 1)]
        assert allowed == [tool.name for tool in TOOLS if tool.name in allowed]
        assert not {"ask_user", "exit_plan", "compact"} & set(allowed)
        text = subagent.system_prompt(name, "HEAD")
        assert text.startswith("HEAD\n\n")
        assert text.endswith(kind.prompt)


@pytest.mark.parametrize("type", ["explore", "plan", "review"])
@pytest.mark.parametrize("mode", ["plan", "default", "auto", "bypass"])
def test_three_types_cannot_write(type: str, mode: str) -> None:
    assert not WRITERS & {tool.name for tool in tools_for(type, TOOLS, 1)}
    assert subagent.mode_for(type, mode) == "plan"
    assert subagent.mode_for("general-purpose", mode) == mode


def test_depth_ends() -> None:
    for depth in range(1, MAX_DEPTH + 2):
        names = {tool.name for tool in tools_for("general-purpose", TOOLS, depth)}
        assert ("subagent" in names) == (depth < MAX_DEPTH)


async def test_only_the_final_text_comes_back(tmp_path: Path) -> None:
    asked: list[tuple[str, str, str]] = []

    async def spawn(task: str, *, type: str, call_id: str) -> Output:
        asked.append((task, type, call_id))
        return Output(text="found it")

    bench = Bench(tmp_path)
    bench.ctx.spawn = spawn
    ctx = bench.ctx.for_call(call("subagent", "c7", task="look"))
    output = await Subagent().run(decode(Subagent(), {"task": "look", "type": "explore"}), ctx)
    assert output.text == "found it"
    assert asked == [("look", "explore", "c7")]
    with pytest.raises(ToolError, match="blank"):
        await Subagent().run(decode(Subagent(), {"task": "  "}), ctx)


async def test_where_none_can_be_started_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="yourself"):
        await Subagent().run(decode(Subagent(), {"task": "x"}), Bench(tmp_path).ctx)


@pytest.mark.parametrize("raw", [{}, {"task": ""}, {"task": "x", "type": "other"}, {"task": "x", "depth": 1}])
def test_bad_arguments_are_told(raw: dict[str, object]) -> None:
    with pytest.raises(BadArguments, match="Expected: task"):
        decode(Subagent(), raw)
