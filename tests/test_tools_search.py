"""glob and grep: the same answers with and without ripgrep."""

import asyncio
import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from bareagent.tools.base import ToolError
from tests.tool_bench import Bench

RG = shutil.which("rg") or shutil.which("rg", path=str(Path(sys.executable).parent))
FILES = {
    ".gitignore": "*.log\nbuild/\n!keep.log\n",
    ".github/workflow.yml": "name: needle\n",
    "a.py": "import os\nneedle = 1\nx = 2\ny = 3\nNeedle = 4\n",
    "b.ts": "needle\r\nother\r\n",
    "noise.log": "needle\n",
    "keep.log": "needle\n",
    "build/out.py": "needle\n",
    "src/c.py": "no\n",
    "src/deep/d.py": "a needle here\n",
    "src/deep/.gitignore": "/secret.py\n",
    "src/deep/secret.py": "needle\n",
    "src/secret.py": "needle\n",
    ".env": "KEY=needle\n",
    "bin.dat": "needle\0\n",
    "long.txt": "x" * 3000 + " needle\n",
}


@pytest.fixture(params=["rg", "python"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    if request.param == "rg" and not RG:
        pytest.skip("rg is not here")
    for name, content in FILES.items():
        path = tmp_path / "ws" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode())
    (tmp_path / "ws" / "link").symlink_to(tmp_path)
    environ = {**os.environ, "BAREAGENT_RG": str(RG) if request.param == "rg" else "none"}
    return Bench(tmp_path / "ws", environ=environ)


ALL_PYTHON = "a.py\nsrc/c.py\nsrc/deep/d.py\nsrc/secret.py"


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.py", ".", ALL_PYTHON),
        ("**/*.py", ".", ALL_PYTHON),
        ("src/*.py", ".", "src/c.py\nsrc/secret.py"),
        ("*.{py,ts}", ".", "a.py\nb.ts\nsrc/c.py\nsrc/deep/d.py\nsrc/secret.py"),
        ("*.py", "src/deep", "src/deep/d.py"),
        ("deep/**", "src", "src/deep/.gitignore\nsrc/deep/d.py"),
        ("*.log", ".", "keep.log"),
        ("*.yml", ".", ".github/workflow.yml"),
        ("*.rs", ".", "No files fit."),
    ],
)
async def test_glob_lists_what_fits_in_order(bench: Bench, pattern: str, path: str, expected: str) -> None:
    assert await bench.text("glob", pattern=pattern, path=path) == expected


async def test_glob_takes_a_whole_path_as_pattern(bench: Bench) -> None:
    assert await bench.text("glob", pattern=f"{bench.ctx.cwd}/src/*.py") == "src/c.py\nsrc/secret.py"


async def test_grep_shows_lines_under_their_paths(bench: Bench) -> None:
    assert await bench.text("grep", pattern="needle", include="*.py") == (
        "a.py\n2: needle = 1\nsrc/deep/d.py\n1: a needle here\nsrc/secret.py\n1: needle"
    )
    assert await bench.text("grep", pattern="needle", path="b.ts") == "b.ts\n1: needle"
    assert await bench.text("grep", pattern="needle", path="src/deep") == "src/deep/d.py\n1: a needle here"


async def test_ignored_and_binary_files_and_key_files_are_left_out(bench: Bench) -> None:
    text = await bench.text("grep", pattern="needle", output_mode="files_with_matches")
    names, _, note = text.partition("\n[")
    assert names.split("\n") == [
        ".github/workflow.yml", "a.py", "b.ts", "keep.log", "long.txt", "src/deep/d.py", "src/secret.py",
    ]  # fmt: skip
    assert "1 file that may hold keys left out: .env" in note
    assert "KEY=needle" in await bench.text("grep", pattern="needle", path=".env")
    assert await bench.text("grep", pattern="needle", include="*.log") == "keep.log\n1: needle"


async def test_counts_context_case_and_path_filters(bench: Bench) -> None:
    assert await bench.text("grep", pattern="needle", path="a.py", output_mode="count", ignore_case=True) == (
        "a.py: 2"
    )
    assert await bench.text("grep", pattern="needle", path="a.py", context=1, ignore_case=True) == (
        "a.py\n1- import os\n2: needle = 1\n3- x = 2\n4- y = 3\n5: Needle = 4"
    )
    assert await bench.text("grep", pattern="^(import|Needle)", path="a.py", context=0) == (
        "a.py\n1: import os\n5: Needle = 4"
    )
    assert await bench.text("grep", pattern="import os|Needle", path="a.py", context=1) == (
        "a.py\n1: import os\n2- needle = 1\n--\n4- y = 3\n5: Needle = 4"
    )
    text = await bench.text("grep", pattern="needle", include="src/**/*.py", output_mode="files_with_matches")
    assert text == "src/deep/d.py\nsrc/secret.py"
    both = await bench.text("grep", pattern="needle", include="*.{py,ts}", output_mode="files_with_matches")
    assert both == "a.py\nb.ts\nsrc/deep/d.py\nsrc/secret.py"


async def test_long_lines_are_cut_and_caps_say_how_many_more(bench: Bench) -> None:
    (bench.ctx.cwd / "many.txt").write_text("hit\n" * 1000)
    text = await bench.text("grep", pattern="hit", limit=5)
    assert text.count(": hit") == 5
    assert "[995 more lines found" in text
    text = await bench.text("grep", pattern="needle", path="long.txt")
    assert len(text) < 700
    for i in range(1100):
        (bench.ctx.cwd / f"n{i}.rs").touch()
    assert "[100 more; narrow" in await bench.text("glob", pattern="*.rs")
    text = await bench.text("grep", pattern="hit|needle", output_mode="files_with_matches", limit=2)
    assert "more files found" in text


async def test_what_is_odd_is_text_not_an_option(bench: Bench) -> None:
    (bench.ctx.cwd / "-rf").write_text("-e dash\n")
    assert await bench.text("grep", pattern="-e", path="-rf") == "-rf\n1: -e dash"
    assert "-rf" in await bench.text("grep", pattern="--help|dash")
    assert await bench.text("grep", pattern="zzz") == "No matches."


async def test_bad_patterns_and_places_are_told(bench: Bench) -> None:
    with pytest.raises(ToolError, match="regex parse error"):
        await bench.text("grep", pattern="(")
    with pytest.raises(ToolError, match="no file or folder"):
        await bench.text("grep", pattern="x", path="none")
    with pytest.raises(ToolError, match="not a folder"):
        await bench.text("glob", pattern="*", path="a.py")
    with pytest.raises(ToolError, match="neither"):
        await bench.text("grep", pattern="x", path="/dev/zero")


async def test_names_that_are_no_text_break_nothing(bench: Bench) -> None:
    (bench.ctx.cwd / os.fsdecode(b"bad\xff.txt")).write_bytes(b"needle \xff\n")
    assert "bad\ufffd.txt\n1: needle \ufffd" in await bench.text("grep", pattern="needle", include="bad*")
    assert await bench.text("glob", pattern="bad*") == "bad\ufffd.txt"


async def test_a_search_without_end_is_ended_when_cancelled(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a" * 40 + "b\n")
    bench = Bench(tmp_path, environ={**os.environ, "BAREAGENT_RG": "none"})
    task = asyncio.create_task(bench.text("grep", pattern="(a+)+$"))
    await asyncio.sleep(1.0)
    assert not task.done()
    started = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - started < 3  # an endless search, otherwise
