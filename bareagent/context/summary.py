"""The summary of a history: what is asked of the model, and what is accepted as its answer."""

import re
from collections.abc import Sequence

import msgspec

from bareagent.config import Compaction
from bareagent.context.tokens import estimate_tokens, fast_tokens
from bareagent.entries import ToolSpec, Usage
from bareagent.errors import BareAgentError
from bareagent.messages import Message, calls, system, text_of, user
from bareagent.prompts import text
from bareagent.seams import Emit, ModelInfo, Provider, Reply, Request

_SCRATCH = re.compile(
    r"<(analysis|scratch\w*|scratchpad|thinking|think|thoughts?|reasoning)>.*?(?:</\1>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_HEADED_SCRATCH = re.compile(
    r"^#{1,6} *(?:analysis|scratch ?pad|scratch|reasoning|thinking) *:? *\n.*?(?=^#{1,6} |\Z)",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)
_WRAPPED = re.compile(r"<summary>(.*?)(?:</summary>|\Z)", re.DOTALL | re.IGNORECASE)
_MARKERS = re.compile(r"^(?:\[(?:user|assistant)\]$|\[tool_(?:use|result):|</?conversation>)", re.MULTILINE)
_CJK = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_KANA = re.compile("[\u3040-\u30ff]")
_HANGUL = re.compile("[\uac00-\ud7af]")
_NAMES = {
    "en": "English",
    "zh": "Chinese (中文)",
    "ja": "Japanese",
    "ko": "Korean",
    "de": "German",
    "fr": "French",
    "es": "Spanish",
    "ru": "Russian",
    "pt": "Portuguese",
    "it": "Italian",
}
_ECHO_CHARS = 40
_ECHO_SHARE = 0.6
_LEAST_CHUNK = 1_000
_MARGIN = 0.9


Part = tuple[str, float]
"""The readable form of one message, and its estimated tokens."""


class SummaryFailed(BareAgentError):
    """No usable summary came."""


class Spent(msgspec.Struct):
    """What summary requests cost so far."""

    usage: Usage = msgspec.field(default_factory=Usage)
    cost_usd: float = 0.0
    model: str = ""
    n_calls: int = 0

    def add(self, reply: Reply) -> None:
        """Count one more reply."""
        for name in Usage.__struct_fields__:
            setattr(self.usage, name, getattr(self.usage, name) + getattr(reply.usage, name))
        self.cost_usd += reply.cost_usd
        self.model = reply.model or self.model
        self.n_calls += 1


class Question(msgspec.Struct, kw_only=True):
    """What a summary is asked with: the rules, the language as a code, the user's focus."""

    rules: Compaction
    language: str = "en"
    focus: str = ""
    previous: str = ""


def language_of(setting: str, line: str | None) -> str:
    """Return the language a summary is written in: the setting, or that of the user's last line."""
    if setting != "auto":
        return setting
    shown = line or ""
    if _KANA.search(shown):
        return "ja"
    if _HANGUL.search(shown):
        return "ko"
    if _CJK.search(shown):
        return "zh"
    return "en" if not line or shown.isascii() else "auto"


def question_text(question: Question) -> str:
    """Return what is asked, language, limit and focus in it."""
    named = _NAMES.get(question.language, question.language)
    language = (
        "Write it in the language of the user's last line."
        if question.language == "auto"
        else f"Write it in {named}."
    )
    _, _, asked = text("summary").partition("\n---\n")
    asked = asked.replace("{limit}", str(question.rules.summary_max_tokens)).replace("{language}", language)
    return f"{asked}\n\nThe user wants the summary to focus on: {question.focus}" if question.focus else asked


def text_request(conversation: str, question: Question) -> Request:
    """Return the request that shows the history as quoted text."""
    fixed, _, _ = text("summary").partition("\n---\n")
    parts = [f"<conversation>\n{conversation}\n</conversation>", question_text(question)]
    if question.previous:
        parts.insert(0, f"<previous-summary>\n{question.previous}\n</previous-summary>")
    return Request(
        messages=[system(fixed), user("\n\n".join(parts))],
        max_tokens=2 * question.rules.summary_max_tokens,
        thinking=False,
        model=question.rules.model,
        purpose="summary",
    )


def prefix_request(messages: Sequence[Message], tools: Sequence[ToolSpec], question: Question) -> Request:
    """Return the request as it stands with the question behind it, so that it reads the cache.

    It goes out as a turn does: another purpose would change what stands before the messages.
    """
    return Request(
        messages=[*messages, user(question_text(question))],
        tools=tools,
        max_tokens=2 * question.rules.summary_max_tokens,
        protect=question.rules.protect,
        min_chars=question.rules.min_chars,
    )


