"""Parameters, checks and logging that the routes of queues share."""

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
"""Text that a database can store and find."""
QUERY_TEXT_SCHEMA = {"pattern": r"^[^\x00\uFFFD]*$"}
"""Such text in a query. Litestar replaces bytes that are not UTF-8 by U+FFFD; see `check_query_text`."""

# The pattern is for the description only: `check_queue_name` checks the name, with a better message.
QueueName: TypeAlias = Annotated[
    str, PathParameter(description="The name of a queue", schema_extra={"pattern": WORKLOAD_PATTERN})
]
# A query parameter, not part of a path: the name of a tenant may be any text, such as `..` or one with slashes.
TenantName: TypeAlias = Annotated[
    str | None,
    QueryParameter(
        name="tenant",
        min_length=1,
        max_length=MAX_TENANT_BYTES,
        description="The tenant of the request. Not needed with a tenant's own credential.",
        schema_extra=QUERY_TEXT_SCHEMA,
    ),
]
MAX_TIME = 1e11
"""Maximum time in seconds since the epoch. Greater values are probably milliseconds."""
Time: TypeAlias = Annotated[float, Meta(ge=1, le=MAX_TIME)]


async def refuse_unknown_query(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Raise InvalidValue for query parameters that the route does not have: they are probably misspelled. A guard."""
    if not connection.scope["query_string"]:
        return
    known = [
        field.kwarg_definition.name or name
        for name, field in handler.parsed_fn_signature.parameters.items()
        if isinstance(field.kwarg_definition, QueryParameter)
    ]
    for name in connection.query_params:
        if name not in known:
            raise InvalidValue(f"query parameter {name[:80]!r}: expected {_join_with_or(known)}")


def _join_with_or(names: Sequence[str]) -> str:
    *others, last = names or ["none"]
    return f"{', '.join(others)} or {last}" if others else last


def queue_not_found(queue: str) -> NotFound:
    """Return the error for an unknown queue, with advice for callers that cannot create it."""
    return NotFound(f"there is no queue {queue}: an operator creates it with [[queue]] in the settings of the server")


def _answer_queue_not_found(request: Request[Any, Any, Any], _: Exception) -> Response[Problem]:
    return build_problem_response(request, queue_not_found(request.path_params["queue"]))


QUEUE_NOT_FOUND_HANDLERS: dict[Any, Any] = {NotFound: _answer_queue_not_found}
"""Exception handlers of routes where NotFound always means an unknown queue. The store's own advice is for programs."""

READ_OPTIONS: dict[str, Any] = {
    **build_route_options("queues", Role.VIEWER, errors=(400, 404)),
    "exception_handlers": QUEUE_NOT_FOUND_HANDLERS,
}
"""Options of a route that reads."""
CHANGE_OPTIONS: dict[str, Any] = {
    **build_route_options("queues", Role.OPERATOR, errors=(400, 404, 409, 413, 500, 507)),
    "exception_handlers": QUEUE_NOT_FOUND_HANDLERS,
    "status_code": 200,
}
"""Options of a route that changes a queue."""


def with_strict_query(route: dict[str, Any]) -> dict[str, Any]:
    """Return the options `route` with a guard that refuses unknown query parameters."""
    return {**route, "guards": [*route["guards"], refuse_unknown_query]}


def resolve_tenant(credential: Credential, asked: str | None) -> str:
    """Return the tenant of a request: the credential's tenant, or the one that an operator or a viewer names."""
    if credential.tenant is None:
        if asked is None:
            raise NotAllowed(f"credential {credential.id} does not belong to a tenant: add ?tenant=NAME")
        return parse_tenant(asked)
    if asked not in (None, credential.tenant):
        raise NotAllowed(f"credential {credential.id} of tenant {credential.tenant} cannot act for another tenant")
    return credential.tenant


def parse_tenant(text: str) -> str:
    """Return `text`. Raise InvalidValue if it is not a valid name of a tenant."""
    return str(Tenant(check_query_text("tenant", text)))


def check_query_text(what: str, text: str) -> str:
    """Return `text` of the query parameter `what`. Raise InvalidValue if it contains NUL or was not UTF-8."""
    if "\0" in text or "\ufffd" in text:
        raise InvalidValue(f"{what} {text[:32]!r}: expected UTF-8 without NUL")
    return text


def log_change(request: Request[Any, Any, Any], queue: str, what: str) -> None:
    """Log that the credential of the request changed a queue."""
    logger.info("queue %s: %s, by credential %s", queue, what, request.state.credential.id)
