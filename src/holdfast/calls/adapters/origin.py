"""Where an endpoint's address points to: scheme, host and port of a URL. Pure."""

from typing import NamedTuple
from urllib.parse import urlsplit

from holdfast._errors import InvalidValue

_PORTS = {"http": 80, "https": 443}


class Origin(NamedTuple):
    """Scheme, host and port, as the URL of a request has them."""

    scheme: str
    host: str
    """Without brackets."""
    port: int | None
    """None: the scheme's own."""

    @property
    def netloc(self) -> str:
        """What the Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None or self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def origin_of(address: str, scheme: str) -> Origin:
    """The origin that `host:port` or a URL names; one without a scheme has that of the request."""
    try:
        parts = urlsplit(address if "://" in address else f"{scheme}://{address}")
        port = parts.port
    except ValueError as error:
        raise _refused(address) from error
    extra = parts.path.strip("/") or parts.query or parts.fragment or parts.username
    if parts.scheme not in _PORTS or not parts.hostname or extra:
        raise _refused(address)
    return Origin(parts.scheme, parts.hostname, port)


def _refused(address: str) -> InvalidValue:
    return InvalidValue(f"endpoint {address!r}: expected host:port, or http(s)://host:port without a path")
