"""Store announced deploys: people and scripts announce them, and detection reads them for every window."""

import secrets
from collections.abc import Sequence

from holdfast._clock import Clock, SystemClock
from holdfast._errors import Conflict, NotFound
from holdfast._types import Zone
from holdfast.engines import Database, Migration, Row, Transaction
from holdfast.telemetry.context import DEPLOYMENT_SECONDS
from holdfast.watch.deploy import (
    KEPT_SECONDS,
    MAX_RUNNING,
    AnnouncedDeploy,
    build_deploy,
    choose_end,
    choose_open_deploy,
)

SUBSYSTEM = "deploys"
"""The name of its migrations. Its table is in the database of the watch."""

MIGRATIONS = (
    Migration(
        1,
        "announced deploys",
        (
            """create table holdfast_deploy (
                id text primary key,
                workload text not null,
                zone text,
                started_at double precision not null,
                expires_at double precision not null,
                ended_at double precision,
                announced_by text not null,
                note text not null
            )""",
        ),
    ),
)

_COLUMNS = "id, workload, zone, started_at, expires_at, ended_at, announced_by, note"
_END = "coalesce(ended_at, expires_at)"
_INSERT = (
    f"insert into holdfast_deploy ({_COLUMNS}) values ($1, $2, $3, $4, $5, $6, $7, $8) "  # noqa: S608 - our own names
    "on conflict (id) do nothing"
)
_PRUNE = f"delete from holdfast_deploy where {_END} < $1"  # noqa: S608
_FIND = f"select {_COLUMNS} from holdfast_deploy where id = $1"  # noqa: S608
_LIST = f"select {_COLUMNS} from holdfast_deploy where {_END} >= $1 order by started_at desc, id"  # noqa: S608
_OVERLAPPING = (
    f"select {_COLUMNS} from holdfast_deploy where workload = $1 and {_END} > $2 and started_at < $3 "  # noqa: S608
    "order by started_at, id"
)
_END_ONE = "update holdfast_deploy set ended_at = $1 where id = $2 and ended_at is null"


class DeployStore:
    """The store of announced deploys. Thread-safe. Every change may be repeated."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()
        database.migrate(SUBSYSTEM, MIGRATIONS)

    def begin(
        self,
        workload: str,
        zone: str | None = None,
        *,
        by: str,
        note: str = "",
        seconds: float | None = None,
        at: float | None = None,
        deploy_id: str | None = None,
    ) -> AnnouncedDeploy:
        """Announce a deploy, and return it. With the `deploy_id` of a known one, return that.

        Raise InvalidValue for wrong names, texts and times, and Conflict if too many are running.
        """
        now = self._clock.wall()
        wanted = build_deploy(
            deploy_id or secrets.token_hex(6), workload, zone, now=now, by=by, note=note, seconds=seconds, at=at
        )

        def write(transaction: Transaction) -> AnnouncedDeploy:
            known = transaction.execute(_FIND, (wanted.id,))
            if not known:
                running = transaction.execute(_OVERLAPPING, (wanted.workload, now, now))
                if len(running) >= MAX_RUNNING:
                    raise Conflict(f"{MAX_RUNNING} deploys of {wanted.workload} are running: end some of them first")
                transaction.execute(_PRUNE, (now - KEPT_SECONDS,))
                times = wanted.started_at, wanted.expires_at, None
                transaction.execute(_INSERT, (wanted.id, wanted.workload, wanted.zone, *times, wanted.by, wanted.note))
                known = transaction.execute(_FIND, (wanted.id,))
            found = _decode(known[0])
            if (found.workload, found.zone) != (wanted.workload, wanted.zone):
                raise Conflict(f"deploy {wanted.id} is one of {found.workload}, zone {found.zone or '(all)'}")
            return found

        return self._database.write(write)

    def end(
        self,
        deploy_id: str | None = None,
        *,
        workload: str | None = None,
        zone: Zone | None = None,
        at: float | None = None,
    ) -> AnnouncedDeploy:
        """End the deploy with this id, or the running one of a workload's zone. Return it.

        A deploy that has ended stays as it is. Raise NotFound if there is none, Conflict if several are running, and
        InvalidValue if `at` is before its beginning or in the future.
        """
        now = self._clock.wall()

        def write(transaction: Transaction) -> AnnouncedDeploy:
            if deploy_id is None:
                rows = transaction.execute(_OVERLAPPING, (workload or "", now, now + KEPT_SECONDS))
                running = [each for each in map(_decode, rows) if each.zone == zone]
                found = choose_open_deploy(running, workload or "", zone)
            else:
                found = _find(transaction, deploy_id)
            if found.ended_at is not None:
                return found
            transaction.execute(_END_ONE, (choose_end(found, now, at), found.id))
            return _find(transaction, found.id)

        return self._database.write(write)

    def list(self, workload: str | None = None) -> Sequence[AnnouncedDeploy]:
        """Return the running deploys and those of the last day, newest first."""
        oldest = self._clock.wall() - KEPT_SECONDS
        rows = self._database.read(lambda transaction: transaction.execute(_LIST, (oldest,)))
        return [each for each in map(_decode, rows) if workload in (None, each.workload)]

    def list_for_window(self, workload: str, end: float) -> Sequence[AnnouncedDeploy]:
        """Return the deploys of a workload that a detector is shown with the window that ends at `end`."""
        values = workload, end - DEPLOYMENT_SECONDS, end
        rows = self._database.read(lambda transaction: transaction.execute(_OVERLAPPING, values))
        return [_decode(row) for row in rows]


def _find(transaction: Transaction, deploy_id: str) -> AnnouncedDeploy:
    rows = transaction.execute(_FIND, (deploy_id,))
    if not rows:
        raise NotFound(f"there is no deploy {deploy_id[:80]}: see `holdfast deploy list`")
    return _decode(rows[0])


def _decode(row: Row) -> AnnouncedDeploy:
    deploy_id, workload, zone, started_at, expires_at, ended_at, by, note = row
    return AnnouncedDeploy(
        id=deploy_id,
        workload=workload,
        zone=zone,
        started_at=started_at,
        expires_at=expires_at,
        ended_at=ended_at,
        by=by,
        note=note,
    )
