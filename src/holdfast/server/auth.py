"""Authenticate requests, and guard routes by role."""

import asyncio
import ipaddress
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.types import Guard

from holdfast._errors import CredentialRefused, NotAllowed
from holdfast.server.credentials import Credential, CredentialStore, Role
from holdfast.server.problems import describe_errors

LOCAL_OPERATOR = Credential(id="local", role=Role.OPERATOR, tenant=None, note="allow_anonymous is set", created_at=0.0)
"""The credential of every request if `server.allow_anonymous` is set."""

_PROXY_HEADERS = frozenset({"forwarded", "via", "x-real-ip"})
"""Headers that proxies add, besides those that begin with X-Forwarded-."""


class Authenticator:
    """Finds the credential of a request. Without a store, every local request is that of an operator."""

    def __init__(self, store: CredentialStore | None) -> None:
        self._store = store

    async def authenticate(self, connection: ASGIConnection[Any, Any, Any, Any]) -> Credential:
        """Return the credential of the request. Raise CredentialRefused; without a store, NotAllowed if not local."""
        if self._store is None:
            _require_local(connection.headers)
            return LOCAL_OPERATOR
        scheme, _, token = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise CredentialRefused("no credential: send it as `Authorization: Bearer <token>`")
        return await asyncio.to_thread(self._store.verify, token.strip())


def _require_local(headers: Mapping[str, str]) -> None:
    """Raise NotAllowed for a request that a user of this machine did not send directly.

    The name of another site can resolve to loopback, its pages can send requests from a local browser, and a proxy
    would admit any client. None of them can forge these headers.
    """
    host = headers.get("host", "")
    if "@" in host or not _is_loopback(f"//{host}"):
        raise NotAllowed("with server.allow_anonymous, only localhost is served: use that name, or credentials")
    if headers.get("origin", f"http://{host}") != f"http://{host}" or headers.get("sec-fetch-site", "none") not in {
        "none",
        "same-origin",
    }:
        raise NotAllowed("with server.allow_anonymous, pages of other sites are not served: use credentials")
    if any(name in _PROXY_HEADERS or name.startswith("x-forwarded-") for name in map(str.lower, headers)):
        raise NotAllowed("with server.allow_anonymous, requests through a proxy are not served: use credentials")


@lru_cache  # every host polls statuses, always with the same header
def _is_loopback(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def get_credential_id(scope: Mapping[str, Any]) -> str | None:
    """Return the id of the credential that a guard has stored, or None if the route has no guard."""
    credential: Credential | None = scope.get("state", {}).get("credential")
    return None if credential is None else credential.id


def create_role_guard(*roles: Role) -> Guard:
    """Return a guard that admits `roles` and operators. It stores the credential in the request's state."""

    async def guard(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        authenticator: Authenticator = connection.app.state.authenticator
        credential = await authenticator.authenticate(connection)
        if not any(credential.role.includes(role) for role in roles):
            needed = " or ".join(roles)
            raise NotAllowed(f"credential {credential.id} has role {credential.role}: this request needs role {needed}")
        connection.state.credential = credential

    return guard


def build_guard_options(*roles: Role) -> dict[str, Any]:
    """Return the options of routes that admit `roles`: the guard, and its OpenAPI description."""
    return {"guards": [create_role_guard(*roles)], "security": [{"credential": []}]}


def build_route_options(tag: str, *roles: Role, errors: Sequence[int] = ()) -> dict[str, Any]:
    """Return the options of one route: guard, tag, and its error statuses (`errors`, and those of every guard)."""
    return {
        **build_guard_options(*roles),
        "responses": describe_errors(*sorted({401, 403, 503, *errors})),
        "tags": [tag],
    }
