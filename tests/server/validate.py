"""The check of a whole request: parameters, tools, marks, then the conversation."""

import re
from dataclasses import dataclass
from typing import Any

from tests.server import conversation, shapes
from tests.server.errors import ApiError, malformed
from tests.server.jsonish import Json, as_blocks
from tests.server.ledger import Ledger
from tests.server.models import EFFORTS, Model

KNOWN = frozenset({
    "model", "messages", "max_tokens", "system", "tools", "tool_choice", "thinking", "stream",
    "temperature", "top_p", "top_k", "stop_sequences", "metadata", "service_tier", "container",
    "cache_control", "output_config", "diagnostics", "inference_geo", "speed", "betas",
})  # fmt: skip
COUNTED = frozenset({
    "model", "messages", "system", "tools", "tool_choice", "thinking", "cache_control",
    "output_config",
})  # fmt: skip
TOOL_NAME = r"^[a-zA-Z0-9_-]{1,128}$"
TOOL_FIELDS = frozenset({
    "name", "description", "input_schema", "type", "cache_control", "strict",
    "eager_input_streaming", "input_examples", "allowed_callers", "defer_loading",
})  # fmt: skip
CHOICES = ("auto", "any", "tool", "none")
MAX_MARKS = 4
MIN_BUDGET = 1024


@dataclass(frozen=True, slots=True)
class Rules:
    """What a server of this kind knows and takes: `lacks` names what it has not."""

    ledger: Ledger
    lacks: frozenset[str] = frozenset()
    verify_thinking: bool = True


def check(body: Json, model: Model, rules: Rules, counting: bool = False) -> None:
    """Check a request to /v1/messages (or to count_tokens); Raises: ApiError."""
    known = COUNTED if counting else KNOWN
    for name in sorted(body.keys() - known):
        raise malformed(f"{name}: Extra inputs are not permitted")
    if "messages" not in body:
        raise malformed("messages: Field required")
    shapes.check(body)
    if not counting:
        _check_max_tokens(body, model)
    _check_lacks(body, rules.lacks)
    _check_marks(body)
    _check_system(body)
    _check_tools(body)
    _check_choice(body)
    _check_thinking(body, model)
    _check_sampling(body)
    _check_effort(body, model)
    conversation.check(body, model, rules.ledger, rules.verify_thinking)


def model_of(body: object, models: dict[str, Model]) -> tuple[Json, Model]:
    """The body as an object and the model it names; Raises: ApiError, 404 for an unknown model."""
    if not isinstance(body, dict):
        raise malformed("Input should be an object")
    name = body.get("model")
    if name is None:
        raise malformed("model: Field required")
    if not isinstance(name, str) or not name:
        raise malformed("model: Input should be a valid string")
    if name not in models:
        raise ApiError(404, f"model: {name}")
    return body, models[name]


def _check_max_tokens(body: Json, model: Model) -> None:
    limit = body.get("max_tokens")
    if limit is None:
        raise malformed("max_tokens: Field required")
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise malformed("max_tokens: Input should be a valid integer")
    if limit < 1:
        raise malformed("max_tokens: Input should be greater than or equal to 1")
    if limit > model.max_output:
        raise malformed(
            f"max_tokens: {limit} > {model.max_output}, which is the maximum allowed number of "
            f"output tokens for {model.id}"
        )


def _check_lacks(body: Json, lacks: frozenset[str]) -> None:
    for name in ("tools", "thinking", "cache_control", "system", "output_config"):
        has_it = _marked(body) if name == "cache_control" else body.get(name)
        if name in lacks and has_it:
            raise malformed(f"{name}: Extra inputs are not permitted")


def _check_marks(body: Json) -> None:
    found = _marked(body)
    for where, block in found:
        control = block["cache_control"]
        if not isinstance(control, dict) or control.get("type") != "ephemeral":
            raise malformed(f"{where}.cache_control: Input should be a valid cache control")
        if control.get("ttl", "5m") not in ("5m", "1h"):
            raise malformed(f"{where}.cache_control.ephemeral.ttl: Input should be '5m' or '1h'")
    if len(found) > MAX_MARKS:
        raise malformed(
            f"A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {len(found)}."
        )
    lives = [block["cache_control"].get("ttl", "5m") for where, block in found if where]
    if "5m" in lives and "1h" in lives[lives.index("5m") :]:
        raise malformed(
            "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. "
            "Note that blocks are processed in the following order: `tools`, `system`, `messages`."
        )


def _marked(body: Json) -> list[tuple[str, Json]]:
    places: list[tuple[str, object]] = [("", body)]
    places += [(f"tools.{at}", tool) for at, tool in enumerate(body.get("tools") or [])]
    places += [(f"system.{at}", item) for at, item in enumerate(as_blocks(body.get("system")))]
    for at, message in enumerate(body["messages"]):
        places += _with_inner(as_blocks(message["content"]), f"messages.{at}")
    return [
        (where, block)
        for where, block in places
        if isinstance(block, dict) and block.get("cache_control") is not None
    ]


def _with_inner(content: list[Any], where: str) -> list[tuple[str, object]]:
    places: list[tuple[str, object]] = []
    for at, block in enumerate(content):
        places.append((f"{where}.content.{at}", block))
        if isinstance(block.get("content"), list):
            inner = enumerate(block["content"])
            places += [(f"{where}.content.{at}.content.{n}", item) for n, item in inner]
    return places


def _check_system(body: Json) -> None:
    system = body.get("system")
    if system is None or (isinstance(system, str) and system.strip()):
        return
    for at, block in enumerate(as_blocks(system)):
        if block.get("type") != "text":
            raise malformed(f"system.{at}: Input should be a text block")
        for name in sorted(block.keys() - {"type", "text", "cache_control", "citations"}):
            raise malformed(f"system.{at}.{name}: Extra inputs are not permitted")
        if not str(block.get("text", "")).strip():
            raise malformed("system: text content blocks must be non-empty")


