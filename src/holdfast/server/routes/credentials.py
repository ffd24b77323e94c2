"""Credentials over HTTP, for operators; and who a credential is, for everybody who has one."""

import asyncio
from typing import Annotated, Any

from litestar import Request, delete, get, post
from litestar.datastructures import State
from litestar.params import JSONBody, Parameter
from msgspec import Meta, Struct

from holdfast.server.auth import SECURITY, requires
from holdfast.server.credentials import NOTE_LENGTH, NOTE_PATTERN, Credential, CredentialStore, Role
from holdfast.server.problems import described

CredentialId = Annotated[
    str, Parameter(description="The id that a list of credentials shows, or its token", max_length=80)
]


_TEXT = r"^[^\x00]*$"
"""No NUL, which PostgreSQL cannot keep."""


class _New(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="role"):
    note: Annotated[str, Meta(max_length=NOTE_LENGTH, pattern=NOTE_PATTERN)] = ""


class NewOperator(_New, frozen=True, tag="operator"):
    """A credential that may do everything."""


class NewViewer(_New, frozen=True, tag="viewer"):
    """A credential that may read everything but credentials."""


class NewTenant(_New, frozen=True, kw_only=True, tag="tenant"):
    """A credential that may see to the work of one tenant; its name has at most 256 UTF-8 bytes."""

    tenant: Annotated[str, Meta(min_length=1, max_length=256, pattern=_TEXT)]


class CreatedCredential(Struct, frozen=True):
    """A new credential; the token is not kept, and cannot be shown again."""

    credential: Credential
    token: str


@get(
    "/v1/whoami",
    guards=[requires(*Role)],
    security=SECURITY,
    responses=described(401, 403, 503),
    summary="Whose credential is this?",
    tags=["credentials"],
)
async def whoami(request: Request[Any, Any, Any]) -> Credential:
    """The credential that this request was sent with."""
    credential: Credential = request.state.credential
    return credential


@get(
    "/v1/credentials",
    guards=[requires(Role.OPERATOR)],
    security=SECURITY,
    responses=described(401, 403, 503),
    summary="List credentials",
    tags=["credentials"],
)
async def list_credentials(state: State) -> list[Credential]:
    """All credentials, oldest first, with the revoked ones."""
    store: CredentialStore = state.credentials
    return await asyncio.to_thread(store.list)


@post(
    "/v1/credentials",
    guards=[requires(Role.OPERATOR)],
    security=SECURITY,
    responses=described(400, 401, 403, 413, 503, 507),
    summary="Create a credential",
    tags=["credentials"],
)
async def create_credential(state: State, data: JSONBody[NewOperator | NewViewer | NewTenant]) -> CreatedCredential:
    """A new credential with its token, shown this once."""
    store: CredentialStore = state.credentials
    role = Role(str(data.__struct_config__.tag))
    tenant = data.tenant if isinstance(data, NewTenant) else None
    credential, token = await asyncio.to_thread(store.create, role, tenant=tenant, note=data.note)
    return CreatedCredential(credential, token)


@delete(
    "/v1/credentials/{credential_id:str}",
    guards=[requires(Role.OPERATOR)],
    security=SECURITY,
    responses=described(400, 401, 403, 404, 503, 507),
    status_code=200,
    summary="Revoke a credential",
    tags=["credentials"],
)
async def revoke_credential(state: State, credential_id: CredentialId) -> Credential:
    """Refuse the credential from now on."""
    store: CredentialStore = state.credentials
    return await asyncio.to_thread(store.revoke, credential_id)
