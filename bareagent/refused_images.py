"""Images that a server refuses: which results let theirs go, so that the conversation can go on.

One image that was fine alone may be too large once there are many; a damaged one would be refused again
at every call. The originals stay in the log, where `recall` finds them.
"""

import base64
import binascii
import re
from collections.abc import Iterator

from bareagent.messages import Block, is_cleared, n_images, results
from bareagent.session import Session
from bareagent.tools.images import picture
from bareagent.view import handle_of

_SIDE = re.compile(r"image.{0,40}dimensions? exceed.{0,120}?(\d+) pixels", re.IGNORECASE | re.DOTALL)
_IMAGE = re.compile(r"\bimages?\b", re.IGNORECASE)
_HEAD_CHARS = 64 * 1024
"""Of an image's base64: sizes stand near its beginning."""


def let_go(session: Session, words: str) -> int:
    """Clear the results whose images a refusal is about; return how many there were.

    Too large ones go by their size; else those that no request has held before.
    """
    if not _IMAGE.search(words):
        return 0
    side = _SIDE.search(words)
    found = _too_large(session, int(side[1])) if side else _new(session)
    handles = list(found)
    if handles:
        session.clear(handles, "images refused")
    return len(handles)


def _too_large(session: Session, side: int) -> Iterator[str]:
    for index in range(len(session.messages)):
        yield from (handle for handle, block in _with_images(session, index) if _longest_side(block) > side)


def _new(session: Session) -> Iterator[str]:
    for index in range(len(session.messages) - 1, -1, -1):
        if session.messages[index]["role"] == "assistant":
            return
        yield from (handle for handle, _ in _with_images(session, index))


def _with_images(session: Session, index: int) -> Iterator[tuple[str, Block]]:
    for k, block in enumerate(results(session.messages[index]), 1):
        if n_images(block) and not is_cleared(block):
            yield handle_of(session.view.ids[index], k), block


def _longest_side(block: Block) -> int:
    parts = block["content"] if isinstance(block.get("content"), list) else []
    return max((_side(part) for part in parts if isinstance(part, dict)), default=0)


def _side(part: Block) -> int:
    source = part.get("source")
    head = str(source.get("data", ""))[:_HEAD_CHARS] if isinstance(source, dict) else ""
    try:
        found = picture(base64.b64decode(head[: len(head) // 4 * 4]))
    except (binascii.Error, ValueError):
        return 0
    return max(found.width, found.height) if found else 0
