"""Long texts in the user's pager."""

import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bareagent.sanitize import clean


def command(env: Mapping[str, str] = os.environ) -> list[str]:
    """Return the pager to use; empty where there is none."""
    try:
        wanted = shlex.split(env.get("PAGER", ""))
    except ValueError:
        wanted = []
    for words in (wanted, ["less", "-R"], ["more"]):
        if words and shutil.which(words[0]):
            return words
    return []


def page(text: str, title: str, run: Callable[[Sequence[str], Mapping[str, str]], int]) -> None:
    """Show a text in the pager, which `run` starts, and wait until it is left."""
    words = command()
    body = clean(f"{title}\n\n{text}" if title else text)
    with tempfile.TemporaryDirectory(prefix="bareagent-") as folder:
        path = Path(folder) / "text"
        path.write_text(body.rstrip("\n") + "\n", encoding="utf-8", errors="replace")
        run([*words, str(path)], {**os.environ, "LESSSECURE": "1"})
