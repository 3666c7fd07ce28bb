"""Whether each request begins with the one before it, and how much could have been cached."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tests.server.jsonish import Json
from tests.server.record import Record
from tests.server.units import Unit


@dataclass(frozen=True, slots=True)
class Break:
    """A request that does not begin with the one before: numbers of both, and where they part."""

    before: int
    after: int
    where: str


def breaks(records: Sequence[Record]) -> list[Break]:
    """All breaks in a sequence of requests, neighbour by neighbour; cache marks do not count."""
    found = []
    for before, after in itertools.pairwise(record for record in records if record.units):
        where = _parting(before, after)
        if where:
            found.append(Break(before.number, after.number, where))
    return found


def share(records: Sequence[Record], life_s: float) -> Json:
    """Tokens read from the cache, tokens that could have been, and the one over the other.

    Possible is, for each request, the longest common block prefix with any of the last `life_s`.
    """
    read = possible = 0
    for at, record in enumerate(records):
        earlier = [old for old in records[:at] if record.at - old.at < life_s]
        same = [old for old in earlier if old.body.get("model") == record.body.get("model")]
        read += record.usage.get("cache_read_input_tokens") or 0
        possible += max((_common(old.units, record.units) for old in same), default=0)
    return {"read": read, "possible": possible, "share": read / possible if possible else 1.0}


def _parting(before: Record, after: Record) -> str:
    for section in ("tools", "system"):
        if _texts(before, section) != _texts(after, section):
            return f"{section} differ"
    ours = [unit for unit in before.units if unit.section == "messages"]
    theirs = [unit for unit in after.units if unit.section == "messages"]
    for at, unit in enumerate(ours):
        if at >= len(theirs):
            return f"shorter: {len(theirs)} blocks after {len(ours)}"
        if not unit.same(theirs[at]):
            was, now = f"{unit.role} {unit.text}", f"{theirs[at].role} {theirs[at].text}"
            return f"block {at} differs: {was[:200]} -> {now[:200]}"
    return ""


def _texts(record: Record, section: str) -> list[str]:
    return [unit.text for unit in record.units if unit.section == section]


def _common(before: list[Unit], after: list[Unit]) -> int:
    tokens = 0
    for old, new in zip(before, after, strict=False):
        if not old.same(new):
            break
        tokens += new.tokens
    return tokens
