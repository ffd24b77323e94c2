"""What requests about queues have in common: which queue, whose messages, and a word in the log about changes."""

import logging
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

from litestar import Request, Response
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.params import PathParameter, QueryParameter
from msgspec import Meta

from holdfast._errors import InvalidValue, NotAllowed, NotFound
from holdfast._names import WORKLOAD_PATTERN
from holdfast._types import MAX_TENANT_BYTES, Tenant
from holdfast.server.auth import build_route_options
from holdfast.server.credentials import Credential, Role
from holdfast.server.problems import Problem, build_problem_response

logger = logging.getLogger("holdfast.server")

NO_NUL = r"^[^\x00]*$"
"""What a database can keep, and look for."""
QUERY_TEXT_SCHEMA = {"pattern": r"^[^\x00\uFFFD]*$"}
"""The same for a query, where Litestar puts U+FFFD in place of what is not UTF-8; see `check_query_text`."""

# Only described here: whoever slips is told more by `check_queue_name`.
QueueName: TypeAlias = Annotated[
    str, PathParameter(description="The name of a queue", schema_extra={"pattern": WORKLOAD_PATTERN})
]
# Not in paths: a tenant's name may be any text, also one with slashes, or `..`.
TenantName: TypeAlias = Annotated[
    str | None,
    QueryParameter(
        name="tenant",
        min_length=1,
        max_length=MAX_TENANT_BYTES,
        description="The tenant that is meant; a tenant's own credential says it already",
        schema_extra=QUERY_TEXT_SCHEMA,
    ),
]
MAX_TIME = 1e11
"""The last time that is one, in seconds since the epoch: whoever means milliseconds is past it."""
Time: TypeAlias = Annotated[float, Meta(ge=1, le=MAX_TIME)]


async def refuse_unknown_query(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """A guard that refuses a query with anything in it that the route does not take: it was meant to do something."""
    if not connection.scope["query_string"]:
        return
    taken = [
        field.kwarg_definition.name or name
        for name, field in handler.parsed_fn_signature.parameters.items()
        if isinstance(field.kwarg_definition, QueryParameter)
    ]
    for name in connection.query_params:
        if name not in taken:
            raise InvalidValue(f"query parameter {name[:80]!r}: expected {_join_with_or(taken)}")


def _join_with_or(names: Sequence[str]) -> str:
    *most, last = names or ["none"]
    return f"{', '.join(most)} or {last}" if most else last


def queue_not_found(queue: str) -> NotFound:
    """The error for a queue that nobody made, for those who cannot make it either."""
    return NotFound(f"there is no queue {queue}: an operator makes it, with [[queue]] in the settings of the server")


def _answer_queue_not_found(request: Request[Any, Any, Any], _: Exception) -> Response[Problem]:
    return build_problem_response(request, queue_not_found(request.path_params["queue"]))


QUEUE_NOT_FOUND_HANDLERS: dict[Any, Any] = {NotFound: _answer_queue_not_found}
"""How routes answer that find nothing only where there is no such queue: stores tell programs what to do about it."""

READ_OPTIONS: dict[str, Any] = {
    **build_route_options("queues", Role.VIEWER, errors=(400, 404)),
    "exception_handlers": QUEUE_NOT_FOUND_HANDLERS,
}
"""For a route that tells."""
CHANGE_OPTIONS: dict[str, Any] = {
    **build_route_options("queues", Role.OPERATOR, errors=(400, 404, 409, 413, 500, 507)),
    "exception_handlers": QUEUE_NOT_FOUND_HANDLERS,
    "status_code": 200,
}
"""For a route that changes something."""


def with_strict_query(route: dict[str, Any]) -> dict[str, Any]:
    """The same for a route that refuses a query with anything in it that it does not take."""
    return {**route, "guards": [*route["guards"], refuse_unknown_query]}


def resolve_tenant(credential: Credential, asked: str | None) -> str:
    """Whom a request is about: the credential's own tenant, or the one that an operator or a viewer names."""
    if credential.tenant is None:
        if asked is None:
            raise NotAllowed(f"credential {credential.id} is no tenant's: name the tenant, as ?tenant=NAME")
        return parse_tenant(asked)
    if asked not in (None, credential.tenant):
        raise NotAllowed(f"credential {credential.id} is of tenant {credential.tenant}: it acts for no other one")
    return credential.tenant


def parse_tenant(text: str) -> str:
    """The name of a tenant, if it can be one. Raises InvalidValue."""
    return str(Tenant(check_query_text("tenant", text)))


def check_query_text(what: str, text: str) -> str:
    """The text of a query, if a database can keep it and it came through whole. Raises InvalidValue."""
    if "\0" in text or "\ufffd" in text:
        raise InvalidValue(f"{what} {text[:32]!r}: expected UTF-8 without NUL")
    return text


def log_change(request: Request[Any, Any, Any], queue: str, what: str) -> None:
    """Say who changed what, for those who ask later."""
    logger.info("queue %s: %s, by credential %s", queue, what, request.state.credential.id)
