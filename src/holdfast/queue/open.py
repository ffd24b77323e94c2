"""Open the backend that an address names. The scheme of the address selects the kind of backend."""

from typing import TYPE_CHECKING, Protocol

from holdfast._clock import Clock
from holdfast._errors import InvalidValue, SettingsError
from holdfast._plugins import Plugins

if TYPE_CHECKING:
    from holdfast.queue.backend import Backend

__all__ = ["BACKENDS", "BackendType", "get_backend_kind", "open_backend"]


class BackendType(Protocol):
    """A kind of backend, registered under the scheme of its addresses."""

    def open(self, url: str, *, clock: Clock | None, timeout: float, max_connections: int) -> "Backend":
        """Open the backend. `open_backend` explains the parameters. A kind ignores those it does not need."""

    def describe(self, url: str) -> str:
        """Return the address for logs and messages: a file with its full path, and no password."""

    def require_queues(self, url: str, *, timeout: float) -> None:
        """Raise NotFound if there are no queues at the address. Create and change nothing."""


BACKENDS: Plugins[BackendType] = Plugins(
    "queue backend", package="holdfast.queue.backends", group="holdfast.queue_backends"
)
"""The kinds of backends by address scheme. Other distributions register theirs as entry points."""


def open_backend(url: str, *, clock: Clock | None = None, timeout: float = 5.0, max_connections: int = 10) -> "Backend":
    """Open the backend at an address: `memory:`, `sqlite:work.sqlite` or `postgresql://user@host/name`.

    A path after `sqlite:` is relative to the working directory unless it begins with `/`; `sqlite:///work.sqlite` is
    absolute. `timeout` is the maximum wait in seconds for a lock or an unavailable server; `max_connections` is for
    PostgreSQL. Without a `clock`, the time is that of the server, if there is one, so that the clocks of machines need
    not agree. Other distributions may register further schemes. Raise InvalidValue, with all schemes, for an unknown
    one.
    """
    return get_backend_kind(url).open(url, clock=clock, timeout=timeout, max_connections=max_connections)


def get_backend_kind(url: str) -> BackendType:
    """Return the kind of backend that an address names. Raise InvalidValue, with all schemes, for an unknown one."""
    scheme, colon, _ = url.partition(":")
    try:
        return BACKENDS.get(scheme if colon else "")
    except SettingsError:
        names = BACKENDS.names()
        if colon and scheme in names:
            raise  # it is registered, but cannot be loaded
        # Omit the rest of the address: it may contain a password.
        found = f"{scheme}:..." if colon else "an address without a scheme"
        known = ", ".join(f"{name}:" for name in names)
        raise InvalidValue(f"no queue backend for {found}: expected one of {known}") from None
