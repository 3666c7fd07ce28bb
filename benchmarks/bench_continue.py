"""How long `bareagent --continue` takes on a session of 50 MB, against an empty start of the same run.

Measured in a pseudo-terminal: until the prompt stands, until a key typed there echoes, and until the
program behind it is ready (an empty start: its greeting stands; a continued one: the last exchanges).
Medians of rounds in which both take turns, in seconds; `rows_shown` is what the screen got of the session.
"""

import json
import tempfile
from pathlib import Path

from benchmarks.bench_resume import small_entries, write
from benchmarks.bench_start import Child, medians
from tests.program import PROGRAM, environment
from tests.server.server import serve

N_ENTRIES = 90_000
READY_EMPTY, READY_PAST = b"/help lists", b"the last exchanges"


class Start:
    """A way to start the program in a folder."""

    def __init__(self, cwd: Path, env: dict[str, str], arguments: list[str], ready: bytes) -> None:
        self.cwd, self.env, self.arguments, self.ready = cwd, env, arguments, ready
        self.shown = b""

    def prompt(self) -> float:
        """Until the prompt stands."""
        return self._until(b"bareagent>")

    def echo(self) -> float:
        """Until a key typed as soon as the prompt stands is echoed."""
        child = Child([*PROGRAM, *self.arguments], self.cwd, self.env)
        child.until(b"bareagent>")
        child.send(b"Q")
        seconds = child.until(b"Q")
        child.end()
        return seconds

    def behind(self) -> float:
        """Until the program behind the prompt is ready."""
        return self._until(self.ready)

    def _until(self, wanted: bytes) -> float:
        child = Child([*PROGRAM, *self.arguments], self.cwd, self.env)
        seconds = child.until(wanted)
        self.shown = child.seen
        child.end()
        return seconds


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, serve([], default="ANSWERED") as server:
        empty, full = Path(folder, "empty"), Path(folder, "full")
        session = full / ".transcripts" / "20261130-014853-k3f7"
        for each in (empty, session):
            each.mkdir(parents=True)
        write(session / "log.jsonl", small_entries(N_ENTRIES))
        env = environment(Path(folder, "home"), server, PYTHONPATH=str(Path.cwd()))
        new = Start(empty, env, [], READY_EMPTY)
        old = Start(full, env, ["--continue"], READY_PAST)
        found = medians(
            {
                "empty_prompt_s": new.prompt,
                "continue_prompt_s": old.prompt,
                "empty_echo_s": new.echo,
                "continue_echo_s": old.echo,
                "empty_ready_s": new.behind,
                "continue_ready_s": old.behind,
            }
        )
        log_mb = (session / "log.jsonl").stat().st_size / 1e6
    figures: dict[str, float] = {"log_mb": log_mb, **found}
    for what in ("prompt", "echo", "ready"):
        figures[f"{what}_ratio"] = found[f"continue_{what}_s"] / found[f"empty_{what}_s"]
    figures |= {"ratio_allowed": 2.0, "rows_shown": old.shown.count(b"\n")}
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}, indent=1))


if __name__ == "__main__":
    main()
