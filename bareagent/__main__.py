"""The program's start; `python -m bareagent` is the same as the command `bareagent`.

Only what Python itself has loaded is imported at the top: Ctrl-C is to end the start of the rest, too.
"""

import os
import signal
import sys
from types import FrameType

EXIT_INTERRUPTED = 130


def _leave(_number: int, _frame: FrameType | None) -> None:
    # Raised within an import, an exception would be told by a traceback, or swallowed.
    os._exit(EXIT_INTERRUPTED)


def main() -> None:
    """Run the program and leave with its exit code; Ctrl-C before it runs ends it quietly."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    try:
        if is_usual:
            signal.signal(signal.SIGINT, _leave)
        from bareagent.cli import main as run

        if is_usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
