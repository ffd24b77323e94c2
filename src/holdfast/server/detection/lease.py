"""Hold the lease of detection: take it, renew it, and notice its loss. One server evaluates, the others stand by."""

import logging
from collections.abc import Callable, Mapping

from holdfast._background import BackgroundLoop, constant_backoff
from holdfast._clock import Clock, SystemClock
from holdfast._errors import HoldfastError, LeaseLost
from holdfast._process import ProcessIdentity, decode_identity, encode_identity
from holdfast._types import Verdict, Zone, ZoneState
from holdfast.watch import VerdictHandler
from holdfast.watch.lease import Lease, LeaseStore

logger = logging.getLogger("holdfast.detection")

RENEWALS = 5
"""Renewals per lease: four may fail before it expires."""
STANDBY_SECONDS = 1.0
"""How often a server on standby looks at the lease, at most."""
MARGIN = 0.1
"""Part of a lease before its end in which its holder no longer acts: an action takes time."""
NOTED_SECONDS = 5.0
"""How often a server on standby tells the holder that it waits."""
FORGOTTEN_SECONDS = 60.0
"""After this long without a word, the holder takes a server on standby to have ended."""


class DetectionLease:
    """The lease of this process. Thread-safe. `start` takes it if it is free, and renews it in a background thread.

    `on_change` is called, in that thread, when the lease was taken or lost.
    """

    def __init__(
        self, store: LeaseStore, identity: ProcessIdentity, seconds: float, clock: Clock | None = None
    ) -> None:
        self._store = store
        self._own = encode_identity(identity)
        self._seconds = seconds
        self._clock = clock or SystemClock()
        self._held: tuple[int, float] | None = None
        """The number of the lease, and the monotonic time at which it expires."""
        self._seen: Lease | None = None
        """The lease of another server."""
        self._standby_seen_at = self._noted_at = -FORGOTTEN_SECONDS
        self.on_change: Callable[[], None] = lambda: None
        self._loop = BackgroundLoop(
            "holdfast-lease",
            self.step,
            action="renew the lease of detection",
            logger=logger,
            backoff=constant_backoff(min(STANDBY_SECONDS, seconds / RENEWALS)),
        )

    @property
    def number(self) -> int | None:
        """The number of the lease, also after it expired, until another server has it; None on standby."""
        held = self._held
        return None if held is None else held[0]

    @property
    def is_valid(self) -> bool:
        """Whether this server may act now. By its own clock, so that it stops before the database lets others act."""
        held = self._held
        return held is not None and self._clock.monotonic() < held[1] - MARGIN * self._seconds

    @property
    def has_standby(self) -> bool:
        """Whether another server waits for the lease, and so may have taken it if it is not valid."""
        return self._clock.monotonic() - self._standby_seen_at < FORGOTTEN_SECONDS

    @property
    def other_address(self) -> str | None:
        """The address of the server that evaluates, on standby; None if it is this one, or unknown."""
        seen = self._seen
        return None if self._held is not None or seen is None or not seen.is_valid else seen.address

    def require(self) -> None:
        """Raise LeaseLost if this server may not act now, also by the database."""
        number = self.number
        if number is None or not self.is_valid:
            raise LeaseLost("this server does not evaluate, or could not renew its lease in time")
        self._store.require(number)

    def start(self) -> None:
        """Try to take the lease now, then keep trying or renewing it in the background."""
        self._loop.run_step()
        self._loop.start()

    def close(self) -> None:
        """Stop renewing, and release the lease so that another server can take it at once. May be repeated."""
        self._loop.stop(timeout=self._seconds)
        held, self._held = self._held, None
        if held is not None:
            try:
                self._store.release(held[0])
            except HoldfastError as error:
                logger.warning("cannot release the lease of detection, which expires soon: %s", error)

    def step(self) -> float:
        """Renew or take the lease once. Return the seconds until the next step."""
        # Before the database sets the end of the lease, so that this server takes it to end earlier.
        began = self._clock.monotonic()
        if self._held is not None:
            self._renew(self._held[0], began)
        if self._held is None:  # also at once after it was lost, to learn which server has it
            self._try_to_take(began)
        return self._seconds / RENEWALS if self._held is not None else min(STANDBY_SECONDS, self._seconds / RENEWALS)

    def _renew(self, number: int, began: float) -> None:
        standby_age = self._store.renew(number)
        if standby_age is None:
            self._held = None
            logger.warning("another server evaluates now: this one lost the lease %d", number)
            self.on_change()
            return
        self._held = number, began + self._seconds
        self._standby_seen_at = max(self._standby_seen_at, began - standby_age)

    def _try_to_take(self, began: float) -> None:
        seen = self._store.read()
        has_ended = seen is not None and decode_identity(seen.holder).has_ended()
        if seen is not None and seen.is_valid and seen.holder == self._own:  # the reply to `take` was lost
            number: int | None = seen.number
        elif seen is not None and seen.is_valid and not has_ended:
            self._stand_by(seen, began)
            return
        else:
            number = self._store.take(from_ended=seen.number if seen is not None and has_ended else 0)
        if number is None:  # another server was faster
            return
        self._held, self._seen = (number, began + self._seconds), None
        if seen is None or seen.address == self._store.address:
            logger.info("this server evaluates: it took the lease %d", number)
        else:
            reason = "its process has ended" if has_ended else "its lease has expired or was released"
            # After a crash, the next server of the same host is no news; that another one failed is.
            logger.log(
                logging.INFO if has_ended else logging.WARNING,
                "this server evaluates now: it took over from %s with the lease %d, because %s",
                seen.address,
                number,
                reason,
            )
        self.on_change()

    def _stand_by(self, seen: Lease, began: float) -> None:
        if self._seen is None or self._seen.number != seen.number:
            logger.info("standing by: server %s evaluates", seen.address)
        self._seen = seen
        if began - self._noted_at >= NOTED_SECONDS:
            self._store.note_standby(seen.number)
            self._noted_at = began


class LeasedHandler:
    """A VerdictHandler that acts only while this server holds the lease."""

    def __init__(self, handler: VerdictHandler, lease: DetectionLease) -> None:
        self._handler = handler
        self._lease = lease

    def read_states(self, workload: str) -> Mapping[Zone, ZoneState]:
        return self._handler.read_states(workload)

    def evacuate(self, verdict: Verdict, zones: frozenset[Zone]) -> object:
        """Act on a verdict. Raise LeaseLost if another server may act."""
        self._lease.require()
        return self._handler.evacuate(verdict, zones)
