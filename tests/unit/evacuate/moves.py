"""Runs of one action that moves capacity, on a simulated region. Calls can fail, and processes can be killed."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from holdfast.evacuate.action import Action, PlannedChange, Resource, Target, Unmovable
from holdfast.evacuate.journal import Entry, EntryState
from holdfast.evacuate.journals.memory import MemoryJournal
from holdfast.evacuate.plan import Report
from holdfast.evacuate.runner import Runner
from holdfast.simulate.aws.protocols import Refusal, ServiceError
from holdfast.simulate.aws.region import SimulatedRegion
from tests.unit.evacuate.fleet import ZONE, Killed

TARGET = Target(zone=ZONE, workload="shop", run="hf-1", reason="requests fail")


class Moves:
    """One action, its journal, and a runner."""

    def __init__(self, action: Action, region: SimulatedRegion) -> None:
        self.action, self.region, self.journal = action, region, MemoryJournal()
        self.runner = Runner({"tested": action}, self.journal, region.arc.clock)

    def find(self, arn: str) -> Resource:
        (found,) = (each for each in self.action.discover(TARGET).resources if each.id == arn)
        return found

    def plan(self, arn: str) -> PlannedChange | Unmovable:
        return self.action.plan(self.find(arn), TARGET)

    def build_entry(self, arn: str, state: EntryState = EntryState.INTENDED) -> Entry:
        planned = self.plan(arn)
        assert isinstance(planned, PlannedChange)
        now, change = self.region.arc.clock.wall(), planned.change
        return Entry(
            zone=ZONE, resource=arn, type="", action="", run="hf-1", number=1, state=state, at=now, change=change
        )

    def evacuate(self) -> Report:
        planned = self.runner.plan(TARGET)
        return self.runner.evacuate(self.runner.begin(planned, by="me@here"), planned)

    def resume(self) -> Report:
        return self.runner.evacuate(self.runner.claim("hf-1"), self.runner.plan(TARGET))

    def restore(self) -> Report:
        return self.runner.restore(self.runner.claim("hf-1"))

    def restart(self) -> None:
        """Let another process take over: the claim of the killed one ends."""
        self.region.arc.clock.sleep(61)
        self.runner = Runner({"tested": self.action}, self.journal, self.region.arc.clock)

    def count(self, operation: str) -> int:
        """Return the number of calls of an operation so far."""
        return list(self.region.calls).count(operation)


def get_entry(report: Report, arn: str) -> Entry:
    (found,) = (each for each in report.entries if each.resource == arn)
    return found


def states(report: Report) -> set[EntryState]:
    return {each.state for each in report.entries}


def list_notes(report: Report) -> Sequence[str]:
    return [each.note for each in report.entries]


def as_restoring(entry: Entry) -> Entry:
    return replace(entry, state=EntryState.RESTORING)


def fail_once(name: str, error: Callable[[], Exception]) -> Callable[[str], None]:
    """Return faults that let the first call of one operation fail."""
    left = [name]

    def fail(operation: str) -> None:
        if operation in left:
            left.remove(operation)
            raise error()

    return fail


def throttle() -> Exception:
    return ServiceError(Refusal.THROTTLED)


def deny() -> Exception:
    return ServiceError(Refusal.DENIED)


def kill_around(call: Callable[..., Any], *, is_done: bool) -> Callable[..., Any]:
    """Return a call that ends the process, before or after it was carried out."""

    def killed(*arguments: Any) -> Any:
        if is_done:
            call(*arguments)
        raise Killed

    return killed
