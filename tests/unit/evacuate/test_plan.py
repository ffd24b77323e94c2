"""What a plan says to people, and why it must not be carried out."""

import pytest
from msgspec.structs import replace

from holdfast.evacuate.action import Discovery, OtherEvacuation, PlannedChange, Resource, Target, Unreadable
from holdfast.evacuate.journal import Entry, EntryState, Run
from holdfast.evacuate.plan import Plan, Report, find_obstacle
from holdfast.evacuate.selection import Selection
from tests.unit.evacuate.fleet import OTHER, ZONE

TARGET = Target(zone=ZONE, workload="shop", run="hf-1")
RUN = Run(id="hf-1", zone=ZONE, by="me@here", reason="", started=0.0)
GROUP = Resource(id="arn:1", type="auto-scaling-group", name="shop", account="123456789012")
CLEAR = Plan(target=TARGET, changes={}, unmovable=(), discoveries={"a": Discovery(notes=["as it is", "as it is"])})


@pytest.mark.parametrize(
    ("target", "account", "is_warned"),
    [
        (TARGET, "123456789012", True),
        (TARGET, "", False),
        (replace(TARGET, workload=None), "123456789012", False),
        (replace(TARGET, selection=Selection(names=("shop",))), "123456789012", False),
    ],
)
def test_a_workload_without_resources_of_its_own_moves_everything_and_is_told(
    target: Target, account: str, is_warned: bool
) -> None:
    change = PlannedChange(resource=replace(GROUP, account=account), description="remove it")
    warning, *notes = replace(CLEAR, target=target, changes={"a": [change]}).notes
    assert (warning.startswith("WARNING: shop has no `workload.resources`"), notes) == (
        is_warned,
        ["as it is"] if is_warned else [],
    )


@pytest.mark.parametrize(
    ("found", "overrides", "expected"),
    [
        (Discovery(), {}, ""),
        (
            Discovery(other_evacuations=[OtherEvacuation(zone=OTHER, source="AWS")]),
            {},
            "not changed, because another zone is evacuated: use1-az2, by AWS",
        ),
        (Discovery(other_evacuations=[OtherEvacuation(zone=ZONE, source="AWS")]), {}, ""),
        (
            Discovery(unreadable=[Unreadable(scope="ours", reason="denied")]),
            {},
            "not changed, because ours cannot be read: denied",
        ),
        (Discovery(unreadable=[Unreadable(scope="ours", reason="denied")]), {"unreadable": "seen"}, ""),
    ],
)
def test_a_plan_that_sees_another_zone_or_not_everything_is_not_carried_out(
    found: Discovery, overrides: dict[str, str], expected: str
) -> None:
    assert find_obstacle(replace(CLEAR, discoveries={"a": found}), replace(RUN, overrides=overrides)) == expected
    allowed = replace(CLEAR, target=replace(TARGET, allows_second_zone=True), discoveries={"a": found})
    if found.other_evacuations:
        assert find_obstacle(allowed, RUN) == ""


@pytest.mark.parametrize(
    ("state", "note", "is_partial"),
    [
        (EntryState.APPLIED, "", False),
        (EntryState.APPLIED, "pods are left", True),
        (EntryState.FOUND, "others made it", False),
        (EntryState.FAILED, "denied", True),
    ],
)
def test_a_change_that_is_missing_or_not_complete_makes_an_evacuation_partial(
    state: EntryState, note: str, is_partial: bool
) -> None:
    entry = Entry(zone=ZONE, resource="arn:1", type="", action="", run="hf-1", number=1, state=state, at=0.0, note=note)
    assert Report(run=RUN, entries=[entry]).is_partial is is_partial
    assert Report(run=RUN, entries=[entry], is_restore=True).is_partial, "the run is open"
