"""Every setting with its default, range and one sentence; reading lives in `config_load.py`.

The structs give `config.toml.example` and the reference page in docs/config.md: a test holds both.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

Mode = Literal["plan", "default", "auto", "bypass"]
MODES: tuple[Mode, ...] = ("plan", "default", "auto", "bypass")
"""Permission modes, tightest first."""


class Table(Struct, kw_only=True, forbid_unknown_fields=True):
    """One table of the file; unknown keys are errors."""


def _about(
    text: str,
    example: object = None,
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
) -> Meta:
    examples = None if example is None else [example]
    if gt is not None:
        return Meta(description=text, examples=examples, gt=gt, le=le)
    return Meta(description=text, examples=examples, ge=ge, le=le)


Tokens = Annotated[int, Meta(ge=64)]
Dollars = Annotated[float, Meta(ge=0)]
Seconds = Annotated[int, Meta(ge=0)]


class ProviderChoice(Table):
    """Which provider and model to talk to."""

    name: Annotated[str, _about("a preset or a [providers.NAME] of your own; empty: by the environment")] = ""
    model: Annotated[str, _about("the model; empty: the provider's default")] = ""
    base_url: Annotated[str, _about("server address without /v1; empty: the preset's")] = ""
    api_key_env: Annotated[str, _about("environment variable that holds the key; empty: the preset's")] = ""


class ProviderEntry(Table):
    """A provider of one's own."""

    base_url: Annotated[str, _about("server address without /v1")] = ""
    api_key_env: Annotated[str, _about("environment variable that holds the key")] = ""
    auth: Annotated[Literal["x-api-key", "bearer", "both", "none"], _about("how the key is sent")] = (
        "x-api-key"
    )
    headers: Annotated[dict[str, str], _about("more headers for each request")] = field(default_factory=dict)
    model: Annotated[str, _about("the model used when none is named")] = ""
    model_file: Annotated[str, _about("local only: path of a GGUF file to run")] = ""


class ModelEntry(Table):
    """Facts about a model that the built-in table lacks or has wrong; dollars per million tokens."""

    window: Annotated[Tokens | None, _about("context window in tokens", 200_000)] = None
    max_output: Annotated[Tokens | None, _about("largest output in tokens", 8_192)] = None
    input: Annotated[Dollars | None, _about("price of fresh input", 3.0)] = None
    output: Annotated[Dollars | None, _about("price of output", 15.0)] = None
    cache_read: Annotated[Dollars | None, _about("price of a cache read", 0.3)] = None
    cache_write: Annotated[Dollars | None, _about("price of a cache write", 3.75)] = None
    cache_life_s: Annotated[Seconds | None, _about("seconds a cached prefix lives; 0: no cache", 300)] = None
    images: Annotated[bool | None, _about("takes images", True)] = None
    thinking: Annotated[Literal["adaptive", "budget", "none"] | None, _about("form of thinking", "none")] = (
        None
    )


class Thinking(Table):
    """Extended thinking."""

    mode: Annotated[Literal["auto", "off"], _about("auto: where the model has it")] = "auto"
    effort: Annotated[
        Literal["", "low", "medium", "high", "max"], _about("how hard; empty: the server's default")
    ] = ""


class Limits(Table):
    """Where a run stops."""

    turns: Annotated[int, _about("model replies in one run", ge=1, le=100_000)] = 200
    cost_usd: Annotated[float, _about("dollars a session may cost; 0: no limit", ge=0)] = 0.0


class Retry(Table):
    """What happens when a call fails in passing."""

    base_s: Annotated[float, _about("first pause in seconds, doubled each time up to 30", ge=0, le=30)] = 1.0
    max_attempts: Annotated[int, _about("attempts in all", ge=1, le=100)] = 8
    stream_idle_s: Annotated[float, _about("seconds without a byte that count as a cut", gt=0, le=3600)] = (
        120.0
    )


class Reminder(Table):
    """The nag about open todo items."""

    enabled: Annotated[bool, _about("remind at all")] = True
    rounds: Annotated[
        int, _about("rounds without a todo update before it is due; 0: each call", ge=0, le=1000)
    ] = 3


