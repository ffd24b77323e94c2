"""Subnets of Lambda functions, on a server with the model of Lambda: every write has the revision that was read."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import Conflict, EngineError, EngineUnavailable, NotFound
from holdfast.evacuate.action import ACTIONS, Action, ChangeState, PlannedChange, Resource
from holdfast.evacuate.actions.lambda_functions.action import LambdaFunctions
from holdfast.evacuate.journal import EntryState
from holdfast.evacuate.selection import Selection
from holdfast.simulate.aws.control_plane import ReplyLost
from holdfast.simulate.aws.functions import Function
from holdfast.simulate.aws.protocols import Refusal, ServiceError
from holdfast.simulate.aws.region import ACCOUNT, SimulatedRegion
from holdfast.testing.evacuation import DeletableActionConformance
from tests.unit.evacuate.cloud import Cloud
from tests.unit.evacuate.fleet import OTHER, Killed
from tests.unit.evacuate.moves import (
    TARGET,
    Moves,
    as_restoring,
    deny,
    fail_once,
    kill_around,
    list_notes,
    states,
    throttle,
)


@pytest.fixture
def action(cloud: Cloud) -> LambdaFunctions:
    return LambdaFunctions(cloud.open({"the default account": ACCOUNT}))


@pytest.fixture
def moves(region: SimulatedRegion, action: LambdaFunctions) -> Moves:
    return Moves(action, region)


@pytest.fixture
def cart(region: SimulatedRegion) -> Function:
    """A function in all zones. The first subnet is the only one in ZONE."""
    return region.functions.functions[region.functions.add("cart")]


class TestConformance(DeletableActionConformance):
    """Overrides its fixture by that of this module."""

    @pytest.fixture
    def action(self, region: SimulatedRegion, action: LambdaFunctions) -> Action:
        self.region = region
        region.functions.update_seconds = 0.0  # the suite does not wait
        for name in ("cart", "web"):
            region.functions.add(name)
        return action

    def delete(self, resource: Resource) -> None:
        del self.region.functions.functions[resource.id]


def test_functions_leave_the_zone_and_come_back(region: SimulatedRegion, cart: Function, moves: Moves) -> None:
    """The rest of the VPC configuration is sent as it was read."""
    cart.allows_ipv6, before = True, list(cart.subnets)
    region.functions.add("elsewhere", OTHER)
    region.functions.functions[region.functions.add("without a VPC")].subnets = []
    planned = moves.plan(cart.arn)
    assert isinstance(planned, PlannedChange)
    assert planned.description == f"remove {before[0]} in use1-az1 from its subnets; 2 in other zones remain"
    assert list(planned.side_effects) == ["moves only the version $LATEST; its next requests start cold"]
    assert (planned.resource.type, planned.resource.name, planned.resource.account) == (
        "lambda-function",
        "cart",
        ACCOUNT,
    )
    began = region.arc.clock.wall()
    report = moves.evacuate()
    assert [(each.resource, each.state) for each in report.entries] == [(cart.arn, EntryState.APPLIED)]
    assert region.arc.clock.wall() - began >= region.functions.update_seconds, "it waits until the update has ended"
    assert cart.subnets == before[1:]
    assert moves.restore().problems == []
    assert (cart.subnets, cart.security_groups, cart.allows_ipv6, cart.updates) == (before, ["sg-shop"], True, 2)


@pytest.mark.parametrize("operation", ["UpdateFunctionConfiguration", "GetFunctionConfiguration"])
@pytest.mark.parametrize(
    "error",
    [
        throttle,
        ReplyLost,
        lambda: ServiceError("TooManyRequestsException"),
        lambda: ServiceError("ServiceException"),
    ],
)
def test_lost_replies_and_throttling_make_no_second_update(
    region: SimulatedRegion, cart: Function, moves: Moves, operation: str, error: Callable[[], Exception]
) -> None:
    before = list(cart.subnets)
    region.faults = fail_once(operation, error)
    assert states(moves.evacuate()) == {EntryState.APPLIED}
    region.faults = fail_once(operation, error)
    assert moves.restore().problems == []
    assert (cart.subnets, cart.updates) == (before, 2)


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("is_resumed", [False, True])
@pytest.mark.parametrize("write", ["apply", "restore"])
def test_after_a_kill_a_restore_returns_the_configuration(
    cart: Function, moves: Moves, monkeypatch: pytest.MonkeyPatch, write: str, *, is_done: bool, is_resumed: bool
) -> None:
    before = list(cart.subnets)
    if write == "restore":
        moves.evacuate()
    with monkeypatch.context() as patch:
        patch.setattr(moves.action, write, kill_around(getattr(moves.action, write), is_done=is_done))
        with pytest.raises(Killed):
            moves.restore() if write == "restore" else moves.evacuate()
    moves.restart()
    if is_resumed:
        assert states(moves.resume()) == {EntryState.APPLIED}
        moves.restart()
    assert states(moves.restore()) == {EntryState.RESTORED}
    assert cart.subnets == before


# Changes of others


def test_changes_of_others_are_kept(region: SimulatedRegion, cart: Function, moves: Moves) -> None:
    first, second, third = cart.subnets
    region.subnets["subnet-new"] = region.subnets[second]
    moves.evacuate()
    cart.subnets, cart.security_groups = [third, "subnet-new"], ["sg-new"]
    assert states(moves.restore()) == {EntryState.RESTORED}
    assert (cart.subnets, cart.security_groups) == ([third, "subnet-new", first], ["sg-new"])


def test_a_change_between_read_and_write_is_a_conflict_and_is_kept(
    region: SimulatedRegion, cart: Function, moves: Moves
) -> None:
    def change(operation: str) -> None:
        if operation == "UpdateFunctionConfiguration" and not cart.updates:
            cart.updates, cart.security_groups = 1, ["sg-new"]

    entry = moves.build_entry(cart.arn)
    region.faults = change
    with pytest.raises(Conflict, match="Revision Id"):
        moves.action.apply(entry)
    cart.updates = 0
    assert states(moves.evacuate()) == {EntryState.APPLIED}
    assert (len(cart.subnets), cart.security_groups) == (2, ["sg-new"])


def test_a_change_that_others_made_is_not_undone(cart: Function, moves: Moves) -> None:
    planned = moves.runner.plan(TARGET)
    cart.subnets = cart.subnets[1:]
    claim = moves.runner.begin(planned, by="me@here")
    assert states(moves.runner.evacuate(claim, planned)) == {EntryState.FOUND}
    moves.restore()
    assert (len(cart.subnets), cart.updates) == (2, 0)


def test_a_change_that_others_made_just_before_is_not_written_again(cart: Function, moves: Moves) -> None:
    entry, before = moves.build_entry(cart.arn), list(cart.subnets)
    cart.subnets = before[1:]
    with pytest.raises(EngineUnavailable, match="in the same way"):
        moves.action.apply(entry)
    reading = moves.action.read(entry)
    cart.subnets = before
    with pytest.raises(EngineUnavailable, match="in the same way"):
        moves.action.restore(as_restoring(entry), reading)


def test_a_deleted_subnet_is_not_added_again(region: SimulatedRegion, cart: Function, moves: Moves) -> None:
    first, *others = cart.subnets
    region.subnets["subnet-second"] = region.subnets[first]
    cart.subnets = [first, "subnet-second", *others]
    moves.evacuate()
    assert cart.subnets == others
    del region.subnets[first]
    report = moves.restore()
    assert list_notes(report) == [f"{first} cannot be added again: deleted, or in another VPC now"]
    assert (states(report), cart.subnets) == ({EntryState.RESTORED}, [*others, "subnet-second"])


def test_an_update_of_others_in_progress_is_awaited(region: SimulatedRegion, cart: Function, moves: Moves) -> None:
    entry = moves.build_entry(cart.arn)
    cart.subnets_before, cart.modified_at = cart.subnets, region.arc.clock.wall()
    with pytest.raises(EngineUnavailable, match="An update is in progress"):
        moves.action.apply(entry)
    assert states(moves.evacuate()) == {EntryState.APPLIED}
    assert cart.updates == 1


# Updates that fail


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("SubnetOutOfIPAddresses", "free addresses in its subnets"),
        ("EniLimitExceeded", "raise the quota of network interfaces"),
        ("DisabledKMSKey", "correct its configuration"),
    ],
)
@pytest.mark.parametrize("reverts", [False, True])
def test_an_update_that_fails_is_reported_and_made_again_by_the_next_run(
    region: SimulatedRegion, cart: Function, moves: Moves, code: str, advice: str, *, reverts: bool
) -> None:
    """The configuration of the function may, or may not, be as before the update."""
    before = list(cart.subnets)
    cart.failure, cart.reverts_failures = code, reverts
    report = moves.evacuate()
    assert (states(report), cart.updates) == ({EntryState.INTENDED}, 1)
    assert (code in list_notes(report)[0], advice in list_notes(report)[0]) == (True, True)
    moves.restart()
    cart.failure = ""
    assert states(moves.resume()) == {EntryState.APPLIED}
    assert (cart.subnets, cart.updates, cart.failed_with) == (before[1:], 2, "")
    cart.failure = code
    report = moves.restore()
    assert (states(report), cart.updates, code in list_notes(report)[0]) == ({EntryState.RESTORING}, 3, True)
    moves.restart()
    cart.failure = ""
    assert states(moves.restore()) == {EntryState.RESTORED}
    assert (cart.subnets, cart.updates, cart.failed_with) == (before, 4, "")


def test_a_function_whose_update_failed_can_be_restored_at_once(cart: Function, moves: Moves) -> None:
    before = list(cart.subnets)
    cart.failure = "SubnetOutOfIPAddresses"
    moves.evacuate()
    moves.restart()
    cart.failure = ""
    assert states(moves.restore()) == {EntryState.RESTORED}
    assert cart.subnets == before


def test_an_older_failure_does_not_stop_an_evacuation(region: SimulatedRegion, cart: Function, moves: Moves) -> None:
    cart.failed_with = "InvalidImage"
    region.arc.clock.sleep(3600)
    assert states(moves.evacuate()) == {EntryState.APPLIED}


# States


def test_a_function_that_is_being_created_is_changed_later(
    region: SimulatedRegion, cart: Function, moves: Moves
) -> None:
    cart.state = "Pending"
    began = region.arc.clock.wall()

    def activate(_: str) -> None:
        if region.arc.clock.wall() > began + 30:
            cart.state = "Active"

    region.faults = activate
    assert states(moves.evacuate()) == {EntryState.APPLIED}
    assert states(moves.restore()) == {EntryState.RESTORED}


def test_a_change_has_no_effect_while_the_function_is_not_ready(cart: Function, moves: Moves) -> None:
    entry = moves.build_entry(cart.arn)
    moves.action.apply(entry)
    assert moves.action.read(entry).is_effective is False
    moves.region.arc.clock.sleep(moves.region.functions.update_seconds)
    assert moves.action.read(entry).is_effective
    cart.state = "Pending"
    assert moves.action.read(entry).is_effective is False


def test_an_idle_function_is_moved_like_any_other(cart: Function, moves: Moves) -> None:
    cart.state = "Inactive"
    assert states(moves.evacuate()) == {EntryState.APPLIED}
    assert states(moves.restore()) == {EntryState.RESTORED}


def test_a_function_that_cannot_be_invoked_is_moved_but_not_taken_as_restored(cart: Function, moves: Moves) -> None:
    cart.state, cart.details = "Failed", {"StateReasonCode": "InvalidSubnet", "StateReason": "it is gone"}
    report = moves.evacuate()
    assert states(report) == {EntryState.APPLIED}
    assert "it cannot be invoked (InvalidSubnet: it is gone): correct the subnets" in list_notes(report)[0]
    report = moves.restore()
    assert states(report) == {EntryState.RESTORING}
    assert "it cannot be invoked" in list_notes(report)[0]
    cart.state = "Active"
    assert states(moves.restore()) == {EntryState.RESTORED}


@pytest.mark.parametrize(
    ("changes", "note"), [({"state": "Deleting"}, "is being deleted"), ({"subnets": []}, "is not in a VPC any more")]
)
def test_a_function_that_cannot_be_changed_any_more_is_gone(
    cart: Function, moves: Moves, changes: dict[str, Any], note: str
) -> None:
    entry = moves.build_entry(cart.arn)
    for name, value in changes.items():
        setattr(cart, name, value)
    for each in (entry, as_restoring(entry)):
        reading = moves.action.read(each)
        assert (reading.state, note in reading.note) == (ChangeState.GONE, True)
    with pytest.raises(NotFound):
        moves.action.apply(entry)


def test_the_last_subnet_is_never_removed_and_no_list_is_empty(cart: Function, moves: Moves) -> None:
    entry, before = moves.build_entry(cart.arn), list(cart.subnets)
    cart.subnets = before[:1]
    (found,) = moves.runner.plan(TARGET).unmovable
    assert found.reason == "it has no subnet in another zone"
    with pytest.raises(EngineError, match="has no subnet in another zone any more"):
        moves.action.apply(entry)
    cart.subnets, cart.security_groups = before, []
    with pytest.raises(EngineError, match="has no security group"):
        moves.action.apply(entry)
    assert cart.updates == 0


@pytest.mark.parametrize("code", ["AccessDeniedException", "InvalidParameterValueException"])
def test_a_refusal_is_reported_and_nothing_is_recorded_as_changed(
    region: SimulatedRegion, cart: Function, moves: Moves, code: str
) -> None:
    error = deny if code.startswith("Access") else lambda: ServiceError(code)
    region.faults = fail_once("UpdateFunctionConfiguration", error)
    report = moves.evacuate()
    assert states(report) == {EntryState.FAILED}
    assert ("UpdateFunctionConfiguration" in list_notes(report)[0], len(cart.subnets)) == (True, 3)


# Versions, and functions that cannot be moved


def test_published_versions_are_listed_as_not_moved(region: SimulatedRegion, cart: Function, moves: Moves) -> None:
    cart.aliases = {"live": "3", "test": "$LATEST"}
    cart.provisioned = {"live": 10, "2": 5}
    cart.details["SnapStart"] = {"ApplyOn": "PublishedVersions", "OptimizationStatus": "Off"}
    region.page_size = 1
    planned = moves.runner.plan(TARGET)
    assert {each.resource.id.removeprefix(f"{cart.arn}:"): each.reason for each in planned.unmovable} == {
        "live": "only $LATEST is moved: its alias live uses version 3, and live has provisioned concurrency, and a "
        "published version keeps its subnets",
        "2": "only $LATEST is moved: 2 has provisioned concurrency, and a published version keeps its subnets",
    }
    assert {each.resource.name for each in planned.unmovable} == {"cart"}
    assert all("publish a version of cart" in each.remedy for each in planned.unmovable)
    (change,) = planned.changes["tested"]
    assert "SnapStart applies to published versions" in change.side_effects[1]


def test_versions_are_asked_for_only_if_a_person_reads_the_plan(
    region: SimulatedRegion, cart: Function, moves: Moves
) -> None:
    region.functions.add("elsewhere", OTHER)
    moves.action.discover(replace(TARGET, lists_unmovable=False))
    assert (moves.count("ListAliases"), moves.count("ListProvisionedConcurrencyConfigs")) == (0, 0)
    moves.action.discover(TARGET)
    assert (moves.count("ListAliases"), moves.count("ListProvisionedConcurrencyConfigs")) == (1, 1)


@pytest.mark.parametrize("operation", ["ListAliases", "ListProvisionedConcurrencyConfigs"])
def test_versions_that_cannot_be_listed_are_a_note(
    region: SimulatedRegion, cart: Function, moves: Moves, operation: str
) -> None:
    region.faults = fail_once(operation, deny)
    found = moves.action.discover(TARGET)
    assert ([each.id for each in found.resources], found.unreadable) == ([cart.arn], [])
    assert operation in found.notes[0]


def test_a_function_of_a_capacity_provider_stays(cart: Function, moves: Moves) -> None:
    provider = {"LambdaManagedInstancesCapacityProviderConfig": {"CapacityProviderArn": "arn:aws:lambda:provider"}}
    cart.details["CapacityProviderConfig"] = provider
    planned = moves.runner.plan(TARGET)
    assert [(each.resource.id, each.remedy) for each in planned.unmovable] == [
        (cart.arn, "change the subnets of its capacity provider")
    ]
    assert planned.changes["tested"] == []


# Lists


def test_functions_are_found_page_by_page_and_by_tag(region: SimulatedRegion, moves: Moves) -> None:
    tagged = region.functions.add("web", tags={"team": "shop"})
    added = {region.functions.add(f"function-{number}") for number in range(5)}
    region.page_size = 2
    assert {each.id for each in moves.action.discover(TARGET).resources} == {tagged, *added}
    chosen = replace(TARGET, selection=Selection(tags={"team": "shop"}))
    assert [each.id for each in moves.action.discover(chosen).resources] == [tagged]


@pytest.mark.parametrize("operation", ["ListFunctions", "DescribeSubnets"])
@pytest.mark.parametrize("error", [deny, throttle, lambda: ServiceError(Refusal.INVALID)])
def test_an_account_that_cannot_be_read_is_reported(
    region: SimulatedRegion, cart: Function, moves: Moves, operation: str, error: Callable[[], Exception]
) -> None:
    region.faults = fail_once(operation, error)
    found = moves.action.discover(TARGET)
    assert [each.scope for each in found.unreadable] == ["the default account in us-east-1"]
    assert (operation in found.unreadable[0].reason, found.resources) == (True, [])


def test_one_account_with_two_names_is_moved_once(cloud: Cloud, cart: Function) -> None:
    action = LambdaFunctions(cloud.open({"ours": ACCOUNT, "ours as well": ACCOUNT}))
    assert [each.id for each in action.discover(TARGET).resources] == [cart.arn]


def test_the_action_is_registered() -> None:
    kind = ACTIONS.get("lambda-functions")
    assert {"lambda:UpdateFunctionConfiguration", "lambda:ListAliases", "ec2:DescribeVpcs"} <= set(kind.permissions)
    assert "ignore_changes = [vpc_config[0].subnet_ids]" in kind.terraform
    assert LambdaFunctions.parallel_calls == 2
