"""What others change between an evacuation and its end is kept, and their zonal shifts are never touched."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.evacuate.action import Target
from holdfast.evacuate.actions.zonal_shift import ZonalShift
from holdfast.evacuate.journal import EntryState
from holdfast.evacuate.journals.memory import MemoryJournal
from holdfast.evacuate.plan import Report
from holdfast.evacuate.runner import Runner
from holdfast.simulate.aws.arc import Shift
from holdfast.simulate.aws.region import SimulatedRegion
from holdfast.testing import FakeClock
from tests.unit.evacuate.direct import open_accounts
from tests.unit.evacuate.fleet import OTHER, ZONE
from tests.unit.evacuate.operators import use_one_thread

TARGET = Target(zone=ZONE, run="hf-1", reason="it fails")
RESOURCES = 3


class World:
    """An evacuated account, where others act, too."""

    def __init__(self) -> None:
        self.region = SimulatedRegion(FakeClock())
        self.arns = [self.region.add("application", f"shop-{number}") for number in range(RESOURCES)]
        self.journal = MemoryJournal()
        self.runner = Runner(
            {"zonal-shift": ZonalShift(open_accounts(self.region))}, self.journal, self.region.arc.clock
        )
        self.theirs: dict[str, tuple[Any, ...]] = {}
        """What others wrote, by the id of their shift: nobody else may change it."""

    def find(self, arn: str) -> Shift | None:
        return self.region.arc.get_active(arn)

    def is_theirs(self, shift: Shift | None) -> bool:
        return shift is not None and shift.id in self.theirs

    def note(self, shift: Shift) -> None:
        self.theirs[shift.id] = (shift.zone, shift.comment, shift.expiry, shift.status)

    def act(self, name: str, arn: str) -> None:
        """Do something as a person or program without Holdfast would."""
        shift = self.find(arn)
        if name == "cancel" and shift is not None:
            shift.status = "CANCELED"
            if shift.id in self.theirs:
                self.note(shift)
        elif name in ("start", "start elsewhere") and shift is None:
            self.note(
                self.region.arc.start_shift(arn, OTHER if "elsewhere" in name else ZONE, "colleague", minutes=240)
            )
        elif name == "adopt" and shift is not None:
            shift.comment, shift.expiry = "colleague", shift.expiry + 3600
            self.note(shift)
        elif name == "extend" and shift is not None:
            shift.expiry += 3600
            if shift.id in self.theirs:
                self.note(shift)
        elif name == "delete":
            self.region.remove(arn)
        elif arn in self.region.arc.resources and name.startswith("autoshift"):
            self.region.arc.resources[arn].autoshift = OTHER if name == "autoshift" else None
        elif name == "wait":
            self.region.arc.clock.sleep(7 * 3600)  # two of them let our shifts expire

    def evacuate(self) -> Report:
        plan = self.runner.plan(TARGET)
        return self.runner.evacuate(self.runner.begin(plan, by="me"), plan)

    def resume(self) -> Report:
        return self.runner.evacuate(self.runner.claim("hf-1"), self.runner.plan(TARGET))

    def renew(self) -> None:
        (run,) = self.journal.read_runs().runs
        self.runner.renew(run)

    def restore(self) -> Report:
        return self.runner.restore(self.runner.claim("hf-1"))

    def check(self) -> None:
        """Fail if a shift of others has changed. A shift of theirs that is over has expired by itself."""
        for arn in self.arns:
            self.find(arn)
        for shift in self.region.arc.shifts:
            if shift.id in self.theirs:
                zone, comment, expiry, status = self.theirs[shift.id]
                has_expired = status == "ACTIVE" and shift.status == "EXPIRED"
                assert (shift.zone, shift.comment, shift.expiry) == (zone, comment, expiry)
                assert has_expired or shift.status == status
            else:
                assert shift.comment == "hf-1 holdfast it fails"


acts = st.tuples(
    st.sampled_from(
        ["cancel", "start", "start elsewhere", "adopt", "extend", "delete", "autoshift", "autoshift ends", "wait"]
    ),
    st.integers(0, RESOURCES - 1),
)
ours = st.tuples(st.sampled_from(["resume", "renew"]), st.just(0))


@settings(max_examples=400)
@given(before=st.lists(acts, max_size=4), meanwhile=st.lists(acts | acts | ours, max_size=12))
@example(before=[("start", 0), ("start elsewhere", 1)], meanwhile=[("cancel", 0), ("resume", 0)])
@example(before=[], meanwhile=[("adopt", 0), ("cancel", 1), ("start", 1), ("delete", 2), ("renew", 0)])
def test_nothing_of_others_is_undone_and_nothing_of_ours_is_left(
    before: list[tuple[str, int]], meanwhile: list[tuple[str, int]]
) -> None:
    world = World()
    steps: dict[str, Callable[[], object]] = {"resume": world.resume, "renew": world.renew}
    with pytest.MonkeyPatch.context() as patch:
        use_one_thread(patch, 0)
        for name, number in before:
            world.act(name, world.arns[number])
        world.evacuate()
        world.check()
        for name, number in meanwhile:
            if name in steps:
                steps[name]()
                world.check()
            else:
                world.act(name, world.arns[number])
        held = {arn for arn in world.arns if world.is_theirs(world.find(arn))}
        states = {each.resource: each.state for each in world.journal.read_entries(ZONE) if each.run == "hf-1"}
        report = world.restore()
    world.check()
    assert world.journal.read_runs().open == ()
    for arn in world.region.resources:
        shift = world.find(arn)
        assert shift is None or world.is_theirs(shift), "a shift of ours is left"
    for entry in report.entries:
        if states[entry.resource].is_open and entry.resource in held | (states.keys() - world.region.resources.keys()):
            assert entry.state is EntryState.KEPT
            assert entry.note, "it is told why"
        elif states[entry.resource].is_open:
            assert entry.state is EntryState.RESTORED
