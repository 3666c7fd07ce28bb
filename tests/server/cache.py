"""The simulated prompt cache: what a request reads, writes and pays in full."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.server.jsonish import Json, canonical
from tests.server.units import Unit

LIVES_S = {"5m": 300.0, "1h": 3600.0}


@dataclass(frozen=True, slots=True)
class CacheRules:
    """How long an entry lives unused, how small a prefix may be, how far a mark looks back."""

    life_s: float = LIVES_S["5m"]
    long_life_s: float = LIVES_S["1h"]
    min_tokens: int = 32
    look_back: int = 20

    def life(self, mark: str) -> float:
        return self.long_life_s if mark == "1h" else self.life_s


@dataclass(frozen=True, slots=True)
class Bill:
    """Input tokens of one request by price."""

    read: int
    written_5m: int
    written_1h: int
    fresh: int

    def usage(self) -> Json:
        return {
            "input_tokens": self.fresh,
            "cache_read_input_tokens": self.read,
            "cache_creation_input_tokens": self.written_5m + self.written_1h,
            "cache_creation": {
                "ephemeral_5m_input_tokens": self.written_5m,
                "ephemeral_1h_input_tokens": self.written_1h,
            },
        }


@dataclass
class _Entry:
    expires: float
    life_s: float


@dataclass
class PromptCache:
    """Entries by the hash of everything up to a mark; `now` gives seconds."""

    rules: CacheRules
    now: Callable[[], float]
    entries: dict[str, _Entry] = field(default_factory=dict)

    def bill(self, body: Json, parts: list[Unit]) -> Bill:
        """What the request pays; its prefixes are in the cache afterwards."""
        keys, sums = chain(body, parts), _running(parts)
        marks = [at for at, part in enumerate(parts) if part.mark and sums[at] >= self.rules.min_tokens]
        hit = max((self._found(keys, mark) for mark in marks), default=-1)
        self._refresh(keys, hit)
        read = sums[hit] if hit >= 0 else 0
        written = {"5m": 0, "1h": 0}
        upto = read
        for mark in marks:
            if mark > hit:
                life = parts[mark].mark
                written[life] += sums[mark] - upto
                upto = sums[mark]
                self._write(keys[mark], life)
        fresh = (sums[-1] if sums else 0) - upto
        return Bill(read, written["5m"], written["1h"], fresh)

    def clear(self) -> None:
        """Forget everything, as if all lives had ended."""
        self.entries.clear()

    def _found(self, keys: list[str], mark: int) -> int:
        lowest = max(0, mark - self.rules.look_back + 1)
        for at in range(mark, lowest - 1, -1):
            if self._alive(keys[at]):
                return at
        return -1

    def _alive(self, key: str) -> bool:
        entry = self.entries.get(key)
        return entry is not None and entry.expires > self.now()

    def _refresh(self, keys: list[str], upto: int) -> None:
        for key in keys[: upto + 1]:
            if self._alive(key):
                entry = self.entries[key]
                entry.expires = self.now() + entry.life_s

    def _write(self, key: str, mark: str) -> None:
        life_s = self.rules.life(mark)
        self.entries[key] = _Entry(self.now() + life_s, life_s)


def chain(body: Json, parts: list[Unit]) -> list[str]:
    """For each unit the hash of all up to it; what else the cache depends on goes in where due."""
    digest = hashlib.sha256(canonical(body.get("model")).encode())
    keys, section = [], ""
    for part in parts:
        if part.section == "messages" != section:
            digest.update(_settings(body).encode())
        section = part.section
        digest.update(f"\0{part.section}\0{part.role}\0{part.text}".encode())
        keys.append(digest.hexdigest())
    return keys


def _settings(body: Json) -> str:
    # tool_choice and thinking change the message part of the cache, not tools and system.
    return canonical([body.get("tool_choice"), body.get("thinking")])


def _running(parts: list[Unit]) -> list[int]:
    sums, so_far = [], 0
    for part in parts:
        so_far += part.tokens
        sums.append(so_far)
    return sums
