"""Every error that Holdfast raises. Pure.

    HoldfastError
    ├── InvalidValue            an invalid value; the message names it and the expected one       (also ValueError)
    ├── SettingsError           the settings file or an environment variable is wrong
    ├── MissingExtra            an optional dependency is not installed                           (also ImportError)
    ├── NotFound                the requested object does not exist
    ├── Conflict                another process changed the object first
    ├── CapacityExhausted       there are no more shards of the requested kind
    ├── Backpressure            a tenant has sent too much; `retry_after` says when to try again
    ├── LeaseLost               another worker process may be handling the message
    ├── CredentialRefused       the credential is missing, unknown, revoked or malformed
    ├── NotAllowed              the credential is valid, but its role may not do this
    ├── CallError               a remote call was not made, or did not end in time
    │   ├── AttemptTimedOut     one attempt exceeded its timeout                                  (also TimeoutError)
    │   ├── ConnectTimedOut     no connection was made in time; nothing was sent                  (also TimeoutError)
    │   ├── DeadlineExceeded    the deadline of the whole call has passed                         (also TimeoutError)
    │   ├── RetryAfterTooLong   the server asked callers to wait longer than the deadline allows
    │   └── LimitReached        the limit of concurrent attempts is reached
    └── EngineError             a database or a cloud service failed, or no endpoint of a service is left
        ├── EngineUnavailable   the engine cannot be reached; nothing was written; try again later
        │   └── DatabaseLocked  another process holds the write lock
        ├── DatabaseFull        no space left; nothing was written
        ├── DatabaseCorrupt     the file is damaged or not a database
        ├── EngineMismatch      wrong version of the engine, or of its tables
        └── OutcomeUnknown      the reply to a commit was lost: the write may or may not have happened

A caller that retries catches EngineUnavailable. After OutcomeUnknown, a caller whose write is not idempotent must check
whether it happened before it repeats the write. `slug` identifies the error in problem details and in `--json`; the
slug of a class never changes.
"""

from typing import Any, ClassVar


class HoldfastError(Exception):
    """The base class of all errors that Holdfast raises on purpose."""

    slug: ClassVar[str] = "error"


class InvalidValue(HoldfastError, ValueError):
    """A value is invalid. The message names the value and says what is expected."""

    slug = "invalid-value"


class SettingsError(HoldfastError):
    """The settings are wrong. The message names the file, the setting, the value found and the value expected."""

    slug = "settings"


class MissingExtra(HoldfastError, ImportError):
    """An optional dependency is not installed. The message says what to install."""

    slug = "missing-extra"

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(what, extra)  # both, because unpickling in another process calls this with `args`

    def __str__(self) -> str:
        what, extra = self.args
        return f"{what} needs the extra '{extra}': pip install 'holdfast-resilience[{extra}]'"


class NotFound(HoldfastError):
    """The requested object does not exist."""

    slug = "not-found"


class Conflict(HoldfastError):
    """Another process changed the object first: read it again, then decide again."""

    slug = "conflict"


class CapacityExhausted(HoldfastError):
    """There are no more shards of the requested kind. The message says which options would give more."""

    slug = "capacity-exhausted"


class Backpressure(HoldfastError):
    """A tenant exceeded its `max_rate`, or has too many messages waiting. No message was accepted."""

    slug = "backpressure"

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message, retry_after)  # both, because unpickling in another process calls this with `args`

    def __str__(self) -> str:
        return str(self.args[0])

    @property
    def retry_after(self) -> float:
        """Seconds after which the same send would be accepted if the tenant sends nothing in between."""
        return float(self.args[1])


class LeaseLost(HoldfastError):
    """The lease expired, so another process may have taken over: stop, because the result is discarded.

    Of a message, another worker process may have it; of detection, another server may evaluate.
    """

    slug = "lease-lost"


class CredentialRefused(HoldfastError):
    """The credential is missing, unknown, revoked or malformed."""

    slug = "credential-refused"


class NotAllowed(HoldfastError):
    """The credential is valid, but its role may not do this."""

    slug = "not-allowed"


class CallError(HoldfastError):
    """A remote call was not made, or did not end in time."""

    slug = "call"


class AttemptTimedOut(CallError, TimeoutError):
    """One attempt exceeded its timeout. The server may have done the work anyway."""

    slug = "attempt-timed-out"


class ConnectTimedOut(CallError, TimeoutError):
    """No connection was made in time. Nothing was sent, so the call is safe to repeat."""

    slug = "connect-timed-out"


class DeadlineExceeded(CallError, TimeoutError):
    """The deadline of the whole call has passed: no caller is waiting for the answer any more."""

    slug = "deadline-exceeded"
    result: Any = None
    """The result of a call that succeeded, but after its deadline."""


class RetryAfterTooLong(CallError):
    """A call was not made: an earlier Retry-After asks to wait past its deadline. Only with `RetryAfterScope.ALL`."""

    slug = "retry-after-too-long"


class LimitReached(CallError):
    """The limit of concurrent attempts is reached: the dependency is slow, or the limit is too low."""

    slug = "limit-reached"


class EngineError(HoldfastError):
    """A database or a cloud service failed, or no endpoint of a service is left."""

    slug = "engine"


class EngineUnavailable(EngineError):
    """The engine cannot be reached. Nothing was written, so it is safe to try again later."""

    slug = "engine-unavailable"


class DatabaseLocked(EngineUnavailable):
    """Another process holds the write lock of the SQLite file. Nothing was written."""

    slug = "database-locked"


class DatabaseFull(EngineError):
    """The disk is full, or the file has reached its size limit. Nothing was written."""

    slug = "database-full"


class DatabaseCorrupt(EngineError):
    """The file is damaged or not a database: restore a backup."""

    slug = "database-corrupt"


class EngineMismatch(EngineError):
    """The engine is too old, or another version of Holdfast created its tables."""

    slug = "engine-mismatch"


class OutcomeUnknown(EngineError):
    """The reply to a commit was lost: the write may or may not have happened."""

    slug = "outcome-unknown"
