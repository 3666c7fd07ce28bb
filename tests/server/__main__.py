"""`python -m tests.server script.json`: the server for trying a client by hand."""

import argparse
import json
import sys
import threading
from pathlib import Path

from tests.server.script import load
from tests.server.server import serve


def main(args: list[str] | None = None) -> int:
    """Serve a script until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tests.server", description=__doc__)
    parser.add_argument("script", nargs="?", type=Path, help="steps; without it, every line echoes")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--models", type=Path, help="JSON: a list of models to add or replace")
    parser.add_argument("--log", type=Path, help="append one JSON line for each request")
    given = parser.parse_args(args)
    steps, options = load(given.script) if given.script else ([], {"default": "echo"})
    if given.models:
        options["models"] = json.loads(given.models.read_text(encoding="utf-8"))
    options.update(port=given.port, log=given.log, strict=False)
    with serve(steps, **options) as server:
        for name, value in server.env.items():
            sys.stdout.write(f"export {name}={value}\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            sys.stderr.write("\n".join([f"{len(server.requests)} requests", *server.problems, ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
