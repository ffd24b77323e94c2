"""Every error that Holdfast raises. Pure.

    HoldfastError
    ├── InvalidValue            a value that cannot be right, named together with what would be   (also ValueError)
    ├── SettingsError           the settings file or an environment variable is wrong
    ├── MissingExtra            an optional dependency is not installed                           (also ImportError)
    ├── NotFound                what was asked for does not exist
    ├── Conflict                somebody else changed it first
    ├── CapacityExhausted       there are no more shards of the kind that was asked for
    ├── Backpressure            a tenant has sent more than it may; `retry_after` says when to try again
    ├── LeaseLost               the message that is being handled may be in the hands of another worker
    ├── CredentialRefused       no credential, or one that is unknown, revoked or malformed
    ├── NotAllowed              a good credential that may not do this
    ├── CallError               a remote call was not made, or not ended in time
    │   ├── AttemptTimedOut     one attempt took longer than it may                               (also TimeoutError)
    │   ├── ConnectTimedOut     no connection came about in time; nothing was sent                (also TimeoutError)
    │   ├── DeadlineExceeded    the time for all of it is over                                    (also TimeoutError)
    │   ├── RetryAfterTooLong            the server asked every caller to wait longer than there is time
    │   └── LimitReached        as many calls to it as may be are under way
    └── EngineError             a database or a cloud service did not do its part
        ├── EngineUnavailable   it cannot be reached; nothing was written; try again later
        │   └── DatabaseLocked  another process holds the write lock
        ├── DatabaseFull        no room left; nothing was written
        ├── DatabaseCorrupt     the file is damaged, or is no database at all
        ├── EngineMismatch      wrong version of the engine, or of the tables in it
        └── OutcomeUnknown      the reply to a commit was lost: it may or may not have been written

A caller that retries catches EngineUnavailable; one that cannot write the same thing twice must look before it
repeats what ended in OutcomeUnknown. `slug` names the error in problem details and in `--json`, and never changes
for a class.
"""

from typing import ClassVar


class HoldfastError(Exception):
    """The root of all errors that Holdfast raises on purpose."""

    slug: ClassVar[str] = "error"


class InvalidValue(HoldfastError, ValueError):
    """A value that cannot be right; the message names it and says what would be."""

    slug = "invalid-value"


class SettingsError(HoldfastError):
    """The settings are wrong; the message names the file, the place in it, what was found and what is expected."""

    slug = "settings"


class MissingExtra(HoldfastError, ImportError):
    """A dependency that is installed only on request; the message says what to install."""

    slug = "missing-extra"

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(what, extra)  # both, so that it survives the way to another process

    def __str__(self) -> str:
        what, extra = self.args
        return f"{what} needs the extra '{extra}': pip install 'holdfast-resilience[{extra}]'"


class NotFound(HoldfastError):
    """What was asked for does not exist."""

    slug = "not-found"


class Conflict(HoldfastError):
    """Somebody else changed it first: read it again, then decide again."""

    slug = "conflict"


class CapacityExhausted(HoldfastError):
    """There are no more shards of the kind that was asked for; the message says what would give more."""

    slug = "capacity-exhausted"


class Backpressure(HoldfastError):
    """A tenant has sent more than it may, or has too much waiting already; nothing was kept."""

    slug = "backpressure"

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message, retry_after)  # both, so that it survives the way to another process

    def __str__(self) -> str:
        return str(self.args[0])

    @property
    def retry_after(self) -> float:
        """Seconds after which it would have been kept, if nothing else is sent."""
        return float(self.args[1])


class LeaseLost(HoldfastError):
    """The message that is being handled may be in the hands of another worker: stop, what is done will not count."""

    slug = "lease-lost"


class CredentialRefused(HoldfastError):
    """No credential was sent, or one that is unknown, revoked or malformed."""

    slug = "credential-refused"


class NotAllowed(HoldfastError):
    """The credential is good, but its role may not do this."""

    slug = "not-allowed"


class CallError(HoldfastError):
    """A remote call was not made, or did not end in time."""

    slug = "call"


class AttemptTimedOut(CallError, TimeoutError):
    """One attempt took longer than it may. The other side may have done the work all the same."""

    slug = "attempt-timed-out"


class ConnectTimedOut(CallError, TimeoutError):
    """No connection came about in time: nothing was sent, so the call is safe to repeat."""

    slug = "connect-timed-out"


class DeadlineExceeded(CallError, TimeoutError):
    """The time for the whole of it is over: nobody waits for the answer any more."""

    slug = "deadline-exceeded"


class RetryAfterTooLong(CallError):
    """The server asked every caller to wait, and longer than there is time: try again later."""

    slug = "retry-after-too-long"


class LimitReached(CallError):
    """As many calls to the dependency as may be are under way: it is slow, or the limit is low."""

    slug = "limit-reached"


class EngineError(HoldfastError):
    """A database or a cloud service did not do its part."""

    slug = "engine"


class EngineUnavailable(EngineError):
    """The engine cannot be reached; nothing was written, so trying again later is safe."""

    slug = "engine-unavailable"


class DatabaseLocked(EngineUnavailable):
    """Another process holds the write lock of the SQLite file; nothing was written."""

    slug = "database-locked"


class DatabaseFull(EngineError):
    """The disk, or the file's own limit, is full; nothing was written."""

    slug = "database-full"


class DatabaseCorrupt(EngineError):
    """The file is damaged, or is not a database: restore a backup."""

    slug = "database-corrupt"


class EngineMismatch(EngineError):
    """The engine is too old, or its tables were made by another version of Holdfast."""

    slug = "engine-mismatch"


class OutcomeUnknown(EngineError):
    """The reply to a commit was lost: it may or may not have been written."""

    slug = "outcome-unknown"
