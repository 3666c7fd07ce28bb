"""Sessions with texts and bills for the Meter's and survival's benchmarks: from a file, or made up."""

import json
import lzma
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from bareagent.messages import Message, text_block


class Billed(msgspec.Struct):
    """One message of a session; `prompt` and `output` are what a reply was billed (0: unknown).

    `is_marked`: the run that was recorded summarised or cleared before this message.
    """

    message: Message
    prompt: int = 0
    output: int = 0
    is_marked: bool = False


class Recorded(msgspec.Struct):
    """One session with its texts."""

    id: str
    model: str
    messages: list[Billed]


def read(path: Path) -> Iterator[Recorded]:
    """Yield the sessions of a JSON lines file, packed with xz or not."""
    with lzma.open(path, "rb") if path.suffix == ".xz" else path.open("rb") as file:
        for line in file:
            data = json.loads(line)
            yield Recorded(data["id"], data.get("model") or "", [_billed(one) for one in data["messages"]])


def _billed(raw: dict[str, Any]) -> Billed:
    usage = raw.get("usage") or {}
    return Billed(
        message={"role": raw["role"], "content": [_block(block) for block in raw["content"]]},
        prompt=usage.get("input") or 0,
        output=usage.get("output") or 0,
        is_marked=bool(raw.get("compaction") or raw.get("microcompaction")),
    )


def _block(block: dict[str, Any]) -> dict[str, Any]:
    if isinstance(block.get("content"), str):
        return {**block, "content": [text_block(block["content"])]}
    return block


_SENTENCE = """the parser reads a file and returns its tree when nothing fails else it raises an error that names
line and column config value user request server answer cache token module import class method test"""
_WORDS = _SENTENCE.split()


def generate(n: int, seed: int = 11) -> Iterator[Recorded]:
    """Yield made-up sessions of prose, code, listings and logs, with made-up bills."""
    rng = random.Random(seed)
    for index in range(n):
        yield _made_up(rng, index)


def _made_up(rng: random.Random, index: int) -> Recorded:
    ratio = rng.uniform(0.9, 1.4)
    size = 3_000.0
    session = Recorded(f"made-{index}", "claude-made" if index % 2 else "gpt-made", [])
    line = f"Please change src/mod{index}.py. Do not touch config{index}.toml. You must keep the tests green."
    session.messages.append(Billed({"role": "user", "content": [text_block(line)]}))
    size += true_tokens(line) * ratio
    for turn in range(rng.randint(10, 80)):
        path = f"src/mod{rng.randint(0, 12)}.py"
        name, given = _call(rng, turn, path)
        reply = [
            text_block(_prose(rng)),
            {"type": "tool_use", "id": f"c{turn}", "name": name, "input": given},
        ]
        output = sum(true_tokens(text) for text in (reply[0]["text"], json.dumps(given))) * ratio + 20
        session.messages.append(Billed({"role": "assistant", "content": reply}, round(size), round(output)))
        text = _output(rng)
        size += output + true_tokens(text) * ratio + 8
        result = {"type": "tool_result", "tool_use_id": f"c{turn}", "content": [text_block(text)]}
        session.messages.append(Billed({"role": "user", "content": [result]}))
    return session


def _call(rng: random.Random, turn: int, path: str) -> tuple[str, dict[str, str]]:
    name = rng.choice(["read_file", "read_file", "bash", "edit_file"])
    if name == "bash":
        return name, {"command": f"make test-{turn}"}
    return name, {"file_path": path}


def _prose(rng: random.Random) -> str:
    return " ".join(rng.choices(_WORDS, k=rng.randint(5, 60))).capitalize() + "."


def _output(rng: random.Random) -> str:
    lines = []
    for number in range(int(rng.lognormvariate(3.3, 1.0)) + 1):
        kind = rng.random()
        if kind < 0.4:
            lines.append(f"    {rng.choice(_WORDS)}_{rng.choice(_WORDS)}({rng.choice(_WORDS)}={number})")
        elif kind < 0.6:
            lines.append(f"2026-11-30 12:{number % 60:02}:07 INFO {_prose(rng)}")
        else:
            lines.append(f"{number:5}: {_prose(rng)}")
    return "\n".join(lines)


def true_tokens(text: str) -> float:
    """Return a made-up tokenizer's count: a token a short word, more for long ones, digits by threes."""
    total = 0.0
    for word in text.split():
        letters = sum(map(str.isalpha, word))
        digits = sum(map(str.isdigit, word))
        total += (
            max(letters / 5.5, 0.8 if letters else 0) + digits / 2.5 + 0.5 * (len(word) - letters - digits)
        )
    return total + 0.7 * text.count("\n")
