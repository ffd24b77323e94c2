"""Check the names of zones, workloads and queues, and addresses of servers; write counts; escape text. Pure."""

import re
from urllib.parse import urlsplit

from holdfast._errors import InvalidValue
from holdfast._types import Operation, Zone

MAX_ZONE_CHARACTERS = 64
MAX_WORKLOAD_CHARACTERS = 128
ZONE_PATTERN = rf"^[A-Za-z0-9][A-Za-z0-9-]{{0,{MAX_ZONE_CHARACTERS - 1}}}$"
WORKLOAD_PATTERN = rf"^[A-Za-z0-9._-]{{1,{MAX_WORKLOAD_CHARACTERS}}}$"
"""Patterns as text, because settings and the OpenAPI description use them too."""
CONTROL_CHARACTERS = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""For a character class: refused in text that people write, because a terminal would execute them, or show the text in
another order (https://www.unicode.org/reports/tr9/#Directional_Formatting_Characters) or on several lines."""
_ZONE = re.compile(ZONE_PATTERN)
# us-east-1a, of a Local Zone us-west-2-lax-1a, of a Wavelength Zone us-east-1-wl1-bos-wlz-1
_ZONE_NAME = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d+([a-z]|-[a-z]{3}-\d+[a-z]|-wl\d+-[a-z]{3}-wlz-\d+)")
# https://docs.aws.amazon.com/global-infrastructure/latest/regions/az-ids.html
_AWS_ZONE = re.compile(r"([a-z]+\d+)(-[a-z0-9]+)*-(az|wlz)\d+")
_DIRECTIONS = {
    "n": "north",
    "ne": "northeast",
    "nw": "northwest",
    "s": "south",
    "se": "southeast",
    "sw": "southwest",
    "e": "east",
    "w": "west",
    "c": "central",
}
_COUNTRIES = "af|ap|ca|cn|eu|il|me|mx|sa|us"
_REGION = re.compile(rf"({_COUNTRIES})-(gov-)?({'|'.join(_DIRECTIONS.values())})-\d+")
_REGION_CODE = re.compile(rf"({_COUNTRIES})(g?)({'|'.join(_DIRECTIONS)})(\d+)")
_WORKLOAD = re.compile(WORKLOAD_PATTERN)


def parse_zone(text: str) -> Zone:
    """Return `text` as a Zone. Raise InvalidValue if it is no AZ-ID, such as the name of a zone (`us-east-1a`)."""
    if _ZONE_NAME.fullmatch(text):
        raise InvalidValue(
            f"{text} is the name of a zone, which means a different zone in every account: "
            "use its AZ-ID, such as use1-az1 (`aws ec2 describe-availability-zones` lists both)"
        )
    if text != text.lower() and _AWS_ZONE.fullmatch(text.lower()):
        raise InvalidValue(f"zone {text}: AZ-IDs have small letters only; expected {text.lower()}")
    if not _ZONE.fullmatch(text):
        raise InvalidValue(f"zone {text[:80]!r}: expected an AZ-ID such as use1-az1")
    return Zone(text)


def check_workload_name(text: str) -> str:
    """Return `text`. Raise InvalidValue if it is not a valid name of a workload."""
    if not _WORKLOAD.fullmatch(text):
        raise InvalidValue(f"workload {text[:150]!r}: expected 1 to 128 letters, digits and any of . _ -")
    return text


def parse_operation(text: str) -> Operation:
    """Return the operation `service/name`. Raise InvalidValue for another text."""
    service, _, name = text.partition("/")
    if not service or not name:
        raise InvalidValue(f"operation {text[:80]!r}: expected service/name, such as Home/Index")
    return Operation(service, name)


def check_queue_name(text: str, kind: str = "queue") -> str:
    """Return `text`. Raise InvalidValue if it is not a valid name of a queue or topic."""
    if not isinstance(text, str):
        raise InvalidValue(f"{kind} of type {type(text).__name__}: expected its name as text")
    if not _WORKLOAD.fullmatch(text):
        raise InvalidValue(f"{kind} {text[:150]!r}: expected 1 to 128 letters, digits and any of . _ -")
    return text


def check_address(address: str) -> str:
    """Return the address without a trailing slash. Raise InvalidValue if it is not an HTTP URL."""
    try:
        parts = urlsplit(address)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or any(character.isspace() for character in address):
        raise InvalidValue(f"address {address!r}: expected one such as http://127.0.0.1:8470")
    return address.rstrip("/")


def format_count(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun, such as `1 tenant` or `2,000 tenants`. `plural` is needed if it is not noun + s."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def escape_unprintable(text: str) -> str:
    """Return the text with escaped line breaks, which could forge a second line, and control characters."""
    return text if text.isprintable() else "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def get_region_code(zone: Zone) -> str:
    """Return the part of an AZ-ID that all zones of a region share, such as `use1`; "" if `zone` is no AWS AZ-ID."""
    found = _AWS_ZONE.fullmatch(zone)
    return "" if found is None else found[1]


def find_region(zone: Zone) -> str:
    """Return the region of AWS that a zone is in, such as `us-east-1`; "" if its AZ-ID does not tell."""
    code = _REGION_CODE.fullmatch(get_region_code(zone))
    if code is None:
        return ""
    country, government, direction, number = code.groups()
    return f"{country}-{'gov-' if government else ''}{_DIRECTIONS[direction]}-{number}"


def check_region(zone: Zone, region: str) -> None:
    """Raise InvalidValue if a zone is in another region of AWS. Other names of zones and regions are not checked."""
    found = find_region(zone)
    if found and _REGION.fullmatch(region) and found != region:
        raise InvalidValue(
            f'{zone} is a zone of {found}, not of {region}: write region = "{found}", or name zones of {region}'
        )
