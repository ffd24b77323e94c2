"""What others change between an evacuation with all actions and its restore is kept, and nothing of the run is left.

Others make the same changes to a second shop, which is never evacuated. In the end, both shops are the same. The
test needs two seconds, because each example carries out a whole evacuation and a restore.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast import ZoneState
from holdfast.evacuate.accounts import Accounts
from holdfast.evacuate.action import Target
from holdfast.evacuate.actions.eks_nodes.taints import EVACUATED_KEY, ZONE_LABEL
from holdfast.evacuate.journal import EntryState
from holdfast.evacuate.journals.memory import MemoryJournal
from holdfast.evacuate.runner import Runner
from holdfast.simulate.kubernetes import build_token, serve
from holdfast.status.stores.memory import MemoryStatusStore
from holdfast.status.writer import StatusWriter, find_states
from holdfast.testing import FakeClock
from tests.unit.evacuate.direct import DirectSession
from tests.unit.evacuate.fleet import OTHER, ZONE
from tests.unit.evacuate.operators import use_one_thread
from tests.unit.evacuate.shop import NAMES, SCALABLE, Shop, open_all_actions

TARGET = Target(zone=ZONE, run="hf-1", reason="it fails")
ADDED = "subnet-added"
"""A subnet in OTHER that no resource has at first."""
MAINTENANCE = {"key": "maintenance", "effect": "NoSchedule"}
ARM = {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}


class Session(DirectSession):
    """A session without HTTP, whose tokens the simulated cluster accepts, and which sends times as numbers."""

    def __init__(self, shop: Shop) -> None:
        super().__init__(shop.region, lambda _: None)
        self._account = shop.region.account

    def presign_eks_token(self, cluster: str) -> str:
        return build_token(self._account)

    def _bind(self, service: str, operation: str) -> Callable[..., dict[str, Any]]:
        call = super()._bind(service, operation)
        return lambda **given: call(
            **{key: each.timestamp() if isinstance(each, datetime) else each for key, each in given.items()}
        )


def call(shop: Shop, service: str, operation: str, /, **values: Any) -> None:
    """Call AWS as others do."""
    shop.region.call(service, operation, values)


def set_group(shop: Shop, /, **values: Any) -> None:
    call(shop, "autoscaling", "UpdateAutoScalingGroup", AutoScalingGroupName="shop", **values)


def set_service(shop: Shop, **network: Any) -> None:
    """Change the network of the service as others do: all of it is sent."""
    changed = {"awsvpcConfiguration": {**(shop.service.network or {}), **network}}
    call(shop, "ecs", "UpdateService", cluster="main", service="cart", networkConfiguration=changed)


def set_function(shop: Shop, **network: Any) -> None:
    function = shop.function
    groups, allows_ipv6 = function.security_groups, function.allows_ipv6
    before = {"SubnetIds": function.subnets, "SecurityGroupIds": groups, "Ipv6AllowedForDualStack": allows_ipv6}
    call(shop, "lambda", "UpdateFunctionConfiguration", FunctionName="mail", VpcConfig={**before, **network})


def set_target(shop: Shop, **values: Any) -> None:
    names = {"ServiceNamespace": "ecs", "ResourceId": SCALABLE, "ScalableDimension": "ecs:service:DesiredCount"}
    call(shop, "application-autoscaling", "RegisterScalableTarget", **names, **values)


def suspend(shop: Shop, **states: bool) -> None:
    set_target(shop, SuspendedState={**shop.target.suspended, **states})


def change_taints(shop: Shop, node: str, change: Callable[[list[Any]], list[Any]]) -> None:
    """Change the taints of a node, if it exists."""

    def update(found: dict[str, Any]) -> None:
        taints = change(found["spec"].pop("taints", []))
        found["spec"] |= {"taints": taints} if taints else {}

    if node in shop.cluster.objects["nodes"]:
        shop.cluster.update("nodes", node, update)


def delete_node(shop: Shop) -> None:
    shop.cluster.objects["nodes"].pop("a1", None)


def change_pool(shop: Shop, change: Callable[[list[Any]], list[Any]]) -> None:
    def update(found: dict[str, Any]) -> None:
        spec = found["spec"]["template"]["spec"]
        spec["requirements"] = change(spec["requirements"])

    shop.cluster.update("nodepools", "general", update)


def annotate_pool(shop: Shop) -> None:
    def update(found: dict[str, Any]) -> None:
        found["metadata"].setdefault("annotations", {})["team"] = "shop"

    shop.cluster.update("nodepools", "general", update)


def without(key: str) -> Callable[[list[Any]], list[Any]]:
    """Return a change of a list that removes the items with a key."""
    return lambda found: [each for each in found if each["key"] != key]


def including(item: Any) -> Callable[[list[Any]], list[Any]]:
    """Return a change of a list that adds an item, if the list does not have it."""
    return lambda found: [*found, *([] if item in found else [item])]


def cancel_shifts(shop: Shop) -> None:
    for arn in shop.list_shifted():
        if (shift := shop.region.arc.get_active(arn)) is not None:
            call(shop, "arc-zonal-shift", "CancelZonalShift", zonalShiftId=shift.id)


def change_group_subnets(shop: Shop, change: Callable[[set[str]], set[str]]) -> None:
    set_group(shop, VPCZoneIdentifier=",".join(sorted(change(set(shop.group.subnets)))))


def change_service_subnets(shop: Shop, change: Callable[[set[str]], set[str]]) -> None:
    set_service(shop, subnets=sorted(change(set((shop.service.network or {})["subnets"]))))


def change_function_subnets(shop: Shop, change: Callable[[set[str]], set[str]]) -> None:
    set_function(shop, SubnetIds=sorted(change(set(shop.function.subnets))))


CHANGES: Mapping[str, Callable[[Shop], None]] = {
    "group: add a subnet": lambda shop: change_group_subnets(shop, lambda found: found | {ADDED}),
    "group: add the zone": lambda shop: change_group_subnets(shop, lambda found: found | {shop.zone_subnet}),
    "group: remove a subnet": lambda shop: change_group_subnets(shop, lambda found: found - {shop.third_subnet}),
    "group: MinSize as before": lambda shop: set_group(shop, MinSize=1),
    "group: MinSize 3": lambda shop: set_group(shop, MinSize=3),
    "group: MinSize 8": lambda shop: set_group(shop, MinSize=8),
    "group: MaxSize": lambda shop: set_group(shop, MaxSize=20),
    "group: DesiredCapacity": lambda shop: set_group(shop, DesiredCapacity=9),
    "group: suspend": lambda shop: call(
        shop, "autoscaling", "SuspendProcesses", AutoScalingGroupName="shop", ScalingProcesses=["AZRebalance"]
    ),
    "service: add a subnet": lambda shop: change_service_subnets(shop, lambda found: found | {ADDED}),
    "service: add the zone": lambda shop: change_service_subnets(shop, lambda found: found | {shop.zone_subnet}),
    "service: remove a subnet": lambda shop: change_service_subnets(shop, lambda found: found - {shop.third_subnet}),
    "service: security groups": lambda shop: set_service(shop, securityGroups=["sg-new"]),
    "service: address": lambda shop: set_service(shop, assignPublicIp="DISABLED"),
    "service: tasks": lambda shop: call(shop, "ecs", "UpdateService", cluster="main", service="cart", desiredCount=9),
    "target: MinCapacity": lambda shop: set_target(shop, MinCapacity=3),
    "target: MaxCapacity": lambda shop: set_target(shop, MaxCapacity=20),
    "target: schedules": lambda shop: suspend(shop, ScheduledScalingSuspended=False),
    "target: scale-out": lambda shop: suspend(shop, DynamicScalingOutSuspended=True),
    "target: scale-in": lambda shop: suspend(shop, DynamicScalingInSuspended=False),
    "function: add a subnet": lambda shop: change_function_subnets(shop, lambda found: found | {ADDED}),
    "function: add the zone": lambda shop: change_function_subnets(shop, lambda found: found | {shop.zone_subnet}),
    "function: remove a subnet": lambda shop: change_function_subnets(shop, lambda found: found - {shop.third_subnet}),
    "function: security groups": lambda shop: set_function(shop, SecurityGroupIds=["sg-new"]),
    "function: IPv6": lambda shop: set_function(shop, Ipv6AllowedForDualStack=False),
    "function: description": lambda shop: call(
        shop, "lambda", "UpdateFunctionConfiguration", FunctionName="mail", Description="new"
    ),
    "nodes: taint": lambda shop: change_taints(shop, "a1", including(MAINTENANCE)),
    "nodes: remove a taint": lambda shop: change_taints(shop, "a2", without("nvidia.com/gpu")),
    "nodes: remove our taint": lambda shop: change_taints(shop, "a2", without(EVACUATED_KEY)),
    "nodes: add": lambda shop: shop.cluster.add_node("a3", ZONE, NAMES[ZONE]),
    "nodes: delete": delete_node,
    "pool: add a requirement": lambda shop: change_pool(shop, including(ARM)),
    "pool: remove our requirement": lambda shop: change_pool(shop, without(ZONE_LABEL)),
    "pool: annotate": annotate_pool,
    "shifts: cancel": cancel_shifts,
}
"""The changes of others, by name. A value that is the same as that of the evacuation cannot be told from it, so nobody
sets such a value."""


def normalize(shop: Shop) -> dict[str, Any]:
    """Return the configuration without the order of subnets and the ids of nodes, which depend on the time."""
    found = shop.copy_configuration()
    for _, each in [*found["nodes"].items(), *found["pools"].items()]:
        del each["metadata"]["uid"]
    network, desired = found["service"]
    subnets, *rest = found["function"]
    found["groups"] = [(sorted(subnets), *sizes) for subnets, *sizes in found["groups"]]
    found["service"] = ({**network, "subnets": sorted(network["subnets"])}, desired)
    found["function"] = (sorted(subnets), *rest)
    return found


@settings(max_examples=60)
@given(meanwhile=st.lists(st.sampled_from([*CHANGES, "resume", "renew"]), max_size=10))
@example(meanwhile=[*CHANGES])
@example(meanwhile=[*CHANGES, "renew", "resume"])
def test_changes_of_others_are_kept_and_nothing_of_the_run_is_left(meanwhile: list[str]) -> None:
    clock, store, journal = FakeClock(), MemoryStatusStore(), MemoryJournal()
    shop, untouched = Shop(clock), Shop(clock)
    for each in (shop, untouched):
        each.region.subnets[ADDED] = NAMES[OTHER]
    session: Any = Session(shop)
    accounts = Accounts([("the default account", lambda *_: session)], lambda _: shop.region.region)
    runner = Runner(open_all_actions(clock, accounts, StatusWriter(store, clock)), journal, clock)
    with pytest.MonkeyPatch.context() as patch, serve(shop.cluster) as address:
        use_one_thread(patch, 0)
        shop.serve_at(address)
        plan = runner.plan(TARGET)
        report = runner.evacuate(runner.begin(plan, by="me"), plan)
        assert {each.state for each in report.entries} == {EntryState.APPLIED}
        clock.sleep(60)
        assert shop.find_left() == []
        for name in meanwhile:
            if name == "resume":
                runner.evacuate(runner.claim(TARGET.run), runner.plan(TARGET))
            elif name == "renew":
                runner.renew(journal.read_runs().open[0])
            else:
                CHANGES[name](shop)
                CHANGES[name](untouched)
        report = runner.restore(runner.claim(TARGET.run))
    assert journal.read_runs().open == (), [(each.resource, each.state, each.note) for each in report.entries]
    assert normalize(shop) == normalize(untouched)
    assert TARGET.run not in repr(shop.copy_configuration())
    assert find_states(store.read(), None, clock.wall()).get(ZONE, ZoneState.IN) is ZoneState.IN
