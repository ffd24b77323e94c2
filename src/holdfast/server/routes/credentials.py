"""Routes for credentials: operators manage them, and every caller can show its own."""

import asyncio
from typing import Annotated, Any

from litestar import Request, delete, get, post
from litestar.datastructures import CacheControlHeader
from litestar.params import JSONBody, Parameter
from msgspec import Meta, Struct

from holdfast._names import WORKLOAD_PATTERN
from holdfast.server.auth import build_route_options
from holdfast.server.credentials import MAX_NOTE_LENGTH, NOTE_PATTERN, Credential, Role
from holdfast.server.state import ServerState

CredentialId = Annotated[str, Parameter(description="The id of the credential, or its token", max_length=80)]


WorkloadName = Annotated[str, Meta(pattern=WORKLOAD_PATTERN)]
_TEXT = r"^[^\x00]*$"
"""Text without NUL, which PostgreSQL cannot store."""


class _New(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="role"):
    note: Annotated[str, Meta(max_length=MAX_NOTE_LENGTH, pattern=NOTE_PATTERN)] = ""


class NewOperator(_New, frozen=True, tag="operator"):
    """A credential that may do everything."""


class NewViewer(_New, frozen=True, tag="viewer"):
    """A credential that may read everything but credentials."""


class NewTenant(_New, frozen=True, kw_only=True, tag="tenant"):
    """A credential for the work of one tenant, whose name has at most 256 UTF-8 bytes."""

    tenant: Annotated[str, Meta(min_length=1, max_length=256, pattern=_TEXT)]


class NewSender(_New, frozen=True, kw_only=True, tag="sender"):
    """A credential that may send the telemetry of its workloads, and nothing else."""

    workloads: Annotated[list[WorkloadName], Meta(min_length=1, max_length=100)]


class NewTracker(_New, frozen=True, tag="tracker"):
    """A credential that may read zone statuses, and nothing else."""


class CreatedCredential(Struct, frozen=True):
    """A new credential. The token is not stored, and cannot be shown again."""

    credential: Credential
    token: str


@get("/v1/whoami", summary="Show the caller's credential", **build_route_options("credentials", *Role))
async def whoami(request: Request[Any, Any, Any]) -> Credential:
    """Return the credential of this request."""
    credential: Credential = request.state.credential
    return credential


@get("/v1/credentials", summary="List credentials", **build_route_options("credentials", Role.OPERATOR))
async def list_credentials(state: ServerState) -> list[Credential]:
    """Return all credentials, including revoked ones, oldest first."""
    return await asyncio.to_thread(state.services.credentials.list)


@post(
    "/v1/credentials",
    summary="Create a credential",
    cache_control=CacheControlHeader(no_store=True),
    **build_route_options("credentials", Role.OPERATOR, errors=(400, 413, 507)),
)
async def create_credential(
    state: ServerState, data: JSONBody[NewOperator | NewViewer | NewTenant | NewSender | NewTracker]
) -> CreatedCredential:
    """Create a credential, and return it with its token, which is shown only once."""
    role = Role(str(data.__struct_config__.tag))
    tenant = data.tenant if isinstance(data, NewTenant) else None
    workloads = data.workloads if isinstance(data, NewSender) else ()
    credential, token = await asyncio.to_thread(
        state.services.credentials.create, role, tenant=tenant, workloads=workloads, note=data.note
    )
    return CreatedCredential(credential, token)


@delete(
    "/v1/credentials/{credential_id:str}",
    status_code=200,
    summary="Revoke a credential",
    **build_route_options("credentials", Role.OPERATOR, errors=(400, 404, 409, 507)),
)
async def revoke_credential(state: ServerState, credential_id: CredentialId) -> Credential:
    """Revoke the credential, and end its open streams. May be repeated. The last operator's is refused."""
    return await asyncio.to_thread(state.services.credentials.revoke, credential_id, keep_operator=True)
