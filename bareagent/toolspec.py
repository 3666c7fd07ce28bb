"""A tool as the model sees it: one form for whoever builds a request, with or without a log."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from bareagent.entries import ToolSpec
from bareagent.seams import Tool


def spec(tool: Tool) -> ToolSpec:
    """Return a tool as the model sees it; the same bytes each time."""
    return ToolSpec(name=tool.name, description=tool.description, input_schema=schema_of(tool.params))


@cache
def schema_of(params: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema of a tool's parameters, without references and what says nothing."""
    (root,), parts = msgspec.json.schema_components([params], ref_template="{name}")
    schema: dict[str, Any] = _inlined(root, parts)
    schema.setdefault("properties", {})
    return schema


def _inlined(node: Any, parts: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inlined(item, parts) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inlined(parts[node["$ref"]], parts)
    whole = {key: _inlined(value, parts) for key, value in node.items() if not _is_dull(node, key)}
    if "properties" in node:
        whole["properties"] = {name: _inlined(part, parts) for name, part in node["properties"].items()}
    return whole


def _is_dull(node: dict[str, Any], key: str) -> bool:
    """Tell what says nothing to the model: names and docstrings of our classes, empty defaults."""
    is_class = "properties" in node or node.get("type") == "object"
    if key in {"default", "required"}:
        return not node[key]
    return key == "title" or (is_class and key in {"description", "additionalProperties", "properties"})
