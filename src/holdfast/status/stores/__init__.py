"""Stores of zone statuses: one module each, which implements `holdfast.StatusStore` and registers itself by name.

A store is opened by its address: its name, then after a colon its argument, such as `dynamodb:TABLE`. Other
distributions add stores through the entry point group `holdfast.status_stores`. Rules for all stores are in `rules.py`,
those for stores in AWS in `aws.py`. `dynamodb` and `s3` need boto3, and are imported by their full names.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from holdfast._clock import Clock
from holdfast._errors import InvalidValue, SettingsError
from holdfast._plugins import Plugins
from holdfast._types import StatusStore
from holdfast.engines import Database

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession

__all__ = ["STATUS_STORES", "StatusStoreType", "StoreResources", "check_store_address", "open_store"]


class StoreResources(Protocol):
    """The resources that a store may use."""

    @property
    def clock(self) -> Clock:
        """The clock that writers and readers use."""

    def database(self, subsystem: str) -> Database:
        """Return the database that the settings define for a subsystem."""

    def aws(self) -> "AwsSession":
        """Return the AWS session that the settings define."""


@dataclass(frozen=True, slots=True)
class StatusStoreType:
    """A kind of store, as it is registered."""

    address_format: str
    """The full address format, for error messages: `dynamodb:TABLE`."""
    argument_pattern: str
    """Regular expression for the argument after the colon; empty if there is none."""
    open: Callable[[str, StoreResources], StatusStore]
    """Open a store for the argument after the colon."""


STATUS_STORES: Plugins[StatusStoreType] = Plugins(
    "status store", package="holdfast.status.stores", group="holdfast.status_stores"
)
"""The registered kinds of status stores, by the name before the colon of an address."""


def check_store_address(address: str) -> None:
    """Raise InvalidValue if no registered store accepts `address`."""
    name, _, rest = address.partition(":")
    try:
        kind = STATUS_STORES.get(name)
    except SettingsError as error:
        if name in STATUS_STORES.names():
            raise  # the store exists, but cannot be loaded
        known = ", ".join(STATUS_STORES.names())
        raise InvalidValue(f"expected the address of a store ({known}), found {address!r}") from error
    if not re.fullmatch(kind.argument_pattern, rest) or address.endswith(":"):
        raise InvalidValue(f"expected {kind.address_format}, found {address!r}")


def open_store(address: str, resources: StoreResources) -> StatusStore:
    """Open the store at `address`. Raise InvalidValue for an invalid address."""
    check_store_address(address)
    name, _, rest = address.partition(":")
    return STATUS_STORES.get(name).open(rest, resources)
