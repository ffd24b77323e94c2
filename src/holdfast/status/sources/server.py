"""A Holdfast server as a source: it pushes changes, and is polled as well."""

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
from holdfast._names import check_address
from holdfast._types import Zone, ZoneStatus
from holdfast.status.sources.endpoint import EndpointSource
from holdfast.status.sources.source import POLL_SECONDS, PolledSource, StatusListener, StatusSource
from holdfast.status.sources.web import MAX_STORE_AGE_SECONDS, http_get, stream_events
from holdfast.status.wire import TIME_HEADER, WORKLOAD_HEADER, StatusChange, StatusSnapshot

logger = logging.getLogger("holdfast.status")

_NO_REVISION = -1  # smaller than every revision of a server
STABLE_STREAM_SECONDS = 10.0
"""Seconds after which a stream counts as stable: when it breaks later, the reconnect backoff starts over."""


class ServerSource(PolledSource):
    """A source that follows one server in two threads: one receives pushed changes, the other polls all statuses.

    Polls and pushed changes count as answers. An open stream alone does not, because it may be dead. Polls and changes
    carry revisions, so that neither undoes newer knowledge of the other. It logs a warning if the server does not know
    `workload`, the workload of this process.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        workload: str | None = None,
        poll_interval: float = POLL_SECONDS,
        chance: Chance = random.random,
    ) -> None:
        self._address = check_address(address)
        super().__init__(self._address, "holdfast-poll", poll_interval, chance)
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._workload = workload
        self._has_warned = False
        self._chance = chance
        self._following = BackgroundLoop("holdfast-push", self._follow, action="follow a server", logger=logger)
        self._lock = threading.Lock()
        self._run = ""
        self._revision = _NO_REVISION
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
                stream.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it; closing alone would not

    def apply_snapshot(self, snapshot: StatusSnapshot) -> None:
        """Replace all statuses by those of a snapshot, unless a newer change of the same server run was applied."""
        with self._lock:
            if snapshot.run == self._run and snapshot.revision < self._revision:
                return
            self._run, self._revision = snapshot.run, snapshot.revision
            self._known = {(status.zone, status.workload): status for status in snapshot.statuses}
            if snapshot.age is not None and snapshot.age < MAX_STORE_AGE_SECONDS:
                self._report_known(snapshot.at)

    def apply_change(self, change: StatusChange) -> None:
        """Apply a change if it is the next revision. If revisions are missing, poll all statuses soon."""
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
        """Report the known statuses again after a 304 response."""
        with self._lock:
            if int(headers.get("age", MAX_STORE_AGE_SECONDS)) < MAX_STORE_AGE_SECONDS:
                self._report_known(float(headers[TIME_HEADER]))

    def _report_known(self, at: float) -> None:
        if not self._is_closed:
            self._report(list(self._known.values()), at)

    def _poll(self) -> None:
        query = "" if self._workload is None else f"?workload={self._workload}"
        reply = http_get(f"{self._address}/v1/status{query}", {**self._headers, "If-None-Match": self._tag})
        if WORKLOAD_HEADER in reply.headers and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "server %s has no workload %s: only zones that are out for all workloads count here; check the name",
                self._address,
                self._workload,
            )
        if reply.status == http.client.NOT_MODIFIED:
            self._apply_not_modified(reply.headers)
        elif reply.status == http.client.OK:
            self.apply_snapshot(msgspec.json.decode(reply.body, type=StatusSnapshot))
            self._tag = reply.headers.get("etag", "")
        else:
            raise http.client.HTTPException(f"GET /v1/status answered {reply.status}")

    def _follow(self) -> float:
        """Apply the events of one stream until it ends; return the seconds to wait before reconnecting."""
        headers = {**self._headers, "Last-Event-ID": self._last_event} if self._last_event else self._headers
        begun = time.monotonic()
        try:
            for event in stream_events(f"{self._address}/v1/status/events", headers, self._on_open):
                if event.name == "snapshot":
                    self.apply_snapshot(msgspec.json.decode(event.data, type=StatusSnapshot))
                elif event.name == "status":
                    self.apply_change(msgspec.json.decode(event.data, type=StatusChange))
                self._last_event = event.id
        except Exception as error:  # noqa: BLE001 - whatever it was, reconnecting may help
            logger.debug("the stream of %s broke: %s", self._address, error)
        is_stable = time.monotonic() - begun >= STABLE_STREAM_SECONDS
        self._broken_streams = 1 if is_stable else self._broken_streams + 1
        return RECONNECT_BACKOFF.delay(self._broken_streams, 0.0, self._chance)

    def _on_open(self, stream: socket.socket) -> None:
        self._stream = stream
        if self._is_closed:  # closed while connecting
            self.close()


def build_source(
    address: str,
    *,
    zones: Sequence[Zone] = (),
    workload: str | None = None,
    token: str | None = None,
    poll_interval: float = POLL_SECONDS,
) -> StatusSource:
    """Return a ServerSource or, if the address contains `{zone}`, an EndpointSource. Only servers get the token."""
    if "{zone}" in address:
        return EndpointSource(address, zones, workload=workload, poll_interval=poll_interval)
    return ServerSource(address, token=token, workload=workload, poll_interval=poll_interval)
