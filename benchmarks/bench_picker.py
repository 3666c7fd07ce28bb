"""How long a list of 3,000 sessions takes, 20 of which are 200 MB each.

The list is made by the catalogue as `sessions list` makes it, warm (the second time), in a process of
its own; the baseline is a process that only imports what `--version` needs. Where the command line has
`sessions list`, that is timed, too. Seconds are the best of five. The large logs are sparse files: only
head and tail of each may be read, which `bytes_read` shows.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bareagent import platform
from bareagent.entries import MessageEntry, SessionStart, TurnEnd
from bareagent.messages import user
from bareagent.store.catalogue import Catalogue
from bareagent.store.lines import encode_body, encode_line

N_SESSIONS = 3_000
N_LARGE = 20
LARGE_BYTES = 200_000_000
AT = "2026-11-30T01:48:53.120Z"


def make_sessions(home: Path) -> None:
    """Write all sessions; a large one has its 200 MB between head and tail."""
    for k in range(N_SESSIONS):
        name = f"20261130-{k // 3600:02}{k // 60 % 60:02}{k % 60:02}-aaaa"
        folder = home / name
        folder.mkdir(parents=True)
        head = encode_line(encode_body(SessionStart(id=name, cwd="/", created=AT)), 1, AT)
        head += encode_line(encode_body(MessageEntry(message=user(f"line {k}"), kind="line")), 2, AT)
        card = TurnEnd(name=f"session {k}", first_line=f"line {k}", turns=k, tokens=9 * k, cost_usd=0.01 * k)
        with (folder / "log.jsonl").open("wb") as file:
            file.write(head)
            if k % (N_SESSIONS // N_LARGE) == 0:
                file.truncate(LARGE_BYTES)
                file.seek(LARGE_BYTES)
                file.write(b"\n")
            file.write(encode_line(encode_body(card), 3, AT))


def measured_list(home: Path, user_dir: Path) -> dict[str, float]:
    """List once; run in a fresh process."""
    start = time.perf_counter()
    catalogue = Catalogue(user_dir)
    cards = catalogue.cards(home)
    catalogue.close()
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "sessions": len(cards),
        "bytes_read": bytes_read(),
        "peak_mb": platform.peak_memory_bytes() / 1e6,
    }


def bytes_read() -> int:
    """What this process has read by system calls so far; 0 where the system does not say."""
    path = Path("/proc/self/io")
    if not path.exists():
        return 0
    return int(path.read_text().split("rchar: ")[1].split()[0])


def timed(command: list[str]) -> tuple[float, str]:
    """Return the best of five and the last output."""
    best, output = float("inf"), ""
    for _ in range(5):
        start = time.perf_counter()
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        best = min(best, time.perf_counter() - start)
    return best, output


def main() -> None:
    if len(sys.argv) == 3:
        print(json.dumps(measured_list(Path(sys.argv[1]), Path(sys.argv[2]))))
        return
    with tempfile.TemporaryDirectory() as base:
        home, user_dir = Path(base, ".transcripts"), Path(base, "data")
        make_sessions(home)
        this = [sys.executable, "-m", "benchmarks.bench_picker", str(home), str(user_dir)]
        cold = json.loads(subprocess.run(this, capture_output=True, text=True, check=True).stdout)
        warm = min((json.loads(timed(this)[1]) for _ in range(3)), key=lambda run: run["seconds"])
        report = {
            "cold_list_s": round(cold["seconds"], 3),
            "cold_mb_read": round(cold["bytes_read"] / 1e6, 1),
            "warm_list_s": round(warm["seconds"], 3),
            "warm_mb_read": round(warm["bytes_read"] / 1e6, 1),
            "peak_mb": round(max(cold["peak_mb"], warm["peak_mb"]), 1),
            "peak_allowed_mb": 100,
            "sessions": warm["sessions"],
        }
        report.update(command_line(base))
        print(json.dumps(report, indent=2))


def command_line(base: str) -> dict[str, float]:
    """Time the program itself: `--version` and `sessions list`."""
    os.environ.update(HOME=base, XDG_DATA_HOME=f"{base}/data", XDG_CONFIG_HOME=f"{base}/config")
    os.environ["PYTHONPATH"] = str(Path.cwd())
    os.chdir(base)
    program = [sys.executable, "-m", "bareagent"]
    listing = [*program, "sessions", "list"]
    if subprocess.run(listing, capture_output=True, check=False).returncode:
        return {}
    version_s, list_s = timed([*program, "--version"])[0], timed(listing)[0]
    return {
        "version_s": round(version_s, 3),
        "sessions_list_s": round(list_s, 3),
        "over_version_s": round(list_s - version_s, 3),
        "over_version_allowed_s": 0.15,
    }


if __name__ == "__main__":
    main()
