"""read_file and write_file on real files."""

import asyncio
import base64
import os
import struct
import threading
import zlib
from importlib.util import find_spec
from pathlib import Path

import pytest

from bareagent.tools.base import ToolError
from tests.tool_bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + bytes(width) for _ in range(height)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


async def test_lines_are_numbered_from_one(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("[provider]\n\n  name = 1")
    assert await bench.text("read_file", file_path="a.txt") == "1: [provider]\n2: \n3:   name = 1"
    assert await bench.text("read_file", file_path=str(tmp_path / "a.txt"), offset=2, limit=1) == (
        "2: \n[lines 2-2 of 3; offset=3 reads on]"
    )
    with pytest.raises(ToolError, match="only 3 lines"):
        await bench.text("read_file", file_path="a.txt", offset=4)
    (tmp_path / "empty").touch()
    assert await bench.text("read_file", file_path="empty") == "(empty is empty)"


async def test_a_large_file_is_read_to_its_end_as_the_notes_say(bench: Bench, tmp_path: Path) -> None:
    lines = [f"{i} " + "x" * (i % 150) for i in range(1, 6001)]
    (tmp_path / "big").write_text("\n".join(lines) + "\n")
    offset, seen = 1, []
    while offset:
        text = await bench.text("read_file", file_path="big", offset=offset)
        assert len(text) < 28_200
        *shown, last = text.split("\n")
        if not last.startswith("[lines "):
            shown.append(last)
        seen += [line.partition(": ")[2] for line in shown]
        offset = int(last.partition("offset=")[2].split()[0]) if "offset=" in last else 0
    assert seen == lines


async def test_a_line_of_megabytes_is_read_in_slices(bench: Bench, tmp_path: Path) -> None:
    line = "".join(f"{i:07d}é" for i in range(250_000))
    (tmp_path / "one").write_text(f"first\n{line}\nlast\n")
    text = await bench.text("read_file", file_path="one")
    assert text.startswith("1: first\n2: 0000000é")
    assert "offset=2, column=2001 reads on" in text
    assert text.endswith("3: last")
    column = len(line) - 50
    part = await bench.text("read_file", file_path="one", offset=2, column=column)
    assert part == f"2: {line[column - 1 :]}\n[end of line 2]"
    middle = await bench.text("read_file", file_path="one", offset=2, column=2001)
    shown, _, note = middle.partition("\n")
    assert shown == f"2: {line[2000:30000]}"
    assert "column=30001 reads on" in note
    with pytest.raises(ToolError, match="ends before column"):
        await bench.text("read_file", file_path="one", offset=1, column=7)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
async def test_marks_tell_the_encoding(bench: Bench, tmp_path: Path, encoding: str) -> None:
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    (tmp_path / "a").write_bytes(mark + "héllo 你\r\nb".encode(encoding))
    assert await bench.text("read_file", file_path="a") == "1: héllo 你\n2: b"


async def test_other_bytes_are_replaced_and_a_note_says_so(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("grün\n".encode("latin-1"))
    text = await bench.text("read_file", file_path="a")
    assert text.startswith("1: gr\ufffdn\n[U+FFFD stands for")


@pytest.mark.parametrize(
    ("data", "kind"), [(b"\x7fELF\0\0", "ELF"), (b"PK\x03\x04\0", "zip"), (b"ab\0c", "binary")]
)
async def test_binary_is_refused_with_its_size_and_type(
    bench: Bench, tmp_path: Path, data: bytes, kind: str
) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(ToolError, match=rf"{kind}.*, {len(data)} bytes"):
        await bench.text("read_file", file_path="a")


async def test_what_is_no_file_is_refused_without_waiting(bench: Bench, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path, word in [("fifo", "FIFO"), ("/dev/zero", "device"), (".", "folder"), ("none/x", "no file")]:
        with pytest.raises(ToolError, match=word):
            await asyncio.wait_for(bench.text("read_file", file_path=path), 5)
        with pytest.raises(ToolError):
            await asyncio.wait_for(bench.text("edit_file", file_path=path, old_text="a", new_text="b"), 5)
    for path in ["fifo", "/dev/null", "."]:
        with pytest.raises(ToolError):
            await asyncio.wait_for(bench.text("write_file", file_path=path, content="x"), 5)


async def test_a_missing_file_names_its_like(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "Config.TOML").touch()
    with pytest.raises(ToolError, match=r"There is Config\.TOML"):
        await bench.text("read_file", file_path="config.toml")


async def test_images_are_blocks(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(png(30, 20))
    output = await bench.output("read_file", file_path="a.bin")
    assert "image/png, 30x20" in output.text
    (block,) = output.blocks
    assert block["source"]["media_type"] == "image/png"
    assert base64.b64decode(block["source"]["data"]) == png(30, 20)


async def test_an_image_over_the_limits_is_scaled_or_refused(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "wide.png").write_bytes(png(9000, 10))
    if find_spec("PIL") is None:
        with pytest.raises(ToolError, match="images"):
            await bench.output("read_file", file_path="wide.png")
        return
    output = await bench.output("read_file", file_path="wide.png")
    assert "image/jpeg, 1568x2, scaled from 9000x10" in output.text


async def test_an_image_that_is_none_is_an_error(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(ToolError, match="size cannot be read"):
        await bench.output("read_file", file_path="a.png")


async def test_a_file_is_made_with_its_folders(bench: Bench, tmp_path: Path) -> None:
    output = await bench.output("write_file", file_path="new/deep/a.txt", content="one\ntwo\n")
    assert (tmp_path / "new/deep/a.txt").read_text() == "one\ntwo\n"
    assert output.shown_as == "diff"
    assert output.shown == "@@ -0,0 +1,2 @@\n+one\n+two"
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "new/deep/a.txt").stat().st_mode & 0o777 == 0o666 & ~mask
    assert [path.name for path in (tmp_path / "new/deep").iterdir()] == ["a.txt"]


async def test_a_file_must_be_read_before_it_is_replaced(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("mine\n")
    with pytest.raises(ToolError, match="not read"):
        await bench.text("write_file", file_path="a.txt", content="new\n")
    await bench.text("read_file", file_path="a.txt")
    path.write_text("theirs\n")
    with pytest.raises(ToolError, match="changed since"):
        await bench.text("write_file", file_path="a.txt", content="new\n")
    assert path.read_text() == "theirs\n"
    await bench.text("read_file", file_path="a.txt")
    os.utime(path, (1, 1))
    output = await bench.output("write_file", file_path="a.txt", content="new\n")
    assert output.shown == "@@ -1 +1 @@\n-theirs\n+new"
    await bench.text("write_file", file_path="a.txt", content="newer\n")
    assert path.read_text() == "newer\n"
    assert "nothing was written" in await bench.text("write_file", file_path="a.txt", content="newer\n")


async def test_line_ends_mark_mode_and_owner_stay(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    path.chmod(0o4751)
    if os.getuid() == 0:
        os.chown(path, 1234, 4321)
        path.chmod(0o4751)
    before = path.stat()
    await bench.text("read_file", file_path="a.txt")
    await bench.text("write_file", file_path="a.txt", content="one\nthree\n")
    assert path.read_bytes() == b"\xef\xbb\xbfone\r\nthree\r\n"
    await bench.text("edit_file", file_path="a.txt", old_text="three", new_text="2\n3")
    assert path.read_bytes() == b"\xef\xbb\xbfone\r\n2\r\n3\r\n"
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


async def test_links_are_followed_inside_the_workspace_only(tmp_path: Path) -> None:
    root, outside = tmp_path / "ws", tmp_path / "out"
    root.mkdir()
    outside.mkdir()
    (outside / "f").write_text("secret\n")
    (root / "real").write_text("a\n")
    (root / "inner").symlink_to("real")
    (root / "file").symlink_to(outside / "f")
    (root / "dir").symlink_to(outside)
    (root / "dangling").symlink_to(outside / "new")
    bench = Bench(root)
    await bench.text("edit_file", file_path="inner", old_text="a", new_text="b")
    assert (root / "inner").is_symlink()
    assert (root / "real").read_text() == "b\n"
    for name in ["file", "dir/f", "dangling", "dir/x/y", "sub/../file"]:
        await bench.text("read_file", file_path=str(outside / "f"))
        with pytest.raises(ToolError, match="out of the workspace"):
            await bench.text("write_file", file_path=name, content="x")
        if not name.startswith("d"):
            with pytest.raises(ToolError, match="out of the workspace"):
                await bench.text("edit_file", file_path=name, old_text="secret", new_text="x")
    assert list(outside.iterdir()) == [outside / "f"]
    assert (outside / "f").read_text() == "secret\n"


async def test_a_link_put_in_place_after_the_judgement_is_not_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "ws", tmp_path / "out"
    (root / "sub").mkdir(parents=True)
    outside.mkdir()
    (root / "sub" / "f").write_text("mine\n")
    (outside / "f").write_text("secret\n")
    bench = Bench(root)
    from tests.tool_bench import TOOLS

    for name, more in [
        ("read_file", {}),
        ("write_file", {"content": "x"}),
        ("edit_file", {"old_text": "secret"}),
    ]:
        tool = TOOLS[name]
        ctx = bench.of_call(name, {})
        params = tool.params(file_path="sub/f", **more)
        (need,) = tool.needs(params, ctx)
        assert need.target == str(root / "sub" / "f")
        (root / "sub").rename(root / "kept")
        (root / "sub").symlink_to(outside)
        with pytest.raises(ToolError):
            await tool.run(params, ctx)
        (root / "sub").unlink()
        (root / "kept").rename(root / "sub")
    assert (outside / "f").read_text() == "secret\n"


async def test_a_file_is_never_seen_half_written(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    contents = {c: c * 300_000 for c in "ab"}
    path.write_text(contents["a"])
    await bench.text("read_file", file_path="a.txt")
    seen: set[str] = set()
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            seen.add(path.read_text())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for i in range(20):
            await bench.text("write_file", file_path="a.txt", content=contents["ba"[i % 2]])
    finally:
        stop.set()
        watcher.join()
    assert seen <= set(contents.values())


async def test_a_large_diff_neither_stops_the_clock_nor_fills_the_screen(
    bench: Bench, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("".join(f"line {i}\n" for i in range(50_000)))
    await bench.text("read_file", file_path="a")
    content = "".join(f"other {i * 7 % 50_000}\n" for i in range(50_000))
    task = asyncio.create_task(bench.output("write_file", file_path="a", content=content))
    loop = asyncio.get_running_loop()
    longest = 0.0
    while not task.done():
        before = loop.time()
        await asyncio.sleep(0.001)
        longest = max(longest, loop.time() - before)
    output = task.result()
    assert longest < 0.5
    assert output.shown.count("\n") < 410
    assert "49,800 more lines" in output.shown


async def test_a_write_protected_file_stays(bench: Bench, tmp_path: Path) -> None:
    if os.getuid() == 0:
        pytest.skip("root writes everywhere")
    path = tmp_path / "a"
    path.write_text("x\n")
    path.chmod(0o444)
    with pytest.raises(ToolError, match="write-protected"):
        await bench.text("edit_file", file_path="a", old_text="x", new_text="y")
    assert path.read_text() == "x\n"
