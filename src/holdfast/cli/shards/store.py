"""The shards that are kept in the store of the settings, and the options that all commands on them have."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, TypeVar

from cyclopts import Parameter

from holdfast._errors import NotFound
from holdfast.cli.output import SettingsOptions
from holdfast.compose import open_database, require_store
from holdfast.shards import Assignments, NumberedTenant, Shard
from holdfast.shards.names import format_name
from holdfast.shards.stores.sql import SUBSYSTEM, SqlShardStore

Item = TypeVar("Item")

PROGRESS_INTERVAL = 50_000
"""Tenants between two signs of progress."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStoreOptions(SettingsOptions):
    """The options that say which shards of which store a command works on."""

    name: Annotated[str, Parameter(help="Which shards, where a store keeps those of several services.")] = "default"

    @contextmanager
    def open(self, *, is_new: bool = False) -> Iterator[Assignments]:
        """Open the assignments. Raise NotFound where there is no store, unless one may be made."""
        values = self.load()
        if not is_new:
            try:
                require_store(values, SUBSYSTEM)
            except NotFound as error:
                raise NotFound(
                    f"no shards are kept in {values.data_directory}: make some with `holdfast shards plan FILE "
                    "--size N --overlap N --apply`, or name another place with --settings or --data-directory"
                ) from error
        with open_database(values, SUBSYSTEM) as database:
            yield _AssignmentsWithProgress(SqlShardStore(database, self.name))


DEFAULT_STORE = ShardStoreOptions()


class _AssignmentsWithProgress(Assignments):
    """Assignments that say how far they are when they go through all tenants."""

    def iter_tenants(self) -> Iterator[NumberedTenant]:
        return show_progress(super().iter_tenants(), "tenants read")


def show_progress(items: Iterable[Item], what: str) -> Iterator[Item]:
    """The same items; at a terminal, how many there were so far is said now and then."""
    is_seen, number = sys.stderr.isatty(), 0
    for number, item in enumerate(items, start=1):
        if is_seen and number % PROGRESS_INTERVAL == 0:
            print(f"\r{number:,} {what}", end="", file=sys.stderr, flush=True)
        yield item
    if is_seen and number >= PROGRESS_INTERVAL:
        print(file=sys.stderr)


def format_row(tenant: bytes, shard: Shard) -> tuple[str, str]:
    """A tenant and the workers that serve it, for a table."""
    return format_name(tenant), " ".join(shard.live_workers)


def build_json_object(tenant: bytes, shard: Shard) -> dict[str, object]:
    """A tenant and the workers that serve it, for machines; and those of its shard that do not, if any."""
    found: dict[str, object] = {"tenant": decode_name(tenant), "workers": shard.live_workers}
    return found | {"drained_workers": shard.drained_workers} if shard.drained_workers else found


def decode_name(tenant: bytes) -> str:
    """A tenant's whole name as text; what is not UTF-8 in it is escaped as Python escapes bytes."""
    return tenant.decode("utf-8", "backslashreplace")
