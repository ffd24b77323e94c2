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
from holdfast.status.sources.source import POLL_SECONDS, PolledSource, StatusListener, StatusSource
from holdfast.status.sources.web import MAX_STORE_AGE_SECONDS, check_address, http_get, stream_events
from holdfast.status.wire import TIME_HEADER, StatusChange, StatusSnapshot

logger = logging.getLogger("holdfast.status")

STABLE_STREAM_SECONDS = 10.0
"""A stream that lived that long was a good one: after it, the pauses before connecting again begin anew."""


class ServerSource(PolledSource):
    """Follows one server, in two threads: one is told what changes, the other asks for everything.

    Only the second counts as hearing the server: a stream may be dead and look alive. Both say which revision they
    speak of, so that neither undoes what the other knew before.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        poll_interval: float = POLL_SECONDS,
        chance: Chance = random.random,
    ) -> None:
        self._address = check_address(address)
        super().__init__(self._address, "holdfast-pull", poll_interval, chance)
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._chance = chance
        self._following = BackgroundLoop("holdfast-push", self._follow, action="follow a server", logger=logger)
        self._lock = threading.Lock()
        self._run = ""
        self._revision = -1
        self._known: dict[tuple[Zone, str | None], ZoneStatus] = {}
        self._tag = ""
        self._stream: socket.socket | None = None
        self._last_event = ""
        self._broken_streams = 0
        self._is_closed = False

    def start(self, listener: StatusListener) -> None:
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

    def apply_snapshot(self, snapshot: StatusSnapshot) -> None:
        """Take over all that the server knows, unless more recent news has come from it."""
        with self._lock:
            if snapshot.run == self._run and snapshot.revision < self._revision:
                return
            self._run, self._revision = snapshot.run, snapshot.revision
            self._known = {(status.zone, status.workload): status for status in snapshot.statuses}
            if snapshot.age is not None and snapshot.age < MAX_STORE_AGE_SECONDS:
                self._report_known(snapshot.at)

    def apply_change(self, change: StatusChange) -> None:
        """Take over one change, if it is the next one; if some are missing, everything is asked for."""
        with self._lock:
            if change.run == self._run and change.revision <= self._revision:
                return
            if change.run != self._run or change.revision != self._revision + 1:
                self._tag = ""
                self.refresh()
                return
            self._revision = change.revision
            self._known[change.status.zone, change.status.workload] = change.status
            self._report_known(change.at)

    def _apply_not_modified(self, headers: Mapping[str, str]) -> None:
        """Say again what is known: the server is there, and knows nothing else."""
        with self._lock:
            if int(headers.get("age", MAX_STORE_AGE_SECONDS)) < MAX_STORE_AGE_SECONDS:
                self._report_known(float(headers[TIME_HEADER]))

    def _report_known(self, at: float) -> None:
        if not self._is_closed:
            self._report(list(self._known.values()), at)

    def _poll(self) -> None:
        reply = http_get(f"{self._address}/v1/status", {**self._headers, "If-None-Match": self._tag})
        if reply.status == http.client.NOT_MODIFIED:
            self._apply_not_modified(reply.headers)
        elif reply.status == http.client.OK:
            self.apply_snapshot(msgspec.json.decode(reply.body, type=StatusSnapshot))
            self._tag = reply.headers.get("etag", "")
        else:
            raise http.client.HTTPException(f"GET /v1/status answered {reply.status}")

    def _follow(self) -> float:
        """Take over what one stream tells until it ends; return the seconds to wait before the next one."""
        headers = {**self._headers, "Last-Event-ID": self._last_event} if self._last_event else self._headers
        begun = time.monotonic()
        try:
            for number, name, data in stream_events(f"{self._address}/v1/status/events", headers, self._on_open):
                if name == "snapshot":
                    self.apply_snapshot(msgspec.json.decode(data, type=StatusSnapshot))
                elif name == "status":
                    self.apply_change(msgspec.json.decode(data, type=StatusChange))
                self._last_event = number
        except Exception as error:  # noqa: BLE001 - whatever it was, the next stream may be better
            logger.debug("the stream of %s broke: %s", self._address, error)
        is_settled = time.monotonic() - begun >= STABLE_STREAM_SECONDS
        self._broken_streams = 1 if is_settled else self._broken_streams + 1
        return RECONNECT_BACKOFF.delay(self._broken_streams, 0.0, self._chance)

    def _on_open(self, stream: socket.socket) -> None:
        self._stream = stream
        if self._is_closed:  # closed while it was connecting
            self.close()


def build_source(
    address: str,
    *,
    zones: Sequence[Zone] = (),
    workload: str | None = None,
    token: str | None = None,
    poll_interval: float = POLL_SECONDS,
) -> StatusSource:
    """Return a server, or for an address with `{zone}` an EndpointSource. The token is never sent to the latter."""
    if "{zone}" in address:
        return EndpointSource(address, zones, workload=workload, poll_interval=poll_interval)
    return ServerSource(address, token=token, poll_interval=poll_interval)
