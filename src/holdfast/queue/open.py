"""From an address to the backend that keeps the messages there. Backends are found by the scheme of the address."""

from typing import TYPE_CHECKING, Protocol

from holdfast._clock import Clock
from holdfast._errors import InvalidValue, SettingsError
from holdfast._plugins import Plugins

if TYPE_CHECKING:
    from holdfast.queue.backend import Backend

__all__ = ["BACKENDS", "BackendKind", "get_backend_kind", "open_backend"]


class BackendKind(Protocol):
    """What is registered under the scheme of an address: opens the backend there, and tells people where it is."""

    def open(self, url: str, *, clock: Clock | None, timeout: float, max_connections: int) -> "Backend":
        """Open the backend; `open_backend` explains the parameters. A kind ignores those that it has no use for."""

    def describe(self, url: str) -> str:
        """Return the address for people: a file by its whole path, and no password."""

    def require_queues(self, url: str, *, timeout: float) -> None:
        """Raise NotFound unless there are queues at the address. To ask makes none, and changes nothing."""


BACKENDS: Plugins[BackendKind] = Plugins(
    "queue backend", package="holdfast.queue.backends", group="holdfast.queue_backends"
)
"""The kinds of backends, by the scheme of their addresses; another distribution names its own as an entry point."""


def open_backend(url: str, *, clock: Clock | None = None, timeout: float = 5.0, max_connections: int = 10) -> "Backend":
    """Open the backend at an address: `memory:`, `sqlite:work.sqlite` or `postgresql://user@host/name`.

    A path after `sqlite:` is relative to where the process runs, unless it begins with `/`; `sqlite:///work.sqlite` is
    absolute, as everywhere. `timeout` is how many seconds to wait for a lock or an absent server; `max_connections` is
    for PostgreSQL. Without a `clock`, time is that of the server, where there is one, so that machines need not agree.
    Other distributions may register further schemes. Raises InvalidValue, with all schemes, for an unknown one.
    """
    return get_backend_kind(url).open(url, clock=clock, timeout=timeout, max_connections=max_connections)


def get_backend_kind(url: str) -> BackendKind:
    """Return the kind of backend that an address names. Raise InvalidValue, with all schemes, for an unknown one."""
    scheme, colon, _ = url.partition(":")
    try:
        return BACKENDS.get(scheme if colon else "")
    except SettingsError:
        names = BACKENDS.names()
        if colon and scheme in names:
            raise  # it is there, and cannot be loaded
        # Not the rest of the address: there may be a password in it.
        found = f"{scheme}:..." if colon else "an address without a scheme"
        known = ", ".join(f"{name}:" for name in names)
        raise InvalidValue(f"no queue backend for {found}: expected one of {known}") from None
