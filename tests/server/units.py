"""A request as one sequence of units (tools, system, message blocks) with sizes and cache marks."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tests.server import images
from tests.server.jsonish import Json, as_blocks, canonical, unmarked


@dataclass(frozen=True, slots=True)
class Unit:
    """One block where it stands: its text without marks, its size, its mark ("5m", "1h" or "")."""

    section: str
    role: str
    text: str
    tokens: int
    mark: str = ""

    def same(self, other: "Unit") -> bool:
        return (self.section, self.role, self.text) == (other.section, other.role, other.text)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The token count of everything: UTF-8 bytes over `bytes_per_token`, rounded up per block."""

    bytes_per_token: float = 4.0

    def text(self, text: str) -> int:
        return math.ceil(len(text.encode("utf-8")) / self.bytes_per_token)

    def block(self, block: Json) -> int:
        match block.get("type"):
            case "text":
                return self.text(str(block.get("text", "")))
            case "thinking":
                return self.text(str(block.get("thinking", "")))
            case "tool_use":
                return self.text(str(block.get("name")) + canonical(block.get("input")))
            case "tool_result":
                return sum(self.block(item) for item in as_blocks(block.get("content"))) + 1
            case "image":
                return images.tokens(block)
            case _:
                return self.text(canonical(unmarked(block)))

    def output(self, content: list[Json]) -> int:
        """Output tokens of a reply; never 0, as an empty reply is billed too."""
        return max(1, sum(self.block(block) for block in content))


def units(body: Json, sizes: Sizes) -> list[Unit]:
    """All blocks of a request in the order the cache sees them."""
    found = [*_tools(body, sizes), *_system(body, sizes), *_messages(body, sizes)]
    top = mark_of(body)
    if top and found and not found[-1].mark:
        last = found[-1]
        found[-1] = Unit(last.section, last.role, last.text, last.tokens, top)
    return found


def mark_of(block: Json) -> str:
    """The life of a block's cache mark: "" (none), "5m" or "1h"; marks inside a result count."""
    control = block.get("cache_control")
    if isinstance(control, dict):
        return str(control.get("ttl") or "5m")
    content = block.get("content")
    if block.get("type") == "tool_result" and isinstance(content, list):
        return next((mark for item in content if (mark := mark_of(item))), "")
    return ""


def total(parts: list[Unit]) -> int:
    """Tokens of all units together."""
    return sum(part.tokens for part in parts)


def _tools(body: Json, sizes: Sizes) -> Iterator[Unit]:
    for tool in body.get("tools") or []:
        text = canonical(unmarked(tool))
        yield Unit("tools", "", text, sizes.text(text), mark_of(tool))


def _system(body: Json, sizes: Sizes) -> Iterator[Unit]:
    for block in as_blocks(body.get("system")):
        yield Unit("system", "", canonical(unmarked(block)), sizes.block(block), mark_of(block))


def _messages(body: Json, sizes: Sizes) -> Iterator[Unit]:
    for message in body.get("messages") or []:
        for block in as_blocks(message.get("content")):
            text = canonical(unmarked(block))
            yield Unit("messages", message["role"], text, sizes.block(block), mark_of(block))
