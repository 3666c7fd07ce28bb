"""The embedded model as a provider: a local server process, spoken to like any other server."""

import contextlib

from msgspec.structs import replace

from bareagent.config import Config
from bareagent.errors import ProviderError, ServerUnreachable
from bareagent.provider.claude import ClaudeProvider
from bareagent.provider.local import DEMO_MODEL, Endpoint, LocalModel, Weights
from bareagent.provider.presets import Found, Preset
from bareagent.seams import CacheLife, Capabilities, Emit, ModelInfo, Price, Reply, Request

DEMO_WINDOW_TOKENS = 8_192
MAX_OUTPUT_TOKENS = 256
LEAST_IDLE_S = 900.0


class EmbeddedProvider:
    """Starts the model's process when told to and sends each request to where it answers."""

    name = "local"

    def __init__(self, weights: Weights, config: Config) -> None:
        """Keep what to run; nothing starts yet."""
        self.weights = weights
        self._config = _patient(config)
        self._local = LocalModel(weights)
        self._model = _info(weights, DEMO_WINDOW_TOKENS if weights.is_demo else None)
        self._endpoint: Endpoint | None = None
        self._inner: ClaudeProvider | None = None

    @property
    def model(self) -> ModelInfo:
        """The model in use."""
        return self._model

    @property
    def is_loading(self) -> bool:
        """The model is still being read from disk."""
        return self._local.is_loading

    def start(self) -> None:
        """Begin to load the model behind the prompt."""
        self._local.start()

    async def reply(self, request: Request, on_event: Emit, /) -> Reply:
        """Wait for the model, then send. Raises: leaves of ProviderError."""
        inner = await self._ready()
        try:
            return await inner.reply(request, on_event)
        except ServerUnreachable:
            if self._local.pid is not None:
                raise
            # The process died: start it anew, once a call, and ask again where it answers now.
            return await (await self._ready()).reply(request, on_event)

    async def select(self, _name: str, /) -> ModelInfo:
        """Return the one model there is, whatever is asked for."""
        return self._model

    async def facts(self, _name: str, /) -> ModelInfo:
        """Return the one model's facts."""
        return self._model

    async def aclose(self) -> None:
        """End the process."""
        if self._inner is not None:
            with contextlib.suppress(ProviderError):
                await self._inner.aclose()
        await self._local.stop()

    async def _ready(self) -> ClaudeProvider:
        endpoint = await self._local.ready()
        if endpoint != self._endpoint or self._inner is None:
            self._endpoint = endpoint
            self._model = _info(self.weights, endpoint.window)
            preset = Preset(
                name=self.name,
                about="the embedded model",
                base_url=endpoint.base_url,
                model=endpoint.model,
                is_open=True,
            )
            found = Found(provider=self.name, where="made at the start", key=endpoint.api_key)
            if self._inner is not None:
                await self._inner.aclose()
            self._inner = ClaudeProvider(preset, found, self._model, self._config)
        return self._inner


def demo_weights_label(weights: Weights) -> str:
    """Return what the start line and the toolbar call the model."""
    return f"{weights.model}, demonstration" if weights.is_demo else weights.model


def _patient(config: Config) -> Config:
    """A long prompt on a slow machine is no cut: nothing comes until all of it has been read."""
    idle_s = max(config.retry.stream_idle_s, LEAST_IDLE_S)
    return replace(config, retry=replace(config.retry, stream_idle_s=idle_s))


def _info(weights: Weights, window: int | None) -> ModelInfo:
    window = window or DEMO_WINDOW_TOKENS
    return ModelInfo(
        name=DEMO_MODEL if weights.is_demo else weights.model,
        window=window,
        max_output=min(MAX_OUTPUT_TOKENS if weights.is_demo else 16 * MAX_OUTPUT_TOKENS, window // 4),
        price=Price(),
        cache_life=CacheLife(seconds=0),
        capabilities=Capabilities(tools=weights.has_tools, images=False, count_tokens=True, cache=False),
        token_factor=1.05,
        is_demo=weights.is_demo,
    )
