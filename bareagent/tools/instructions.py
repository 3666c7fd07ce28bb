"""Project instructions: AGENTS.md and kin, from the root to the working directory, and the user's own."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from bareagent.sanitize import clean
from bareagent.tools.sensitive import Places, is_inside, real, why_sensitive

NAMES = ("AGENTS.md", "CLAUDE.md", "BAREAGENT.md")
MAX_BYTES = 32 * 1024
"""All instructions together; what lies nearest to the working directory goes first."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One file's text, cleaned; `missing_bytes` were over the limit."""

    path: Path
    text: str
    missing_bytes: int = 0


class Instructions(msgspec.Struct, frozen=True, kw_only=True):
    """All sources, the user's own first, then from the root inward; `folders` are where they are sought."""

    sources: tuple[Source, ...] = ()
    folders: tuple[Path, ...] = ()
    root: Path = Path("/")

    def again(self) -> "Instructions":
        """Return what the same folders hold now."""
        return _loaded(self.folders, self.root)


def load(cwd: Path, root: Path, *, user_folder: Path | None = None, is_trusted: bool = True) -> Instructions:
    """Read the instructions that hold in a working directory; an untrusted project's are left out.

    A link that leads out of its folder's project, or to a key, is not followed.
    """
    own = [user_folder] if user_folder else []
    return _loaded((*own, *(_way(cwd, root) if is_trusted else ())), root)


def files(cwd: Path, root: Path) -> list[Path]:
    """Return the project's instruction files, as they would be used."""
    return [source.path for source in load(cwd, root).sources]


def _way(cwd: Path, root: Path) -> list[Path]:
    cwd, root = real(cwd) or cwd, real(root) or root
    if not is_inside(cwd, root):
        return [cwd]
    return [folder for folder in reversed((cwd, *cwd.parents)) if is_inside(folder, root)]


def _loaded(folders: Sequence[Path], root: Path) -> Instructions:
    found: dict[Path, Path] = {}
    for folder in folders:
        for path in (folder / name for name in NAMES):
            target = _usable(path, folder, root)
            if target is not None:
                found.setdefault(target, path)
    sources = _capped([(path, _read(target)) for target, path in found.items()])
    return Instructions(sources=tuple(sources), folders=tuple(folders), root=root)


def _usable(path: Path, folder: Path, root: Path) -> Path | None:
    """Return the real file; None for what is no file, lies elsewhere, or holds keys."""
    target = real(path)
    if target is None or not target.is_file():
        return None
    real_root, real_folder = real(root) or root, real(folder) or folder
    top = real_root if is_inside(real_folder, real_root) else real_folder
    places = Places(root=top, home=Path.home(), cwd=top)
    if not is_inside(target, top) or why_sensitive(target, places, is_write=False):
        return None
    return target


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(8 * MAX_BYTES)
    except OSError:
        return b""


def _capped(found: Sequence[tuple[Path, bytes]]) -> list[Source]:
    """Give room from the innermost file outward; equal texts count once."""
    room = MAX_BYTES
    taken: list[Source] = []
    seen: set[bytes] = set()
    for path, raw in reversed(found):
        data = raw.removeprefix(b"\xef\xbb\xbf").strip()
        if not data or data in seen:
            continue
        seen.add(data)
        kept = data[:room]
        room -= len(kept)
        text = clean(kept.decode(errors="ignore")).strip()
        taken.append(Source(path=path, text=text, missing_bytes=len(data) - len(kept)))
    return taken[::-1]


def as_text(instructions: Instructions) -> str:
    """Return the instructions as they stand in the system prompt; empty where there are none."""
    return "\n\n".join(map(_section, instructions.sources))


def _section(source: Source) -> str:
    rest = f"\n[{source.missing_bytes} bytes more did not fit; read the file]" if source.missing_bytes else ""
    return f'<instructions file="{_shown(source.path)}">\n{_harmless(source.text)}{rest}\n</instructions>'


def _shown(path: Path) -> str:
    return clean(str(path)).replace('"', "'").replace("\n", " ")


def _harmless(text: str) -> str:
    """A file cannot end its own section."""
    return text.replace("</instructions", "<\\/instructions")


def changed(since: Instructions) -> tuple[Instructions, str] | None:
    """Return the instructions as they are now and what to tell of the change; None if there is none."""
    now = since.again()
    before = {source.path: source for source in since.sources}
    after = {source.path: source for source in now.sources}
    if before == after:
        return None
    new = [_section(source) for path, source in after.items() if before.get(path) != source]
    gone = [f"{_shown(path)} no longer holds." for path in before if path not in after]
    text = "Project instructions changed on disk; these hold from here on, in place of the earlier ones:"
    return now, "\n\n".join([text, *new, *gone])
