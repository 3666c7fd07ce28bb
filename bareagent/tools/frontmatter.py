"""The few lines of front matter at the head of a skill: keys with a text or a list, no more of YAML."""

import re

_KEY = re.compile(r"(?P<key>[A-Za-z][A-Za-z0-9_-]*)\s*:(?:\s+(?P<value>.*))?")
_BLOCK = re.compile(r"[|>][+-]?")


def split(text: str) -> tuple[dict[str, str | list[str]], str]:
    """Return the front matter and the body behind it; an empty one where there is none.

    A value is a text (quoted, folded over indented lines, or plain) or a list (`[a, b]`, `- a` lines).
    """
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        return {}, text
    end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() in {"---", "..."}), 0)
    if not end:
        return {}, text
    return _fields(lines[1:end]), "\n".join(lines[end + 1 :]).strip("\n")


def _fields(lines: list[str]) -> dict[str, str | list[str]]:
    fields: dict[str, str | list[str]] = {}
    key = ""
    for line in lines:
        match = _KEY.fullmatch(line.rstrip())
        if match:
            key = match["key"].casefold()
            fields[key] = _value(match["value"] or "")
        elif key and line.strip() and not line.lstrip().startswith("#"):
            fields[key] = _longer(fields[key], line.strip())
    return fields


def _value(text: str) -> str | list[str]:
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        return items(text[1:-1])
    return "" if _BLOCK.fullmatch(text) else _unquoted(text)


def _longer(value: str | list[str], line: str) -> str | list[str]:
    if line.startswith("- ") and not (isinstance(value, str) and value):
        return [*value, _unquoted(line[2:].strip())]
    return f"{value} {line}".strip() if isinstance(value, str) else value


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return re.sub(r"\s+#.*", "", text)


def items(text: str) -> list[str]:
    """Return what commas tell apart, those in brackets left alone."""
    parts = re.findall(r"(?:[^,()]|\([^()]*\))+", text)
    return [_unquoted(part.strip()) for part in parts if part.strip()]
