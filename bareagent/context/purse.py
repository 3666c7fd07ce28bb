"""One purse for a session and its subagents: what all have spent, and what calls under way will cost."""

from collections.abc import Iterator
from contextlib import contextmanager

from bareagent.context.working import Book

SLOT = "purse"


class Purse:
    """Counts the dollars of a session and of the subagents at work for it, however deep they stand.

    A subagent that has ended is no longer counted by itself: its bill is in the session that started it.
    """

    def __init__(self, book: Book) -> None:
        """Begin with one session."""
        self._books = [book]
        self._held = 0.0

    @property
    def spent(self) -> float:
        """What is spent, and held for calls under way."""
        return sum(book.view.cost_usd for book in self._books) + self._held

    @contextmanager
    def shared_with(self, book: Book) -> Iterator[None]:
        """Let a subagent spend from it meanwhile."""
        book.working[SLOT] = self
        self._books.append(book)
        try:
            yield
        finally:
            self._books = [other for other in self._books if other is not book]

    @contextmanager
    def holding(self, usd: float) -> Iterator[None]:
        """Hold what a call will cost about, until it is over and its bill is known."""
        self._held += usd
        try:
            yield
        finally:
            self._held -= usd


def purse_of(book: Book) -> Purse:
    """Return the purse a session spends from; its own where it shares none."""
    found = book.working.get(SLOT)
    if isinstance(found, Purse):
        return found
    made = Purse(book)
    book.working[SLOT] = made
    return made
