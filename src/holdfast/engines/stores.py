"""Kinds of stores by address: a name, then after a colon an argument, such as `database` or `dynamodb:TABLE`.

Settings name a store by its address. Every part that has such stores keeps one registry of their kinds.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from holdfast._clock import Clock
from holdfast._errors import InvalidValue, SettingsError
from holdfast._plugins import Plugins
from holdfast.engines.database import Database

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession

T = TypeVar("T")


class StoreResources(Protocol):
    """The resources that a store may use."""

    @property
    def clock(self) -> Clock:
        """The clock that writers and readers use."""

    def database(self, subsystem: str) -> Database:
        """Return the database that the settings define for a subsystem."""

    def aws(self) -> "AwsSession":
        """Return the AWS session that the settings define."""


@dataclass(frozen=True)  # without slots: Python cannot create `StoreType[...](...)` with them
class StoreType(Generic[T]):
    """A kind of store, as it is registered."""

    address_format: str
    """The full address format, for error messages: `dynamodb:TABLE`."""
    argument_pattern: str
    """Regular expression for the argument after the colon; empty if there is none."""
    open: Callable[[str, StoreResources], T]
    """Open a store for the argument after the colon."""
    permissions: tuple[str, ...] = ()
    """The IAM actions that it needs, such as `dynamodb:Query`."""


class StoreTypes(Plugins[StoreType[T]]):
    """The registered kinds of one store, by the name before the colon of an address."""

    def check(self, address: str) -> None:
        """Raise InvalidValue if no registered store accepts `address`."""
        name, _, rest = address.partition(":")
        try:
            kind = self.get(name)
        except SettingsError as error:
            if name in self.names():
                raise  # the store exists, but cannot be loaded
            known = ", ".join(self.names())
            raise InvalidValue(f"expected the address of a store ({known}), found {address!r}") from error
        if not re.fullmatch(kind.argument_pattern, rest) or address.endswith(":"):
            raise InvalidValue(f"expected {kind.address_format}, found {address!r}")

    def open(self, address: str, resources: StoreResources) -> T:
        """Open the store at `address`. Raise InvalidValue for an invalid address."""
        self.check(address)
        name, _, rest = address.partition(":")
        return self.get(name).open(rest, resources)
