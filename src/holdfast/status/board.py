"""What a process knows about zones that are out: in memory, told by the server, last known good when it is away."""

import http.client
import logging
import math
import random
import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Self

import msgspec

from holdfast._clock import Clock, SystemClock
from holdfast._types import Zone, ZoneStatus
from holdfast.status.push import connect, events

logger = logging.getLogger("holdfast.status")

_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
"""Seconds between attempts to connect: the first, and the longest. Each is spread, so that a thousand boards that
lost the same server do not come back in the same instant."""


class Board:
    """A ZoneView that follows one Holdfast server. Thread-safe; start it, or use it as a context manager.

    A server that cannot be reached changes nothing: zones stay as they were last known, and none is out before the
    first answer. So an outage of the status service evacuates nothing.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        clock: Clock | None = None,
        randomness: random.Random | None = None,
    ) -> None:
        self._address = address
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._clock = clock or SystemClock()
        self._randomness = randomness or random.Random()  # noqa: S311 - spreads load, hides nothing
        self._lock = threading.Lock()
        self._statuses: dict[tuple[Zone, str | None], ZoneStatus] = {}
        self._out: dict[str | None, frozenset[Zone]] = {None: frozenset()}
        self._expires = math.inf
        """When the first of the statuses that are out expires."""
        self._heard: float | None = None
        self._connection: http.client.HTTPConnection | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="holdfast-board", daemon=True)

    def out(self, workload: str | None = None) -> frozenset[Zone]:
        if self._clock.wall() >= self._expires:
            self.learn(())
        known = self._out
        return known.get(workload) or known[None]

    @property
    def age(self) -> float | None:
        """Seconds since the server was last heard; None before the first time."""
        return None if self._heard is None else self._clock.monotonic() - self._heard

    def start(self) -> Self:
        """Begin to follow the server, in a thread."""
        if not self._thread.is_alive():
            self._thread.start()
        return self

    def close(self) -> None:
        """Stop following. May be repeated."""
        self._stopping.set()
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)  # wakes whoever reads from it; closing alone would not

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def learn(self, statuses: Iterable[ZoneStatus], *, all_there_are: bool = False) -> None:
        """Take over what is newer than what is known, or, if these are `all_there_are`, nothing else."""
        with self._lock:
            if all_there_are:
                self._statuses = {}
            for status in statuses:
                key = (status.zone, status.workload)
                known = self._statuses.get(key)
                if known is None or status.version >= known.version:
                    self._statuses[key] = status
            now = self._clock.wall()
            out = [status for status in self._statuses.values() if status.is_out(now)]
            everywhere = frozenset(status.zone for status in out if status.workload is None)
            by_workload: dict[str | None, frozenset[Zone]] = {None: everywhere}
            for status in out:
                if status.workload is not None:
                    by_workload[status.workload] = by_workload.get(status.workload, everywhere) | {status.zone}
            self._expires = min((status.expires for status in out if status.expires is not None), default=math.inf)
            self._out = by_workload  # one assignment: readers see the old or the new, never half

    def _follow(self) -> None:
        pause = _PAUSE
        while not self._stopping.is_set():
            try:
                for name, data in events(self._address, self._headers, self._opened):
                    if name == "hello":
                        self.learn(self._pull(), all_there_are=True)
                    elif name == "status":
                        self.learn([msgspec.json.decode(data, type=ZoneStatus)])
                    pause = _PAUSE
                    self._heard = self._clock.monotonic()
            except (OSError, http.client.HTTPException, msgspec.DecodeError, AttributeError) as error:
                # AttributeError: http.client's answer to a socket that was closed under its hands.
                if not self._stopping.is_set():
                    logger.warning("the status server cannot be heard: %s", error)
            self._stopping.wait(pause * self._randomness.uniform(0.5, 1.0))
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _pull(self) -> list[ZoneStatus]:
        connection = connect(self._address)
        try:
            connection.request("GET", "/v1/status", headers=self._headers)
            response = connection.getresponse()
            body = response.read()
            if response.status != http.client.OK:
                raise http.client.HTTPException(f"GET /v1/status answered {response.status}")
            return msgspec.json.decode(body, type=list[ZoneStatus])
        finally:
            connection.close()

    def _opened(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        if self._stopping.is_set():  # closed while it was connecting
            self.close()
