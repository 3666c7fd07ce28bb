"""What the model says: steps, and which of them answers which request."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tests.server.faults import Fault, fault_from
from tests.server.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One tool call of a reply; `raw_input` is sent in place of the input's JSON."""

    name: str
    input: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""
    raw_input: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One reply (README.md tells each field); block order: thinking, text, blocks, calls."""

    text: str | None = None
    thinking: str | None = None
    blocks: Sequence[Mapping[str, Any]] = ()
    calls: Sequence[Call] = ()
    raw_input: str | None = None
    empty: bool = False
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Mapping[str, Any] | None = None
    usage_output: int | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    chunk: int = 24
    delay_s: float = 0.0
    faults: Sequence[Fault] = ()
    match: str | None = None
    match_re: str | None = None
    summary: bool = False
    expect: Sequence[str] = ()
    times: int = 1
    repeat: bool = False

    def fits(self, record: Record) -> bool:
        """Whether a step with a condition is meant for this request."""
        if self.summary and not record.is_summary:
            return False
        if self.match is not None and self.match not in record.last_text:
            return False
        return self.match_re is None or bool(re.search(self.match_re, record.last_text))

    @property
    def is_conditional(self) -> bool:
        return self.summary or self.match is not None or self.match_re is not None


Speaker = Callable[[Record], "Step | Mapping[str, Any] | str"]
StepLike = Step | Mapping[str, Any] | str | Speaker


class ScriptError(Exception):
    """A request that the script did not foresee; it fails the test."""


@dataclass(slots=True)
class _Slot:
    step: Step | Speaker
    left: int
    index: int


class Script:
    """Steps in order; a step with a condition is taken as soon as it fits, others in sequence."""

    def __init__(self, steps: Iterable[StepLike], default: StepLike | None = None) -> None:
        self._slots: list[_Slot] = []
        self._default = default
        self._added = 0
        self.add(steps)

    def add(self, steps: Iterable[StepLike]) -> None:
        """Append steps, also while the server runs."""
        for item in steps:
            step = item if callable(item) else step_from(item)
            is_endless = isinstance(step, Step) and step.repeat
            left = -1 if is_endless else step.times if isinstance(step, Step) else 1
            self._slots.append(_Slot(step, left, self._added))
            self._added += 1

    def take(self, record: Record) -> Step:
        """The step that answers a request.

        Raises: ScriptError where there is none, or where the request lacks what it expects.
        """
        slot = self._pick(record)
        if slot is None:
            return self._fall_back(record)
        if slot.left > 0:
            slot.left -= 1
        record.step = slot.index
        step = slot.step if isinstance(slot.step, Step) else _spoken(slot.step, record)
        for wanted in step.expect:
            if wanted not in record.last_text:
                raise ScriptError(
                    f"step {slot.index + 1} expects {wanted!r} in the last user message, found: "
                    f"{record.last_text[:500]!r}"
                )
        return step

    @property
    def unused(self) -> list[int]:
        """Numbers (from 1) of steps that were never or not fully played; endless ones left out."""
        return [slot.index + 1 for slot in self._slots if slot.left > 0]

    def _pick(self, record: Record) -> _Slot | None:
        live = [slot for slot in self._slots if slot.left]
        for slot in live:
            if isinstance(slot.step, Step) and slot.step.is_conditional and slot.step.fits(record):
                return slot
        plain = [s for s in live if not isinstance(s.step, Step) or not s.step.is_conditional]
        return plain[0] if plain else None

    def _fall_back(self, record: Record) -> Step:
        if self._default is None:
            raise ScriptError(
                f"the script has no step left for request {record.number}, whose last user "
                f"message is: {record.last_text[:500]!r}"
            )
        if self._default == "echo":
            return Step(text=f"echo: {record.last_text or '(nothing)'}")
        return _spoken(self._default, record) if callable(self._default) else step_from(self._default)


def step_from(value: "Step | Mapping[str, Any] | str") -> Step:
    """A step from its JSON; a bare string is a text. Raises: ValueError for an unknown field."""
    if isinstance(value, Step):
        return value
    if isinstance(value, str):
        return Step(text=value)
    known = {item.name for item in fields(Step)} | {"fault"}
    for name in value:
        if name not in known:
            raise ValueError(f"step: unknown field {name!r}; known: {', '.join(sorted(known))}")
    given = dict(value)
    one = given.pop("fault", None)
    several = [one] if one is not None else given.get("faults", ())
    given["faults"] = tuple(fault_from(item) for item in several)
    given["calls"] = tuple(_call(item) for item in given.get("calls", ()))
    step = Step(**given)
    times = max((fault.times for fault in step.faults), default=1)
    return replace(step, times=max(step.times, times))


def _spoken(speaker: Speaker, record: Record) -> Step:
    try:
        return step_from(speaker(record))
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ScriptError(f"the step's function failed: {type(error).__name__}: {error}") from error


def load(path: Path) -> tuple[list[StepLike], dict[str, Any]]:
    """Steps and server options of a script file: a list of steps, or {"steps": …, options}."""
    found = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(found, list):
        return list(found), {}
    options = dict(found)
    options.pop("about", None)
    return list(options.pop("steps")), options


def _call(value: Call | Mapping[str, Any]) -> Call:
    return value if isinstance(value, Call) else Call(**value)
