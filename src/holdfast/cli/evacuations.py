"""Plan and carry out evacuations for commands: in this process, or by a remote server."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol
from urllib.parse import quote

import msgspec

from holdfast._types import Zone
from holdfast.cli.output import create_progress
from holdfast.cli.remote import RemoteServer
from holdfast.cli.stored import get_own_name
from holdfast.compose import Databases
from holdfast.compose_evacuation import open_evacuator
from holdfast.config import Settings
from holdfast.config.settings import require_known
from holdfast.evacuate import Evacuator, Proposal
from holdfast.evacuate.journal import Entry, EntryState, Run, RunState
from holdfast.evacuate.plan import Report
from holdfast.evacuate.selection import Selection
from holdfast.evacuate.service import RENEWAL_SECONDS, EvacuationDetails, EvacuationList

PLAN_TIMEOUT = 60.0
"""Seconds to wait for a server that asks AWS for all resources."""
POLL_SECONDS = 0.5

OUTCOME_WORDS = {
    EntryState.APPLIED: "changed",
    EntryState.FOUND: "changed before this run",
    EntryState.RESTORED: "restored",
    EntryState.KEPT: "left as it is",
    EntryState.FAILED: "failed",
    EntryState.INTENDED: "with unknown outcome",
    EntryState.RESTORING: "not restored",
}
"""The outcome of a resource, for people."""


class EvacuationProgress:
    """A line of progress on a terminal. It is shown inside of `with` only, because it would erase a question."""

    def __init__(self) -> None:
        self._shown = create_progress()
        self._task = self._shown.add_task("waiting for the first resource", total=None)
        self._counts: Counter[str] = Counter()

    def __call__(self, entry: Entry) -> None:
        """Show the outcome of one resource. Called in any thread."""
        self._counts[OUTCOME_WORDS[entry.state]] += 1
        text = ", ".join(f"{count} {state}" for state, count in sorted(self._counts.items()))
        self._shown.update(self._task, description=f"{text} (last: {entry.name or entry.resource})")

    def __enter__(self) -> None:
        self._shown.start()

    def __exit__(self, *exception: object) -> None:
        self._shown.stop()


class Evacuations(Protocol):
    """Where evacuations are planned and carried out."""

    location: str
    progress: EvacuationProgress

    def prepare(
        self, zone: Zone, workload: str | None, selection: Selection, reason: str = "", overrides: Sequence[str] = ()
    ) -> Proposal:
        """Plan an evacuation of some resources, and ask the guards."""

    def evacuate(self, proposal: Proposal, reason: str, overrides: Sequence[str]) -> Report:
        """Carry it out."""

    def list_runs(self) -> Sequence[Run]:
        """Return the open evacuations and the last restored ones."""

    def resume(self, run: Run) -> Report:
        """Continue a run."""

    def restore(self, run: Run, types: Sequence[str]) -> Report:
        """Undo a run, or its changes of some types of resources."""

    def stay(self, run: Run) -> Iterator[Entry]:
        """Renew the changes of a run that expire, until Ctrl-C. Yield those that are not in effect any more."""


@contextmanager
def open_local(settings: Settings, progress: EvacuationProgress) -> Iterator[Evacuations]:
    """Evacuate in this process, with the journal and the accounts of the settings."""
    with Databases(settings) as databases, open_evacuator(settings, databases, progress=progress) as evacuator:
        yield _LocalEvacuations(settings, evacuator, progress)


class _LocalEvacuations:
    def __init__(self, settings: Settings, evacuator: Evacuator, progress: EvacuationProgress) -> None:
        self.progress = progress
        self._settings = settings
        self._evacuator = evacuator
        self.location = f"journal: {settings.evacuation.journal}"

    def prepare(
        self, zone: Zone, workload: str | None, selection: Selection, reason: str = "", overrides: Sequence[str] = ()
    ) -> Proposal:
        require_known(self._settings.workload, zone, workload)
        return self._evacuator.prepare(
            zone, workload, reason=reason, overrides=dict.fromkeys(overrides, reason), selection=selection
        )

    def evacuate(self, proposal: Proposal, reason: str, overrides: Sequence[str]) -> Report:
        proposal = msgspec.structs.replace(proposal, overrides=dict.fromkeys(overrides, reason))
        claim, plan = self._evacuator.begin(proposal, by=get_own_name())
        return self._evacuator.evacuate(claim, plan)

    def list_runs(self) -> Sequence[Run]:
        return self._evacuator.read_runs().runs

    def resume(self, run: Run) -> Report:
        return self._evacuator.resume(self._evacuator.claim(run))

    def restore(self, run: Run, types: Sequence[str]) -> Report:
        self._evacuator.check_types(run, types)
        return self._evacuator.restore(self._evacuator.claim(run), types=types)

    def stay(self, run: Run) -> Iterator[Entry]:
        while True:
            time.sleep(RENEWAL_SECONDS)
            yield from self._evacuator.renew(run)


class RemoteEvacuations(RemoteServer):
    """Evacuations that a remote server carries out. Raises the errors that the server reports."""

    def __init__(self, address: str, token: str | None, progress: EvacuationProgress) -> None:
        super().__init__(address, token)
        self.progress = progress

    def prepare(
        self, zone: Zone, workload: str | None, selection: Selection, reason: str = "", overrides: Sequence[str] = ()
    ) -> Proposal:
        del reason, overrides  # the server asks the guards again when it starts
        body = msgspec.json.encode({"zone": zone, "workload": workload, "selection": selection})
        return self.request("POST", "/v1/evacuations/plan", Proposal, body, timeout=PLAN_TIMEOUT)

    def evacuate(self, proposal: Proposal, reason: str, overrides: Sequence[str]) -> Report:
        target = proposal.plan.target
        wanted = {"zone": target.zone, "workload": target.workload, "reason": reason, "overrides": overrides}
        # The selection of the plan has that of the workload, which the server adds again without effect.
        body = msgspec.json.encode(wanted | {"selection": target.selection})
        return self._follow(self.request("POST", "/v1/evacuations", Run, body, timeout=PLAN_TIMEOUT))

    def list_runs(self) -> Sequence[Run]:
        return self.request("GET", "/v1/evacuations", EvacuationList).runs

    def resume(self, run: Run) -> Report:
        return self._follow(self.request("POST", f"/v1/evacuations/{quote(run.id, safe='')}/resume", Run, b"{}"))

    def restore(self, run: Run, types: Sequence[str]) -> Report:
        body = msgspec.json.encode({"types": types})
        started = self.request("POST", f"/v1/evacuations/{quote(run.id, safe='')}/restore", Run, body)
        return self._follow(started, is_restore=True)

    def stay(self, run: Run) -> Iterator[Entry]:
        """Yield nothing: the server renews while it runs."""
        del run
        return iter(())

    def _follow(self, run: Run, *, is_restore: bool = False) -> Report:
        """Wait until the server has carried a run out."""
        shown: dict[str, Entry] = {}
        while True:
            found = self.request("GET", f"/v1/evacuations/{quote(run.id, safe='')}", EvacuationDetails)
            is_done = not found.run.holder and found.run.state in (RunState.EVACUATED, RunState.RESTORED)
            for entry in found.entries:
                if shown.get(entry.resource) != entry:
                    shown[entry.resource] = entry
                    self.progress(entry)
            if is_done:
                entries = [each for each in found.entries if not is_restore or each.state is not EntryState.FAILED]
                return Report(run=found.run, entries=entries, is_restore=is_restore)
            time.sleep(POLL_SECONDS)
