"""The forms a request asks for thinking in: adaptive, by budget, or off."""

from typing import Any

from bareagent.config import Thinking
from bareagent.seams import ModelInfo

MIN_BUDGET_TOKENS = 1024  # the API's own least
_BUDGET_TOKENS = {"": 8_192, "low": 2_048, "medium": 8_192, "high": 16_384, "max": 32_000}


def thinking_fields(
    config: Thinking, model: ModelInfo, max_tokens: int, *, is_wanted: bool
) -> dict[str, Any]:
    """Return the fields of a request that steer thinking; empty where the model has none."""
    form = model.capabilities.thinking
    if form == "none":
        return {}
    if config.mode == "off" or not is_wanted:
        return _off(model)
    if form == "adaptive":
        fields: dict[str, Any] = {"thinking": {"type": "adaptive", "display": "summarized"}}
        return fields | _effort(config.effort, model)
    budget = min(_BUDGET_TOKENS[config.effort], max_tokens - MIN_BUDGET_TOKENS)
    if budget < MIN_BUDGET_TOKENS:
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _effort(effort: str, model: ModelInfo) -> dict[str, Any]:
    return {"output_config": {"effort": effort}} if effort and model.capabilities.effort else {}


def _off(model: ModelInfo) -> dict[str, Any]:
    match model.capabilities.thinking_off:
        case "omit":
            return {}
        case "never":
            # Such a model always thinks, and thinking counts as output: it is asked for little.
            return _effort("low", model)
        case kind:
            return {"thinking": {"type": kind}}
