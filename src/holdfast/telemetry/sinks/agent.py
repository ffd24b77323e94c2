"""Send telemetry to the CloudWatch agent of the host: one line of embedded metric format each, over TCP or UDP.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Generation_CloudWatch_Agent.html
"""

import errno
import socket
from urllib.parse import urlsplit

from holdfast._errors import InvalidValue
from holdfast.telemetry.sinks.buffered import Batch, BufferedSink

__all__ = ["AgentSink"]

AGENT_PORT = 25888
DEFAULT_ADDRESS = f"tcp://127.0.0.1:{AGENT_PORT}"
_TIMEOUT = 5.0
_KINDS = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}


class AgentSink(BufferedSink):
    """A sink that sends lines to the CloudWatch agent, by default over TCP on this host. See BufferedSink.

    The agent needs `EmfSink(..., log_group=...)`. It confirms nothing: lines that the system has accepted count as
    sent. Over UDP, a line is one datagram, lines above 64 KB are dropped, and losses are not noticed.
    """

    def __init__(self, address: str = DEFAULT_ADDRESS) -> None:
        parts = urlsplit(address)
        try:
            host, port = parts.hostname, parts.port or AGENT_PORT
        except ValueError as error:
            raise InvalidValue(f"address {address!r} of the CloudWatch agent: {error}") from error
        if parts.scheme not in _KINDS or not host:
            raise InvalidValue(
                f"address {address!r} of the CloudWatch agent: expected tcp://HOST:PORT or udp://HOST:PORT"
            )
        self._host, self._port = host, port
        self._kind = _KINDS[parts.scheme]
        super().__init__(action=f"send telemetry to the CloudWatch agent at {host}:{port}")

    def _reset(self) -> None:
        super()._reset()
        self._socket: socket.socket | None = None

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _write(self, batch: Batch) -> None:
        if self._kind is socket.SOCK_STREAM:
            self._write_stream(batch)
        else:
            self._write_datagrams(batch)

    def _write_stream(self, batch: Batch) -> None:
        """Send the batch. If the connection breaks, lines that were not accepted completely are sent again."""
        if self._socket is not None and _is_closed(self._socket):
            self._disconnect()
        connection = self._connect()
        data = memoryview(b"".join(line + b"\n" for line in batch.lines))
        sent = 0
        try:
            while sent < len(data):
                sent += connection.send(data[sent:])
        finally:
            whole = 0
            while whole < len(batch.lines) and len(batch.lines[whole]) < sent:
                sent -= len(batch.lines[whole]) + 1
                whole += 1
            self._count_sent(batch, whole)

    def _write_datagrams(self, batch: Batch) -> None:
        connection = self._connect()
        while batch.lines:
            try:
                connection.send(batch.lines[0] + b"\n")
            except OSError as error:
                if error.errno != errno.EMSGSIZE:
                    raise
                self._drop(batch, 1)
            else:
                self._count_sent(batch, 1)

    def _connect(self) -> socket.socket:
        if self._socket is None:
            family, kind, protocol, _, address = socket.getaddrinfo(self._host, self._port, type=self._kind)[0]
            self._socket = socket.socket(family, kind, protocol)
            self._socket.settimeout(_TIMEOUT)
            self._socket.connect(address)
        return self._socket


def _is_closed(connection: socket.socket) -> bool:
    """Return whether the agent has closed the connection: the next lines would be lost without an error."""
    connection.setblocking(False)
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False  # open, and silent as usual
    except OSError:
        return True
    finally:
        connection.settimeout(_TIMEOUT)
