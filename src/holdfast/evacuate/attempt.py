"""Make or undo one change of one resource: read, decide, write at most once, read again."""

import random
import threading
from collections.abc import Callable

from holdfast._clock import Clock
from holdfast._errors import Conflict, EngineUnavailable, HoldfastError, LeaseLost, OutcomeUnknown
from holdfast.evacuate.action import Action, ChangeState, Reading
from holdfast.evacuate.journal import Entry, EntryState
from holdfast.evacuate.steps import SETTLING_SECONDS, WAIT, Step, StepKind, decide_apply, decide_restore

SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 8.0
"""Seconds between two looks at a resource. The pause doubles."""
UNANSWERED_SECONDS = 120.0
"""Seconds after which a resource is given up if no call to its account has succeeded at all. The timeout of its action
may be longer."""
SUCCESSES = 8
"""Calls in a row that must succeed before one more resource is changed at the same time."""


class Pace:
    """Limits how many resources of one action in one account are changed at the same time. Halved when AWS throttles.

    It also knows when a call last succeeded: resources of an account that does not answer are not tried for long.
    """

    def __init__(self, limit: int, clock: Clock) -> None:
        self._clock = clock
        self._most = self._limit = limit
        self._running = self._successes = 0
        self._changed = threading.Condition()
        self.last_success = clock.monotonic()
        self.has_succeeded = False

    def slow_down(self) -> None:
        """Halve the limit."""
        with self._changed:
            self._limit, self._successes = max(self._limit // 2, 1), 0

    def note_success(self) -> None:
        """Raise the limit again after some successes."""
        with self._changed:
            self.last_success = self._clock.monotonic()
            self.has_succeeded = True
            self._successes += 1
            if self._successes >= SUCCESSES and self._limit < self._most:
                self._limit, self._successes = self._limit + 1, 0
                self._changed.notify()

    def __enter__(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._running < self._limit)
            self._running += 1

    def __exit__(self, *exception: object) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify()


class Stop:
    """Says whether a run must change nothing more: it met the evacuation of another zone, or was interrupted."""

    reason = ""
    """Why; "" while the run may go on."""


class Attempt:
    """Makes or undoes one change, step by step. The state of the entry says which of the two."""

    def __init__(
        self, action: Action, entry: Entry, clock: Clock, *, intended_at: float | None = None, may_be_ours: bool = False
    ) -> None:
        """`intended_at` is the time at which a change was begun whose outcome is unknown.

        `may_be_ours` says that an earlier attempt of the same run may have made the change.
        """
        self._action = action
        self._entry = entry
        self._clock = clock
        self._intended_at = intended_at
        self._may_be_ours = may_be_ours
        self._problem: HoldfastError | None = None
        """The last problem, if it is reported in the end."""
        self._written_at: float | None = None
        self._lost_reply: OutcomeUnknown | None = None
        """Set while nobody knows whether the last write was carried out."""
        self._intend: Callable[[], None] = lambda: None
        self._waits_for = ""
        """Details about the effect that is missing."""

    @property
    def has_written(self) -> bool:
        """True if the change may have been made or undone by this attempt."""
        return self._written_at is not None

    def run(
        self, pace: Pace, check: Callable[[], None], stop: Stop, intend: Callable[[], None] = lambda: None
    ) -> tuple[Step, Reading]:
        """Go on until the change is made, or undone, or cannot be. `check` raises an error if this process must stop.

        A second zone that is evacuated by others stops the whole run: after that, only reads are made. `intend` is
        called before a write, to record it.
        """
        self._intend = intend
        began, pause = self._clock.monotonic(), SHORTEST_PAUSE
        while True:
            try:
                with pace:
                    step, reading = self._go_on(check, stop)
                pace.note_success()
                if step.kind is StepKind.END:
                    if reading.other_zone is not None and self._entry.state is EntryState.INTENDED:
                        stop.reason = f"not changed, because another zone is evacuated: {reading.other_zone}"
                    return step, reading
                if step.kind is StepKind.WRITE:
                    continue  # the change often has an effect at once
            except EngineUnavailable as error:
                self._problem = error
                pace.slow_down()
            if stop.reason:
                return self._stop(stop), Reading(state=ChangeState.ABSENT)
            timeout = self._action.timeout
            if not pace.has_succeeded:
                timeout = min(timeout, UNANSWERED_SECONDS)
            if self._clock.monotonic() >= min(began, pace.last_success) + timeout:
                what = "its restore" if self._entry.state is EntryState.RESTORING else "its change"
                raise self._problem or OutcomeUnknown(
                    f"{self._entry.name or self._entry.resource}: {what} was requested, but is not complete after "
                    f"{self._action.timeout:.0f} s{self._waits_for}"
                )
            self._clock.sleep(pause * (0.5 + random.random() / 2))  # noqa: S311 - two processes must not collide again
            pause = min(pause * 2, LONGEST_PAUSE)

    def _go_on(self, check: Callable[[], None], stop: Stop) -> tuple[Step, Reading]:
        """Read the resource, decide, and write if that is the next step. Raise EngineUnavailable to be called again."""
        check()
        reading = self._read()
        since = None if self._written_at is None else self._clock.monotonic() - self._written_at
        is_undoing = self._entry.state is EntryState.RESTORING
        if is_undoing:
            step = decide_restore(reading, since)
        else:
            step = decide_apply(reading, since, may_be_ours=self._may_be_ours)
        if is_undoing and self._may_appear(reading):
            return WAIT, reading
        if is_undoing and step is WAIT and since is None and self._intended_at is not None:
            # It was never made, so nothing has to take effect.
            return Step(StepKind.END, EntryState.RESTORED, reading.note), reading
        self._waits_for = f": {reading.note}" if reading.note else ""
        if step.kind is not StepKind.WRITE:
            if reading.state is (ChangeState.ABSENT if is_undoing else ChangeState.APPLIED):
                self._problem = None  # whatever was throttled or refused before, only the effect is missing now
            return step, reading
        if stop.reason:
            return self._stop(stop), reading
        check()
        self._intend()
        return step if self._write(reading) else WAIT, reading

    def _stop(self, stop: Stop) -> Step:
        """Return the last step of a change at which the run stops. The change stays open if it may have been made."""
        is_theirs = self._entry.state is EntryState.FOUND and not self.has_written
        if is_theirs or self._entry.state is EntryState.RESTORING:
            return Step(StepKind.END, self._entry.state, stop.reason)
        if self.has_written or self._may_be_ours:
            return Step(
                StepKind.END, EntryState.INTENDED, f"an earlier attempt may have changed it; now it was {stop.reason}"
            )
        return Step(StepKind.END, EntryState.FAILED, stop.reason)

    def _read(self) -> Reading:
        try:
            return self._action.read(self._entry)
        except (EngineUnavailable, LeaseLost):
            raise
        except HoldfastError as error:
            if self.has_written:
                raise OutcomeUnknown(f"the outcome of a change is unknown: {error}") from error
            raise

    def _write(self, reading: Reading) -> bool:
        """Make or undo the change, and return whether the reply says that it was."""
        before, self._written_at = self._written_at, self._clock.monotonic()
        try:
            if self._entry.state is EntryState.RESTORING:
                self._action.restore(self._entry, reading)
            else:
                self._action.apply(self._entry)
        except OutcomeUnknown as error:
            self._problem = self._lost_reply = error
            return False
        except Conflict as error:  # another writer was quicker: read again
            self._problem = error
            if self._lost_reply is None:
                self._written_at = before  # it was refused
            return False
        except EngineUnavailable:
            self._written_at = before  # nothing was written
            raise
        except HoldfastError as error:
            if self._lost_reply is None:
                self._written_at = before  # it was refused
                raise
            raise self._lost_reply from error  # the change may have been made
        self._lost_reply = None
        return True

    def _may_appear(self, reading: Reading) -> bool:
        """Return whether a change that an ended process requested may still become visible."""
        if reading.state is not ChangeState.ABSENT or self._intended_at is None:
            return False
        return self._clock.wall() - self._intended_at < SETTLING_SECONDS
