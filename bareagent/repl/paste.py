"""Long pastes stand folded in the input line and are sent whole."""

import re

from bareagent.sanitize import clean

MAX_CHARS = 1_000
MAX_LINES = 15

_JOINER, _STAND_IN = "\u200d", "\ue00d"
_FOLD = re.compile(r"\[pasted (?:\d+ lines?|\d+ characters) #(\d+)\]")


def cleaned(pasted: str) -> str:
    """Return a pasted text without what could steer a terminal; its joiners stay, for it may be a piece."""
    return clean(pasted.replace(_JOINER, _STAND_IN)).replace(_STAND_IN, _JOINER)


class Folds:
    """The texts behind `[pasted 42 lines #1]`."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._texts: dict[int, str] = {}

    def fold(self, pasted: str) -> str:
        """Return what to insert for a pasted text: itself, cleaned, or a fold if it is long."""
        text = cleaned(pasted)
        n_lines = text.count("\n") + (not text.endswith("\n"))
        if len(text) <= MAX_CHARS and n_lines <= MAX_LINES:
            return text
        number = len(self._texts) + 1
        self._texts[number] = text
        size = f"{n_lines} lines" if n_lines > 1 else f"{len(text)} characters"
        return f"[pasted {size} #{number}]"

    def unfold(self, text: str) -> str:
        """Return a text with every fold of ours put back."""
        return _FOLD.sub(self._original, text)

    def _original(self, match: re.Match[str]) -> str:
        return self._texts.get(int(match[1]), match[0])

    def has_fold(self, text: str) -> bool:
        """Tell whether a text holds a fold of ours."""
        return any(int(match[1]) in self._texts for match in _FOLD.finditer(text))

    def end_of_fold(self, before: str) -> int:
        """Return how many characters a fold takes that ends a text; 0: none does."""
        return max(
            (len(found[0]) for found in _FOLD.finditer(before) if found.end() == len(before)), default=0
        )
