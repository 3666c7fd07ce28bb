"""Maps every failure of a model call to one of our errors, with a line that says what to do.

Nothing is imported from the SDK: exceptions are told apart by the names of their classes, which a test
holds against both class trees, so that this file costs nothing at start.
"""

import importlib
import os
import re
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from bareagent.errors import (
    BadKey,
    BadRequest,
    CutOff,
    NoCredit,
    NoKey,
    ProviderError,
    ServerUnreachable,
    TooLong,
    TryLater,
    UnknownModel,
)
from bareagent.provider.presets import setup_command
from bareagent.sanitize import one_line

MAX_WIDTH_CELLS = 300


class Aim(NamedTuple):
    """What an error's text may name; `key` is what it must not."""

    provider: str
    base_url: str
    model: str
    where: str = ""
    key: str = ""


OVERFLOW = re.compile(
    r"prompt is too long|context_length_exceeded|exceed_context_size_error|ContextWindowExceeded"
    r"|exceeds? (?:the )?(?:available |maximum |model'?s? )?context (?:size|length|window|limit)"
    r"|exceed(?:s|ed)? (?:the )?model token limit|input token count.{0,40}exceeds the maximum"
    r"|maximum (?:context|prompt) length|greater than the context length|loaded with context length"
    r"|input is too long|request_too_large",
    re.IGNORECASE,
)
_WINDOWS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?P<size>\d[\d,]*)(?: tokens| \+ \d[\d,]*)? > (?P<window>\d[\d,]*)",
        r"(?:context (?:size|length|window|limit)|prompt length|token limit|tokens allowed)"
        r"(?: is| of)?(?: only)?:? ?\(?(?P<window>\d[\d,]*)",
        r"(?P<window>\d[\d,]*) maximum context length",
    )
)
"""Where a refusal names the window, the surest first: the first one's numbers would fit the second too."""
CREDIT = re.compile(
    r"credit balance is too low|insufficient[ _](?:credit|balance|quota|funds)|billing|payment required"
    r"|exceeded_current_quota|out of credits",
    re.IGNORECASE,
)
MODEL = re.compile(
    r"model[^.]{0,200}?(?:not found|does not exist|not exist|is not supported by|unknown)"
    r"|(?:unknown|invalid|no such|not a valid) model|model_not_found|^model: ",
    re.IGNORECASE,
)
_PROXY = re.compile(r"scheme for proxy|socksio", re.IGNORECASE)
_LOOPBACK = re.compile(r"localhost|.+\.localhost|127(\.\d+){3}|::1")
_BUSY = frozenset({"overloaded_error", "api_error", "rate_limit_error", "timeout_error"})
_ADDRESS = frozenset({"InvalidURL", "UnsupportedProtocol", "LocalProtocolError", "TooManyRedirects"})
_PLATFORM = frozenset({"GoogleAuthError", "BotoCoreError", "ImportError"})
_PASSING = frozenset({408, 409, 425, 429, 499})


def explain(error: BaseException, aim: Aim, *, has_begun: bool = False) -> ProviderError:
    """Return our error for anything that the SDK, its transport or a stream raises.

    `has_begun` says whether bytes of the answer had come.
    """
    if isinstance(error, ProviderError):
        return error
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "APIStatusError" in kinds:
        return _of_status_error(error, aim)
    if "CredentialsError" in kinds or (isinstance(error, TypeError) and "authentication" in str(error)):
        return no_key(aim)
    if "RetryableError" in kinds:
        return TryLater(_said(str(error) or "the server asks to try again", aim))
    chain = list(_chain(error))
    if any(type(each).__name__ == "LocalProtocolError" and "header" in str(each) for each in chain):
        # Its words hold the header, and in it the key in a form that no mask would find.
        return BadKey("The key or another header holds a character that cannot be sent.", _bad_key_hint(aim))
    return _of_connection(chain, aim, has_begun=has_begun)


def of_event(event: Mapping[str, Any], aim: Aim) -> ProviderError:
    """Return our error for an `error` event within a stream."""
    kind, message = _type_and_message(event)
    return of_answer(200, kind, message, {}, aim)


