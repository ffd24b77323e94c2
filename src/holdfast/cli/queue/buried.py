"""Dead letters by what people know of them: pages of them, and their bodies."""

from collections.abc import Iterator
from typing import Annotated, TypeAlias

import msgspec
from cyclopts import Parameter

from holdfast.queue.backend import Backend, DeadLetter, DeadQuery
from holdfast.queue.job import unpack

PAGE = 100
"""Letters that are read, or put back, in one step: a body may have a megabyte."""

Tenant: TypeAlias = Annotated[str | None, Parameter(help="Only those of this tenant.")]
Reason: TypeAlias = Annotated[str | None, Parameter(help="Only those whose reason contains this text.")]
Ids: TypeAlias = Annotated[
    list[int] | None, Parameter(name="--id", negative="", help="Only the one with this number; repeat it for more.")
]
Before: TypeAlias = Annotated[
    str | None,
    Parameter(
        allow_leading_hyphen=True,
        help="Only those that were buried before a time such as 2026-01-31T12:00Z, or longer ago than 90s, 2h30m, 7d.",
    ),
]


def letters(backend: Backend, query: DeadQuery) -> Iterator[DeadLetter]:
    """All dead letters that a query means, in the order of their numbers, as many as its limit allows."""
    left = query.limit
    while left > 0:
        page = backend.dead(msgspec.structs.replace(query, limit=min(PAGE, left)))
        yield from page
        left -= len(page)
        if len(page) < PAGE:
            return
        query = msgspec.structs.replace(query, after=page[-1].id)


def body_text(body: bytes) -> str:
    """A body for people: the call that it is, or its text, or what is neither byte by byte."""
    try:
        called = unpack(body)
        arguments = msgspec.json.encode(msgspec.msgpack.decode(called.arguments)).decode()
    except (msgspec.MsgspecError, TypeError, ValueError):
        pass
    else:
        return f"{called.job} {arguments}"
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return repr(body)
    return text if text.isprintable() else repr(text)
