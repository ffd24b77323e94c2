"""The shards in the store of the settings, and the options of all commands that use it."""

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
"""Tenants between two reports of progress."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStoreOptions(SettingsOptions):
    """The options that choose the store and the shards in it."""

    name: Annotated[str, Parameter(help="Name of the shards, if a store has those of several services.")] = "default"

    @contextmanager
    def open(self, *, is_new: bool = False) -> Iterator[Assignments]:
        """Open the assignments. Raise NotFound if there is no store, unless `is_new` allows to create one."""
        values = self.load()
        if not is_new:
            try:
                require_store(values, SUBSYSTEM)
            except NotFound as error:
                raise NotFound(
                    f"there are no shards in {values.data_directory}: make some with `holdfast shards plan FILE "
                    "--size N --overlap N --apply`, or name another store with --settings or --data-directory"
                ) from error
        with open_database(values, SUBSYSTEM) as database:
            yield _AssignmentsWithProgress(SqlShardStore(database, self.name))


DEFAULT_STORE = ShardStoreOptions()


class _AssignmentsWithProgress(Assignments):
    """Assignments that report progress while they read all tenants."""

    def iter_tenants(self) -> Iterator[NumberedTenant]:
        return show_progress(super().iter_tenants(), "tenants read")


def show_progress(items: Iterable[Item], what: str) -> Iterator[Item]:
    """Yield the items unchanged. At a terminal, print from time to time how many there were so far."""
    is_terminal, number = sys.stderr.isatty(), 0
    for number, item in enumerate(items, start=1):
        if is_terminal and number % PROGRESS_INTERVAL == 0:
            print(f"\r{number:,} {what}", end="", file=sys.stderr, flush=True)
        yield item
    if is_terminal and number >= PROGRESS_INTERVAL:
        print(file=sys.stderr)


def format_row(tenant: bytes, shard: Shard) -> tuple[str, str]:
    """Return a tenant and its live workers, as a row of a table."""
    return format_name(tenant), " ".join(shard.live_workers)


def build_json_object(tenant: bytes, shard: Shard) -> dict[str, object]:
    """Return a tenant, its live workers, and its drained workers if it has any, as a JSON object."""
    found: dict[str, object] = {"tenant": decode_name(tenant), "workers": shard.live_workers}
    return found | {"drained_workers": shard.drained_workers} if shard.drained_workers else found


def decode_name(tenant: bytes) -> str:
    """Return a tenant's whole name as text; bytes that are not UTF-8 are escaped as in Python."""
    return tenant.decode("utf-8", "backslashreplace")
