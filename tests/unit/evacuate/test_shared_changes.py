"""Several open runs of one zone: what one of them has changed stays until the last one that needs it is restored."""

from collections.abc import Callable
from functools import partial
from itertools import permutations

import pytest

from holdfast import EngineError
from holdfast.evacuate.action import Action, Target
from holdfast.evacuate.actions.auto_scaling_groups.action import AutoScalingGroups
from holdfast.evacuate.actions.capacity.action import Capacity
from holdfast.evacuate.actions.zonal_shift import ZonalShift
from holdfast.evacuate.journal import Entry, EntryState, RunState
from holdfast.evacuate.journals.memory import MemoryJournal
from holdfast.evacuate.plan import Report
from holdfast.evacuate.runner import Runner
from holdfast.evacuate.selection import Selection
from holdfast.evacuate.tags import build_tag_filter
from holdfast.simulate.aws.region import ACCOUNT, SimulatedRegion
from tests.unit.evacuate.cloud import Cloud
from tests.unit.evacuate.fleet import OTHER, ZONE, Killed, MovingClock

EVERYTHING = Selection()


class Zones:
    """Runs of two workloads that share a group, in one journal."""

    def __init__(self, cloud: Cloud, region: SimulatedRegion) -> None:
        self.region = region
        self.accounts = cloud.open({"ours": ACCOUNT})
        self.groups = AutoScalingGroups(self.accounts)
        self.journal = MemoryJournal()
        self.arn = region.groups.add("shop", {ZONE: 2, OTHER: 2}, min_size=1, max_size=12, tags={"app": "shop"})

    def build(self, **actions: Action) -> Runner:
        tag_filter = partial(build_tag_filter, self.accounts)
        return Runner(actions, self.journal, self.region.arc.clock, build_tag_filter=tag_filter)

    def evacuate(self, runner: Runner, run: str, selection: Selection = EVERYTHING) -> Report:
        target = Target(zone=ZONE, workload=run, run=run, reason="requests fail", selection=selection)
        plan = runner.plan(target)
        report = runner.evacuate(runner.begin(plan, by="me@here"), plan)
        self.region.arc.clock.sleep(1)
        return report

    def restore(self, runner: Runner, run: str) -> dict[str, EntryState]:
        report = runner.restore(runner.claim(run))
        return {each.name: each.state for each in report.entries}

    def grow(self, size: int) -> None:
        """Let a policy scale the group out."""
        self.region.groups.get(self.arn).desired = size

    @property
    def size(self) -> int:
        return self.region.groups.get(self.arn).min_size

    @property
    def is_in_zone(self) -> bool:
        return len(self.region.groups.get(self.arn).subnets) == 2


@pytest.fixture
def zones(cloud: Cloud) -> Zones:
    region = cloud.regions[0] = SimulatedRegion(MovingClock())
    return Zones(cloud, region)


def kill(call: Callable[[Entry], None], *, is_done: bool) -> Callable[[Entry], None]:
    def killed(entry: Entry) -> None:
        if is_done:
            call(entry)
        raise Killed

    return killed


def test_a_size_that_two_runs_have_raised_ends_as_before_both(zones: Zones) -> None:
    runner = zones.build(capacity=Capacity(zones.accounts, zones.region.arc.clock))
    zones.evacuate(runner, "first")
    zones.grow(9)
    zones.evacuate(runner, "second")
    assert zones.size == 9
    report = runner.restore(runner.claim("first"))
    assert (report.run.state, report.is_partial, zones.size) == (RunState.EVACUATED, True, 9)
    (entry,) = report.entries
    assert entry.note == "run second for second has changed it later: restore that run first"
    assert report.problems == [entry], "it is told"
    zones.restore(runner, "second")
    assert zones.size == 4
    assert zones.restore(runner, "first") == {"shop": EntryState.RESTORED}
    assert zones.size == 1


def resume(runner: Runner, run: str) -> Report:
    target = Target(zone=ZONE, workload=run, run=run, reason="requests fail")
    return runner.evacuate(runner.claim(run), runner.plan(target))


def test_a_run_that_is_resumed_keeps_a_change_that_a_later_run_has_changed_again(zones: Zones) -> None:
    runner = zones.build(capacity=Capacity(zones.accounts, zones.region.arc.clock))
    zones.evacuate(runner, "first")
    zones.grow(9)
    zones.evacuate(runner, "second")
    assert [each.state for each in resume(runner, "first").entries] == [EntryState.APPLIED]
    zones.restore(runner, "second")
    zones.restore(runner, "first")
    assert zones.size == 1
    assert not zones.journal.read_runs().open


@pytest.mark.parametrize("order", list(permutations(("first", "second", "third"))))
def test_of_three_runs_each_order_of_restores_ends_as_before_all(zones: Zones, order: tuple[str, ...]) -> None:
    """The third run relies on the change of the second one, which is the last."""
    runner = zones.build(capacity=Capacity(zones.accounts, zones.region.arc.clock))
    zones.evacuate(runner, "first")
    zones.grow(9)
    zones.evacuate(runner, "second")
    zones.evacuate(runner, "third")
    assert zones.size == 9
    for run in (*order, *order, *order):
        if run in {each.id for each in zones.journal.read_runs().open}:
            zones.restore(runner, run)
    assert zones.size == 1
    assert not zones.journal.read_runs().open


