"""One request as the server saw it and what became of it."""

from dataclasses import dataclass, field

from tests.server.errors import ApiError
from tests.server.jsonish import Json, as_blocks
from tests.server.units import Unit

SUMMARY_TAG = "<conversation>"


@dataclass(slots=True)
class Record:
    """A request; `outcome` is "open", then "done", "refused", "cut", "client left" or a fault."""

    number: int
    method: str
    path: str
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes = b""
    body: Json = field(default_factory=dict)
    at: float = 0.0
    connection: int = 0
    request_id: str = ""
    step: int | None = None
    status: int = 0
    error: ApiError | None = None
    usage: Json = field(default_factory=dict)
    reply: list[Json] = field(default_factory=list)
    stop_reason: str | None = None
    outcome: str = "open"
    units: list[Unit] = field(default_factory=list)

    @property
    def is_valid(self) -> bool:
        """Whether the request itself was right; a fault of the script does not count."""
        return self.error is None or not self.error.shape

    @property
    def verdict(self) -> str:
        """ "ok" or the words of the refusal."""
        return self.error.message if self.error else "ok"

    @property
    def messages(self) -> list[Json]:
        found: list[Json] = self.body.get("messages", [])
        return found

    @property
    def last_text(self) -> str:
        """All text of the last user message, results included, one block a line."""
        for message in reversed(self.messages):
            if message.get("role") == "user":
                return "\n".join(_texts(message.get("content")))
        return ""

    @property
    def is_summary(self) -> bool:
        """Whether this asks for a summary: no tools, and a quoted conversation."""
        return not self.body.get("tools") and SUMMARY_TAG in self.last_text

    @property
    def system_text(self) -> str:
        return "\n".join(_texts(self.body.get("system")))

    def results(self) -> list[Json]:
        """The tool_result blocks of the last user message."""
        content = as_blocks(self.messages[-1].get("content")) if self.messages else []
        return [block for block in content if block.get("type") == "tool_result"]

    def marks(self) -> list[int]:
        """Positions of the cache marks in `units`."""
        return [at for at, unit in enumerate(self.units) if unit.mark]

    def as_json(self) -> Json:
        """What the log file keeps of it."""
        return {
            "number": self.number,
            "request": f"{self.method} {self.path}",
            "body": self.body,
            "status": self.status,
            "verdict": self.verdict,
            "step": self.step,
            "usage": self.usage,
            "stop_reason": self.stop_reason,
            "outcome": self.outcome,
        }


def _texts(content: object) -> list[str]:
    found: list[str] = []
    for block in as_blocks(content):
        if not isinstance(block, dict):
            continue
        if block.get("type") == "text":
            found.append(str(block.get("text", "")))
        if block.get("type") == "tool_result":
            found += _texts(block.get("content"))
    return found
