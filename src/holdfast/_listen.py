"""Listen on the address in the settings, and raise an error that names the setting to change."""

import socket

from holdfast._errors import EngineUnavailable


def listen(host: str, port: int, *, section: str, backlog: int) -> socket.socket:
    """Return a listening socket. Raise EngineUnavailable, which names the settings' `section` of `host` and `port`."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=backlog)
    except (OSError, ValueError) as error:
        # `create_server` appends the address, which the message already contains.
        reason = (getattr(error, "strerror", None) or str(error)).partition(" (while ")[0]
        raise EngineUnavailable(
            f"cannot listen on {host!r} port {port}: {reason}; "
            f"set another {section}.host (--host) or {section}.port (--port, 0 for any free one)"
        ) from error


def get_base_url(listener: socket.socket) -> str:
    """Return the base URL under which `listener` is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
