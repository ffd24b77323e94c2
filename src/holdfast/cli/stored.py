"""Zone statuses of the store that the settings name, without a server between."""

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
    """Reads and changes the statuses of a store, as the user who runs the command.

    Raises NotFound for zones and workloads that are not configured, where some are.
    """

    def __init__(self, settings: Settings, databases: Databases, clock: Clock) -> None:
        self._settings = settings
        self._databases = databases
        self._clock = clock
        self.can_expire = settings.status.store == "database"
        """Whether everybody who reads the store knows when a status is over."""
        in_database = get_database_path(settings, SUBSYSTEM) or settings.database.url
        self.location = f"store: {in_database if self.can_expire else settings.status.store}"
        """Where the statuses are, for people; no secret in it."""

    def read(self, zone: Zone | None = None, workload: str | None = None) -> tuple[Sequence[ZoneStatus], float]:
        """All statuses, and the time; the zone and the workload only have to exist."""
        require_known(self._settings.workload, zone, workload)
        return self._store.read(), self._clock.wall()

    def take_out(
        self, zone: Zone, workload: str | None, *, reason: str, seconds: float | None, force: bool
    ) -> ZoneStatus:
        """Mark a zone as out."""
        require_known(self._settings.workload, zone, workload)
        return StatusWriter(self._store, self._clock).take_out(
            zone, workload, by=_user_name(), reason=reason, seconds=seconds, force=force
        )

    def bring_in(self, zone: Zone, workload: str | None, *, reason: str) -> ZoneStatus:
        """Mark a zone as in."""
        require_known(self._settings.workload, zone, workload)
        return StatusWriter(self._store, self._clock).bring_in(zone, workload, by=_user_name(), reason=reason)

    def history(self, limit: int) -> Sequence[StatusLogEntry]:
        """The latest changes that a server has recorded, newest first: in its database, wherever the store is."""
        self._require_database()
        return StatusLog(self._databases.database(SUBSYSTEM)).list(limit)

    @cached_property
    def _store(self) -> StatusStore:
        if self._settings.status.store == "database":
            self._require_database()
        return open_status_store(self._settings, self._databases)

    def _require_database(self) -> None:
        # Whoever takes a zone out in a store that no server reads believes that it is out.
        hint = f"; {TOKEN_VARIABLE} is set, so --server was probably meant" if read_token() else ""
        require_store(self._settings, SUBSYSTEM, hint=f", or ask the server with --server URL{hint}")


def _user_name() -> str:
    """Who decides, for the record: by the system's word, which no variable changes."""
    return f"{get_user_name(os.getuid())}@{socket.gethostname()}"