def of_answer(status: int, kind: str, message: str, headers: Mapping[str, str], aim: Aim) -> ProviderError:
    """Return our error for a refusal: its status, `error.type`, `error.message` and headers."""
    said = _said(message or kind or f"HTTP {status}", aim)
    wish = _retry_after(headers)
    if status != 429 and kind not in _BUSY and (status == 413 or OVERFLOW.search(f"{kind} {message}")):
        return _too_long(said, message, status)
    if status == 402 or kind == "billing_error" or CREDIT.search(f"{kind} {message}"):
        hint = f"Add credit to the account behind {_key_words(aim)}, or use another with --provider."
        return NoCredit(said, hint, status=status)
    if status in _PASSING or status >= 500 or kind in _BUSY:
        return TryLater(_of_server(said, status), status=status, retry_after_s=wish)
    if status in {401, 403} or kind in {"authentication_error", "permission_error"}:
        return BadKey(f"{aim.provider} refused the key: {said}", _bad_key_hint(aim), status=status)
    if kind == "model_not_found" or (status in {400, 404, 422} and MODEL.search(message)):
        hint = "`bareagent models` lists what the server has; choose with --model or /model."
        return UnknownModel(f"{aim.provider} has no model {aim.model}: {said}", hint, status=status)
    if status in {404, 405} or 300 <= status < 400:
        return wrong_address(f"{aim.base_url} answered {status}: {said}", status=status)
    return BadRequest(said, "", status=status)


def _too_long(said: str, message: str, status: int) -> TooLong:
    error = TooLong(said, "/compact makes it shorter.", status=status)
    found = next(filter(None, (pattern.search(message) for pattern in _WINDOWS)), None)
    named = found.groupdict() if found else {}
    error.window = int(named.get("window", "0").replace(",", ""))
    error.size = int(named.get("size", "0").replace(",", ""))
    return error


def wrong_address(message: str, *, status: int = 0) -> ServerUnreachable:
    """Return the error for an address where something else than a Messages API answers."""
    hint = "Check the base URL: it ends before /v1 (provider.base_url or ANTHROPIC_BASE_URL)."
    error = ServerUnreachable(message, hint, status=status)
    error.is_retryable = False
    return error


def no_key(aim: Aim) -> NoKey:
    """Return the error for a provider without a key."""
    where = f"set {aim.where}" if aim.where else "set its environment variable"
    return NoKey(f"No key for {aim.provider} was found.", f"Run {setup_command(aim.provider)}, or {where}.")


def no_platform(provider: str, words: str) -> ServerUnreachable:
    """Return the error for a cloud whose library or credentials are missing."""
    hint = f"It needs `pip install 'bareagent[{provider}]'` and its platform's credentials."
    return _lasting(f"{provider} cannot be used: {one_line(words, MAX_WIDTH_CELLS)}", hint)


def no_certificates(error: OSError) -> ServerUnreachable:
    """Return the error for trusted certificates that cannot be read, from where the environment says."""
    named = next((name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)), "")
    place = f"{one_line(os.environ[named], MAX_WIDTH_CELLS)} ({named})" if named else "the system"
    hint = (
        f"Correct {named} or unset it." if named else "SSL_CERT_FILE or SSL_CERT_DIR may say where they are."
    )
    words = one_line(error.strerror or str(error), MAX_WIDTH_CELLS)
    return _lasting(f"The trusted certificates of {place} cannot be read: {words}", hint)


def garbled(reason: str) -> CutOff:
    """Return the error for an answer that is no stream of events."""
    return CutOff(f"The answer came garbled: {one_line(reason, MAX_WIDTH_CELLS)}.")


def cut() -> CutOff:
    """Return the error for an answer that ended before its time."""
    return CutOff("The answer broke off before its end.")


def _of_status_error(error: Any, aim: Aim) -> ProviderError:
    body = error.body
    kind, message = _type_and_message(body) if isinstance(body, Mapping) else ("", "")
    if not message:
        message = body if isinstance(body, str) and "<" not in body[:200] else ""
    headers = error.response.headers if error.response is not None else {}
    status = int(error.status_code)
    if not message and not kind and status in {502, 503, 504}:
        message = "the server or a gateway before it is down"
    return of_answer(status, kind, message, headers, aim)


def _type_and_message(body: Mapping[str, Any]) -> tuple[str, str]:
    error = body.get("error")
    if isinstance(error, Mapping):
        return str(error.get("type") or error.get("code") or ""), str(error.get("message") or "")
    message = error if isinstance(error, str) else body.get("message") or body.get("detail") or ""
    return str(body.get("code") or ""), str(message)


