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

from holdfast._types import Zone, ZoneStatus
from holdfast.status.sources.endpoint import EndpointSource
from holdfast.status.sources.rhythm import PERIOD_SECONDS, Rhythm, pauses
from holdfast.status.sources.source import Listener, Source
from holdfast.status.sources.web import FORGOTTEN_SECONDS, Reply, ask, check, events
from holdfast.status.wire import TIME_HEADER, Change, Snapshot

logger = logging.getLogger("holdfast.status")

SETTLED_SECONDS = 10.0
"""A stream that lived that long was a good one: after it, the pauses before connecting again begin anew."""


class ServerSource:
    """Follows one server, in two threads: one is told what changes, the other asks for everything.

    The second is what counts as hearing the server: a stream may be dead and look alive. Both say which revision
    they speak of, so that neither undoes what the other knew before.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        period: float = PERIOD_SECONDS,
        randomness: random.Random | None = None,
    ) -> None:
        self._address = check(address)
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._randomness = randomness or random.Random()  # noqa: S311 - spreads load, hides nothing
        self._rhythm = Rhythm(period, "holdfast-pull", self._randomness)
        self._lock = threading.Lock()
        self._run = ""
        self._revision = -1
        self._known: dict[tuple[Zone, str | None], ZoneStatus] = {}
        self._tag = ""
        self._is_silent = False
        self._listener: Listener | None = None
        self._stream: socket.socket | None = None
        self._stopping = threading.Event()

    @property
    def name(self) -> str:
        return self._address

    def start(self, listener: Listener) -> None:
        self._listener = listener
        self._rhythm.start(self._pull)
        threading.Thread(target=self._listen, name="holdfast-push", daemon=True).start()

    def poke(self) -> None:
        self._rhythm.poke()

    def close(self) -> None:
        self._stopping.set()
        self._rhythm.close()
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
                self._say(snapshot.at)

    def take_change(self, change: Change) -> None:
        """Take over one change, if it is the next one; if some are missing, everything is asked for."""
        with self._lock:
            if change.run == self._run and change.revision <= self._revision:
                return
            if change.run != self._run or change.revision != self._revision + 1:
                self._tag = ""
                self._rhythm.poke()
                return
            self._revision = change.revision
            self._known[change.status.zone, change.status.workload] = change.status
            self._say(change.at)

    def _take_nothing_new(self, headers: Mapping[str, str]) -> None:
        """Say again what is known: the server is there, and knows nothing else."""
        with self._lock:
            if int(headers.get("age", FORGOTTEN_SECONDS)) < FORGOTTEN_SECONDS:
                self._say(float(headers[TIME_HEADER]))

    def _say(self, at: float) -> None:
        if self._listener is not None and not self._stopping.is_set():
            self._listener.hear(list(self._known.values()), at)

    def _pull(self) -> None:
        try:
            self._take(ask(f"{self._address}/v1/status", {**self._headers, "If-None-Match": self._tag}))
        except Exception as error:  # noqa: BLE001 - what one answer does must not keep the next from counting
            if not self._is_silent and not self._stopping.is_set():
                logger.warning("status server %s is silent: %s", self._address, error)
            self._is_silent = True
        else:
            self._is_silent = False

    def _take(self, reply: Reply) -> None:
        if reply.status == http.client.NOT_MODIFIED:
            self._take_nothing_new(reply.headers)
        elif reply.status == http.client.OK:
            self.take_snapshot(msgspec.json.decode(reply.body, type=Snapshot))
            self._tag = reply.headers.get("etag", "")
        else:
            raise http.client.HTTPException(f"GET /v1/status answered {reply.status}")

    def _listen(self) -> None:
        waits, last = pauses(self._randomness), ""
        while not self._stopping.is_set():
            headers = {**self._headers, "Last-Event-ID": last} if last else self._headers
            begun = time.monotonic()
            try:
                for number, name, data in events(f"{self._address}/v1/status/events", headers, self._opened):
                    if name == "snapshot":
                        self.take_snapshot(msgspec.json.decode(data, type=Snapshot))
                    elif name == "status":
                        self.take_change(msgspec.json.decode(data, type=Change))
                    last = number
            except Exception as error:  # noqa: BLE001 - whatever it was, the next stream may be better
                if not self._stopping.is_set():
                    logger.debug("the stream of %s broke: %s", self._address, error)
            if time.monotonic() - begun >= SETTLED_SECONDS:
                waits = pauses(self._randomness)
            self._stopping.wait(next(waits))

    def _opened(self, stream: socket.socket) -> None:
        self._stream = stream
        if self._stopping.is_set():  # closed while it was connecting
            self.close()


def source_of(
    address: str,
    *,
    zones: Sequence[Zone] = (),
    workload: str | None = None,
    token: str | None = None,
    period: float = PERIOD_SECONDS,
) -> Source:
    """A Holdfast server, or, with `{zone}` in the address, an EndpointSource that is asked about `zones`.

    A token is for servers only: it is never sent elsewhere.
    """
    if "{zone}" in address:
        return EndpointSource(address, zones, workload=workload, period=period)
    return ServerSource(address, token=token, period=period)
