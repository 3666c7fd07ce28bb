"""How big a context is: the classic estimate, a fast estimate by byte classes, and the Meter that learns.

No tokenizer is needed. What a message or a view weighs is put together in `measure.py`.
"""

import json
import re
import string
from typing import Any

_CJK = re.compile(
    "[\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0002a6df\U0002f800-\U0002fa1f]+"
)
_WIDE_SPACE = re.compile(r"[^\S\x00-\x7f]")
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)
_LIGHT = bytes(c for c in range(128) if chr(c).isalnum() or chr(c).isspace())


def estimate_tokens(messages: Any) -> int:
    """Return the classic estimate of messages, blocks or a text, rounded up once.

    Each CJK character counts 1.5, each ASCII letter, digit or white space 0.25, any other 0.5
    (docs/seeds.md, rows 35 and 36).
    """
    return -(-quarters(messages) // 4)


def quarters(value: Any) -> int:
    """Return the classic estimate in quarters of a token."""
    if isinstance(value, str):
        return text_quarters(value)
    if isinstance(value, list):
        return sum(quarters(item) for item in value)
    if isinstance(value, dict):
        return _dict_quarters(value)
    return text_quarters(compact_json(value))


def _dict_quarters(value: dict[str, Any]) -> int:
    match value.get("type"):
        case "text" if isinstance(value.get("text"), str):
            return text_quarters(value["text"])
        case "tool_use":
            return text_quarters(str(value.get("name", ""))) + text_quarters(compact_json(value.get("input")))
    if "content" in value:
        return quarters(value["content"])
    return text_quarters(compact_json(value))


def text_quarters(text: str) -> int:
    """Return the classic estimate of a text in quarters of a token."""
    plain = text.encode("ascii", "ignore")
    n_wide = len(text) - len(plain)
    total = len(plain) + len(plain.translate(None, _LIGHT)) + 2 * n_wide
    if n_wide:
        rest = _CJK.sub("", text)
        total += 4 * (len(text) - len(rest)) - len(_WIDE_SPACE.findall(rest))
    return total


def compact_json(value: Any) -> str:
    """Return JSON without spaces, CJK as it is."""
    return _COMPACT.encode(value)


def fast_tokens(text: str) -> float:
    """Return about how many tokens a modern tokenizer makes of a text.

    Counts byte classes and a few neighbours; fitted to o200k over real transcripts of coding agents.
    """
    data = text.encode("utf-8", "surrogatepass")
    scales = _SCALES if text.isascii() else _WIDE_SCALES
    if len(data) <= _SLICE:
        return max(1.0, _BASE + _weigh(data, scales))
    slices = (data[start : start + _SLICE] for start in range(0, len(data), _SLICE))
    return _BASE + sum(_weigh(part, scales) for part in slices)


def _weigh(data: bytes, scales: "_Scales") -> float:
    total = len(data) * _PER_BYTE
    for table, weights in scales:
        count = data.translate(table).count
        for key, weight in weights:
            total += count(key) * weight
    return total


def _table(**classes: str) -> bytes:
    """Map each ASCII character listed under a class to that class's letter, all others to `p`."""
    table = bytearray(b"p" * 256)
    for name, members in classes.items():
        for member in members:
            table[ord(member)] = ord(name)
    return bytes(table)


def _with_high(table: bytes, ranges: tuple[tuple[int, str], ...]) -> bytes:
    """Map each byte from 0x80 on to the letter of the first range whose limit is above it."""
    high = (next(name for limit, name in ranges if byte < limit) for byte in range(0x80, 0x100))
    return table[:0x80] + "".join(high).encode()


_LOWER, _UPPER, _DIGITS = string.ascii_lowercase, string.ascii_uppercase, string.digits
_LEADS = ((0xC0, "h"), (0xE0, "c"), (0xE2, "j"), (0xE3, "e"), (0xEA, "k"), (0xF0, "j"), (0x100, "f"))
"""UTF-8: continuations, then what begins two bytes, three (general signs `e`, CJK `k`), four."""
_SIGNS = _with_high(
    _table(a=_LOWER, A=_UPPER, d=_DIGITS, s=" ", t="\t", n="\n\r", q="\"'`", _="_-/."), _LEADS
)
_CASES = _with_high(_table(a=_LOWER, A=_UPPER, d=_DIGITS), ((0x100, "h"),))
_WORDS = _with_high(_table(a=_LOWER + _UPPER, d=_DIGITS, s=" ", n="\n\r\t"), ((0x100, "h"),))

_BASE = 0.786
_PER_BYTE = 0.0638
_Scales = tuple[tuple[bytes, tuple[tuple[bytes, float], ...]], ...]
_SCALES: _Scales = (
    (_SIGNS, ((b"A", 0.245), (b"p", 0.3916), (b"q", 0.3376), (b"_", 0.682))),
    (_CASES, ((b"pa", 0.6466), (b"pd", 1.3375), (b"aA", 0.4307))),
    (_WORDS, ((b"ps", 0.6857), (b"na", 1.565), (b"da", 2.1577))),
)
_WIDE: tuple[tuple[bytes, float], ...] = ((b"c", 0.22), (b"e", 1.9), (b"k", 0.61), (b"j", 0.9), (b"f", 1.6))
_WIDE_SCALES: _Scales = ((_SIGNS, _SCALES[0][1] + _WIDE), *_SCALES[1:])
_SLICE = 32 * 1024
"""Bytes looked at together: what fits the processor's cache is counted twice as fast."""

_DECAY = 0.97
_START = 3000.0
_LOWEST, _HIGHEST = 0.6, 2.5


class Meter:
    """Learns the size of the whole request from what replies were billed.

    All sizes are tokens. An `estimate` is what `fast_tokens` makes of the whole request (system
    prompt, tools, view). `factor` multiplies it until a ratio has been learned.
    """

    def __init__(self, factor: float = 1.25) -> None:
        """Start without any usage."""
        self.factor = factor
        self.billed: float | None = None
        self.seen = 0.0
        self.n_usages = 0
        self._billed_sum = _START
        self._estimated_sum = _START

    @property
    def ratio(self) -> float:
        """Billed tokens for each estimated one."""
        if self.n_usages < 2:
            return self.factor
        return min(max(self._billed_sum / self._estimated_sum, _LOWEST), _HIGHEST)

    def learn(self, billed: int, estimate: float) -> None:
        """Take the size of a call with its reply, and the estimate of the same messages."""
        if self.billed is not None:
            grown, expected = billed - self.billed, estimate - self.seen
            if grown > 0 and expected > 0:
                self._billed_sum = self._billed_sum * _DECAY + grown
                self._estimated_sum = self._estimated_sum * _DECAY + expected
        self.n_usages += 1
        self.billed, self.seen = float(billed), estimate

    def begin_with(self, billed: int, estimate: float) -> None:
        """Take the ratio of an earlier process's last bill as the factor until one is learned."""
        if self.n_usages == 0 and estimate > 0:
            self.factor = min(max(billed / estimate, _LOWEST), _HIGHEST)

    def size(self, estimate: float) -> float:
        """Return the size of a request, never below its estimate times the ratio."""
        return max(self.reading(estimate), estimate * self.ratio)

    def reading(self, estimate: float) -> float:
        """Return the last bill plus ratio times what came after; without a bill the estimate alone."""
        if self.billed is None:
            return estimate * self.ratio
        return self.billed + (estimate - self.seen) * self.ratio

    def clear(self, estimate: float) -> None:
        """Take off what a micro batch cleared."""
        if self.billed is not None:
            self.billed -= estimate * self.ratio
            self.seen -= estimate

    def void(self) -> None:
        """Forget the last bill; the learned ratio stays."""
        self.billed = None
