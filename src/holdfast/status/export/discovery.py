"""Ask AWS for the names of an account's zones."""

from collections.abc import Iterable

from holdfast._errors import InvalidValue
from holdfast._names import parse_zone
from holdfast._types import Zone
from holdfast.engines.aws import AwsSession
from holdfast.status.export.zones import NamedZone


def discover_zones(session: AwsSession, wanted: Iterable[str] = ()) -> tuple[NamedZone, ...]:
    """Return the session's availability zones that are `wanted`, or all of them; no Local Zones.

    `wanted` holds AZ-IDs, or pairs like `use1-az1=us-east-1b`. Raise InvalidValue for a zone that the account does not
    have, or names differently.
    """
    answer = session.client("ec2").describe_availability_zones()
    kinds = ("availability-zone", None)  # old answers have no ZoneType
    names = {
        Zone(found["ZoneId"]): str(found["ZoneName"])
        for found in answer["AvailabilityZones"]
        if found.get("ZoneType") in kinds
    }
    chosen = [_check_zone(text, names) for text in wanted] or sorted(names)
    return tuple(NamedZone(zone, names[zone]) for zone in chosen)


def _check_zone(text: str, names: dict[Zone, str]) -> Zone:
    zone, equals, name = text.partition("=")
    found = parse_zone(zone)
    if found not in names:
        raise InvalidValue(f"zone {found} is not in this account and region, which has {', '.join(sorted(names))}")
    if equals and names[found] != name:
        raise InvalidValue(f"zone {found} is called {names[found]} in this account, not {name}")
    return found
