"""The retry policy: which pause follows which failure."""

import random
from typing import NamedTuple

from bareagent.config import Retry
from bareagent.errors import ProviderError

MAX_DELAY_S = 30.0
MAX_RETRY_AFTER_S = 120.0
_FIRST_DOUBLINGS = 20  # beyond this the pause is at its largest whatever the base


class Pause(NamedTuple):
    """The next attempt goes out after `delay_s` seconds."""

    attempt: int
    max_attempts: int
    delay_s: float


def after(error: ProviderError, attempt: int, config: Retry, draw: float | None = None) -> Pause | None:
    """Return the pause after failed attempt number `attempt` (from 1), None where it was the last.

    Full jitter: anything up to base × 2^(attempt − 1), at most 30 s. A server's own wish is obeyed up to
    120 s; a longer one ends the retries, for the user should know. `draw` (0 to 1) replaces chance.
    """
    if not error.is_retryable or attempt >= config.max_attempts:
        return None
    wish = error.retry_after_s
    if wish is not None and wish > MAX_RETRY_AFTER_S:
        return None
    ceiling = min(MAX_DELAY_S, config.base_s * 2 ** min(attempt - 1, _FIRST_DOUBLINGS))
    part = random.SystemRandom().random() if draw is None else draw
    delay_s = ceiling * part if wish is None else max(wish, ceiling * part * 0.1)
    return Pause(attempt + 1, config.max_attempts, delay_s)
