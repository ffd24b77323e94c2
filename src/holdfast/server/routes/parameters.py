"""What requests about queues have in common: which queue, whose messages, and a word in the log about changes."""

import logging
from typing import Annotated, Any, TypeAlias

from litestar import Request
from litestar.params import PathParameter, QueryParameter
from msgspec import Meta

from holdfast._errors import InvalidValue, NotAllowed
from holdfast._names import WORKLOAD_PATTERN
from holdfast._types import TENANT_BYTES, Tenant
from holdfast.server.auth import SECURITY, requires
from holdfast.server.credentials import Credential, Role
from holdfast.server.problems import described

logger = logging.getLogger("holdfast.server")

NO_NUL = r"^[^\x00]*$"
"""What a database can keep, and look for."""
PLAIN = {"pattern": r"^[^\x00\uFFFD]*$"}
"""The same for a query, where Litestar puts U+FFFD in place of what is not UTF-8; see `plain`."""

# Only described here: whoever slips is told more by `queue_of`.
QueueName: TypeAlias = Annotated[
    str, PathParameter(description="The name of a queue", schema_extra={"pattern": WORKLOAD_PATTERN})
]
# Not in paths: a tenant's name may be any text, also one with slashes, or `..`.
TenantName: TypeAlias = Annotated[
    str | None,
    QueryParameter(
        name="tenant",
        min_length=1,
        max_length=TENANT_BYTES,
        description="The tenant that is meant; a tenant's own credential says it already",
        schema_extra=PLAIN,
    ),
]
LATEST = 1e11
"""The last time that is one, in seconds since the epoch: whoever means milliseconds is past it."""
Time: TypeAlias = Annotated[float, Meta(ge=1, le=LATEST)]

LOOK: dict[str, Any] = {
    "guards": [requires(Role.VIEWER)],
    "security": SECURITY,
    "responses": described(400, 401, 403, 404, 503),
    "tags": ["queues"],
}
"""For a route that tells."""
CHANGE: dict[str, Any] = {
    "guards": [requires(Role.OPERATOR)],
    "security": SECURITY,
    "responses": described(400, 401, 403, 404, 409, 413, 500, 503, 507),
    "tags": ["queues"],
    "status_code": 200,
}
"""For a route that changes something."""


def tenant_of(credential: Credential, asked: str | None) -> str:
    """Whom a request is about: the credential's own tenant, or the one that an operator or a viewer names."""
    if credential.tenant is None:
        if asked is None:
            raise NotAllowed(f"credential {credential.id} is no tenant's: name the tenant, as ?tenant=NAME")
        return named_tenant(asked)
    if asked not in (None, credential.tenant):
        raise NotAllowed(f"credential {credential.id} is of tenant {credential.tenant}: it acts for no other one")
    return credential.tenant


def named_tenant(text: str) -> str:
    """The name of a tenant, if it can be one. Raises InvalidValue."""
    return str(Tenant(plain("tenant", text)))


def plain(what: str, text: str) -> str:
    """The text of a query, if a database can keep it and it came through whole. Raises InvalidValue."""
    if "\0" in text or "\ufffd" in text:
        raise InvalidValue(f"{what} {text[:32]!r}: expected UTF-8 without NUL")
    return text


def log_change(request: Request[Any, Any, Any], queue: str, what: str) -> None:
    """Say who changed what, for those who ask later."""
    logger.info("queue %s: %s, by credential %s", queue, what, request.state.credential.id)
