"""Endpoints from DNS: one name for each zone."""

import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from holdfast._errors import EngineUnavailable, InvalidValue
from holdfast._types import Zone
from holdfast.calls.resolvers.resolver import AddressesByZone, check_template, format_address, parse_zones

LookUp: TypeAlias = Callable[..., Sequence[tuple[Any, ...]]]
"""A function like `socket.getaddrinfo`."""

# DNS answered that the name, or its address, does not exist. All other errors mean that there was no answer.
_NAMES = ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY")
_NAME_NOT_FOUND = frozenset(getattr(socket, name) for name in _NAMES if hasattr(socket, name))


class DnsResolver:
    """The addresses (A and AAAA) of a name in each zone, such as `{zone}.pricing.internal`.

    A name that does not exist has no endpoints. If any look-up fails otherwise, `resolve` raises: a zone must not lose
    its endpoints because of a temporary DNS failure. resolv.conf sets the timeout of a look-up.

    `address` is the template of an address, such as `http://{host}:{port}`; `family` selects a kind of host address,
    such as `socket.AF_INET`. With TLS, prefer a PatternResolver: certificates are issued for names.
    """

    def __init__(
        self,
        pattern: str,
        zones: Iterable[str],
        port: int,
        *,
        address: str = "{host}:{port}",
        family: socket.AddressFamily = socket.AF_UNSPEC,
        look_up: LookUp = socket.getaddrinfo,
    ) -> None:
        if not 1 <= port <= 65_535:
            raise InvalidValue(f"port is {port}: expected 1 to 65535")
        self._names = {
            zone: check_template("pattern", pattern, "zone").format(zone=zone) for zone in parse_zones(zones)
        }
        self._port = port
        self._template = check_template("address", address, "host", "port")
        self._family = family
        self._look_up = look_up

    def resolve(self) -> AddressesByZone:
        found: dict[Zone, list[str]] = {}
        for zone, name in self._names.items():
            try:
                answers = self._look_up(name, self._port, self._family, socket.SOCK_STREAM)
            except UnicodeError as error:  # Python could not encode the name for the query
                raise InvalidValue(f"{name!r} is not a valid DNS name: {error}") from error
            except socket.gaierror as error:
                if error.errno not in _NAME_NOT_FOUND:
                    raise EngineUnavailable(f"{name} cannot be looked up in DNS: try again later ({error})") from error
                answers = ()
            # Sorted, because DNS shuffles its answers, and an unchanged set must compare equal.
            hosts = sorted({host for _family, _type, _protocol, _name, (host, *_) in answers})
            found[zone] = [format_address(self._template, host, self._port) for host in hosts]
        return found
