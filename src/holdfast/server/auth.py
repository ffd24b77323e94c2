"""Which request may do what: guards for routes."""

import asyncio
import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.types import Guard

from holdfast._errors import CredentialRefused, NotAllowed
from holdfast.server.credentials import Credential, CredentialStore, Role
from holdfast.server.problems import describe_errors

LOCAL_OPERATOR = Credential(id="local", role=Role.OPERATOR, tenant=None, note="the server is open", created_at=0.0)
"""Who everybody is on an open server."""


class Authenticator:
    """Decides who a request comes from. With no store the server is open, on loopback only, to whoever is there."""

    def __init__(self, store: CredentialStore | None) -> None:
        self._store = store

    async def authenticate(self, connection: ASGIConnection[Any, Any, Any, Any]) -> Credential:
        """The credential of the request. Raises CredentialRefused, or NotAllowed for another site's page."""
        if self._store is None:
            _require_local(connection.headers)
            return LOCAL_OPERATOR
        scheme, _, token = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise CredentialRefused("no credential: send it as `Authorization: Bearer <token>`")
        return await asyncio.to_thread(self._store.verify, token.strip())


def _require_local(headers: Mapping[str, str]) -> None:
    """Refuse what did not come from a user of this machine.

    The name of another site can be made to resolve to loopback, its pages can send here from a browser, and a proxy
    would let everybody in. None of them can forge these headers.
    """
    host = headers.get("host", "")
    if "@" in host or not _is_loopback(f"//{host}"):
        raise NotAllowed("an open server answers to localhost only: use that name, or credentials")
    if headers.get("origin", f"http://{host}") != f"http://{host}" or headers.get("sec-fetch-site", "none") not in {
        "none",
        "same-origin",
    }:
        raise NotAllowed("an open server does not answer to pages of other sites: use credentials")
    if "x-forwarded-for" in headers or "forwarded" in headers:
        raise NotAllowed("an open server does not answer through a proxy: use credentials")


def _is_loopback(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def create_role_guard(*roles: Role) -> Guard:
    """A guard that lets the named roles through, and operators always; it leaves who it was in the request's state."""

    async def guard(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        authenticator: Authenticator = connection.app.state.authenticator
        credential = await authenticator.authenticate(connection)
        if not any(credential.role.includes(role) for role in roles):
            wanted = " or ".join(roles)
            raise NotAllowed(f"credential {credential.id} has role {credential.role}: this needs role {wanted}")
        connection.state.credential = credential

    return guard


def build_guard_options(*roles: Role) -> dict[str, Any]:
    """Return the options of routes that let the named roles through, and say so in their description."""
    return {"guards": [create_role_guard(*roles)], "security": [{"credential": []}]}


def build_route_options(tag: str, *roles: Role, errors: Sequence[int] = ()) -> dict[str, Any]:
    """Return the same options for one route, with its tag and what it answers: `errors`, and those of every guard."""
    return {
        **build_guard_options(*roles),
        "responses": describe_errors(*sorted({401, 403, 503, *errors})),
        "tags": [tag],
    }
