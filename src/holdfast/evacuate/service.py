"""Act on verdicts and requests in the background: for a server, or for your own process.

A run is carried out in a thread of its own. If the process ends before the run does, the next process with the same
journal continues the run: a restore always, an evacuation within 15 minutes of its start. While the process lives, it
renews changes that expire.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum

from msgspec import Struct

from holdfast._background import BackgroundLoop, constant_backoff
from holdfast._clock import Clock
from holdfast._errors import Conflict, HoldfastError
from holdfast._types import Verdict, VerdictKind, Zone, ZoneState
from holdfast.evacuate.claims import find_ended_holders
from holdfast.evacuate.evacuator import Evacuator, Proposal
from holdfast.evacuate.guards import describe_refusals
from holdfast.evacuate.journal import Entry, Run, RunState, is_held
from holdfast.evacuate.plan import Report
from holdfast.status.writer import MAX_REASON_CHARACTERS

logger = logging.getLogger("holdfast.evacuate")

CHECK_SECONDS = 5.0
"""Seconds between two looks for runs that no process works on."""
REFUSED_SECONDS = 60.0
"""Seconds after which an evacuation that a guard refused is planned again."""
MAX_CONTINUED_AGE = 900.0
"""Seconds after its start in which a server continues an evacuation by itself. Later, a person decides: the zone may
have recovered, and people may have acted."""
RENEWAL_SECONDS = 900.0
"""Seconds between renewals: a zonal shift lasts at least an hour."""
FIRST_RENEWAL_SECONDS = 60.0
"""Seconds after the start before the first renewal: a server that restarts often must renew, too."""
CLOSE_SECONDS = 1.0
"""Seconds for which `close` waits until runs have stopped. Accounts and databases are closed after it."""
MAX_TOLD = 1000
"""Verdicts whose last message is kept."""


class EvacuationMode(StrEnum):
    """The reaction to a verdict that a zone fails alone."""

    ADVISE = "advise"
    """People are told, with the command to run."""
    CONFIRM = "confirm"
    """People are told; the server evacuates when one of them approves."""
    AUTOMATIC = "automatic"
    """The server evacuates at once, if no guard refuses."""


class EvacuationList(Struct, frozen=True):
    """The evacuations that the journal has."""

    mode: EvacuationMode
    runs: Sequence[Run]


class EvacuationDetails(Struct, frozen=True):
    """One evacuation, and what happened to each resource."""

    run: Run
    entries: Sequence[Entry]


def build_command(zone: Zone, workload: str | None, mode: EvacuationMode = EvacuationMode.ADVISE) -> str:
    """Return the command that evacuates a zone, for people to run."""
    server = " --server URL" if mode is EvacuationMode.CONFIRM else ""
    return f"holdfast zone evacuate {zone}{f' --workload {workload}' if workload else ''} --reason ...{server}"


def build_advice(zone: Zone, workload: str | None, mode: EvacuationMode) -> str:
    """Return what people should do about a zone that fails alone, in one sentence."""
    if mode is EvacuationMode.AUTOMATIC:
        return "The server evacuates the zone, unless a guard refuses: see `holdfast verdict explain`."
    command = build_command(zone, workload, mode)
    return f"{'To approve its evacuation' if mode is EvacuationMode.CONFIRM else 'To evacuate the zone'}: {command}"


class EvacuationService:
    """Evacuates and restores zones in the background. Thread-safe.

    Use as a context manager, or call `start` and `close`. It is a VerdictHandler of `holdfast.watch`.
    """

    def __init__(
        self,
        evacuator: Evacuator,
        clock: Clock,
        *,
        mode: EvacuationMode = EvacuationMode.ADVISE,
        name: str = "holdfast",
        run_in_background: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """`name` is recorded as the one that starts automatic runs. `run_in_background` starts a thread by default."""
        self.evacuator = evacuator
        self.mode = mode
        self._name = name
        self._clock = clock
        self._run_in_background = run_in_background or _start_thread
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._running: set[tuple[Zone, str | None]] = set()
        """Zones and workloads that a thread of this process evacuates or restores."""
        self._told: dict[str, str] = {}
        """The last message about each verdict, by its id, so that it is not repeated every few seconds."""
        self._refused_until: dict[tuple[Zone, str], float] = {}
        """When a refused evacuation is planned again. Planning asks AWS for all resources."""
        self._renewed_at = clock.monotonic() - RENEWAL_SECONDS + FIRST_RENEWAL_SECONDS
        self._loop = BackgroundLoop(
            "holdfast-evacuate",
            self._step,
            action="continue and renew evacuations",
            logger=logger,
            backoff=constant_backoff(CHECK_SECONDS),
        )

    def start(self) -> None:
        """Start to continue and renew runs."""
        self._loop.start()

    def close(self) -> None:
        """Stop. Runs that are under way stay in the journal, so that the next process can continue them."""
        self._loop.stop()
        self.evacuator.abandon()
        with self._ended:
            self._ended.wait_for(lambda: not self._running, CLOSE_SECONDS)

    def __enter__(self) -> "EvacuationService":
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def read_states(self, workload: str) -> Mapping[Zone, ZoneState]:
        """Return the state of each zone that is not in, for a workload."""
        return self.evacuator.read_states(workload)

    def evacuate(self, verdict: Verdict, zones: frozenset[Zone]) -> None:  # noqa: ARG002 - the settings have them
        """Act on a verdict: tell people, or evacuate in the background. Repeating a verdict changes nothing."""
        zone, workload = verdict.zone, verdict.workload
        if verdict.kind is not VerdictKind.ISOLATED or zone is None:
            return
        if self.read_states(workload).get(zone, ZoneState.IN).is_out:
            return
        if self.mode is not EvacuationMode.AUTOMATIC:
            self._tell(verdict, f"evacuation.mode is {self.mode}. {build_advice(zone, workload, self.mode)}")
            return
        key = zone, workload
        if self._clock.monotonic() < self._refused_until.get(key, 0.0):
            return
        runs = self.evacuator.read_runs().open
        if any(each.zone == zone and each.overlaps(zone, workload) for each in runs):
            return
        with suppress(Conflict), self._reserve(zone, workload) as work:  # it may be under way
            work(lambda: self._evacuate(verdict))

    def begin(self, proposal: Proposal, *, by: str) -> Run:
        """Start a run that a person asked for, and return it. Raise Conflict if a guard refuses."""
        target = proposal.plan.target
        with self._reserve(target.zone, target.workload) as work:
            claim, plan = self.evacuator.begin(proposal, by=by, by_server=True)
            work(lambda: _report(self.evacuator.evacuate(claim, plan)))
        return claim.run

    def begin_restore(self, run: Run, *, types: Sequence[str] = ()) -> Run:
        """Start to undo a run, and return it. Raise Conflict if another process works on it."""
        self.evacuator.check_types(run, types)
        with self._reserve(run.zone, run.workload) as work:
            claim = self.evacuator.claim(run)
            work(lambda: _report(self.evacuator.restore(claim, types=types)))
        return claim.run

    def begin_resume(self, run: Run) -> Run:
        """Start to continue a run, and return it. Raise Conflict if another process works on it."""
        with self._reserve(run.zone, run.workload) as work:
            if run.state is RunState.RESTORING:
                raise Conflict(f"run {run.id} is being restored: restore it again to finish that")
            claim = self.evacuator.claim(run)
            work(lambda: _report(self.evacuator.resume(claim)))
        return claim.run

    def _evacuate(self, verdict: Verdict) -> None:
        zone, workload = verdict.zone, verdict.workload
        assert zone is not None
        reason = (verdict.summary or verdict.id)[:MAX_REASON_CHARACTERS]
        proposal = self.evacuator.prepare(zone, workload, reason=reason, verdict=verdict, lists_unmovable=False)
        if proposal.refusals:
            self._refused_until[zone, workload] = self._clock.monotonic() + REFUSED_SECONDS
            guards = ", ".join(each.name for each in proposal.refusals)
            text = f"not evacuating {zone} for {workload}: {describe_refusals(proposal.guards)}"
            self._tell(verdict, text, key=guards)
            return
        try:
            claim, plan = self.evacuator.begin(proposal, by=self._name, by_server=True, verdict=verdict)
        except Conflict as error:  # another process was quicker
            self._tell(verdict, f"not evacuating {zone} for {workload}: {error}")
            return
        logger.warning("evacuating %s for %s: run %s, by verdict %s", zone, workload, claim.run.id, verdict.id)
        _report(self.evacuator.evacuate(claim, plan))

    def _tell(self, verdict: Verdict, message: str, key: str = "") -> None:
        """Log a message about a verdict, unless the last one about it had the same key, or else the same text."""
        if self._told.get(verdict.id) != (key or message):
            if len(self._told) >= MAX_TOLD:
                self._told.clear()
            self._told[verdict.id] = key or message
            logger.warning("%s", message)

    @contextmanager
    def _reserve(self, zone: Zone, workload: str | None) -> Iterator[Callable[[Callable[[], None]], None]]:
        """Yield a function that does work in the background. Raise Conflict if this process works on the zone already.

        A claim does not prevent that: it is for other processes.
        """
        key, whom = (zone, workload), workload or "all workloads"
        with self._lock:
            if key in self._running:
                raise Conflict(
                    f"this process is evacuating or restoring {zone} for {whom} already: wait until it has ended"
                )
            self._running.add(key)

        def release() -> None:
            with self._ended:
                self._running.discard(key)
                self._ended.notify_all()

        def start(work: Callable[[], None]) -> None:
            def run() -> None:
                try:
                    work()
                except HoldfastError as error:
                    logger.error("the evacuation or restore of %s for %s was interrupted: %s", zone, whom, error)  # noqa: TRY400
                except Exception:
                    logger.exception("the evacuation or restore of %s for %s was interrupted", zone, whom)
                finally:
                    release()

            self._run_in_background(run)

        try:
            yield start
        except BaseException:
            release()
            raise

    def _step(self) -> float:
        self.continue_runs()
        if self._clock.monotonic() - self._renewed_at >= RENEWAL_SECONDS:
            self._renewed_at = self._clock.monotonic()
            self.renew_runs()
        return CHECK_SECONDS

    def continue_runs(self) -> None:
        """Continue every run that a server started and that no process works on any more.

        An evacuation that began more than MAX_CONTINUED_AGE ago is left to people, who are told once.
        """
        recorded = self.evacuator.read_runs()
        now, ended = self._clock.wall(), find_ended_holders(recorded)
        for run in recorded.open:
            is_interrupted = run.state in (RunState.EVACUATING, RunState.RESTORING) and not is_held(run, now, ended)
            if not run.by_server or not is_interrupted:
                continue
            if run.state is RunState.EVACUATING and now - run.started > MAX_CONTINUED_AGE:
                self._tell_old(run)
                continue
            try:
                if run.state is RunState.RESTORING:
                    self.begin_restore(run, types=run.types)
                else:
                    self.begin_resume(run)
            except Conflict:  # another server was quicker
                continue
            logger.warning("continuing run %s, which was interrupted while %s", run.id, run.state)

    def _tell_old(self, run: Run) -> None:
        if run.id not in self._told:
            self._told[run.id] = ""
            logger.warning(
                "run %s of %s was interrupted, and began so long ago that no server continues it: finish it with "
                "`holdfast zone resume %s`, or undo it with `holdfast zone restore %s`",
                *(run.id, run.zone, run.zone, run.zone),
            )

    def renew_runs(self) -> None:
        """Renew all changes that expire, of runs by anybody in this journal."""
        for run in self.evacuator.read_runs().open:
            if run.state is RunState.EVACUATED:
                for lapsed in self.evacuator.renew(run):
                    logger.warning(
                        "the change of %s is not in effect any more (%s): to make it again, `holdfast zone resume %s`",
                        lapsed.name or lapsed.resource,
                        lapsed.note,
                        run.zone,
                    )


def _report(report: Report) -> None:
    run = report.run
    state = f"{'partly ' if report.is_partial else ''}{'restored' if report.is_restore else 'evacuated'}"
    done = len(report.entries) - len(report.problems)
    logger.warning("run %s: %s is %s, %d of %d resources", run.id, run.zone, state, done, len(report.entries))
    if report.waits_for_capacity:
        logger.warning(
            "run %s: traffic was not returned to %s, because its capacity is not healthy yet. Restore it when it is",
            *(run.id, run.zone),
        )
    for entry in report.problems:
        logger.warning("run %s: %s (%s): %s", run.id, entry.name or entry.resource, entry.state, entry.note)


def _start_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="holdfast-evacuation", daemon=True).start()