def _of_connection(chain: list[BaseException], aim: Aim, *, has_begun: bool) -> ProviderError:
    kinds = {kind.__name__ for error in chain for kind in type(error).__mro__}
    words = _said(next((str(error) for error in reversed(chain) if str(error)), type(chain[0]).__name__), aim)
    if any(isinstance(error, ssl.SSLError) for error in chain) or "CERTIFICATE_VERIFY" in words:
        return _lasting(
            f"No trusted TLS connection to {aim.base_url}: {words}",
            "Behind a company proxy, point SSL_CERT_FILE to its certificate; a server without TLS needs http://.",
        )
    is_by_proxy = "ProxyError" in kinds or any(_PROXY.search(str(error)) for error in chain)
    if is_by_proxy or _is_proxy_without_address(aim.base_url):
        return _of_proxy(kinds, words, aim)
    if kinds & _PLATFORM:
        return no_platform(aim.provider, words)
    if not _parts(aim.base_url).hostname or kinds & _ADDRESS:
        return wrong_address(f"{aim.base_url} cannot be used: {words}")
    if "ReadTimeout" in kinds:
        return CutOff("No byte came from the server for too long (retry.stream_idle_s).")
    if has_begun:
        return cut() if kinds & {"TransportError", "OSError", "StreamError"} else garbled(words)
    if kinds & {"TransportError", "OSError", "APIConnectionError"}:
        return _unreachable(words, aim)
    return garbled(words)


def _unreachable(words: str, aim: Aim) -> ServerUnreachable:
    proxy = proxy_on_the_way(aim.base_url)
    if not proxy:
        hint = "Is it running, is the address right, are you online? `bareagent doctor` looks."
        return ServerUnreachable(f"{aim.base_url} cannot be reached: {words}", hint)
    hint = "Is the proxy running and its address right? Servers that need none stand in NO_PROXY."
    return ServerUnreachable(f"{proxy}, on the way to {aim.base_url}, cannot be reached: {words}", hint)


def _of_proxy(kinds: set[str], words: str, aim: Aim) -> ServerUnreachable:
    proxy = proxy_on_the_way(aim.base_url) or "The proxy"
    if "ProxyError" in kinds:
        return _lasting(f"{proxy} refused: {words}", "Check that variable and NO_PROXY.")
    if "ImportError" in kinds:
        hint = "SOCKS needs `pip install 'bareagent[socks]'`; an http:// proxy needs nothing more."
        return _lasting(f"{proxy} is a SOCKS proxy, for which a package is missing.", hint)
    return _lasting(f"{proxy} is no address of a proxy.", "It begins with http://, https:// or socks5://.")


def proxy_on_the_way(url: str) -> str:
    """Name the proxy that the environment puts before an address, without its password; "" if none.

    No proxy reaches this machine's loopback, whatever NO_PROXY leaves out.
    """
    scheme, address = _proxy_of(url)
    if not scheme:
        return ""
    shown = address.rpartition("@")[2].rpartition("://")[2]
    return f"The proxy {one_line(shown, MAX_WIDTH_CELLS)} ({scheme.upper()}_PROXY)"


def _proxy_of(url: str) -> tuple[str, str]:
    """Return the scheme a proxy is set for and its address, both empty where none is on the way."""
    request = importlib.import_module("urllib.request")
    parts = _parts(url)
    host = parts.hostname or ""
    proxies = request.getproxies()
    scheme = next((name for name in (parts.scheme, "all") if proxies.get(name)), "")
    if not scheme or not host or is_loopback(host) or request.proxy_bypass(host):
        return "", ""
    return scheme, str(proxies[scheme])


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine itself."""
    return _LOOPBACK.fullmatch(host) is not None


def _is_proxy_without_address(url: str) -> bool:
    scheme, address = _proxy_of(url)
    return bool(scheme) and not _parts(address if "://" in address else f"http://{address}").hostname


def _parts(url: str) -> SplitResult:
    """Return the parts of an address, all empty where it cannot be taken apart or its port is none."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return urlsplit("")
    return parts


def _lasting(message: str, hint: str) -> ServerUnreachable:
    error = ServerUnreachable(message, hint)
    error.is_retryable = False
    return error


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all that it came from, the members of groups included; the causes come last."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        present = waiting.pop(0)
        if present is None or id(present) in seen:
            continue
        seen.add(id(present))
        yield present
        waiting.append(present.__cause__ or present.__context__)
        if isinstance(present, BaseExceptionGroup):
            waiting.extend(present.exceptions)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit_s
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    return None


def _of_server(said: str, status: int) -> str:
    return f"The server is busy ({status}): {said}" if status >= 400 else f"The server is busy: {said}"


def _key_words(aim: Aim) -> str:
    return aim.where or "the key"


def _bad_key_hint(aim: Aim) -> str:
    if not aim.key:
        return no_key(aim).hint
    came_from = f"The key came from {aim.where}. " if aim.where else ""
    return f"{came_from}{setup_command(aim.provider)} stores another."


def _said(words: str, aim: Aim) -> str:
    if len(aim.key) > 3:
        words = words.replace(aim.key, "***")
    return one_line(words, MAX_WIDTH_CELLS)
