"""What the models of AWS say about an operation: whether it may be repeated, and what its errors mean. Pure."""

from collections.abc import Collection, Iterable
from typing import Any, Protocol

from holdfast.calls.classify import Failure, FailureKind

READ_PREFIXES = (
    *("Get", "List", "Describe", "Head", "Query", "Scan", "BatchGet", "TransactGet", "AdminGet", "AdminList"),
    *("Search", "Lookup", "Select", "Discover"),
)
"""How the names of operations begin that change nothing."""
REPEATABLE_METHODS = frozenset({"GET", "HEAD", "PUT", "DELETE"})
"""https://www.rfc-editor.org/rfc/rfc9110#section-9.2.2; services of the RPC kind send everything by POST."""
LONG_POLLS = frozenset(
    {
        ("sqs", "ReceiveMessage"),
        ("stepfunctions", "GetActivityTask"),
        ("swf", "PollForActivityTask"),
        ("swf", "PollForDecisionTask"),
    }
)
"""Operations that wait for something to happen, up to a minute. Each hands out work: none is repeatable."""

# What the retry tables of botocore have on top of what `classify.py` knows, by code or by status.
_THROTTLED = frozenset({509})
_TRANSIENT = frozenset({"IDPCommunicationError", "BadDigest"})


class ErrorShape(Protocol):
    """An error that an operation may answer with, as botocore's model has it."""

    @property
    def name(self) -> str: ...

    @property
    def metadata(self) -> dict[str, Any]: ...


def is_long_poll(service: str, operation: str) -> bool:
    """Whether the answer takes as long as the caller was ready to wait: no measure of the service."""
    return (service, operation) in LONG_POLLS


def is_repeatable(service: str, operation: str, method: str, tokens: Collection[str]) -> bool:
    """Whether doing it twice is doing it once, by its name, its HTTP method, or a `token` that tells the service so."""
    if is_long_poll(service, operation):
        return False
    return bool(tokens) or method in REPEATABLE_METHODS or operation.startswith(READ_PREFIXES)


def refine_failure(failure: Failure, errors: Iterable[ErrorShape]) -> Failure:
    """The failure with what AWS says about it: some errors are declared to be worth another attempt."""
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
