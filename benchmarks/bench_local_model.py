"""How soon the embedded model says its first word: through our child process, beside the runtime alone.

Baseline: the same runtime, weights and question inside this process, without HTTP, child or SDK.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import anthropic
import xllamacpp

from bareagent.provider import local

QUESTIONS = ("Say hello.", "Name a colour.", "What is a file?", "Count to three.", "Say goodbye.")
MAX_TOKENS = 48


def median(times: Sequence[float]) -> float:
    return round(statistics.median(times), 3)


async def ours(weights: local.Weights) -> dict[str, float]:
    began = time.perf_counter()
    async with local.LocalModel(weights) as model:
        endpoint = await model.ready()
        loaded = time.perf_counter() - began
        async with anthropic.AsyncAnthropic(base_url=endpoint.base_url, api_key=endpoint.api_key) as sdk:
            runs = [await ask(sdk, endpoint.model, weights.system, question) for question in QUESTIONS]
    return {
        "load_s": round(loaded, 3),
        "first_question_first_word_s": round(runs[0][0], 3),
        "first_word_s": median([first for first, _ in runs]),
        "tokens_per_s": median([rate for _, rate in runs]),
    }


async def ask(sdk: anthropic.AsyncAnthropic, model: str, system: str, question: str) -> tuple[float, float]:
    """Seconds to the first word, and tokens per second from there."""
    began = time.perf_counter()
    first = 0.0
    async with sdk.messages.stream(
        model=model,
        system=system,
        max_tokens=MAX_TOKENS,
        messages=[{"role": "user", "content": question}],
    ) as stream:
        async for _ in stream.text_stream:
            first = first or time.perf_counter() - began
        n_tokens = (await stream.get_final_message()).usage.output_tokens
    return first, n_tokens / max(time.perf_counter() - began - first, 1e-9)


def alone(weights: local.Weights) -> dict[str, float]:
    began = time.perf_counter()
    params = xllamacpp.CommonParams()
    params.model.path = str(weights.path)
    params.n_ctx = 8192
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = max(1, (os.cpu_count() or 2) - 1)
    params.verbosity = 1
    server = xllamacpp.Server(params)
    loaded = time.perf_counter() - began
    return {"load_s": round(loaded, 3), "first_word_s": median([bare(server, weights, q) for q in QUESTIONS])}


def bare(server: Any, weights: local.Weights, question: str) -> float:
    """Seconds to the first token inside the process: an answer of one token."""
    began = time.perf_counter()
    messages = [{"role": "system", "content": weights.system}, {"role": "user", "content": question}]
    server.handle_chat_completions({"messages": messages, "max_tokens": 1})
    return time.perf_counter() - began


def main() -> None:
    if not local.is_demo_ready():
        sys.exit("the runtime or the weights of the embedded model are not installed")
    weights = local.weights()
    result = {"bench": "local_model", "ours": asyncio.run(ours(weights)), "baseline": alone(weights)}
    result["aim"] = {"first_word_s": 2.0}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
