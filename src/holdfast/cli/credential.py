"""`holdfast credential`: manage the credentials of the server. Uses the store directly, even while the server runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from cyclopts import App, Parameter

from holdfast._clock import SystemClock
from holdfast.cli.commands import EXIT_CODES_HELP
from holdfast.cli.output import SETTINGS, Json, SettingsOptions, format_time, print_result, print_rows
from holdfast.compose import open_database, require_store
from holdfast.server.credentials import SUBSYSTEM, CredentialStore, Role

app = App(
    name="credential",
    help="Create, list and revoke credentials.\n\nExample: holdfast credential list",
    help_epilogue=EXIT_CODES_HELP,
)


@app.command
def create(
    *,
    role: Annotated[Role, Parameter(help="operator (all), viewer (read all but credentials), tenant (its own work).")],
    tenant: Annotated[str | None, Parameter(help="The tenant of the credential. Required for role tenant.")] = None,
    note: Annotated[str, Parameter(help="What the credential is for; shown in the list.")] = "",
    options: SettingsOptions = SETTINGS,
    json: Json = False,
) -> None:
    """Create a credential and print its token, which is not stored and cannot be shown again.

    Example: holdfast credential create --role tenant --tenant tenant-1
    """
    with _open_store(options, is_new=True) as store:
        credential, token = store.create(role, tenant=tenant, note=note)
    print_result({"credential": credential, "token": token}, token, as_json=json)


@app.command(name="list")
def list_credentials(*, options: SettingsOptions = SETTINGS, json: Json = False) -> None:
    """List all credentials, including revoked ones, without their secrets, which are not stored.

    Example: holdfast credential list --json
    """
    with _open_store(options) as store:
        credentials = store.list()
    rows = [
        (entry.id, entry.role, entry.tenant, format_time(entry.created_at), format_time(entry.revoked_at), entry.note)
        for entry in credentials
    ]
    print_rows(credentials, ("id", "role", "tenant", "created", "revoked", "note"), rows, as_json=json)


@app.command
def revoke(
    credential_id: Annotated[str, Parameter(name="ID", help="The id that `credential list` shows, or the token.")],
    /,
    *,
    options: SettingsOptions = SETTINGS,
    json: Json = False,
) -> None:
    """Revoke a credential. A running server refuses it immediately. May be repeated.

    Example: holdfast credential revoke 3f9c0a5b7d21
    """
    with _open_store(options) as store:
        credential = store.revoke(credential_id)
    print_result(credential, f"{credential.id} is revoked", as_json=json)


@contextmanager
def _open_store(options: SettingsOptions, *, is_new: bool = False) -> Iterator[CredentialStore]:
    """Open the credential store of the server with these settings. Create it only if `is_new`."""
    values = options.load()
    if not is_new:
        require_store(values, SUBSYSTEM)
    with open_database(values, SUBSYSTEM) as database:
        yield CredentialStore(database, SystemClock())
