"""The rules between messages: roles, calls and their results, the last message."""

from collections.abc import Iterator
from typing import Any

from tests.server import blocks
from tests.server.blocks import BlockRules
from tests.server.errors import malformed
from tests.server.jsonish import Json, as_blocks
from tests.server.ledger import THINKING, Ledger
from tests.server.models import Model

PREFILL = (
    "This model does not support assistant message prefill. The conversation must end with a user message."
)
MODIFIED = (
    "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. "
    "These blocks must remain as they were in the original response."
)
MUST_START = (
    "When `thinking` is enabled, a final `assistant` message must start with a thinking block "
    "(preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend you "
    "include thinking blocks from previous turns. To avoid this requirement, disable `thinking`. "
    "Please consult our documentation at "
    "https://docs.claude.com/en/docs/build-with-claude/extended-thinking"
)


def check(body: Json, model: Model, ledger: Ledger, verify_thinking: bool = True) -> None:
    """Check the messages of a request; Raises: ApiError."""
    messages = body["messages"]
    _check_roles(messages, model)
    n_images = _n_images(messages)
    if n_images > blocks.MAX_IMAGES:
        raise malformed(f"messages: too many images and documents: {n_images} + 0 > {blocks.MAX_IMAGES}")
    rules = BlockRules(ledger, n_images, model.takes_images, verify_thinking)
    if verify_thinking:
        _check_latest_thinking(body, model, ledger)
    for at, message in enumerate(messages):
        _check_content(message, at, rules)
    talk = [(at, message) for at, message in enumerate(messages) if message["role"] != "system"]
    _check_pairs(talk)
    _check_last(talk, ledger)


def _check_roles(messages: list[Json], model: Model) -> None:
    before = ""
    for at, message in enumerate(messages):
        role = message["role"]
        if role == "system":
            _check_system(at, before, model)
            continue
        if not before and role != "user":
            raise malformed('messages: first message must use the "user" role')
        if role == before:
            raise malformed(
                'messages: roles must alternate between "user" and "assistant", but found '
                f'multiple "{role}" roles in a row'
            )
        before = role


def _check_system(at: int, before: str, model: Model) -> None:
    if not model.takes_system_role:
        raise malformed("role 'system' is not supported on this model")
    if before != "user":
        raise malformed(f"messages.{at}: a `system` message must follow a `user` message")


def _check_content(message: Json, at: int, rules: BlockRules) -> None:
    content, where = message["content"], f"messages.{at}"
    if not content:
        raise malformed(
            f"{where}: all messages must have non-empty content except for the optional final "
            "assistant message"
        )
    for number, block in enumerate(as_blocks(content)):
        blocks.check(block, message["role"], f"{where}.content.{number}", rules)
    last = as_blocks(content)[-1]
    if message["role"] == "assistant" and last["type"] in THINKING:
        raise malformed(f"{where}: The final block in an assistant message cannot be `thinking`.")


def _check_pairs(talk: list[tuple[int, Json]]) -> None:
    calls: list[str] = []
    for place, (at, message) in enumerate(talk):
        content = as_blocks(message["content"])
        if message["role"] == "user":
            _check_answers(content, calls, at, talk[place - 1][0] if place else 0)
            calls = []
            continue
        calls = [block["id"] for block in content if block["type"] == "tool_use"]
        if len(set(calls)) < len(calls):
            raise malformed(f"messages.{at}: `tool_use` ids must be unique")
    if calls:
        raise malformed(_unanswered(talk[-1][0], calls))


def _check_answers(content: list[Json], calls: list[str], at: int, call_at: int) -> None:
    results = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
    for number, block in enumerate(content):
        if block["type"] == "tool_result" and block["tool_use_id"] not in calls:
            raise malformed(
                f"messages.{at}.content.{number}: unexpected `tool_use_id` found in `tool_result` "
                f"blocks: {block['tool_use_id']}. Each `tool_result` block must have a "
                "corresponding `tool_use` block in the previous message."
            )
    for name in results:
        if results.count(name) > 1:
            raise malformed(
                f"messages.{at}.content: each tool_use must have a single result. Found multiple "
                f"`tool_result` blocks with id: {name}"
            )
    first = list(_leading(content))
    missing = [call for call in calls if call not in first]
    if missing:
        raise malformed(_unanswered(call_at, missing))
    if first != calls:
        raise malformed(
            f"messages.{at}.content: `tool_result` blocks must stand in the order of their "
            f"`tool_use` blocks: expected {', '.join(calls)}, found {', '.join(first)}"
        )


def _leading(content: list[Json]) -> Iterator[str]:
    for block in content:
        if block["type"] != "tool_result":
            return
        yield block["tool_use_id"]


def _unanswered(at: int, calls: list[str]) -> str:
    return (
        f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately "
        f"after: {', '.join(calls)}. Each `tool_use` block must have a corresponding "
        "`tool_result` block in the next message."
    )


def _check_last(talk: list[tuple[int, Json]], ledger: Ledger) -> None:
    last = talk[-1][1]
    if last["role"] == "user" or ledger.was_paused(as_blocks(last["content"])):
        return
    raise malformed(PREFILL)


def _check_latest_thinking(body: Json, model: Model, ledger: Ledger) -> None:
    """In the newest reply thinking must be as it was: changed anywhere, or missing in a tool loop."""
    replies = [
        (at, as_blocks(message["content"]))
        for at, message in enumerate(body["messages"])
        if message["role"] == "assistant"
    ]
    if not replies:
        return
    at, content = replies[-1]
    for number, block in enumerate(content):
        if _is_thought(block) and not ledger.is_genuine(block):
            raise malformed(f"messages.{at}.content.{number}: {MODIFIED}")
    unsaid = "disabled" if "disabled" in model.thinking else "adaptive"
    mode = (body.get("thinking") or {}).get("type", unsaid)
    if mode == "disabled" or not _in_tool_loop(body["messages"]):
        return
    if ledger.lacks_thoughts(content):
        if mode == "enabled" and content[0].get("type") not in THINKING:
            found = f"Expected `thinking` or `redacted_thinking`, but found `{content[0]['type']}`"
            raise malformed(f"messages.{at}.content.0.type: {found}. {MUST_START}")
        raise malformed(f"messages.{at}.content.0: {MODIFIED}")


def _is_thought(block: Any) -> bool:
    """Whether a block is thinking of the right shape; wrong shapes are refused elsewhere."""
    if block["type"] not in THINKING:
        return False
    names = ("data",) if block["type"] == "redacted_thinking" else ("thinking", "signature")
    return all(isinstance(block.get(name), str) for name in names)


def _in_tool_loop(messages: list[Json]) -> bool:
    content = as_blocks(messages[-1]["content"])
    return any(block["type"] == "tool_result" for block in content)


def _n_images(messages: list[Json]) -> int:
    return sum(_images_in(message["content"]) for message in messages)


def _images_in(content: object) -> int:
    found = 0
    for block in as_blocks(content):
        kind = block.get("type") if isinstance(block, dict) else None
        found += kind in ("image", "document")
        found += _images_in(block.get("content")) if kind == "tool_result" else 0
    return found
