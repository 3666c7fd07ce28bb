"""What an image block holds: its kind and pixels, read from the bytes; its price in tokens."""

import base64
import binascii
import struct
from dataclasses import dataclass

from tests.server.jsonish import Json

KINDS = ("image/jpeg", "image/png", "image/gif", "image/webp")
UNKNOWN_TOKENS = 1600


@dataclass(frozen=True, slots=True)
class Picture:
    """An image's media type as its first bytes tell it, and its pixels (0 where unknown)."""

    media_type: str
    width: int
    height: int


def look(data: bytes) -> Picture | None:
    """What the bytes are, or None for bytes of no known kind."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and len(data) >= 24:
        return Picture("image/png", *struct.unpack(">II", data[16:24]))
    if data[:6] in {b"GIF87a", b"GIF89a"} and len(data) >= 10:
        return Picture("image/gif", *struct.unpack("<HH", data[6:10]))
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return Picture("image/webp", 0, 0)
    if data.startswith(b"\xff\xd8\xff"):
        return Picture("image/jpeg", *_jpeg_size(data))
    return None


def data_of(block: Json) -> bytes | None:
    """The decoded bytes of a base64 image; None where there are none or they do not decode."""
    source = block.get("source")
    if not isinstance(source, dict) or source.get("type") != "base64":
        return None
    try:
        return base64.b64decode(str(source.get("data", "")), validate=True)
    except binascii.Error:
        return None


def tokens(block: Json) -> int:
    """Pixels over 750, at most 1,600."""
    picture = look(data_of(block) or b"")
    if picture is None or not picture.width:
        return UNKNOWN_TOKENS
    return max(1, min(UNKNOWN_TOKENS, picture.width * picture.height // 750))


def _jpeg_size(data: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 2 + length
    return 0, 0
