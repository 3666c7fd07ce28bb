"""One line of a log: encoded and decoded. Pure; damaged and foreign lines are told, never raised."""

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from bareagent.entries import LOG_VERSION, AnyEntry
from bareagent.sanitize import scrub
from bareagent.store.blocks import all_mended, are_sound, mended

_decoder: msgspec.json.Decoder[AnyEntry] = msgspec.json.Decoder(AnyEntry)
_encoder = msgspec.json.Encoder()
_RECORD = b'{"v":'
_ORDER_MARK = b"\xef\xbb\xbf"
_REFUSED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
ODD_BLOCKS = "holds blocks of no known shape"
KNOWN_TYPES = frozenset(str(struct.__struct_config__.tag) for struct in AnyEntry.__args__)


class Fault(NamedTuple):
    """Something wrong with a line of a log; lines are counted from 1."""

    line: int
    reason: str


class Parsed(NamedTuple):
    """What a line holds. `entry` is None for an unknown type, a newer version or a bad line.

    `n` is the entry's number, also of an unknown type (0: none); `reason` says what is wrong, if
    anything; `v` is the format's version.
    """

    entry: AnyEntry | None
    n: int = 0
    reason: str = ""
    v: int = LOG_VERSION


def now() -> str:
    """Return the time in UTC as entries hold it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def encode_body(entry: AnyEntry) -> bytes:
    """Return an entry as a JSON object without number, time and version."""
    bare = msgspec.structs.replace(entry, v=0, n=0, at="")
    try:
        return _encoder.encode(bare)
    except UnicodeEncodeError:
        return _encoder.encode(scrub(msgspec.to_builtins(bare)))


def encode_line(body: bytes, n: int, at: str) -> bytes:
    """Return the line of the log that holds a body."""
    return b'{"v":%d,"n":%d,"at":"%s",%s\n' % (LOG_VERSION, n, at.encode(), body[1:])


def decode(line: bytes) -> AnyEntry:
    """Return the entry of a line that the log itself has written."""
    return mended(_decoder.decode(line))


def decode_many(chunk: memoryview) -> list[AnyEntry] | None:
    """Return the entries of whole lines; None where any of them needs a closer look."""
    try:
        entries = _decoder.decode_lines(chunk)
    except _REFUSED:
        return None
    is_quick = {entry.v for entry in entries} <= {LOG_VERSION} and are_sound(entries)
    return entries if is_quick else None


def parse(line: bytes) -> Parsed:
    """Return what a line holds, however damaged; the record behind half a record is found."""
    reason = ""
    if line.endswith(b"\r"):
        line, reason = line[:-1], "ends in a carriage return"
    if line.startswith(_ORDER_MARK):
        line, reason = line[3:], "begins with a byte-order mark"
    if not line.startswith(_RECORD) and line.strip(b"\0 \t\r\xef\xbb\xbf") == b"":
        return Parsed(None, 0, "holds no record" if line else "")
    parsed = _parse_whole(line)
    start = line.rfind(_RECORD)
    while parsed.entry is None and not parsed.n and start > 0:
        behind = _parse_whole(line[start:])
        if behind.n:
            return behind._replace(reason=f"{start} bytes that are no record stand before its record")
        start = line.rfind(_RECORD, 0, start)
    return parsed._replace(reason=parsed.reason or reason)


def _parse_whole(line: bytes) -> Parsed:
    try:
        entry = _decoder.decode(line)
    except _REFUSED:
        return _parse_foreign(line)
    if entry.v > LOG_VERSION:
        return Parsed(None, entry.n, "", entry.v)
    if entry.n < 1:
        return Parsed(None, 0, "has no number")
    return _parsed(entry)


def _parsed(entry: AnyEntry, reason: str = "") -> Parsed:
    sound = mended(entry)
    return Parsed(sound, sound.n, reason if sound is entry else ODD_BLOCKS)


def _parse_foreign(line: bytes) -> Parsed:
    """The quick decoder refuses what other writers may produce: lone surrogates, NaN, unknown types."""
    try:
        data = json.loads(line, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return Parsed(None, 0, "is no JSON")
    n = data.get("n") if isinstance(data, dict) else None
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        return Parsed(None, 0, "is no record")
    v = data.get("v")
    if isinstance(v, int) and v > LOG_VERSION:
        return Parsed(None, n, "", v)
    if data.get("type") not in KNOWN_TYPES:
        return Parsed(None, n)
    data = scrub(data)
    try:
        reason = _normalise(data)
        return _parsed(msgspec.convert(data, AnyEntry), reason)
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        return Parsed(None, 0, f"is no valid {data['type']} entry: {error}")


def _normalise(data: dict[str, Any]) -> str:
    """Make a message's content a list of blocks; return what is wrong with it (a bare string is not)."""
    message = data.get("message")
    if not isinstance(message, dict) or "content" not in message:
        return ""
    content = message["content"]
    if isinstance(content, list) and all(isinstance(block, dict) for block in content):
        return ""
    message["content"] = all_mended(content, "assistant" if message.get("role") == "assistant" else "user")
    return "" if isinstance(content, str) else ODD_BLOCKS
