"""The protocols between floors and the plain values that cross them."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from bareagent.entries import AnyDelta, AnyEntry, Sent, ToolSpec, Usage
from bareagent.messages import Block, Message

Heard = AnyEntry | AnyDelta


class Emit(Protocol):
    """Hears entries and deltas; never blocks and never raises."""

    def __call__(self, heard: Heard, /) -> None:
        """Take one entry or delta."""


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars per million tokens; all zero where unknown or free.

    A request whose prompt is over `above_tokens` (0: no such step) costs `above_factor` times as much.
    """

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0
    cache_write_1h: float = 0.0
    above_tokens: int = 0
    above_factor: float = 1.0

    def cost(self, usage: Usage) -> float:
        """Return what a call costs, in dollars."""
        short_writes = usage.cache_write - usage.cache_write_1h
        is_above = 0 < self.above_tokens < usage.prompt
        return (
            (self.above_factor if is_above else 1.0)
            * (
                usage.uncached * self.input
                + usage.cache_read * self.cache_read
                + short_writes * self.cache_write
                + usage.cache_write_1h * self.cache_write_1h
                + usage.output * self.output
            )
            / 1e6
        )


class CacheLife(msgspec.Struct, frozen=True, kw_only=True):
    """How long a cached prefix lives after its last use, in seconds; 0: the provider has no cache."""

    seconds: int = 300


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a model on a server can do.

    `thinking_off` is how thinking is turned off: by no field at all, by one of these types, or never.
    `without` are types of blocks that another server gave and this one does not know.
    """

    tools: bool = True
    images: bool = True
    count_tokens: bool = True
    cache: bool = True
    thinking: Literal["adaptive", "budget", "none"] = "none"
    thinking_off: Literal["omit", "disabled", "between_tools", "never"] = "omit"
    effort: bool = False
    without: tuple[str, ...] = ()


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a model: sizes in tokens, prices, cache life, capabilities.

    `token_factor` multiplies the plain estimate before any usage is known (measured: 1.05 for
    GPT and DeepSeek, 1.25 for Claude up to 4.6 and unknown ones, 1.75 for the newest Claude).
    `is_known` is False when the numbers are fallbacks.
    """

    name: str
    window: int = 200_000
    max_output: int = 8_192
    price: Price = Price()
    cache_life: CacheLife = CacheLife()
    capabilities: Capabilities = Capabilities()
    token_factor: float = 1.25
    is_known: bool = True
    is_demo: bool = False


class Request(msgspec.Struct, kw_only=True):
    """A model call before the provider lowers it.

    `messages` is the view, system items inside it; items before the first message are the system
    prompt. `protect` names the tools whose results no micro batch clears: the boundary mark stands
    before the oldest uncleared result of another tool that is longer than `min_chars`. `max_tokens` 0
    lets the provider choose the model's largest. `model` empty is the provider's present one.
    `is_paused`: the view ends in a reply whose stop reason was `pause_turn` (the provider knows by
    itself those it gave). `conversation` names the session: a request of another one is no break.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    max_tokens: int = 0
    thinking: bool = True
    model: str = ""
    protect: Sequence[str] = ()
    min_chars: int = 0
    is_paused: bool = False
    conversation: str = ""
    purpose: Literal["turn", "summary", "subagent"] = "turn"


class Reply(msgspec.Struct, kw_only=True):
    """A whole answer of the model.

    `message` holds the blocks exactly as received. `broken` maps a block's index to its raw arguments
    where these were no whole JSON object: such a call must not run. `stop_reason` is never None: a
    cut stream raises `CutOff` instead. `prefix_break` says where this request does not begin with the
    turn before it ("" where it does): without an epoch in the log that is a fault of ours. `epoch` is
    the reason of a break that the provider had to make (to be logged): a server refused a field.
    """

    message: Message
    stop_reason: str
    usage: Usage
    model: str = ""
    request_id: str = ""
    sent: Sent = msgspec.field(default_factory=Sent)
    broken: dict[int, str] = msgspec.field(default_factory=dict)
    stop_details: dict[str, Any] | None = None
    has_cache_fields: bool = True
    prefix_break: str = ""
    epoch: str = ""
    cost_usd: float = 0.0
    duration_s: float = 0.0


class Provider(Protocol):
    """A server that answers requests.

    `reply` raises only leaves of `ProviderError` (and `InvalidRequest` before anything is sent); it
    retries by itself and tells so by `on_event`. A cancelled call closes its connection.
    """

    name: str

    @property
    def model(self) -> ModelInfo:
        """The model in use."""

    async def reply(self, request: Request, on_event: Emit, /) -> Reply:
        """Send a request and stream its answer as deltas; return it whole."""

    async def select(self, name: str, /) -> ModelInfo:
        """Use another model from here on. Raises: UnknownModel."""

    async def facts(self, name: str, /) -> ModelInfo:
        """Return what is known of a model, asking the server where the table does not say."""

    async def aclose(self) -> None:
        """Close all connections."""


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """What a call touches: `read` and `write` name a path, `run` a shell command, `none` nothing."""

    kind: Literal["none", "read", "write", "run", "other"]
    target: str = ""


class Output(msgspec.Struct, kw_only=True):
    """A tool's outcome: `text` for the model, `shown` for the user, `blocks` (images) after the text.

    `full` is a file in the session's outputs folder that holds more than `text`, which then is head
    and tail; `full_size` is the size of the whole in bytes. Both are empty where `text` is all.
    """

    text: str
    shown: str = ""
    shown_as: Literal["text", "diff", "todo"] = "text"
    blocks: list[Block] = msgspec.field(default_factory=list)
    is_error: bool = False
    full: str = ""
    full_size: int = 0


class Tool(Protocol):
    """Something the model can call.

    `params` is a msgspec Struct class that validates the arguments and gives the schema. A tool that
    declares no needs (an empty list) is asked for; `Need(kind="none")` says it touches nothing.
    `run` may raise anything: the caller makes a result of it.
    """

    name: str
    description: str
    params: type[msgspec.Struct]
    is_read_only: bool

    def needs(self, params: Any, ctx: Any, /) -> list[Need]:
        """Declare what a call touches; pure but for path look-ups."""

    async def run(self, params: Any, ctx: Any, /) -> Output:
        """Do the work."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What the user is asked.

    `permission`: may this call run; `rule` is what "a" would grant, `detail` the command or diff.
    `choice`: one of `options`, or free text if there are none. `plan`: approve a plan.
    `agent`: the subagent that asks, empty for the conversation in front. `is_background`: the call goes
    on beside the conversation once it was allowed.
    """

    kind: Literal["permission", "choice", "plan"]
    title: str
    detail: str = ""
    detail_as: Literal["text", "diff", "command", "markdown"] = "text"
    options: tuple[str, ...] = ()
    rule: str = ""
    reason: str = ""
    agent: str = ""
    is_background: bool = False


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the user answered; `text` is a comment, a chosen option or an edited command."""

    verdict: Literal["yes", "always", "no", "edit"]
    text: str = ""


class Ask(Protocol):
    """Asks the user; can be cancelled. Faces without a user answer "no" and say so in `text`."""

    async def __call__(self, question: Question, /) -> Answer:
        """Return the user's answer."""


class Spawn(Protocol):
    """Runs a subagent to its end and returns its final text."""

    def __call__(self, task: str, *, type: str) -> Coroutine[Any, Any, Output]:
        """Return the final text as an output."""


Prepare = Callable[..., Awaitable[None]]
Environment = Mapping[str, str]