def test_the_order_of_the_changes_decides_and_not_that_of_the_runs(
    zones: Zones, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run fails, and raises the size when it is resumed: after the second run."""
    action = Capacity(zones.accounts, zones.region.arc.clock)
    runner = zones.build(capacity=action)

    def refuse(_: Entry) -> None:
        raise EngineError("not allowed")

    with monkeypatch.context() as patch:
        patch.setattr(action, "apply", refuse)
        zones.evacuate(runner, "first")
    zones.evacuate(runner, "second")
    zones.grow(9)
    resume(runner, "first")
    assert zones.size == 9
    assert zones.restore(runner, "second") == {"shop": EntryState.RESTORING}
    assert zones.restore(runner, "first") == {"shop": EntryState.RESTORED}
    assert zones.size == 4
    zones.restore(runner, "second")
    assert zones.size == 1


def test_a_resumed_run_adopts_a_change_on_which_it_had_failed(zones: Zones, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = zones.build(groups=zones.groups)

    def refuse(_: Entry) -> None:
        raise EngineError("not allowed")

    with monkeypatch.context() as patch:
        patch.setattr(zones.groups, "apply", refuse)
        zones.evacuate(runner, "first")
    zones.evacuate(runner, "second")
    assert [each.state for each in resume(runner, "first").entries] == [EntryState.FOUND]
    zones.restore(runner, "second")
    assert not zones.is_in_zone, "the first run is open"
    zones.restore(runner, "first")
    assert zones.is_in_zone


@pytest.mark.parametrize("is_shared", [False, True])
def test_capacity_is_held_until_traffic_is_back(zones: Zones, monkeypatch: pytest.MonkeyPatch, is_shared: bool) -> None:
    """A refusal, or another run, keeps traffic away from the zone: the units elsewhere are needed."""
    front = zones.region.add("application", "front")
    shift = ZonalShift(zones.accounts)
    runner = zones.build(capacity=Capacity(zones.accounts, zones.region.arc.clock, scale_out_first=True), shift=shift)
    zones.evacuate(runner, "first", Selection(names=("front", "shop")))
    size = zones.size
    assert size > 4
    if is_shared:
        zones.evacuate(runner, "second", Selection(names=("front",)))
        for _ in range(2):  # also after the shift was handed over
            zones.restore(runner, "first")
    else:

        def refuse(*_: object) -> None:
            raise EngineError("not allowed")

        with monkeypatch.context() as patch:
            patch.setattr(shift, "restore", refuse)
            zones.restore(runner, "first")
    assert zones.region.arc.get_active(front) is not None
    group = zones.region.groups.get(zones.arn)
    assert (group.min_size, group.desired) == (size, size)
    entry = next(each for each in zones.journal.read_entries(ZONE) if each.name == "shop")
    assert entry.note == "held, because traffic of front is still away from use1-az1"
    if is_shared:
        zones.restore(runner, "second")
    zones.restore(runner, "first")
    assert (group.min_size, group.desired) == (1, 4)
    assert not zones.journal.read_runs().open


@pytest.mark.parametrize("is_done", [False, True])
def test_a_change_of_a_killed_run_stays_while_another_run_needs_it(
    zones: Zones, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    """The killed run may or may not have made it. The other one makes it, or relies on it."""
    runner = zones.build(groups=zones.groups)
    with monkeypatch.context() as patch:
        patch.setattr(zones.groups, "apply", kill(zones.groups.apply, is_done=is_done))
        with pytest.raises(Killed):
            zones.evacuate(runner, "first")
    zones.region.arc.clock.sleep(100)
    zones.grow(9)
    zones.evacuate(runner, "second")
    assert not zones.is_in_zone
    zones.restore(runner, "first")
    assert not zones.is_in_zone, "the second run is open"
    zones.restore(runner, "second")
    if not is_done:
        zones.restore(runner, "first")  # it waited for the second one
    assert zones.is_in_zone
    assert not zones.journal.read_runs().open


def test_a_hold_is_needed_whatever_types_are_chosen(zones: Zones) -> None:
    zones.region.add("application", "front")
    actions: dict[str, Action] = {
        "capacity": Capacity(zones.accounts, zones.region.arc.clock),
        "shift": ZonalShift(zones.accounts),
    }
    runner = zones.build(**actions)
    zones.evacuate(runner, "first")
    zones.evacuate(runner, "second", Selection(types=("load-balancer",)))
    assert zones.restore(runner, "first") == {"shop": EntryState.KEPT, "front": EntryState.KEPT}
    assert zones.size == 4
    zones.restore(runner, "second")
    assert zones.size == 1


def test_a_run_needs_only_changes_of_resources_with_its_tags(zones: Zones) -> None:
    other = zones.region.groups.add("web", {ZONE: 2, OTHER: 2}, tags={"app": "web"})
    runner = zones.build(groups=zones.groups)
    zones.evacuate(runner, "first")
    zones.evacuate(runner, "second", Selection(tags={"app": "shop"}))
    assert zones.restore(runner, "first") == {"shop": EntryState.KEPT, "web": EntryState.RESTORED}
    assert (zones.is_in_zone, len(zones.region.groups.get(other).subnets)) == (False, 2)
    zones.restore(runner, "second")
    assert zones.is_in_zone


def test_traffic_does_not_return_while_a_later_run_keeps_capacity_out_of_the_zone(
    zones: Zones, monkeypatch: pytest.MonkeyPatch
) -> None:
    front = zones.region.add("application", "front")
    runner = zones.build(shift=ZonalShift(zones.accounts), groups=zones.groups)
    with monkeypatch.context() as patch:
        patch.setattr(zones.groups, "apply", kill(zones.groups.apply, is_done=False))
        with pytest.raises(Killed):
            zones.evacuate(runner, "first", Selection(names=("front", "shop")))
    zones.region.arc.clock.sleep(100)
    zones.grow(9)
    zones.evacuate(runner, "second", Selection(names=("shop",)))
    report = runner.restore(runner.claim("first"))
    assert report.waits_for_capacity
    assert zones.region.arc.get_active(front) is not None
    zones.restore(runner, "second")
    zones.restore(runner, "first")
    assert zones.region.arc.get_active(front) is None
