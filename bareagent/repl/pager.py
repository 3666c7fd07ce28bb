"""Long texts in the user's pager."""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
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


def page(text: str, title: str = "") -> None:
    """Show a text in the pager and wait until it is left."""
    words = command()
    body = clean(f"{title}\n\n{text}" if title else text)
    with tempfile.TemporaryDirectory(prefix="bareagent-") as folder:
        path = Path(folder) / "text"
        path.write_text(body.rstrip("\n") + "\n", encoding="utf-8", errors="replace")
        subprocess.run([*words, str(path)], check=False, env={**os.environ, "LESSSECURE": "1"})
