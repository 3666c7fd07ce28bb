"""The child process that runs a model: `python -m bareagent.provider.local_server`.

It reads one JSON line on its standard input (what to run), writes one on its standard output (where
it listens, or why not), and ends when its standard input does: so it never outlives the program.
"""

import contextlib
import http.client
import json
import os
import signal
import sys
import threading
from typing import Any
from urllib.parse import urlsplit

LOG_ERRORS_ONLY = 1


def main() -> None:
    """Serve one model until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answer = _own_stdout()
    line = sys.stdin.buffer.readline()
    watch = threading.Thread(target=_end_with_parent, daemon=True)
    watch.start()
    try:
        order = json.loads(line)
        server = _serve(order)
        reply = {"base_url": server.listening_address, "window": _window(server, order["api_key"])}
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        reply = {"error": str(error)}
    with contextlib.suppress(OSError):
        os.write(answer, json.dumps(reply).encode() + b"\n")
    watch.join()


def _end_with_parent() -> None:
    """Wait for the end of standard input, then end: a plain exit would finish writing an answer first."""
    sys.stdin.buffer.read()
    os._exit(0)


def _own_stdout() -> int:
    """Keep standard output for the one line; what the runtime prints goes to standard error."""
    answer = os.dup(1)
    os.dup2(2, 1)
    return answer


def _serve(order: dict[str, Any]) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = order["model_file"]
    params.model_alias = {order["model"]}
    params.chat_template = order["template"]
    params.n_ctx = order["window"]
    params.n_parallel = 1
    # All cores can be ten times slower than all but one.
    n_threads = max(1, (os.cpu_count() or 2) - 1)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = n_threads
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [order["api_key"]]
    params.ui = False
    params.endpoint_slots = False
    params.verbosity = LOG_ERRORS_ONLY
    return xllamacpp.Server(params)


def _window(server: Any, api_key: str) -> int:
    """Ask the server for its window: it takes less than was ordered where the model has less."""
    address = urlsplit(server.listening_address)
    connection = http.client.HTTPConnection(address.hostname or "127.0.0.1", address.port, timeout=30)
    connection.request("GET", "/props", headers={"Authorization": f"Bearer {api_key}"})
    props = json.loads(connection.getresponse().read())
    connection.close()
    return int(props["default_generation_settings"]["n_ctx"])


if __name__ == "__main__":
    main()