async def summarise(
    provider: Provider,
    parts: Sequence[Part],
    question: Question,
    model: ModelInfo,
    ratio: float,
    spent: Spent,
    emit: Emit,
) -> str:
    """Return a summary of the readable parts, in as many requests as the model's window needs.

    Raises: SummaryFailed, ProviderError.
    """
    summary = question.previous
    for chunk in _chunks(parts, _chunk_tokens(question, model, ratio)):
        folded = msgspec.structs.replace(question, previous=summary)
        reply = await provider.reply(text_request(chunk, folded), emit)
        spent.add(reply)
        summary = accepted(reply, chunk, question.rules.summary_max_tokens)
    return summary


async def summarise_prefix(
    provider: Provider,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    question: Question,
    spent: Spent,
    emit: Emit,
) -> str:
    """Return a summary asked for at the end of the request as it stands. Raises: as `summarise`."""
    reply = await provider.reply(prefix_request(messages, tools, question), emit)
    spent.add(reply)
    return accepted(reply, "", question.rules.summary_max_tokens)


def accepted(reply: Reply, source: str, limit: int) -> str:
    """Return the summary a reply holds, cleaned and within `limit` tokens.

    Raises: SummaryFailed for an empty one, one that repeats the history, one with a call.
    """
    if calls(reply.message):
        raise SummaryFailed("the summary came with a tool call")
    if reply.stop_reason in {"refusal", "model_context_window_exceeded"}:
        raise SummaryFailed(f"the model stopped with {reply.stop_reason}")
    summary = cleaned(text_of(reply.message))
    if not summary:
        raise SummaryFailed("the summary was empty")
    if is_echo(summary, source):
        raise SummaryFailed("the summary repeats the conversation")
    return trimmed(summary, limit)


def cleaned(summary: str) -> str:
    """Return a summary without scratch sections and wrapping."""
    summary = _SCRATCH.sub("", summary)
    wrapped = _WRAPPED.search(summary)
    if wrapped:
        summary = wrapped[1]
    return _HEADED_SCRATCH.sub("", summary).strip()


def is_echo(summary: str, source: str) -> bool:
    """Tell whether a summary is, for the most part, the history itself."""
    if len(_MARKERS.findall(summary)) >= 2:
        return True
    lines = [line.strip() for line in summary.splitlines() if len(line.strip()) >= _ECHO_CHARS]
    if sum(map(len, lines)) < 10 * _ECHO_CHARS:
        return False
    known = {line.strip() for line in source.splitlines()}
    repeated = sum(len(line) for line in lines if line in known)
    return repeated >= 10 * _ECHO_CHARS and repeated > _ECHO_SHARE * len(summary)


def trimmed(summary: str, limit: int) -> str:
    """Return a summary of at most `limit` tokens, cut at its last whole line."""
    if _weight(summary) <= limit:
        return summary
    low, high = 0, len(summary)
    while low < high:
        middle = (low + high + 1) // 2
        if _weight(summary[:middle]) <= limit:
            low = middle
        else:
            high = middle - 1
    kept = summary[:low]
    return (kept[: kept.rfind("\n")] if "\n" in kept.strip() else kept).rstrip()


def _weight(summary: str) -> float:
    return max(fast_tokens(summary), float(estimate_tokens(summary)))


def _chunk_tokens(question: Question, model: ModelInfo, ratio: float) -> float:
    """Return how many estimated tokens of history one request may show."""
    rules = question.rules
    around = fast_tokens(question_text(question)) + rules.summary_max_tokens + 1_000
    room = model.window - 2 * rules.summary_max_tokens - ratio * around
    return max(room / ratio * _MARGIN, _LEAST_CHUNK)


def _chunks(parts: Sequence[Part], tokens: float) -> list[str]:
    """Join readable messages into chunks of at most so many tokens, oldest first."""
    chunks: list[str] = []
    held: list[str] = []
    total = 0.0
    for part, weight in (piece for whole, size in parts for piece in _pieces(whole, size, tokens)):
        if held and total + weight > tokens:
            chunks.append("\n\n".join(held))
            held, total = [], 0.0
        held.append(part)
        total += weight + 2
    return [*chunks, "\n\n".join(held)]


def _pieces(part: str, weight: float, tokens: float) -> list[Part]:
    """Return a message with its weight; one too large for a request is cut into pieces that fit."""
    if weight <= tokens or len(part) < _LEAST_CHUNK:
        return [(part, weight)]
    step = max(int(len(part) * tokens / weight * 0.8), 1)
    pieces = (part[start : start + step] for start in range(0, len(part), step))
    return [found for piece in pieces for found in _pieces(piece, fast_tokens(piece), tokens)]
