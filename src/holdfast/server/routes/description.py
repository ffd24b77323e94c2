"""The OpenAPI description of all other routes."""

from typing import Any

from litestar import Request, Router, get
from litestar.connection import ASGIConnection
from litestar.exceptions import NotFoundException
from litestar.handlers import BaseRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme

import holdfast
from holdfast._names import WORKLOAD_PATTERN, ZONE_PATTERN


def _hide(_: ASGIConnection[Any, Any, Any, Any], __: BaseRouteHandler) -> None:
    raise NotFoundException


OPENAPI_CONFIG = OpenAPIConfig(
    title="Holdfast",
    version=holdfast.__version__,
    description="Keeps a multi-zone, multi-tenant service running when one part of it fails.",
    use_handler_docstrings=True,
    components=Components(
        security_schemes={"credential": SecurityScheme(type="http", scheme="bearer", bearer_format="hf_...")}
    ),
    # Litestar's own pages load scripts from other hosts, and answer 404 in HTML: disable them.
    openapi_router=Router("/openapi", route_handlers=[], include_in_schema=False, guards=[_hide]),
)


@get("/openapi.json", include_in_schema=False, sync_to_thread=False)
def description(request: Request[Any, Any, Any]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 description, for tools and generated clients."""
    schema = request.app.openapi_schema.to_schema()
    schemas = schema["components"]["schemas"]
    # Litestar omits the pattern of a list's elements, and describes `...` in a tuple as an alternative of any type.
    schemas["NewSender"]["properties"]["workloads"]["items"]["pattern"] = WORKLOAD_PATTERN
    schemas["WorkloadSettings"]["properties"]["zones"]["items"] = {"type": "string", "pattern": ZONE_PATTERN}
    for operations in schema["paths"].values():
        for operation in operations.values():
            _forbid_unknown_fields(operation.get("requestBody"), schemas)
    return schema


def _forbid_unknown_fields(part: Any, schemas: dict[str, Any]) -> None:
    """Mark all request bodies as without unknown fields, which the server refuses. Litestar does not describe this."""
    if isinstance(part, dict):
        if part.get("type") == "object":
            part["additionalProperties"] = False
        if reference := part.get("$ref"):
            _forbid_unknown_fields(schemas[reference.rpartition("/")[2]], schemas)
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            _forbid_unknown_fields(inner, schemas)
