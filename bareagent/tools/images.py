"""Images as blocks for the model: what kind, how large, and made smaller where the API would refuse."""

import base64
import io
import struct

import msgspec

from bareagent.messages import Block
from bareagent.tools.base import ToolError

MAX_BYTES = 5 * 1024 * 1024 * 3 // 4
"""The API takes 5 MiB of base64."""
MAX_SIDE = 8000
SCALED_SIDE = 1568
"""Beyond this the API scales down by itself."""

_JPEG_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


class Picture(msgspec.Struct, frozen=True):
    """An image file: media type, width and height in pixels (0: unreadable)."""

    media_type: str
    width: int
    height: int


def picture(data: bytes) -> Picture | None:
    """Return what image the bytes are by their first ones; None for anything else."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return _sized("image/png", data, ">II", 16)
    if data.startswith((b"GIF87a", b"GIF89a")):
        return _sized("image/gif", data, "<HH", 6)
    if data.startswith(b"\xff\xd8\xff"):
        return Picture("image/jpeg", *_jpeg_size(data))
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return Picture("image/webp", *_webp_size(data))
    return None


def _sized(media_type: str, data: bytes, form: str, at: int) -> Picture:
    try:
        width, height = struct.unpack_from(form, data, at)
    except struct.error:
        width = height = 0
    return Picture(media_type, width, height)


def _jpeg_size(data: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        if data[at + 1] in _JPEG_SIZES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0, 0


def _webp_size(data: bytes) -> tuple[int, int]:
    kind = data[12:16]
    if len(data) < 30:
        return 0, 0
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF


def block(name: str, data: bytes, found: Picture) -> tuple[str, Block]:
    """Return a line about the image and its block. Raises: ToolError over the API's limits."""
    if not found.width or not found.height:
        raise ToolError(f"{name} begins like {found.media_type} but its size cannot be read.")
    media_type = found.media_type
    size = f"{found.width}x{found.height}"
    if len(data) > MAX_BYTES or max(found.width, found.height) > MAX_SIDE:
        was, (data, media_type, size) = size, _scaled(name, data, size)
        size += f", scaled from {was}"
    source = {
        "type": "base64",
        "media_type": media_type,
        "data": base64.b64encode(data).decode("ascii"),
    }
    return f"[{name}: {media_type}, {size}, {len(data):,} bytes]", {"type": "image", "source": source}


def _scaled(name: str, data: bytes, size: str) -> tuple[bytes, str, str]:
    try:
        from PIL import Image
    except ImportError:
        raise ToolError(
            f"{name} ({size}, {len(data):,} bytes) is over the API's limits of {MAX_BYTES:,} bytes and "
            f'{MAX_SIDE} pixels a side. The "images" extra (pillow) would scale it.'
        ) from None
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.thumbnail((SCALED_SIDE, SCALED_SIDE))
            small = io.BytesIO()
            image.convert("RGB").save(small, "JPEG", quality=85)
            return small.getvalue(), "image/jpeg", f"{image.width}x{image.height}"
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise ToolError(f"{name} could not be scaled: {error}.") from error
