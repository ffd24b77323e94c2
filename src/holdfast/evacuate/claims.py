"""Claims: which process works on a run. Everything is written to the journal before it takes effect."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from msgspec.structs import replace

from holdfast._clock import Clock
from holdfast._errors import Conflict, EngineUnavailable, HoldfastError, LeaseLost, OutcomeUnknown
from holdfast._process import ProcessIdentity, decode_identity, encode_identity
from holdfast.evacuate.journal import (
    CLAIM_SECONDS,
    Journal,
    RecordedRuns,
    Run,
    RunState,
    add_run,
    claim_run,
    end_run,
    find_run,
    update_run,
)

logger = logging.getLogger("holdfast.evacuate")

MAX_CONFLICTS = 20
"""Times that another process may change the runs before this one gives up."""

RunsChange = Callable[[RecordedRuns], tuple[Run, ...]]


def find_ended_holders(recorded: RecordedRuns) -> frozenset[str]:
    """Return the holders of open runs whose processes ran on this host, and have certainly ended."""
    holders = {each.holder for each in recorded.open if each.holder}
    return frozenset(each for each in holders if decode_identity(each).has_ended())


class Claims:
    """Creates and claims runs for this process."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._holder = encode_identity(ProcessIdentity.of_this_process())
        self.is_abandoned = False

    def abandon(self) -> None:
        """Stop all work of this process at its next step. Its runs stay open, for the next process to continue them."""
        self.is_abandoned = True

    def add(self, run: Run, *, allows_second_zone: bool = False) -> "Claim":
        """Record a new run, and claim it. Raise Conflict if an open run prevents that."""

        def change(recorded: RecordedRuns) -> tuple[Run, ...]:
            return add_run(recorded, run, self._holder, self._clock.wall(), allows_second_zone=allows_second_zone)

        return Claim(self.change(change, run.id), self, self._clock)

    def claim(self, run_id: str) -> "Claim":
        """Claim an open run. Raise Conflict if another process works on it."""

        def change(recorded: RecordedRuns) -> tuple[Run, ...]:
            ended = find_ended_holders(recorded)
            return claim_run(recorded, run_id, self._holder, self._clock.wall(), ended=ended)

        return Claim(self.change(change, run_id), self, self._clock)

    def change(self, change: RunsChange, run_id: str) -> Run:
        """Change the runs, and return one of them. Repeat it if another process changes them first."""
        unknown: Run | None = None
        """The run as it was written by a call whose reply was lost, and which may be carried out late."""
        for attempt in range(MAX_CONFLICTS):
            before = self._journal.read_runs()
            if unknown is not None and find_run(before, run_id) == unknown:
                return unknown
            changed = change(before)  # raises a Conflict that says who works on it
            try:
                after = self._journal.write_runs(changed, before.version)
            except OutcomeUnknown:
                # Others may have changed their runs meanwhile, so only this one tells whether it was carried out.
                unknown = next(each for each in changed if each.id == run_id)
                after = self._journal.read_runs()
                if find_run(after, run_id) == unknown:
                    return unknown
                if after.version != before.version or attempt == MAX_CONFLICTS - 1:
                    raise
                continue
            except Conflict:
                if attempt == MAX_CONFLICTS - 1:
                    raise
                self._clock.sleep(0.05 * attempt)
                continue
            return next(each for each in after.runs if each.id == run_id)
        raise AssertionError  # the loop returns or raises


class Claim:
    """The claim of this process to a run. Thread-safe."""

    def __init__(self, run: Run, claims: Claims, clock: Clock) -> None:
        self.run = run
        self._claims = claims
        self._clock = clock
        self._lock = threading.Lock()

    def check(self) -> None:
        """Renew the claim when it is time. Raise LeaseLost if another process may work on the run. Called often."""
        if self._claims.is_abandoned:
            raise LeaseLost(f"this process stops, and leaves run {self.run.id} for another one")
        with self._lock:
            left = self.run.held_until - self._clock.wall()
            if left > CLAIM_SECONDS / 2:
                return
            try:
                if left > 0:
                    self._write(replace(self.run, held_until=self._clock.wall() + CLAIM_SECONDS))
                    return
            except (
                EngineUnavailable,
                OutcomeUnknown,
            ) as error:  # the next one may succeed in time
                logger.warning("cannot renew the claim of run %s: %s", self.run.id, error)
                return
            except Conflict as error:
                raise LeaseLost(str(error)) from error
        raise LeaseLost(
            f"the claim of run {self.run.id} has expired, so this process stops: run `holdfast zone resume`"
        )

    def update(self, **changes: object) -> Run:
        """Change fields of the run in the journal."""
        with self._lock:
            return self._write(replace(self.run, **changes))

    def end(self) -> Run:
        """Record that everything is restored."""
        with self._lock:
            self.run = self._claims.change(
                lambda recorded: end_run(recorded, self.run, self._clock.wall()), self.run.id
            )
            return self.run

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Renew the claim in the background: one call of an action may take longer than the claim lasts."""
        is_done = threading.Event()

        def renew() -> None:
            while not is_done.wait(CLAIM_SECONDS / 4):
                with suppress(HoldfastError):  # the workers find out, before their next write
                    self.check()

        thread = threading.Thread(target=renew, name="holdfast-evacuation-claim", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_done.set()
            thread.join()

    @contextmanager
    def released_when_interrupted(self, state: RunState) -> Iterator[None]:
        """Release the claim after Ctrl-C, so that the run can be resumed or restored at once. No server continues it.

        `state` is the state of the run then.
        """
        try:
            yield
        except KeyboardInterrupt:
            with suppress(HoldfastError):
                self.update(state=state, types=(), is_partial=True, by_server=False, holder="", held_until=0.0)
            raise

    def _write(self, wanted: Run) -> Run:
        self._claims.change(lambda recorded: update_run(recorded, wanted), wanted.id)
        self.run = wanted
        return wanted
