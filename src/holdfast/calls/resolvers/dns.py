"""Endpoints by the names that each zone has in DNS."""

import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from holdfast._errors import EngineUnavailable, InvalidValue
from holdfast._types import Zone
from holdfast.calls.resolvers.resolver import AddressesByZone, check_template, format_address, parse_zones

LookUp: TypeAlias = Callable[..., Sequence[tuple[Any, ...]]]
"""As `socket.getaddrinfo`."""

# The name, or an address of it, does not exist: an answer. Everything else says that there was none.
_NAMES = ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY")
_NAME_NOT_FOUND = frozenset(getattr(socket, name) for name in _NAMES if hasattr(socket, name))


class DnsResolver:
    """The addresses (A and AAAA) of a name in each zone, such as `{zone}.pricing.internal`.

    A name that does not exist has no endpoints. If another one cannot be looked up, that is an error as a whole: a zone
    must not be taken out of service because its DNS had a bad moment. resolv.conf says how long a look-up may take.

    `address` says how host and port make an address, such as `http://{host}:{port}`, and `family` which kind of hosts
    is meant, such as `socket.AF_INET`. A certificate is for names, so with TLS rather take a PatternResolver.
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
            except UnicodeError as error:  # of what Python makes of the name before it asks
                raise InvalidValue(f"{name!r} is no name for DNS: {error}") from error
            except socket.gaierror as error:
                if error.errno not in _NAME_NOT_FOUND:
                    raise EngineUnavailable(f"{name} cannot be looked up in DNS: try again later ({error})") from error
                answers = ()
            # DNS shuffles its answers; sorted, the same ones look the same.
            found[zone] = [
                format_address(self._template, host, self._port)
                for host in sorted({answer[4][0] for answer in answers})
            ]
        return found
