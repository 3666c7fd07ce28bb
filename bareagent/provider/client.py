"""Opens the SDK's client: where it sends to, how the key goes out, what a call through it can raise.

This file and `claude.py` are the only ones that use the SDK.
"""

import functools
import importlib
import sys
import threading
from collections.abc import Mapping
from typing import Any

from bareagent.errors import ProviderError
from bareagent.provider import failures, lazy_sdk
from bareagent.provider.presets import OFFICIAL_URL, Found, Preset

CONNECT_TIMEOUT_S = 10.0
PREPARED_BY_SDK = ("bedrock", "vertex")


def sdk() -> Any:
    """Return the `anthropic` module; the first call costs half a second and more."""
    return lazy_sdk.load()


def preload() -> threading.Thread:
    """Begin to import the SDK in a thread, behind the first prompt; return the thread."""
    thread = threading.Thread(target=sdk, name="sdk-import", daemon=True)
    thread.start()
    return thread


@functools.cache
def _own_failures() -> tuple[type[Exception], ...]:
    httpx2 = importlib.import_module("httpx2")
    return (
        sdk().AnthropicError,
        httpx2.HTTPError,
        httpx2.InvalidURL,
        httpx2.CookieConflict,
        httpx2.StreamError,
        ProviderError,
        OSError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        AssertionError,
        ImportError,
        RuntimeError,
        ExceptionGroup,
    )


def call_failures() -> tuple[type[Exception], ...]:
    """Return all that a call can raise: the SDK's errors, the transport's, those of a garbled stream.

    A platform's own (no credentials, say) are among them once its library was loaded.
    """
    platforms = {"google.auth.exceptions": "GoogleAuthError", "botocore.exceptions": "BotoCoreError"}
    loaded = [
        getattr(sys.modules[module], name) for module, name in platforms.items() if module in sys.modules
    ]
    return (*_own_failures(), *loaded)


def open_client(preset: Preset, found: Found, idle_s: float, http_client: Any = None) -> Any:
    """Return a client that retries nothing and calls no byte for `idle_s` seconds a timeout.

    Raises: ServerUnreachable where a cloud's library or credentials are missing.
    """
    timeout = importlib.import_module("httpx2").Timeout(idle_s, connect=CONNECT_TIMEOUT_S)
    shared = {"max_retries": 0, "timeout": timeout}
    if preset.kind in PREPARED_BY_SDK:
        return _platform_client(preset, shared)
    transport = http_client or _transport(preset.base_url)
    return sdk().AsyncAnthropic(
        base_url=preset.base_url, http_client=transport, **_auth(preset, found), **shared
    )


def _transport(base_url: str) -> Any:
    """Return a transport that follows no redirect: it would take the key to another address.

    Reading the system's certificates takes 50 ms, which a server without TLS, on this machine as a
    rule, has no use for. A proxy that is not on the way is not even looked at: it may be one that
    cannot be used.

    Raises: ServerUnreachable where the certificates cannot be read.
    """
    is_direct = not failures.proxy_on_the_way(base_url)
    is_plain = base_url.startswith("http:") and is_direct
    verify = False if is_plain else _certificates()
    return sdk().DefaultAsyncHttpxClient(follow_redirects=False, verify=verify, trust_env=not is_direct)


def _certificates() -> Any:
    """Return what trusts the system's certificates, or those that the environment names."""
    try:
        return importlib.import_module("httpx2").create_ssl_context()
    except OSError as error:
        raise failures.no_certificates(error) from error


def _auth(preset: Preset, found: Found) -> dict[str, Any]:
    """Return how the key goes out; the SDK itself sends an `api_key` as a bearer token."""
    key, headers = found.key, dict(preset.headers)
    if found.where == "ANTHROPIC_AUTH_TOKEN" or preset.auth == "bearer":
        return {"auth_token": key or "none", "default_headers": headers}
    if not key or preset.auth == "none":
        return {"api_key": "none", "default_headers": {"Authorization": sdk().Omit(), **headers}}
    if preset.auth == "x-api-key":
        omitted: Mapping[str, Any] = {"Authorization": sdk().Omit(), "x-api-key": key}
        return {"api_key": key, "default_headers": {**omitted, **headers}}
    if preset.base_url != OFFICIAL_URL:
        headers = {"x-api-key": key, **headers}
    return {"api_key": key, "default_headers": headers}


def _platform_client(preset: Preset, shared: dict[str, Any]) -> Any:
    name = "AsyncAnthropicBedrock" if preset.kind == "bedrock" else "AsyncAnthropicVertex"
    try:
        return getattr(sdk(), name)(**shared)
    except (ImportError, ValueError) as error:
        raise failures.no_platform(preset.name, str(error)) from error
