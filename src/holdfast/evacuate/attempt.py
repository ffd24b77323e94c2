"""Make or undo one change of one resource: read, decide, write at most once, read again."""

import threading
from collections.abc import Callable

from holdfast._clock import Clock
from holdfast._errors import Conflict, EngineUnavailable, HoldfastError, OutcomeUnknown
from holdfast.evacuate.action import Action, Reading
from holdfast.evacuate.journal import Entry, EntryState
from holdfast.evacuate.steps import WAIT, Step, StepKind, decide_apply, decide_restore

SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 8.0
"""Seconds between two looks at a resource. The pause doubles."""


class Pace:
    """Limits how many resources of one action are changed at the same time. Halved when AWS throttles."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._running = 0
        self._changed = threading.Condition()

    def slow_down(self) -> None:
        """Halve the limit."""
        with self._changed:
            self._limit = max(self._limit // 2, 1)

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

    def __init__(self, action: Action, entry: Entry, clock: Clock) -> None:
        self._action = action
        self._entry = entry
        self._clock = clock
        self._problem: HoldfastError | None = None
        """The last problem, if it is reported in the end."""
        self._written_at: float | None = None
        self._lost_reply: OutcomeUnknown | None = None
        """Set while nobody knows whether the last write was carried out."""

    def run(self, pace: Pace, check: Callable[[], None], stop: Stop) -> tuple[Step, Reading]:
        """Go on until the change is made, or undone, or cannot be. `check` raises an error if this process must end.

        A second zone that is evacuated by others stops the whole run: after that, only reads are made.
        """
        deadline, pause = self._clock.monotonic() + self._action.patience, SHORTEST_PAUSE
        while True:
            check()
            try:
                step, reading = self._go_on(stop)
                if step.kind is StepKind.END:
                    if reading.other_zone is not None and self._entry.state is EntryState.INTENDED:
                        stop.reason = f"not changed, because {reading.other_zone} is being evacuated, too"
                    return step, reading
                if step.kind is StepKind.WRITE:
                    continue  # the change is often there at once
            except EngineUnavailable as error:
                self._problem = error
                pace.slow_down()
            if self._clock.monotonic() >= deadline:
                name = self._entry.name or self._entry.resource
                raise self._problem or OutcomeUnknown(
                    f"{name} was changed, but {self._action.patience:.0f} s later the change has no effect yet: look "
                    "at it in the AWS console"
                )
            self._clock.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _go_on(self, stop: Stop) -> tuple[Step, Reading]:
        """Read the resource, decide, and write if that is the next step. Raise EngineUnavailable to be called later."""
        reading = self._action.read(self._entry)
        since = None if self._written_at is None else self._clock.monotonic() - self._written_at
        is_undoing = self._entry.state is EntryState.RESTORING
        step = decide_restore(reading, since) if is_undoing else decide_apply(reading, since)
        if step.kind is not StepKind.WRITE:
            return step, reading
        if stop.reason:
            state = self._entry.state if is_undoing else EntryState.FAILED
            return Step(StepKind.END, state, stop.reason), reading
        before, self._written_at = self._written_at, self._clock.monotonic()
        try:
            if is_undoing:
                self._action.restore(self._entry, reading)
            else:
                self._action.apply(self._entry)
        except OutcomeUnknown as error:
            self._problem = self._lost_reply = error
            return WAIT, reading
        except Conflict as error:  # another writer was quicker: read again
            self._problem = error
            return WAIT, reading
        except EngineUnavailable:
            self._written_at = before  # nothing was written
            raise
        except HoldfastError as error:
            if self._lost_reply is None:
                raise
            raise self._lost_reply from error  # the change may be there
        self._lost_reply = None
        return step, reading
