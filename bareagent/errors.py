"""The errors a user can meet, each with an exit code and a line that says what to do.

BareAgentError                  1   failed
├── UsageError                  2   a flag, command or argument is wrong
├── LineTooLong                 2   a line does not fit the window by itself
├── LimitReached                4   turns or money
├── SessionError                1
│   ├── SessionUnreadable      65
│   ├── SessionNotFound        66
│   └── SessionLocked          75   another program writes it
├── ProviderError               1
│   ├── NoKey                  77   no key was found
│   ├── BadKey                 77   401, 403
│   ├── NoCredit                1   the account cannot pay
│   ├── ServerUnreachable      69   refused, DNS, TLS, proxy, wrong base URL
│   ├── UnknownModel           69
│   ├── TooLong                 1   the request does not fit the model's window
│   ├── BadRequest              1   any other 4xx
│   ├── TryLater               75   429, 408, 409, 5xx, 529, overloaded
│   └── CutOff                 75   the answer broke off: cut, stalled or garbled stream
├── ConfigError                78
└── InvalidRequest             70   a request of ours broke a rule of the API: our own fault
"""


class BareAgentError(Exception):
    """An expected failure, told in one or two lines: `str(error)`, then `hint`.

    `hint` says what to do and may be empty. `exit_code` is what print mode and start-up end with.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        """Keep the message and the hint."""
        super().__init__(message)
        self.hint = hint


class UsageError(BareAgentError):
    """A flag, a command or an argument is wrong."""

    exit_code = 2


class LineTooLong(BareAgentError):
    """A line cannot be sent whatever is compacted; it was not logged."""

    exit_code = 2


class LimitReached(BareAgentError):
    """A limit of turns or money stops the run."""

    exit_code = 4


class SessionError(BareAgentError):
    """A session cannot be used as asked."""


class SessionUnreadable(SessionError):
    """A session's log cannot be read at all."""

    exit_code = 65


class SessionNotFound(SessionError):
    """No session or file has this name."""

    exit_code = 66


class SessionLocked(SessionError):
    """Another program writes this session."""

    exit_code = 75


class ProviderError(BareAgentError):
    """A model call failed.

    `is_retryable` says whether the retry policy may try again; `retry_after_s` is the server's own
    wish in seconds (None: it had none); `status` is the HTTP status (0: none).
    """

    is_retryable = False

    def __init__(
        self, message: str, hint: str = "", *, status: int = 0, retry_after_s: float | None = None
    ) -> None:
        """Keep what the server said."""
        super().__init__(message, hint)
        self.status = status
        self.retry_after_s = retry_after_s


class NoKey(ProviderError):
    """No key was found for the provider."""

    exit_code = 77


class BadKey(ProviderError):
    """The server refused the key."""

    exit_code = 77


class NoCredit(ProviderError):
    """The account cannot pay for the call."""


class ServerUnreachable(ProviderError):
    """No server answered at the base URL."""

    exit_code = 69
    is_retryable = True


class UnknownModel(ProviderError):
    """The server does not know the model."""

    exit_code = 69


class TooLong(ProviderError):
    """The request does not fit the model's window or the server's size limit.

    `window` is the model's window and `size` the prompt's, in tokens, where the server's words tell
    them, else 0.
    """

    window = 0
    size = 0


class BadRequest(ProviderError):
    """The server refused the request for another reason."""


class TryLater(ProviderError):
    """The server is busy: rate limit, overload or a passing fault."""

    exit_code = 75
    is_retryable = True


class CutOff(ProviderError):
    """The answer broke off before its end."""

    exit_code = 75
    is_retryable = True


class ConfigError(BareAgentError):
    """A configuration file, variable or flag holds a bad value."""

    exit_code = 78


class InvalidRequest(BareAgentError):
    """A request of ours breaks a rule of the API and was not sent."""

    exit_code = 70
