"""Build the evacuator from the settings: its actions, its journal, its status store and its AWS accounts."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from holdfast._errors import MissingExtra, NotFound
from holdfast._names import find_region
from holdfast._types import StatusStore, Verdict, Zone
from holdfast.compose import Databases, build_aws_options, get_database_path, open_status_store, require_store
from holdfast.config import Settings
from holdfast.config.evacuation import EvacuationAccountSettings
from holdfast.evacuate import Evacuator
from holdfast.evacuate.accounts import Accounts
from holdfast.evacuate.action import ACTIONS
from holdfast.evacuate.journal import RecordedRuns
from holdfast.evacuate.journals import JOURNALS
from holdfast.evacuate.journals.database import SUBSYSTEM as EVACUATIONS
from holdfast.evacuate.runner import Progress
from holdfast.evacuate.selection import Selection
from holdfast.evacuate.tags import build_tag_filter
from holdfast.status.stores import STATUS_STORES
from holdfast.status.stores.database import SUBSYSTEM as STATUSES
from holdfast.status.stores.memory import MemoryStatusStore
from holdfast.status.writer import StatusWriter

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession
    from holdfast.evacuate.accounts import SessionOpener

WATCH = "watch"
"""The subsystem with verdicts. Its own module needs NumPy."""


@contextmanager
def open_evacuator(
    settings: Settings,
    databases: Databases,
    *,
    writer: StatusWriter | None = None,
    progress: Progress | None = None,
) -> Iterator[Evacuator]:
    """Yield an evacuator. Without a `writer`, it writes to the status store of the settings.

    Raise NotFound if a zone would be marked as out in a store that no server reads.
    """
    writer = writer or StatusWriter(_open_statuses(settings, databases), databases.clock)
    has_status_store = not isinstance(writer.store, MemoryStatusStore)

    def find_zones(workload: str | None, zone: Zone) -> Collection[Zone]:
        """Return the zones of a workload; for all workloads, those of the one that has the fewest others."""
        found = [each.zones for each in settings.workload if workload in (None, each.name) and zone in each.zones]
        return {Zone(each) for each in min(found, key=len, default=())}

    def find_selection(workload: str | None) -> Selection:
        found = next((each.resources for each in settings.workload if each.name == workload), None)
        return Selection() if found is None else Selection(names=found.names, tags=found.tags)

    with Accounts(_list_accounts(settings), partial(_find_region, settings)) as accounts:
        resources = _ActionResources(databases, accounts, writer, settings.status.store)
        chosen = settings.evacuation.action
        yield Evacuator(
            {each.name: ACTIONS.get(each.name).open(each.parse_options(), resources) for each in chosen},
            JOURNALS.open(settings.evacuation.journal, databases),
            writer.store,
            databases.clock,
            find_zones=find_zones,
            read_verdicts=partial(_read_verdicts, settings, databases),
            find_selection=find_selection,
            progress=progress,
            build_tag_filter=partial(build_tag_filter, accounts),
            has_status_store=has_status_store,
        )


def read_runs(settings: Settings, databases: Databases) -> RecordedRuns:
    """Return the evacuations in the journal. Does not create one."""
    path = get_database_path(settings, EVACUATIONS)
    if settings.evacuation.journal == "database" and path is not None and not path.exists():
        return RecordedRuns(0, ())
    return JOURNALS.open(settings.evacuation.journal, databases).read_runs()


def _open_statuses(settings: Settings, databases: Databases) -> StatusStore:
    path = get_database_path(settings, STATUSES)
    if settings.status.store != "database" or path is None or path.exists():
        return open_status_store(settings, databases)
    for action in settings.evacuation.action:
        stores = action.options.get("stores")
        if action.name == "status" and (not stores or "database" in stores):
            # A zone taken out in a store that no server reads would only seem to be out.
            require_store(
                settings,
                STATUSES,
                hint=", start the server there once with `holdfast up`, or ask the server with --server URL",
            )
    return MemoryStatusStore()  # there is no status, and none is written


def _read_verdicts(settings: Settings, databases: Databases, workload: str | None) -> list[Verdict]:
    """Return the current verdicts of a workload, or of all.

    There are none where no server watches, or where detection is not installed: people must be able to evacuate a zone
    nevertheless.
    """
    path = get_database_path(settings, WATCH)
    if not settings.workload or (path is not None and not path.exists()):
        return []
    try:
        from holdfast.watch import WatchStore
    except MissingExtra:
        return []
    found = WatchStore(databases.database(WATCH))
    names = [each.name for each in settings.workload if workload in (None, each.name)]
    return [current[1] for name in names if (current := found.load_current(name)) is not None]


def _list_accounts(settings: Settings) -> "list[tuple[str, SessionOpener]]":
    """Return the name of each account, and a function that opens a session."""
    if not settings.evacuation.account:
        return [("the account of [aws]", partial(_open_session, settings, None))]
    return [(each.name, partial(_open_session, settings, each)) for each in settings.evacuation.account]


def _open_session(
    settings: Settings, account: EvacuationAccountSettings | None, region: str, max_attempts: int
) -> "AwsSession":
    from holdfast.engines.aws import AwsSession

    options = replace(build_aws_options(settings), region=region, max_attempts=max_attempts)
    if account is not None:
        options = replace(
            options,
            profile=account.profile or options.profile,
            role_arn=account.role_arn,
            external_id=account.external_id,
        )
    return AwsSession(options)


def _find_region(settings: Settings, zone: Zone) -> str:
    """Return the region of a zone. Raise NotFound if neither the settings nor its AZ-ID tell."""
    known = next((each.region for each in settings.workload if zone in each.zones), None)
    found = known or find_region(zone) or settings.aws.region
    if not found:
        raise NotFound(f"the region of {zone} is unknown: set aws.region, or add a [[workload]] with this zone")
    return found


class _ActionResources:
    """The resources of evacuation actions. See `holdfast.evacuate.action.ActionResources`."""

    def __init__(self, databases: Databases, accounts: Accounts, writer: StatusWriter, name: str) -> None:
        self.clock = databases.clock
        self._databases = databases
        self._accounts = accounts
        self._writer = writer
        self._name = name

    def accounts(self) -> Accounts:
        return self._accounts

    def status_writers(self, addresses: Sequence[str]) -> Mapping[str, StatusWriter]:
        if not addresses:
            return {self._name: self._writer}
        # The store of the settings may be wrapped by a cache, which publishes its changes.
        return {
            each: self._writer
            if each == self._name
            else StatusWriter(STATUS_STORES.open(each, self._databases), self.clock)
            for each in addresses
        }
