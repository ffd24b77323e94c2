"""The ASGI application: routes, guards, errors, and the description of it all."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar, Request, Response
from litestar.datastructures import State

from holdfast.engines import Database
from holdfast.server.auth import Authority
from holdfast.server.credentials import CredentialStore
from holdfast.server.problems import answer
from holdfast.server.push import Hub
from holdfast.server.routes.credentials import create_credential, list_credentials, revoke_credential, whoami
from holdfast.server.routes.description import CONFIG, description
from holdfast.server.routes.events import events
from holdfast.server.routes.health import health, ready

REQUEST_BYTES = 1 << 20
"""Largest body taken: far above anything the API is sent, far below what would hurt."""


def _allow(request: Request[Any, Any, Any]) -> Response[None] | None:
    """The answer to OPTIONS: Litestar's own leaves out every method but the first that a path was given."""
    if request.method != "OPTIONS":
        return None
    methods = request.app.route_handler_method_map[request.scope["path_template"]]
    return Response(None, status_code=204, headers={"Allow": ", ".join(sorted(methods))})


def create_app(database: Database, credentials: CredentialStore, hub: Hub, *, is_open: bool = False) -> Litestar:
    """The application over what `holdfast.compose` opened; closing those is up to whoever opened them."""

    @asynccontextmanager
    async def hub_in_loop(_: Litestar) -> AsyncIterator[None]:
        hub.start()
        yield

    return Litestar(
        route_handlers=[
            description,
            health,
            ready,
            whoami,
            list_credentials,
            create_credential,
            revoke_credential,
            events,
        ],
        state=State(
            {
                "authority": Authority(None if is_open else credentials),
                "credentials": credentials,
                "database": database,
                "hub": hub,
                "stopping": False,
            }
        ),
        before_request=_allow,
        exception_handlers={Exception: answer},
        lifespan=[hub_in_loop],
        request_max_body_size=REQUEST_BYTES,
        logging_config=None,
        openapi_config=CONFIG,
    )
