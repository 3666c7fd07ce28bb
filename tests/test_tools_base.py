"""What all tools share: schemas, checked arguments, paths, the cap on results."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bareagent.config import Config
from bareagent.entries import ToolSpec
from bareagent.seams import Output
from bareagent.tools import standard_tools
from bareagent.tools.base import BadArguments, ToolError, cap, decode, fit, resolve
from bareagent.tools.skills import LoadSkill
from bareagent.tools.subagent import Subagent
from bareagent.toolspec import spec
from tests.tool_bench import TOOLS, Bench, with_tools

GOLDEN = Path(__file__).with_name("tools_as_sent.json")
TOKENS = 4000


def as_sent() -> str:
    """Give all tools as the model sees them; `python -m tests.test_tools_base` writes the file anew."""
    specs = [spec(tool) for tool in [*standard_tools(Config()), LoadSkill(), Subagent()]]
    return json.dumps([_plain(one) for one in specs], indent=1, ensure_ascii=False) + "\n"


def _plain(one: ToolSpec) -> dict[str, Any]:
    return {"name": one.name, "description": one.description, "input_schema": one.input_schema}


def test_every_change_of_a_text_or_schema_shows() -> None:
    assert as_sent() == GOLDEN.read_text(encoding="utf-8")


def test_schemas_are_the_same_bytes_each_time_and_hold_no_references() -> None:
    assert as_sent() == as_sent()
    assert "$ref" not in as_sent()
    for tool in standard_tools(Config()):
        schema = spec(tool).input_schema
        assert schema["type"] == "object"
        assert list(schema["properties"]) == list(tool.params.__struct_fields__)


def test_all_tools_together_are_short() -> None:
    compact = json.dumps(json.loads(as_sent()), separators=(",", ":"))
    assert len(compact) / 3.5 < TOKENS * 0.75, "the rest is for the system prompt"


BAD: list[tuple[str, object, list[str]]] = [
    ("bash", {}, ["missing parameter", "command", "required"]),
    ("bash", {"command": None}, ["`command`", "null"]),
    ("bash", {"command": 5}, ["`command`", "`str`", "`int`"]),
    ("bash", {"command": "x", "timeout": 5}, ["unknown parameter `timeout`", "timeout_s"]),
    ("bash", {"command": "x", "timeout_s": -1}, ["`timeout_s`"]),
    ("bash", {"command": "x", "timeout_s": "5"}, ["`timeout_s`", "`str`"]),
    ("bash", ["ls"], ["`object`", "`array`"]),
    ("bash", None, ["`null`"]),
    ("read_file", {"file_path": "a", "offset": 0}, ["`offset`", ">= 1"]),
    ("read_file", {"file_path": "a", "limit": 2.5}, ["`limit`"]),
    ("read_file", {"file_path": ""}, ["`file_path`"]),
    ("edit_file", {"file_path": "a", "edits": [{"old_text": "a"}]}, ["edits[0]", "new_text"]),
    ("grep", {"pattern": "x", "output_mode": "lines"}, ["`output_mode`", "files_with_matches"]),
    ("todo_write", {"items": [{"text": "x", "status": "done"}]}, ["items[0].status", "done"]),
    ("todo_write", {"items": [{"text": "x"}] * 51}, ["`items`", "50"]),
]


@pytest.mark.parametrize(("name", "raw", "words"), BAD)
def test_bad_arguments_are_named_with_what_is_expected(name: str, raw: object, words: list[str]) -> None:
    with pytest.raises(BadArguments) as caught:
        decode(TOOLS[name], raw)
    text = str(caught.value)
    assert all(word in text for word in [name, *words]), text
    assert len(text) < 400


NAMES = sorted({name for tool in TOOLS.values() for name in tool.params.__struct_fields__})
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "x", "\ud800", "\0"])


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(st.sampled_from([*NAMES, "other"]), VALUES | st.lists(VALUES, max_size=2), max_size=4))
def test_no_arguments_at_all_break_the_border(raw: dict[str, object]) -> None:
    for tool in TOOLS.values():
        with contextlib.suppress(BadArguments):
            assert isinstance(decode(tool, raw), tool.params)


@settings(deadline=None)
@given(st.text(alphabet="ab\n", max_size=3000), st.integers(600, 1500), st.booleans())
def test_a_capped_text_is_head_and_tail_within_the_limit(text: str, limit: int, is_stored: bool) -> None:
    stored = Path("/s/outputs/r17.txt") if is_stored else None
    capped = cap(text, limit, stored, handle="r17")
    if len(text) <= limit:
        assert capped == text
        return
    head, gap, tail = capped.partition("\n\n[... ")
    missing = int(gap and tail.partition(" ")[0].replace(",", ""))
    tail = tail.partition(" ...]\n\n")[2]
    assert len(capped) <= limit
    assert text.startswith(head)
    assert text.endswith(tail)
    assert missing == len(text) - len(head) - len(tail)
    assert ("/s/outputs/r17.txt" in capped) == is_stored


async def test_a_long_result_is_stored_and_can_be_read_on_as_the_hint_says(tmp_path: Path) -> None:
    bench = Bench(tmp_path, outputs=tmp_path / "outputs")
    text = "".join(chr(97 + i % 26) for i in range(135_000))
    output = fit(bench.ctx, Output(text=text), "r17.2")
    stored = tmp_path / "outputs" / "r17.2.txt"
    assert len(output.text) <= 30_000
    assert str(stored) in output.text
    assert stored.stat().st_mode & 0o777 == 0o600
    assert stored.read_text() == text
    rest, column = "", 1
    while column:
        part = await bench.text("read_file", file_path=str(stored), column=column + 1)
        line, _, note = part.removeprefix("1: ").rpartition("\n")
        rest += line
        column = int(note.partition("column=")[2].split()[0].rstrip("]")) - 1 if "column=" in note else 0
    assert rest == text[1:]


@pytest.mark.parametrize("text", ["", " \n\t", "\n"])
def test_an_empty_result_says_so(tmp_path: Path, text: str) -> None:
    assert fit(Bench(tmp_path).ctx, Output(text=text), "r1").text == "(no output)"


def test_paths_lead_to_the_end_of_every_link_and_stay_as_judged(tmp_path: Path) -> None:
    ctx = Bench(tmp_path).of_call("read_file", {})
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real")
    first = resolve(ctx, "link/../link/./a.txt")
    assert first == tmp_path / "real" / "a.txt"
    link.unlink()
    link.symlink_to("/etc")
    assert resolve(ctx, "link/../link/./a.txt") == first
    assert resolve(Bench(tmp_path).ctx, "link/passwd") == Path("/etc/passwd")
    assert resolve(ctx, "~") == Path.home().resolve()


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_a_path_no_file_can_have_is_an_error_of_the_tool(tmp_path: Path, path: str) -> None:
    with pytest.raises(ToolError):
        resolve(Bench(tmp_path).ctx, path)


def test_the_cap_follows_the_setting(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.ctx.config = with_tools(Config(), max_result_chars=1000)
    assert len(fit(bench.ctx, Output(text="x" * 5000), "r1").text) <= 1000


if __name__ == "__main__":
    GOLDEN.write_text(as_sent(), encoding="utf-8")
