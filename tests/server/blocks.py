"""The shape of one content block: fields, types, texts, images, thinking."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.server import images
from tests.server.errors import malformed
from tests.server.jsonish import Json
from tests.server.ledger import Ledger

# type → (fields it must have, fields it may have).
FIELDS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "text": (frozenset({"text"}), frozenset({"citations"})),
    "image": (frozenset({"source"}), frozenset()),
    "document": (frozenset({"source"}), frozenset({"title", "context", "citations"})),
    "search_result": (frozenset({"source", "title", "content"}), frozenset({"citations"})),
    "tool_result": (frozenset({"tool_use_id"}), frozenset({"content", "is_error"})),
    "tool_use": (frozenset({"id", "name", "input"}), frozenset({"caller", "toolset_name"})),
    "thinking": (frozenset({"thinking", "signature"}), frozenset()),
    "redacted_thinking": (frozenset({"data"}), frozenset()),
}
IN_USER = ("text", "image", "document", "search_result", "tool_result")
IN_ASSISTANT = ("text", "thinking", "redacted_thinking", "tool_use")
IN_RESULT = ("text", "image", "document", "search_result")
# Blocks of tools that a server runs: taken from a reply as they are.
SERVER_TOOLS = re.compile(r"^(server_tool_use|mcp_tool_use|\w+_tool_result)$")
UNMARKABLE = ("thinking", "redacted_thinking")
ID_PATTERN = r"^[a-zA-Z0-9_-]+$"
NAME_PATTERN = r"^[a-zA-Z0-9_-]{1,200}$"
MAX_IMAGE_BYTES = 5 * 1024 * 1024
MAX_PIXELS, MAX_PIXELS_OF_MANY, MANY_IMAGES, MAX_IMAGES = 8000, 2000, 20, 100


@dataclass(frozen=True, slots=True)
class BlockRules:
    """What the check of a block needs to know of the rest: replies, images in all, the model."""

    ledger: Ledger
    n_images: int = 0
    takes_images: bool = True
    verify_thinking: bool = True


def check(block: Json, role: str, where: str, rules: BlockRules) -> None:
    """Check one block of a message; Raises: ApiError."""
    kind = block["type"]
    allowed: tuple[str, ...] = IN_USER if role == "user" else IN_ASSISTANT
    if role == "system":
        allowed = ("text",)
    if kind in allowed:
        check_fields(block, where)
        _CHECKS[str(kind)](block, f"{where}.{kind}", rules)
        return
    _check_odd(block, role, where, rules)


def check_fields(block: Json, where: str) -> None:
    """Fields that miss and fields that are not known; Raises: ApiError."""
    kind = str(block["type"])
    must, may = FIELDS[kind]
    for name in sorted(must - block.keys()):
        raise malformed(f"{where}.{kind}.{name}: Field required")
    marks = frozenset() if kind in UNMARKABLE else frozenset({"cache_control"})
    for name in sorted(block.keys() - must - may - marks - {"type"}):
        raise malformed(f"{where}.{kind}.{name}: Extra inputs are not permitted")


def _check_odd(block: Json, role: str, where: str, rules: BlockRules) -> None:
    kind = block.get("type")
    if kind in FIELDS:
        other = "assistant" if kind in IN_ASSISTANT else "user"
        message = where.split(".content", maxsplit=1)[0]
        raise malformed(f"{message}: `{kind}` blocks can only be in `{other}` messages")
    if role == "assistant" and _is_taken_back(block, rules.ledger):
        return
    if kind is None:
        raise malformed(f"{where}.type: Field required")
    tags = ", ".join(f"'{name}'" for name in FIELDS)
    raise malformed(
        f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {tags}"
    )


def _is_taken_back(block: Json, ledger: Ledger) -> bool:
    """Whether a block of a kind we do not know was ours, or is a server tool's."""
    return bool(SERVER_TOOLS.match(str(block.get("type")))) or ledger.issued(block)


def _check_text(block: Json, where: str, _rules: BlockRules) -> None:
    text = block["text"]
    if not isinstance(text, str):
        raise malformed(f"{where}.text: Input should be a valid string")
    if not text and block.get("cache_control"):
        raise malformed(f"{where}: cache_control cannot be set for empty text blocks")
    if not text:
        raise malformed("messages: text content blocks must be non-empty")
    if not text.strip():
        raise malformed("messages: text content blocks must contain non-whitespace text")


