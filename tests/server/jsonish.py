"""JSON as the server reads it: one alias, one canonical text, one strict reader."""

import json
from collections.abc import Iterator
from typing import Any, NoReturn

Json = dict[str, Any]


def canonical(value: object) -> str:
    """One line of JSON with the key order as it came; two texts agree only if the bytes would."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def unmarked(value: Any) -> Any:
    """The same value without any `cache_control`, however deep it stands in content."""
    if not isinstance(value, dict):
        return value
    bare = {key: item for key, item in value.items() if key != "cache_control"}
    if isinstance(bare.get("content"), list):
        bare["content"] = [unmarked(item) for item in bare["content"]]
    return bare


def parse(raw: bytes) -> Any:
    """The value of a request body.

    Raises: ValueError with the parser's words, also for NaN and for lone surrogates.
    """
    value = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
    if b"\\u" in raw:
        _refuse_surrogates(value)
    return value


def strings(value: object) -> Iterator[str]:
    """Every string in a value, keys left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def as_blocks(content: object) -> list[Any]:
    """Content as a list of blocks: a bare string is one text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content) if isinstance(content, list) else []


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"unexpected token {name}")


def _refuse_surrogates(value: object) -> None:
    for text in strings(value):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError("no low surrogate in string") from error
