"""`holdfast credential`: manage the credentials of the server. Uses the store directly, even while the server runs."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Annotated

from cyclopts import App, Parameter

from holdfast._clock import SystemClock
from holdfast.cli.commands import EXIT_CODES_HELP
from holdfast.cli.output import SETTINGS, Json, SettingsOptions, format_time, print_note, print_result, print_rows
from holdfast.compose import get_database_path, open_database, require_store
from holdfast.config import Settings
from holdfast.server.credentials import SUBSYSTEM, CredentialStore, Role

app = App(
    name="credential",
    help="Create, list and revoke credentials.\n\nExample: holdfast credential list",
    help_epilogue=EXIT_CODES_HELP,
)


@app.command
def create(
    *,
    role: Annotated[
        Role,
        Parameter(
            help="operator (all), viewer (read all but credentials), tenant (its own work), sender (send telemetry), "
            "tracker (read zone statuses)."
        ),
    ],
    tenant: Annotated[str | None, Parameter(help="The tenant of the credential. Required for role tenant.")] = None,
    workload: Annotated[
        list[str] | None,
        Parameter(help="A workload whose telemetry a sender may send; repeat it for more. Required for role sender."),
    ] = None,
    note: Annotated[str, Parameter(help="What the credential is for; shown in the list.")] = "",
    options: SettingsOptions = SETTINGS,
    json: Json = False,
) -> None:
    """Create a credential and print its token, which is not stored and cannot be shown again.

    Standard error says in which store the credential is. Only the first operator's credential creates a store.
    Example: holdfast credential create --role tenant --tenant tenant-1
    """
    settings = options.load()
    if role is not Role.OPERATOR:
        require_store(settings, SUBSYSTEM, hint="; a new store begins with the credential of an operator")
    path = get_database_path(settings, SUBSYSTEM)
    is_new = path is not None and not path.exists()
    with _open_store(settings) as store:
        credential, token = store.create(role, tenant=tenant, workloads=workload or (), note=note)
    location = str(settings.database.url if path is None else path.absolute())
    print_result({"credential": credential, "token": token, "store": location}, token, as_json=json)
    if is_new:
        print_note(
            f"created the store {location}: a server that is running already uses another one, and does not know this "
            "credential; name its store with --settings, HOLDFAST_SETTINGS or --data-directory",
            as_json=json,
        )
    elif not json:
        print_note(f"the credential is in {location}", as_json=json)


@app.command(name="list")
def list_credentials(*, options: SettingsOptions = SETTINGS, json: Json = False) -> None:
    """List all credentials, including revoked ones, without their secrets, which are not stored.

    Example: holdfast credential list --json
    """
    with _open_existing_store(options) as store:
        credentials = store.list()
    rows = [
        (
            *(entry.id, entry.role, entry.tenant, " ".join(entry.workloads)),
            *(format_time(entry.created_at), format_time(entry.revoked_at), entry.note),
        )
        for entry in credentials
    ]
    print_rows(credentials, ("id", "role", "tenant", "workloads", "created", "revoked", "note"), rows, as_json=json)


@app.command
def revoke(
    credential_id: Annotated[str, Parameter(name="ID", help="The id that `credential list` shows, or the token.")],
    /,
    *,
    options: SettingsOptions = SETTINGS,
    json: Json = False,
) -> None:
    """Revoke a credential. A running server refuses it immediately, and ends its streams. May be repeated.

    Example: holdfast credential revoke 3f9c0a5b7d21
    """
    with _open_existing_store(options) as store:
        credential = store.revoke(credential_id)
    print_result(credential, f"{credential.id} is revoked", as_json=json)


def _open_existing_store(options: SettingsOptions) -> AbstractContextManager[CredentialStore]:
    """Open the credential store of the server with these settings. Raise NotFound if there is none."""
    settings = options.load()
    require_store(settings, SUBSYSTEM)
    return _open_store(settings)


@contextmanager
def _open_store(settings: Settings) -> Iterator[CredentialStore]:
    with open_database(settings, SUBSYSTEM) as database:
        yield CredentialStore(database, SystemClock())
