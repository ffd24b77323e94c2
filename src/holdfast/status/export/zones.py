"""Zones of one account: the AZ-IDs that all accounts share, and the account's own names for them. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from holdfast._errors import InvalidValue
from holdfast._names import parse_zone
from holdfast._types import Zone

_ID = re.compile(r"(?P<region>[a-z]+\d+)-az\d+")
_NAME = re.compile(r"(?P<region>[a-z]{2,3}(-[a-z]+)+-\d+)[a-z]")


@dataclass(frozen=True, slots=True)
class NamedZone:
    """A zone's AZ-ID and its name. The name belongs to one account: other accounts name the same zone differently."""

    id: Zone
    name: str

    def __post_init__(self) -> None:
        if not _ID.fullmatch(parse_zone(self.id)):
            raise InvalidValue(f"zone {self.id!r}: expected an AZ-ID such as use1-az1")
        if not _NAME.fullmatch(self.name):
            raise InvalidValue(f"zone {self.id} is named {self.name!r}: expected a name such as us-east-1b")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the zone written as `use1-az1=us-east-1b`."""
        zone, equals, name = text.partition("=")
        if not equals:
            raise InvalidValue(
                f"zone {text!r}: expected its AZ-ID and its name in this account, such as use1-az1=us-east-1b"
            )
        return cls(Zone(zone), name)

    @property
    def region(self) -> str:
        return self.name[:-1]


def check_zones(zones: Sequence[NamedZone]) -> None:
    """Raise InvalidValue unless traffic can move between the zones: at least two, each once, all of one region."""
    if len(zones) < 2:
        raise InvalidValue(f"expected at least two zones, found {len(zones)}: traffic needs another zone to move to")
    given: dict[str, list[str]] = {"AZ-ID": [zone.id for zone in zones], "name": [zone.name for zone in zones]}
    for what, values in given.items():
        for value in values:
            if values.count(value) > 1:
                raise InvalidValue(f"{what} {value} is given twice: a zone has one name, and a name means one zone")
    first = zones[0]
    for zone in zones[1:]:
        if zone.region != first.region or _area(zone) != _area(first):
            raise InvalidValue(
                f"{zone.id}={zone.name} is in another region than {first.id}={first.name}: "
                "all zones of a load balancer are in one region"
            )


def _area(zone: NamedZone) -> str:
    """Return the region as AZ-IDs write it: `use1`."""
    return zone.id.partition("-")[0]
