"""Facts from AWS's service models: whether an operation is repeatable, and which of its errors are. Pure."""

from collections.abc import Collection, Iterable
from typing import Any, Protocol

from holdfast.calls.classify import Failure, FailureKind

READ_PREFIXES = (
    *("Get", "List", "Describe", "Head", "Query", "Scan", "BatchGet", "TransactGet", "AdminGet", "AdminList"),
    *("Search", "Lookup", "Select", "Discover"),
)
"""Name prefixes of read-only operations."""
REPEATABLE_METHODS = frozenset({"GET", "HEAD", "PUT", "DELETE"})
"""https://www.rfc-editor.org/rfc/rfc9110#section-9.2.2; RPC services send everything by POST."""
LONG_POLLS = frozenset(
    {
        ("sqs", "ReceiveMessage"),
        ("stepfunctions", "GetActivityTask"),
        ("swf", "PollForActivityTask"),
        ("swf", "PollForDecisionTask"),
    }
)
"""Operations that wait up to a minute for an event. Each assigns work to the caller, so none is repeatable."""

# Statuses and codes in botocore's retry tables that `classify.py` does not have.
_THROTTLED = frozenset({509})
_TRANSIENT = frozenset({"IDPCommunicationError", "BadDigest"})


class ErrorShape(Protocol):
    """An error of an operation in botocore's model."""

    @property
    def name(self) -> str: ...

    @property
    def metadata(self) -> dict[str, Any]: ...


def is_long_poll(service: str, operation: str) -> bool:
    """Return whether the operation is a long poll, whose duration says nothing about the service's latency."""
    return (service, operation) in LONG_POLLS


def is_repeatable(service: str, operation: str, method: str, tokens: Collection[str]) -> bool:
    """Return whether an operation is idempotent, by its name, its HTTP method, or idempotency `tokens`."""
    if is_long_poll(service, operation):
        return False
    return bool(tokens) or method in REPEATABLE_METHODS or operation.startswith(READ_PREFIXES)


def refine_failure(failure: Failure, errors: Iterable[ErrorShape]) -> Failure:
    """Return the failure, with another kind if AWS declares a permanent-looking error as retryable."""
    if failure.kind is not FailureKind.PERMANENT:
        return failure
    kind = _find_declared_kind(failure, errors)
    return failure if kind is None else Failure(kind, failure.status, failure.code, failure.retry_after)


def _find_declared_kind(failure: Failure, errors: Iterable[ErrorShape]) -> FailureKind | None:
    if failure.status in _THROTTLED:
        return FailureKind.THROTTLED
    if failure.code in _TRANSIENT:
        return FailureKind.TRANSIENT
    if failure.code is None:
        return None
    for shape in errors:
        trait = shape.metadata.get("retryable")
        if trait is not None and failure.code in {shape.metadata.get("error", {}).get("code"), shape.name}:
            return FailureKind.THROTTLED if trait.get("throttling") else FailureKind.TRANSIENT
    return None
