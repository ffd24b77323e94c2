"""Being told by PostgreSQL that something has happened: LISTEN, on a connection of its own."""

import psycopg

from holdfast._errors import EngineError
from holdfast.engines.postgres.connection import PostgresConnection, connect
from holdfast.engines.postgres.options import PostgresOptions

_CONNECT_SECONDS = 5.0


class Listener:
    """Hears what is notified on one channel, as long as the connection holds. For one thread at a time."""

    def __init__(self, options: PostgresOptions, channel: str) -> None:
        self._options = options
        self._channel = channel
        self._connection: PostgresConnection | None = None

    def hear(self, seconds: float) -> list[str] | None:
        """Wait for notifications; their texts. None: there is, or was until now, no connection: anything may be new."""
        try:
            if self._connection is None:
                self._connection = self._connect()
                return None  # what was notified before this nobody has heard
            heard = self._connection.notifies(timeout=seconds, stop_after=1)
            return [notification.payload for notification in heard]
        except (psycopg.Error, EngineError):
            self.close()
            return None

    def close(self) -> None:
        """Hang up. May be repeated."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connect(self) -> PostgresConnection:
        connection = connect(self._options, _CONNECT_SECONDS)
        try:
            connection.autocommit = True
            connection.execute(psycopg.sql.SQL("listen {}").format(psycopg.sql.Identifier(self._channel)))
        except BaseException:
            connection.close()
            raise
        return connection
