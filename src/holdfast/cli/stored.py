"""Zone statuses of the store that the settings name, without a server between."""

import os
import socket
from collections.abc import Sequence
from functools import cached_property

from holdfast._clock import Clock
from holdfast._types import StatusStore, Zone, ZoneStatus
from holdfast.cli.remote import TOKEN_VARIABLE, token_of_environment
from holdfast.compose import Databases, database_file, existing_store, open_status_store, user_name
from holdfast.config import Settings
from holdfast.config.settings import require_known
from holdfast.server.status_log import SUBSYSTEM, Logged, StatusLog
from holdfast.status.change import Changes


class StoredZones:
    """Reads and changes the statuses of a store, as the user who runs the command.

    Raises NotFound for zones and workloads that are not configured, where some are.
    """

    def __init__(self, settings: Settings, databases: Databases, clock: Clock) -> None:
        self._settings = settings
        self._databases = databases
        self._clock = clock
        self.ends_by_itself = settings.status.store == "database"
        """Whether everybody who reads the store knows when a status is over."""
        in_database = database_file(settings, SUBSYSTEM) or settings.database.url
        self.place = f"store: {in_database if self.ends_by_itself else settings.status.store}"
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
        return Changes(self._store, self._clock).take_out(
            zone, workload, by=_user(), reason=reason, seconds=seconds, force=force
        )

    def bring_in(self, zone: Zone, workload: str | None, *, reason: str) -> ZoneStatus:
        """Mark a zone as in."""
        require_known(self._settings.workload, zone, workload)
        return Changes(self._store, self._clock).bring_in(zone, workload, by=_user(), reason=reason)

    def history(self, limit: int) -> Sequence[Logged]:
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
        meant = f"; {TOKEN_VARIABLE} is set, so --server was probably meant" if token_of_environment() else ""
        existing_store(self._settings, SUBSYSTEM, hint=f", or ask the server with --server URL{meant}")


def _user() -> str:
    """Who decides, for the record: by the system's word, which no variable changes."""
    return f"{user_name(os.getuid())}@{socket.gethostname()}"
