"""What is asked for one HTTP request: whether it may be repeated, what it is called, how its body is read. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from holdfast._errors import InvalidValue

IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""https://www.rfc-editor.org/rfc/rfc9110#section-9.2.2"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """What one request asks for; None leaves it to the rule."""

    idempotent: bool | None = None
    """Whether doing it twice is doing it once. The rule: by the method, or because an idempotency key is sent."""
    operation: str | None = None
    """Its name in events; the rule: the method. Paths make too many names."""
    stream: bool | None = None
    """True: hand the body over as it comes. False: read it within the attempt, however long it is. The rule: bodies
    that say how long they are, and are not long, are read within the attempt."""

    def __post_init__(self) -> None:
        for name in ("idempotent", "stream"):
            if not isinstance(getattr(self, name), bool | None):
                raise InvalidValue(f"{name} is {getattr(self, name)!r}: expected True, False or None")
        operation: object = self.operation
        if operation is not None and not (isinstance(operation, str) and operation):
            raise InvalidValue(f"operation is {self.operation!r}: expected a name, or None")


DEFAULTS = RequestOptions()
_NAMES = tuple(field.name for field in fields(RequestOptions))


def asked_by(given: object) -> RequestOptions:
    """The options in what a request carries: None, the options themselves, or a mapping of them."""
    if given is None:
        return DEFAULTS
    if isinstance(given, RequestOptions):
        return given
    if not isinstance(given, Mapping) or not given.keys() <= set(_NAMES):
        raise InvalidValue(f"options of a request are {given!r}: expected a mapping with any of {', '.join(_NAMES)}")
    known: Mapping[str, Any] = given
    return RequestOptions(**known)


@dataclass(frozen=True, slots=True)
class Manner:
    """How one request is called."""

    idempotent: bool
    operation: str
    key: bool
    """Whether an idempotency key is sent."""


def manner_of(method: str, asked: RequestOptions, *, keyed: bool, repeatable: bool) -> Manner:
    """How to call a request.

    `keyed`: the server knows idempotency keys. `repeatable`: its body can be sent twice; if not, the request is
    repeated only when nothing of it was sent, whatever it does.
    """
    by_itself = method.upper() in IDEMPOTENT_METHODS
    idempotent = repeatable and (by_itself or keyed if asked.idempotent is None else asked.idempotent)
    return Manner(idempotent, asked.operation or method.upper(), key=keyed and idempotent and not by_itself)