def _check_tools(body: Json) -> None:
    tools = body.get("tools")
    if tools is None:
        _check_no_calls(body)
        return
    for at, tool in enumerate(tools):
        _check_tool(tool, f"tools.{at}.custom")
    names = [tool["name"] for tool in tools]
    if len(set(names)) < len(names):
        raise malformed("tools: Tool names must be unique.")


def _check_no_calls(body: Json) -> None:
    contents = [as_blocks(message["content"]) for message in body["messages"]]
    kinds = {block["type"] for content in contents for block in content}
    if kinds & {"tool_use", "tool_result"}:
        raise malformed("Requests which include `tool_use` or `tool_result` blocks must define tools")


def _check_tool(tool: Json, where: str) -> None:
    if tool.get("type", "custom") != "custom":
        raise malformed(f"{where}.type: this server has no tools of its own")
    for name in ("name", "input_schema"):
        if name not in tool:
            raise malformed(f"{where}.{name}: Field required")
    for name in sorted(tool.keys() - TOOL_FIELDS):
        raise malformed(f"{where}.{name}: Extra inputs are not permitted")
    if not re.fullmatch(TOOL_NAME, str(tool["name"])):
        raise malformed(f"{where}.name: String should match pattern '{TOOL_NAME}'")
    if not isinstance(tool.get("description", ""), str):
        raise malformed(f"{where}.description: Input should be a valid string")
    _check_schema(tool["input_schema"], f"{where}.input_schema")


def _check_schema(schema: object, where: str) -> None:
    if not isinstance(schema, dict):
        raise malformed(f"{where}: Input should be an object")
    if "type" not in schema:
        raise malformed(f"{where}.type: Field required")
    if schema["type"] != "object":
        raise malformed(f"{where}.type: Input should be 'object'")
    for name in ("oneOf", "allOf", "anyOf"):
        if name in schema:
            raise malformed(f"{where}: input_schema does not support oneOf, allOf, or anyOf at the top level")
    if not isinstance(schema.get("properties", {}), dict):
        raise malformed(
            f"{where}: JSON schema is invalid. It must match JSON Schema draft 2020-12 "
            "(https://json-schema.org/draft/2020-12)."
        )


def _check_choice(body: Json) -> None:
    choice = body.get("tool_choice")
    if choice is None:
        return
    kind = choice.get("type")
    if kind not in CHOICES:
        tags = ", ".join(f"'{name}'" for name in CHOICES)
        raise malformed(
            f"tool_choice: Input tag '{kind}' found using 'type' does not match any of the "
            f"expected tags: {tags}"
        )
    tools = body.get("tools") or []
    if not tools and kind != "none":
        raise malformed("tool_choice: tool_choice may only be specified while providing tools.")
    if kind == "tool" and choice.get("name") not in [tool.get("name") for tool in tools]:
        raise malformed(f"Tool '{choice.get('name')}' not found in provided tools")
    mode = (body.get("thinking") or {}).get("type", "disabled")
    if kind in ("any", "tool") and mode != "disabled":
        raise malformed("Thinking may not be enabled when tool_choice forces tool use.")


def _check_thinking(body: Json, model: Model) -> None:
    thinking = body.get("thinking")
    if thinking is None:
        return
    kind = thinking.get("type")
    if kind not in ("enabled", "adaptive", "disabled", "between_tools"):
        raise malformed(
            f"thinking: Input tag '{kind}' found using 'type' does not match any of the expected "
            "tags: 'adaptive', 'disabled', 'enabled'"
        )
    if kind not in model.thinking:
        raise malformed(_not_supported(str(kind), model))
    if kind == "enabled":
        _check_budget(body, thinking.get("budget_tokens"))


def _not_supported(kind: str, model: Model) -> str:
    if kind == "enabled" and "adaptive" in model.thinking:
        return (
            '"thinking.type.enabled" is not supported for this model. Use '
            '"thinking.type.adaptive" and "output_config.effort" to control thinking behavior.'
        )
    return f"{kind} thinking is not supported on this model"


def _check_budget(body: Json, budget: object) -> None:
    if budget is None:
        raise malformed("thinking.enabled.budget_tokens: Field required")
    if not isinstance(budget, int) or budget < MIN_BUDGET:
        raise malformed(
            f"thinking.enabled.budget_tokens: Input should be greater than or equal to {MIN_BUDGET}"
        )
    if "max_tokens" in body and budget >= body["max_tokens"]:
        raise malformed("`max_tokens` must be greater than `thinking.budget_tokens`.")


def _check_sampling(body: Json) -> None:
    thinks = (body.get("thinking") or {}).get("type", "disabled") != "disabled"
    temperature = body.get("temperature")
    if temperature is not None and not 0 <= temperature <= 1:
        raise malformed("temperature: range: 0..1")
    if thinks and temperature not in {None, 1}:
        raise malformed("`temperature` may only be set to 1 when thinking is enabled.")
    for stop in body.get("stop_sequences") or []:
        if not str(stop).strip():
            raise malformed("stop_sequences: each stop sequence must contain non-whitespace")


def _check_effort(body: Json, model: Model) -> None:
    effort = (body.get("output_config") or {}).get("effort")
    if effort is None:
        return
    if not model.has_effort:
        raise malformed("This model does not support the effort parameter.")
    if effort not in EFFORTS:
        levels = "'low', 'medium', 'high', 'xhigh' or 'max'"
        raise malformed(f"output_config.effort: Input should be {levels}")
