"""Read and change zone statuses in the store of the settings, without a server."""

import os
import socket
from collections.abc import Sequence
from functools import cached_property

from holdfast._clock import Clock
from holdfast._types import StatusStore, Zone, ZoneStatus
from holdfast.cli.remote import TOKEN_VARIABLE, read_token
from holdfast.compose import Databases, get_database_path, get_user_name, open_status_store, require_store
from holdfast.config import Settings
from holdfast.config.settings import require_known
from holdfast.server.status_log import SUBSYSTEM, StatusLog, StatusLogEntry
from holdfast.status.writer import StatusWriter


class StoredZones:
    """The zone statuses of a store, changed in the name of the user who runs the command.

    If workloads are configured, raises NotFound for zones and workloads that are not among them.
    """

    def __init__(self, settings: Settings, databases: Databases, clock: Clock) -> None:
        self._settings = settings
        self._databases = databases
        self._clock = clock
        self.can_expire = settings.status.store == "database"
        """Whether all readers of the store honour the end of a status."""
        in_database = get_database_path(settings, SUBSYSTEM) or settings.database.url
        self.location = f"store: {in_database if self.can_expire else settings.status.store}"
        """Where the statuses are, for messages; contains no secret."""

    def read(self, zone: Zone | None = None, workload: str | None = None) -> tuple[Sequence[ZoneStatus], float]:
        """Return all statuses, and the time. `zone` and `workload` are only checked to be configured."""
        require_known(self._settings.workload, zone, workload)
        return self._store.read(), self._clock.wall()

    def take_out(
        self, zone: Zone, workload: str | None, *, reason: str, seconds: float | None, force: bool
    ) -> ZoneStatus:
        require_known(self._settings.workload, zone, workload)
        return StatusWriter(self._store, self._clock).take_out(
            zone, workload, by=get_own_name(), reason=reason, seconds=seconds, force=force
        )

    def bring_in(self, zone: Zone, workload: str | None, *, reason: str, force: bool) -> ZoneStatus:
        require_known(self._settings.workload, zone, workload)
        return StatusWriter(self._store, self._clock).bring_in(
            zone, workload, by=get_own_name(), reason=reason, force=force
        )

    def history(self, limit: int) -> Sequence[StatusLogEntry]:
        """Return the latest changes that a server has recorded in its database, newest first, wherever the store is."""
        self._require_database()
        return StatusLog(self._databases.database(SUBSYSTEM)).list(limit)

    @cached_property
    def _store(self) -> StatusStore:
        if self._settings.status.store == "database":
            self._require_database()
        return open_status_store(self._settings, self._databases)

    def _require_database(self) -> None:
        # A zone taken out in a store that no server reads would only seem to be out.
        hint = f"; {TOKEN_VARIABLE} is set, so --server was probably meant" if read_token() else ""
        require_store(self._settings, SUBSYSTEM, hint=f", or ask the server with --server URL{hint}")


def get_own_name() -> str:
    """Return the user and host for the record, from the operating system: environment variables can be forged."""
    return f"{get_user_name(os.getuid())}@{socket.gethostname()}"