class Compaction(Table):
    """How the view forgets."""

    profile: Annotated[
        Literal["default", "seed"], _about("seed: the classic behaviour, see docs/seeds.md")
    ] = "default"
    automatic: Annotated[bool, _about("false: only /compact, the compact tool and overflow")] = True
    threshold: Annotated[
        int | Literal["auto"],
        _about('estimated tokens that trigger full compaction; "auto": only the window does'),
    ] = 50_000
    tail_tokens: Annotated[int, _about("tokens kept word for word", ge=0, le=1_000_000)] = 8_000
    tail_turns: Annotated[int, _about("runs kept word for word at most", ge=0, le=100)] = 2
    micro: Annotated[Literal["auto", "eager", "off"], _about("when old tool results are cleared")] = "auto"
    keep_recent: Annotated[
        int, _about("newest messages with results that are never cleared", ge=3, le=1000)
    ] = 3
    min_chars: Annotated[int, _about("results up to this many characters stay", ge=0, le=1_000_000)] = 100
    protect: Annotated[list[str], _about("tools whose results are never cleared")] = field(
        default_factory=lambda: ["load_skill"]
    )
    keep_tokens: Annotated[
        int, _about("newest tokens of tool output that auto never clears", ge=0, le=10_000_000)
    ] = 10_000
    rent: Annotated[
        float, _about("times the rent must cover a batch's cost before it clears", ge=0, le=100)
    ] = 1.0
    language: Annotated[str, _about('language of summaries: "auto", "zh", "en", …')] = "auto"
    summary_max_tokens: Annotated[int, _about("longest summary in tokens", ge=100, le=100_000)] = 2_000
    summary_request: Annotated[
        Literal["text", "prefix"], _about("prefix: send the request as it stands, read from the cache")
    ] = "text"
    summary_source: Annotated[
        Literal["log", "view"], _about("log: originals of cleared results are summarised")
    ] = "log"
    model: Annotated[str, _about("model that summarises; empty: the session's own")] = ""
    facts: Annotated[bool, _about("keep lines, demands, files, todos and pins by code")] = True
    pin_tokens: Annotated[int, _about("tokens all pins may take", ge=0, le=100_000)] = 2_000
    exit_after_tool: Annotated[bool, _about("the run ends after the compact tool")] = False


SEED_PROFILE: dict[str, dict[str, object]] = {
    "compaction": {
        "micro": "eager",
        "keep_recent": 3,
        "min_chars": 0,
        "protect": [],
        "keep_tokens": 0,
        "threshold": 50_000,
        "tail_turns": 0,
        "summary_source": "view",
        "summary_request": "text",
        "language": "zh",
        "facts": False,
    },
    "reminder": {"rounds": 0},
}
"""What `profile = "seed"` sets where nothing is set by hand."""


class Permissions(Table):
    """What runs without asking."""

    mode: Annotated[Mode, _about("mode at the start; plan is the tightest")] = "default"
    allow: Annotated[list[str], _about('rules that need no question, e.g. "bash(git status:*)"')] = field(
        default_factory=list
    )
    ask: Annotated[list[str], _about("rules that always ask")] = field(default_factory=list)
    deny: Annotated[list[str], _about("rules that refuse")] = field(default_factory=list)


class Bash(Table):
    """The bash tool."""

    timeout_s: Annotated[
        float, _about("seconds a command may take when the call names none", gt=0, le=86_400)
    ] = 120.0
    env_pass: Annotated[list[str], _about("secret variables that commands may see all the same")] = field(
        default_factory=list
    )
    keep_cwd: Annotated[bool, _about("cd persists from one command to the next")] = False


class Tools(Table):
    """Tools."""

    max_result_chars: Annotated[
        int, _about("longest result in the view; the rest goes to a file", ge=1_000, le=10_000_000)
    ] = 30_000
    bash: Bash = field(default_factory=Bash)


class Background(Table):
    """Background commands."""

    wake: Annotated[bool, _about("a finished one starts a run by itself")] = False


class Subagent(Table):
    """Helpers the model may start."""

    keep_log: Annotated[bool, _about("keep their logs under the session's agents folder")] = False


class SessionTable(Table):
    """Saved sessions."""

    dir: Annotated[str, _about('"project", "user" or a path')] = "project"
    redact: Annotated[bool, _about("mask secrets before anything is written")] = True


class Ui(Table):
    """The terminal."""

    theme: Annotated[Literal["auto", "dark", "light", "mono", "ansi"], _about("colours")] = "auto"
    thinking: Annotated[Literal["show", "collapse", "hide"], _about("how thinking is shown")] = "collapse"
    result_lines: Annotated[int, _about("first lines of a result that are shown", ge=0, le=1000)] = 6
    vi: Annotated[bool, _about("vi keys in the input line")] = False
    plain: Annotated[bool, _about("for screen readers: no spinner, no redraw")] = False
    notify: Annotated[bool, _about("ring after a run of over 20 seconds")] = True
    steer: Annotated[bool, _about("lines typed in a run go out after the present batch of calls")] = False


class Config(Table):
    """All settings."""

    provider: ProviderChoice = field(default_factory=ProviderChoice)
    providers: dict[str, ProviderEntry] = field(default_factory=dict)
    models: dict[str, ModelEntry] = field(default_factory=dict)
    thinking: Thinking = field(default_factory=Thinking)
    limits: Limits = field(default_factory=Limits)
    retry: Retry = field(default_factory=Retry)
    reminder: Reminder = field(default_factory=Reminder)
    compaction: Compaction = field(default_factory=Compaction)
    permissions: Permissions = field(default_factory=Permissions)
    tools: Tools = field(default_factory=Tools)
    background: Background = field(default_factory=Background)
    subagent: Subagent = field(default_factory=Subagent)
    session: SessionTable = field(default_factory=SessionTable)
    ui: Ui = field(default_factory=Ui)
