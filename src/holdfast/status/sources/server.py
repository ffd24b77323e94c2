"""A Holdfast server as a source: told at once of what changes, and asked again and again all the same."""

import http.client
import logging
import random
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from holdfast._background import RECONNECT_BACKOFF, BackgroundLoop
from holdfast._backoff import Chance
from holdfast._types import Zone, ZoneStatus
from holdfast.status.sources.endpoint import EndpointSource
from holdfast.status.sources.source import PERIOD_SECONDS, Listener, PolledSource, Source
from holdfast.status.sources.web import FORGOTTEN_SECONDS, ask, check, events
from holdfast.status.wire import TIME_HEADER, Change, Snapshot

logger = logging.getLogger("holdfast.status")

SETTLED_SECONDS = 10.0
"""A stream that lived that long was a good one: after it, the pauses before connecting again begin anew."""


class ServerSource(PolledSource):
    """Follows one server, in two threads: one is told what changes, the other asks for everything.

    Only the second counts as hearing the server: a stream may be dead and look alive. Both say which revision they
    speak of, so that neither undoes what the other knew before.
    """

    def __init__(
        self, address: str, *, token: str | None = None, period: float = PERIOD_SECONDS, chance: Chance = random.random
    ) -> None:
        self._address = check(address)
        super().__init__(self._address, "holdfast-pull", period, chance)
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._chance = chance
        self._following = BackgroundLoop("holdfast-push", self._follow, doing="follow a server", logger=logger)
        self._lock = threading.Lock()
        self._run = ""
        self._revision = -1
        self._known: dict[tuple[Zone, str | None], ZoneStatus] = {}
        self._tag = ""
        self._stream: socket.socket | None = None
        self._last_event = ""
        self._broken_streams = 0
        self._is_closed = False

    def start(self, listener: Listener) -> None:
        self._is_closed = False
        super().start(listener)
        self._following.start()

    def close(self) -> None:
        self._is_closed = True
        super().close()
        self._following.stop()
        stream = self._stream
        if stream is not None:
            with suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)  # wakes whoever reads from it; closing alone would not

    def take_snapshot(self, snapshot: Snapshot) -> None:
        """Take over all that the server knows, unless more recent news has come from it."""
        with self._lock:
            if snapshot.run == self._run and snapshot.revision < self._revision:
                return
            self._run, self._revision = snapshot.run, snapshot.revision
            self._known = {(status.zone, status.workload): status for status in snapshot.statuses}
            if snapshot.age is not None and snapshot.age < FORGOTTEN_SECONDS:
                self._say_known(snapshot.at)

    def take_change(self, change: Change) -> None:
        """Take over one change, if it is the next one; if some are missing, everything is asked for."""
        with self._lock:
            if change.run == self._run and change.revision <= self._revision:
                return
            if change.run != self._run or change.revision != self._revision + 1:
                self._tag = ""
                self.poke()
                return
            self._revision = change.revision
            self._known[change.status.zone, change.status.workload] = change.status
            self._say_known(change.at)

    def _take_nothing_new(self, headers: Mapping[str, str]) -> None:
        """Say again what is known: the server is there, and knows nothing else."""
        with self._lock:
            if int(headers.get("age", FORGOTTEN_SECONDS)) < FORGOTTEN_SECONDS:
                self._say_known(float(headers[TIME_HEADER]))

    def _say_known(self, at: float) -> None:
        if not self._is_closed:
            self._say(list(self._known.values()), at)

    def _look(self) -> None:
        reply = ask(f"{self._address}/v1/status", {**self._headers, "If-None-Match": self._tag})
        if reply.status == http.client.NOT_MODIFIED:
            self._take_nothing_new(reply.headers)
        elif reply.status == http.client.OK:
            self.take_snapshot(msgspec.json.decode(reply.body, type=Snapshot))
            self._tag = reply.headers.get("etag", "")
        else:
            raise http.client.HTTPException(f"GET /v1/status answered {reply.status}")

    def _follow(self) -> float:
        """Take over what one stream tells until it ends; return the seconds to wait before the next one."""
        headers = {**self._headers, "Last-Event-ID": self._last_event} if self._last_event else self._headers
        begun = time.monotonic()
        try:
            for number, name, data in events(f"{self._address}/v1/status/events", headers, self._opened):
                if name == "snapshot":
                    self.take_snapshot(msgspec.json.decode(data, type=Snapshot))
                elif name == "status":
                    self.take_change(msgspec.json.decode(data, type=Change))
                self._last_event = number
        except Exception as error:  # noqa: BLE001 - whatever it was, the next stream may be better
            logger.debug("the stream of %s broke: %s", self._address, error)
        is_settled = time.monotonic() - begun >= SETTLED_SECONDS
        self._broken_streams = 1 if is_settled else self._broken_streams + 1
        return RECONNECT_BACKOFF.delay(self._broken_streams, 0.0, self._chance)

    def _opened(self, stream: socket.socket) -> None:
        self._stream = stream
        if self._is_closed:  # closed while it was connecting
            self.close()


def source_of(
    address: str,
    *,
    zones: Sequence[Zone] = (),
    workload: str | None = None,
    token: str | None = None,
    period: float = PERIOD_SECONDS,
) -> Source:
    """Return a server, or for an address with `{zone}` an EndpointSource. The token is never sent to the latter."""
    if "{zone}" in address:
        return EndpointSource(address, zones, workload=workload, period=period)
    return ServerSource(address, token=token, period=period)
