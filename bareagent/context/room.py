"""How much fits: window, reserve, threshold and the hard limits of a request."""

import msgspec

from bareagent.config import Compaction
from bareagent.context.measure import Measured
from bareagent.context.tokens import Meter
from bareagent.seams import ModelInfo

MAX_BYTES = 24 * 1024 * 1024
MAX_IMAGES = 90
LEAST_OUTPUT = 256
"""A request with less room for the answer is not sent before a compaction."""
OUTPUT_GAP = 512
RELIEF = 0.75
"""A batch at the limit must bring the request down to this share of it."""


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in tokens: the window, what is kept free for the answer, the threshold (None: window only)."""

    window: int
    reserve: int
    max_output: int
    threshold: int | None = None

    @property
    def limit(self) -> int:
        """The largest size of a request."""
        return self.window - self.reserve

    def max_tokens(self, size: float) -> int:
        """Return how long an answer to a request of this size may be."""
        return min(self.max_output, int(self.window - size) - OUTPUT_GAP)


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """How full a view is, by each measure: `size` by the Meter, `plain` in tokens by estimate_tokens."""

    size: float
    plain: float
    n_bytes: int = 0
    n_images: int = 0


def room_of(model: ModelInfo, config: Compaction) -> Room:
    """Return the room of a model under these settings."""
    wanted = min(max(model.max_output + 4096, 8192), 20_000)
    threshold = config.threshold
    return Room(
        window=model.window,
        reserve=min(wanted, model.window // 4),
        max_output=model.max_output,
        threshold=None if threshold == "auto" else threshold,
    )


def load_of(view: Measured, meter: Meter) -> Load:
    """Return how full a view is."""
    return Load(
        size=meter.size(view.estimate),
        plain=view.plain / 4,
        n_bytes=sum(message.n_bytes for message in view.messages),
        n_images=sum(message.n_images for message in view.messages),
    )


def is_over(load: Load, room: Room, share: float = 1.0) -> bool:
    """Tell whether any limit, or this share of it, is passed."""
    return is_over_window(load, room, share) or (
        room.threshold is not None and load.plain > room.threshold * share
    )


def is_over_window(load: Load, room: Room, share: float = 1.0) -> bool:
    """Tell whether the request itself is too large: tokens, bytes or images."""
    return (
        load.size > room.limit * share
        or load.n_bytes > MAX_BYTES * share
        or load.n_images > MAX_IMAGES * share
    )
