"""The stores of zone statuses: one module for each, which fulfils `holdfast.StatusStore` and registers itself by name.

A store is opened by its address: its name, and after a colon what it needs to know, such as `dynamodb:TABLE`. Another
distribution adds one through the entry point group `holdfast.status_stores`. Rules that all stores share are in
`rules.py`, those of stores in AWS in `aws.py`. `dynamodb` and `s3` need boto3, and are imported by their full names.
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
    """What a store may be built on."""

    @property
    def clock(self) -> Clock:
        """The clock that writers and readers go by."""

    def database(self, subsystem: str) -> Database:
        """Return the database of a subsystem, as the settings have it."""

    def aws(self) -> "AwsSession":
        """Return the AWS session that the settings describe."""


@dataclass(frozen=True, slots=True)
class StatusStoreType:
    """One kind of store, as it registers itself."""

    address_format: str
    """The whole address, for messages: `dynamodb:TABLE`."""
    argument_pattern: str
    """A regular expression for what follows the name and its colon; empty if nothing may follow."""
    open: Callable[[str, StoreResources], StatusStore]
    """Opens a store by what follows the colon."""


STATUS_STORES: Plugins[StatusStoreType] = Plugins(
    "status store", package="holdfast.status.stores", group="holdfast.status_stores"
)


def check_store_address(address: str) -> None:
    """Raise InvalidValue for an address that no registered store has."""
    name, _, rest = address.partition(":")
    try:
        kind = STATUS_STORES.get(name)
    except SettingsError as error:
        if name in STATUS_STORES.names():
            raise  # it is there, and cannot be loaded
        known = ", ".join(STATUS_STORES.names())
        raise InvalidValue(f"expected the address of a store ({known}), found {address!r}") from error
    if not re.fullmatch(kind.argument_pattern, rest) or address.endswith(":"):
        raise InvalidValue(f"expected {kind.address_format}, found {address!r}")


def open_store(address: str, resources: StoreResources) -> StatusStore:
    """Open the store at an address."""
    check_store_address(address)
    name, _, rest = address.partition(":")
    return STATUS_STORES.get(name).open(rest, resources)
