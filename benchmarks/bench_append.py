"""What an append costs, from the first to the 100,000th: time to log, view and listeners in one session.

Messages of 315 characters go through the whole path (masking of secrets on) into a file. Processor time
is taken in batches of 500; after each batch the baseline runs, the same lines decoded 500 times, so
that a slower moment of the machine slows both. Reported is the median of each tenth of the run;
`growth` is append over baseline in the last tenth, divided by the same in the second.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bareagent.messages import user
from bareagent.session import Session
from bareagent.store.lines import decode
from bareagent.store.transcripts import TranscriptManager

N_APPENDS = 100_000
BATCH = 500


def microseconds(work: Callable[[], object]) -> float:
    """Return the processor time of one of a batch's calls."""
    start = time.process_time()
    for _ in range(BATCH):
        work()
    return (time.process_time() - start) / BATCH * 1e6


def by_tenth(values: list[float]) -> list[float]:
    """Return the median of each tenth."""
    size = len(values) // 10
    return [round(statistics.median(values[k * size : (k + 1) * size]), 1) for k in range(10)]


def main() -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 7
    message = user(text)
    appends, baseline = [], []
    with tempfile.TemporaryDirectory() as folder:
        session = Session.new(TranscriptManager(Path(folder), Path(folder, "data")), Path(folder))
        session.append(message, "line")
        line = Path(folder, ".transcripts", session.id, "log.jsonl").read_bytes().splitlines()[1]
        for _ in range(N_APPENDS // BATCH):
            appends.append(microseconds(lambda: session.append(message, "line")))
            baseline.append(microseconds(lambda: decode(line)))
        session.close()
    ratios = [a / b for a, b in zip(by_tenth(appends), by_tenth(baseline), strict=True)]
    report = {
        "appends": N_APPENDS,
        "append_us_by_tenth": by_tenth(appends),
        "decode_us_by_tenth": by_tenth(baseline),
        "growth": round(ratios[-1] / ratios[1], 2),
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
