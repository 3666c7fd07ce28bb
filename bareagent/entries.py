"""One vocabulary for what is logged and what a screen hears.

Every `Entry` stands in the log as one JSON object `{"v":1,"n":…,"at":…,"type":…, …}`; a `Delta` is only
shown. Field names are the file format: docs/sessions.md documents them as a contract.
"""

from typing import Any, Literal

import msgspec

from bareagent.messages import Block, Message

LOG_VERSION = 1

Kind = Literal[
    "line",  # what the user typed
    "shell",  # a !command of the user's and its output
    "reply",  # the model's
    "results",  # what answers the calls of a reply
    "continue",  # "Continue.", sent by the program
    "reminder",  # the nag
    "notice",  # a background job's end
    "instructions",  # AGENTS.md changed
    "other",  # any other injected item
]

Status = Literal["pending", "in_progress", "completed"]
Priority = Literal["low", "normal", "high"]
Trigger = Literal["manual", "auto", "overflow", "tool"]


class Record(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A plain part of an entry."""


class Usage(Record):
    """Tokens of one model call, as billed; `uncached` is the API's `input_tokens`."""

    uncached: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    output: int = 0
    thinking: int = 0

    @property
    def prompt(self) -> int:
        """The whole prompt in tokens; `cache_write` includes `cache_write_1h`."""
        return self.uncached + self.cache_read + self.cache_write

    @property
    def total(self) -> int:
        """Prompt and output together: the context's size after the call."""
        return self.prompt + self.output


class Sent(Record):
    """What is known of a request: sha256 of its encoding, size in bytes, where the cache marks stand.

    A mark is `"system"`, `"tools"` or `"message.block"` by index in the lowered request. `head` is the
    JSON of all that stands beside system, tools and messages, so that the request can be made again.
    """

    sha256: str = ""
    size: int = 0
    marks: list[str] = msgspec.field(default_factory=list)
    head: str = ""


class ToolSpec(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A tool as the model sees it."""

    name: str
    description: str
    input_schema: dict[str, Any]


class TodoItem(msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One item of the todo list."""

    id: str
    text: str
    status: Status = "pending"
    priority: Priority = "normal"


class Parent(Record):
    """Where a fork comes from: the session, its generation, and the last entry that was copied."""

    id: str
    generation: int = 0
    n: int = 0


class Entry(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="type"):
    """One line of the log; `n` and `at` (UTC, ISO 8601 with milliseconds and Z) are set when appended."""

    v: int = 0
    n: int = 0
    at: str = ""


class SessionStart(Entry, tag="session"):
    """The first entry of a log."""

    id: str
    cwd: str = ""
    created: str = ""
    program: str = ""
    parent: Parent | None = None


class Prompt(Entry, tag="prompt"):
    """The system prompt and the tools, written when they differ from the last ones."""

    system: str
    tools: list[ToolSpec] = msgspec.field(default_factory=list)


class MessageEntry(Entry, tag="message"):
    """One message; the fields behind `masked` are a reply's.

    `masked` counts the secrets in it that were masked before it was written.
    """

    message: Message
    kind: Kind = "other"
    masked: int = 0
    usage: Usage | None = None
    model: str = ""
    stop_reason: str | None = None
    stop_details: dict[str, Any] | None = None
    request_id: str = ""
    request: Sent | None = None
    cost_usd: float = 0.0
    duration_s: float = 0.0


class Cleared(Entry, tag="cleared"):
    """A micro-compaction batch: these results show their placeholders from here on.

    `tokens` freed, `cost_usd` paid now and `pays_after` calls are the sum behind the decision.
    """

    handles: list[str]
    reason: str = ""
    tokens: int = 0
    cost_usd: float = 0.0
    pays_after: int = 0


class Compaction(Entry, tag="compaction"):
    """A full compaction: what stands before `first_kept_entry_id` gives way to summary and facts.

    `first_kept_entry_id` is 0 when nothing is kept word for word. `system_items` are the entries whose
    system items stay before the header; `dropped` are kept-side items that go (older reminders, seen
    notices). `capped` gives, for results of the tail, how many characters of text they keep.
    `acknowledgement` is empty where the tail begins with a reply.
    """

    summary: str
    generation: int
    first_kept_entry_id: int = 0
    facts: str = ""
    acknowledgement: str = ""
    system_items: list[int] = msgspec.field(default_factory=list)
    dropped: list[int] = msgspec.field(default_factory=list)
    capped: dict[str, int] = msgspec.field(default_factory=dict)
    trigger: Trigger = "manual"
    focus: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    usage: Usage | None = None
    model: str = ""
    cost_usd: float = 0.0
    snapshot: str = ""


class Undone(Entry, tag="undone"):
    """A compaction is taken back; `compaction` is its entry's number."""

    compaction: int


class Rewound(Entry, tag="rewound"):
    """The session goes back to before entry `to`: messages, clears, compactions, pins, todo list."""

    to: int


class Todo(Entry, tag="todo"):
    """The whole todo list; `next_id` is the number the next new item gets (t1, t2, …, never reused)."""

    items: list[TodoItem]
    next_id: int = 1


class Name(Entry, tag="name"):
    """The session's name; `is_automatic` when it was made from the first line."""

    name: str
    is_automatic: bool = False


class Pin(Entry, tag="pin"):
    """All pinned texts."""

    pins: list[str]


class Mode(Entry, tag="mode"):
    """The permission mode."""

    mode: str


class Model(Entry, tag="model"):
    """The model in use from here on."""

    model: str
    provider: str = ""


class Grant(Entry, tag="grant"):
    """A permission rule the user gave for this session, or took back."""

    rule: str
    is_removed: bool = False


class Epoch(Entry, tag="epoch"):
    """A deliberate break of the request's prefix that no other entry tells."""

    reason: str
    tokens: int = 0
    cost_usd: float = 0.0


class UsageEntry(Entry, tag="usage"):
    """A model call that left no message: a failed summary, a subagent's, a counted attempt."""

    usage: Usage
    model: str = ""
    purpose: str = ""
    cost_usd: float = 0.0


class Interrupted(Entry, tag="interrupted"):
    """The user stopped the run; `calls` are the ids of calls that had begun."""

    calls: list[str] = msgspec.field(default_factory=list)


class TurnEnd(Entry, tag="turn_end"):
    """The card at the end of a run, so that lists read only head and tail of a log."""

    name: str = ""
    first_line: str = ""
    turns: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    generation: int = 0
    model: str = ""
    branch: str = ""


AnyEntry = (
    SessionStart
    | Prompt
    | MessageEntry
    | Cleared
    | Compaction
    | Undone
    | Rewound
    | Todo
    | Name
    | Pin
    | Mode
    | Model
    | Grant
    | Epoch
    | UsageEntry
    | Interrupted
    | TurnEnd
)


class Delta(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="type"):
    """Something a screen hears and the log never holds.

    `agent` is empty for the session in front, else the subagent's id ("a1").
    """

    agent: str = ""


class ReplyStarted(Delta, tag="reply_started"):
    """A model call went out; `purpose` is turn, summary or subagent."""

    purpose: str = "turn"
    model: str = ""


class TextDelta(Delta, tag="text_delta"):
    """More text of the reply."""

    text: str


class ThinkingDelta(Delta, tag="thinking_delta"):
    """More thinking of the reply."""

    text: str


class InputDelta(Delta, tag="input_delta"):
    """More of a call's arguments as raw JSON; the first one of a call carries its name."""

    index: int
    name: str = ""
    partial_json: str = ""


class ReplyDropped(Delta, tag="reply_dropped"):
    """What was shown of the present attempt is taken back: it failed."""

    reason: str


class Retrying(Delta, tag="retrying"):
    """The next attempt goes out after `delay_s` seconds."""

    reason: str
    attempt: int
    max_attempts: int
    delay_s: float


class CallStarted(Delta, tag="call_started"):
    """A call begins to run."""

    call: Block


class CallOutput(Delta, tag="call_output"):
    """More live output of a running call."""

    call_id: str
    text: str


class CallEnded(Delta, tag="call_ended"):
    """A call has its result; `shown` is for the user (a diff, a list), else the result's text counts."""

    call: Block
    result: Block
    shown: str = ""
    shown_as: Literal["text", "diff", "todo"] = "text"
    duration_s: float = 0.0


class Said(Delta, tag="said"):
    """A line of the program's own; `level` chooses its look."""

    text: str
    level: Literal["info", "dim", "warning", "error"] = "info"


class SubagentProgress(Delta, tag="subagent_progress"):
    """The one progress line of a subagent; an empty text ends it."""

    text: str = ""


class JobsChanged(Delta, tag="jobs_changed"):
    """The background jobs that run now, by id."""

    running: list[str]


AnyDelta = (
    ReplyStarted
    | TextDelta
    | ThinkingDelta
    | InputDelta
    | ReplyDropped
    | Retrying
    | CallStarted
    | CallOutput
    | CallEnded
    | Said
    | SubagentProgress
    | JobsChanged
)
