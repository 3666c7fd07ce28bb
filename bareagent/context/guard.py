"""The thrash guard: when automatic compaction stops until the user speaks again."""

TURNS_BETWEEN = 5
TOO_OFTEN = 3


class Guard:
    """Counts automatic compactions and failures of one session.

    `is_resting` from the third compaction without 5 turns between, or the third failure in a row.
    """

    def __init__(self) -> None:
        """Count from 0."""
        self.autos: list[int] = []
        self.failures = 0
        self.is_resting = False

    def note_auto(self, turn: int) -> bool:
        """Count an automatic compaction at a turn; return whether it was the one too many."""
        was_resting = self.is_resting
        if self.autos and turn - self.autos[-1] >= TURNS_BETWEEN:
            self.autos.clear()
        self.autos.append(turn)
        self.failures = 0
        self.is_resting = was_resting or len(self.autos) >= TOO_OFTEN
        return self.is_resting and not was_resting

    def note_failure(self) -> bool:
        """Count a failed automatic compaction; return whether it was the one too many."""
        was_resting = self.is_resting
        self.failures += 1
        self.is_resting = was_resting or self.failures >= TOO_OFTEN
        return self.is_resting and not was_resting

    def wake(self) -> None:
        """Begin anew: the user has spoken."""
        if self.is_resting:
            self.autos.clear()
            self.failures = 0
            self.is_resting = False
