"""The models the server knows: windows, limits, what each takes."""

from collections.abc import Iterable
from dataclasses import dataclass

from tests.server.jsonish import Json

ANY_THINKING = frozenset({"enabled", "adaptive", "disabled"})
BUDGET = frozenset({"enabled", "disabled"})
ADAPTIVE = frozenset({"adaptive", "disabled"})
EFFORTS = ("low", "medium", "high", "xhigh", "max")


@dataclass(frozen=True, slots=True)
class Model:
    """One model: window and max_output in tokens, thinking forms it takes.

    One that is not listed answers, but the models endpoint does not know it.
    """

    id: str
    window: int = 200_000
    max_output: int = 64_000
    thinking: frozenset[str] = BUDGET
    has_effort: bool = False
    takes_system_role: bool = False
    takes_images: bool = True
    is_listed: bool = True

    def info(self) -> Json:
        """The model as `GET /v1/models/{id}` tells it."""
        return {
            "type": "model",
            "id": self.id,
            "display_name": self.id.replace("-", " ").title(),
            "created_at": "2026-01-01T00:00:00Z",
            "lifecycle": "active",
            "deprecated_at": None,
            "retires_at": None,
            "line": None,
            "max_input_tokens": self.window,
            "max_tokens": self.max_output,
            "capabilities": self.capabilities(),
        }

    def capabilities(self) -> Json:
        """The capabilities object: every known key, each with `supported`."""
        yes, no = {"supported": True}, {"supported": False}
        effort: Json = dict.fromkeys(EFFORTS, yes if self.has_effort else no)
        kinds = ("adaptive", "between_tools", "disabled", "enabled")
        types = {kind: yes if kind in self.thinking else no for kind in kinds}
        thinks = bool(self.thinking - {"disabled"})
        return {
            "batch": no,
            "citations": no,
            "code_execution": no,
            "context_management": no,
            "effort": {"supported": self.has_effort, **effort},
            "image_input": yes if self.takes_images else no,
            "pdf_input": yes if self.takes_images else no,
            "server_tools": {"supported": False, "code_execution": no, "web_search": no},
            "structured_outputs": no,
            "thinking": {"supported": thinks, "types": types},
        }


ALWAYS = frozenset({"adaptive"})
BETWEEN = frozenset({"adaptive", "between_tools"})


def _current(name: str, takes_system_role: bool, thinking: frozenset[str] = ADAPTIVE) -> Model:
    return Model(name, 1_000_000, 128_000, thinking, True, takes_system_role)


MODELS = (
    _current("claude-fable-5-2", takes_system_role=True, thinking=ALWAYS),
    _current("claude-mythos-5-2", takes_system_role=True, thinking=ALWAYS),
    _current("claude-mythos-5-1", takes_system_role=True, thinking=ALWAYS),
    _current("claude-mythos-5", takes_system_role=True, thinking=ALWAYS),
    _current("claude-fable-5-1", takes_system_role=True, thinking=ALWAYS),
    _current("claude-fable-5", takes_system_role=True, thinking=ALWAYS),
    _current("claude-opus-5-5", takes_system_role=True, thinking=ALWAYS),
    _current("claude-opus-5", takes_system_role=True),
    _current("claude-opus-4-8", takes_system_role=True),
    _current("claude-opus-4-7", takes_system_role=False),
    _current("claude-sonnet-5-5", takes_system_role=True, thinking=BETWEEN),
    _current("claude-sonnet-5", takes_system_role=False),
    _current("claude-haiku-5-5", takes_system_role=True),
    Model("claude-opus-4-6", 1_000_000, 128_000, ANY_THINKING, True),
    Model("claude-sonnet-4-6", 1_000_000, 64_000, ANY_THINKING, True),
    Model("claude-opus-4-5", has_effort=True),
    Model("claude-opus-4-5-20251101", has_effort=True),
    Model("claude-sonnet-4-5-20250929"),
    Model("claude-haiku-4-5-20251001"),
    Model("claude-sonnet-4-5"),
    Model("claude-haiku-4-5"),
    Model("test-model", thinking=ANY_THINKING, has_effort=True),
    Model("test-small", window=8_000, max_output=1_000, thinking=ANY_THINKING, has_effort=True),
    Model("test-plain", thinking=frozenset({"disabled"}), takes_images=False),
)


def table(models: Iterable[Model | Json] = ()) -> dict[str, Model]:
    """The built-in models, with given ones (or their fields as JSON) put over them."""
    given = [item if isinstance(item, Model) else _from_json(item) for item in models]
    return {model.id: model for model in (*MODELS, *given)}


def _from_json(fields: Json) -> Model:
    known = dict(fields)
    if "thinking" in known:
        known["thinking"] = frozenset(known["thinking"])
    return Model(**known)