def _check_image(block: Json, where: str, rules: BlockRules) -> None:
    source = block["source"]
    if not rules.takes_images:
        raise malformed(f"{where}: image input is not supported on this model")
    if not isinstance(source, dict) or source.get("type") not in ("base64", "url", "file"):
        raise malformed(f"{where}.source: Input should be a valid dictionary")
    if source["type"] == "base64":
        _check_picture(block, source, where, rules)


def _check_picture(block: Json, source: Json, where: str, rules: BlockRules) -> None:
    if source.get("media_type") not in images.KINDS:
        kinds = "'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"
        raise malformed(f"{where}.source.base64.media_type: Input should be {kinds}")
    data = images.data_of(block)
    if data is None:
        raise malformed(f"{where}.source.base64.data: Invalid base64 data")
    if len(data) > MAX_IMAGE_BYTES:
        sizes = f"{len(data)} bytes > {MAX_IMAGE_BYTES} bytes"
        raise malformed(f"{where}.source.base64: image exceeds 5 MB maximum: {sizes}")
    picture = images.look(data)
    if picture is None:
        raise malformed("Could not process image")
    if picture.media_type != source["media_type"]:
        raise malformed(
            f"{where}.source.base64.data: The image was specified using the "
            f"{source['media_type']} media type, but the image appears to be a "
            f"{picture.media_type} image"
        )
    _check_pixels(picture, f"{where}.source.base64.data", rules.n_images)


def _check_pixels(picture: images.Picture, where: str, n_images: int) -> None:
    side = max(picture.width, picture.height)
    if side > MAX_PIXELS:
        raise malformed(
            f"{where}: At least one of the image dimensions exceed max allowed size: {MAX_PIXELS} pixels"
        )
    if side > MAX_PIXELS_OF_MANY and n_images > MANY_IMAGES:
        raise malformed(
            f"{where}: At least one of the image dimensions exceed max allowed size for "
            f"many-image requests: {MAX_PIXELS_OF_MANY} pixels"
        )


def _check_tool_use(block: Json, where: str, _rules: BlockRules) -> None:
    for name, pattern in (("id", ID_PATTERN), ("name", NAME_PATTERN)):
        if not isinstance(block[name], str):
            raise malformed(f"{where}.{name}: Input should be a valid string")
        if not re.fullmatch(pattern, block[name]):
            raise malformed(f"{where}.{name}: String should match pattern '{pattern}'")
    if not isinstance(block["input"], dict):
        raise malformed(f"{where}.input: Input should be a valid dictionary")


def _check_tool_result(block: Json, where: str, rules: BlockRules) -> None:
    if not isinstance(block["tool_use_id"], str):
        raise malformed(f"{where}.tool_use_id: Input should be a valid string")
    if not isinstance(block.get("is_error", False), bool):
        raise malformed(f"{where}.is_error: Input should be a valid boolean")
    content = block.get("content", "")
    if block.get("is_error") and not content:
        raise malformed(f"{where}: content cannot be empty if `is_error` is true")
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise malformed(f"{where}.content: Input should be a valid list")
    for at, item in enumerate(content):
        _check_inner(item, f"{where}.content.{at}", rules)


def _check_inner(item: object, where: str, rules: BlockRules) -> None:
    if not isinstance(item, dict) or item.get("type") not in IN_RESULT:
        raise malformed(f"{where}: Input should be a text, image, document or search result block")
    check_fields(item, where)
    _CHECKS[str(item["type"])](item, f"{where}.{item['type']}", rules)


def _check_thinking(block: Json, where: str, rules: BlockRules) -> None:
    for name in ("thinking", "signature", "data"):
        if name in block and not isinstance(block[name], str):
            raise malformed(f"{where}.{name}: Input should be a valid string")
    if not rules.verify_thinking or rules.ledger.is_genuine(block):
        return
    place = where.rsplit(".", 1)[0]
    what = "data" if block["type"] == "redacted_thinking" else "signature"
    raise malformed(f"{place}: Invalid `{what}` in `{block['type']}` block")


def _check_nothing(_block: Json, _where: str, _rules: BlockRules) -> None:
    """Documents and search results: their fields are all that is looked at."""


_CHECKS: dict[str, Callable[[Json, str, BlockRules], None]] = {
    "text": _check_text,
    "image": _check_image,
    "document": _check_nothing,
    "search_result": _check_nothing,
    "tool_result": _check_tool_result,
    "tool_use": _check_tool_use,
    "thinking": _check_thinking,
    "redacted_thinking": _check_thinking,
}
