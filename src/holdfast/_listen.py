"""Listening on an address that the settings name, with an error that says what to change."""

import socket

from holdfast._errors import EngineUnavailable


def listen(host: str, port: int, *, section: str, backlog: int) -> socket.socket:
    """A socket that listens; `section` is the one of the settings that has `host` and `port`."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=backlog)
    except (OSError, ValueError) as error:
        # `create_server` appends the address, which is named already.
        reason = (getattr(error, "strerror", None) or str(error)).partition(" (while ")[0]
        raise EngineUnavailable(
            f"cannot listen on {host!r} port {port}: {reason}; "
            f"set another {section}.host (--host) or {section}.port (--port, 0 for any free one)"
        ) from error


def get_base_url(listener: socket.socket) -> str:
    """The base URL at which the socket is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
