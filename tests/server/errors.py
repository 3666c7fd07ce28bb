"""Refusals as the Messages API words them: status, type, message, headers."""

from dataclasses import dataclass, field

from tests.server.jsonish import Json

KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    502: "api_error",
    503: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}

MESSAGES = {
    400: "messages: Input should be a valid list",
    401: "invalid x-api-key",
    402: "Your account has an unpaid invoice. Please go to Plans & Billing.",
    403: "Your API key does not have permission to use the specified resource.",
    404: "Not Found",
    408: "Request Timeout",
    409: "The resource was changed at the same time. Please try again.",
    413: "Request exceeds the maximum size",
    429: "This request would exceed your organization's rate limit of 50 requests per minute.",
    500: "Internal server error",
    502: "Bad gateway",
    503: "Service temporarily unavailable",
    504: "The request timed out while processing.",
    529: "Overloaded",
}

# name → (status, type, message): refusals that share a status with others.
PRESETS = {
    "credit": (
        400,
        "invalid_request_error",
        "Your credit balance is too low to access the Anthropic API. "
        "Please go to Plans & Billing to upgrade or purchase credits.",
    ),
    "tokens_per_minute": (
        429,
        "rate_limit_error",
        "This request would exceed your organization's rate limit of 30,000 input tokens per "
        "minute. For details, refer to: https://docs.claude.com/en/api/rate-limits. You can see "
        "the response headers for current usage. Please reduce the prompt length or the maximum "
        "tokens requested, or try again later.",
    ),
    "too_long": (
        400,
        "invalid_request_error",
        "prompt is too long: 205431 tokens > 200000 maximum",
    ),
    "llama_overflow": (
        400,
        "exceed_context_size_error",
        "the request exceeds the available context size, try increasing it",
    ),
    "proxy_overflow": (
        400,
        "invalid_request_error",
        "litellm.ContextWindowExceededError: ContextWindowExceededError: this model's maximum "
        "context length is 8192 tokens",
    ),
    "openai_overflow": (
        400,
        "context_length_exceeded",
        "This model's maximum context length is 8192 tokens.",
    ),
}


@dataclass
class ApiError(Exception):
    """One refusal; `shape` says that the request itself broke a rule of the wire."""

    status: int
    message: str
    kind: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    shape: bool = False

    def __post_init__(self) -> None:
        self.kind = self.kind or KINDS.get(self.status, "api_error")
        super().__init__(f"{self.status} {self.kind}: {self.message}")

    def body(self, request_id: str) -> Json:
        error = {"type": self.kind, "message": self.message}
        return {"type": "error", "error": error, "request_id": request_id}


def malformed(message: str) -> ApiError:
    """A 400 for a request that no server would take."""
    return ApiError(400, message, shape=True)


def in_stream(kind: str) -> ApiError:
    """The error of a type as an event in the middle of a stream tells it."""
    status = next((number for number, name in KINDS.items() if name == kind), 500)
    return ApiError(status, MESSAGES.get(status, "Error"), kind)


def preset(name: str) -> ApiError:
    """The refusal that stands under a name in PRESETS; Raises: KeyError."""
    status, kind, message = PRESETS[name]
    return ApiError(status, message, kind)
