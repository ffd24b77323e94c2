"""The tree of a workload's alarms: names, rules, and the alarms that a new operation changes."""

from collections.abc import Iterable

import pytest

from holdfast import Operation, Side, Zone
from holdfast._alarm_options import AlarmOptions
from holdfast.alarms import AlarmState, StateValue
from holdfast.alarms.alarm import MAX_NAME
from holdfast.alarms.declaration import AlarmDeclaration, MeasuredOperation
from holdfast.alarms.metric_alarm import TreatMissingData
from holdfast.alarms.tree import EVENT_ACTION, MAX_ROLLED_UP, AlarmTree, TreeBuilder, name_operation
from holdfast.telemetry import SharedResource

ZONES = Zone("use1-az1"), Zone("use1-az2"), Zone("use1-az3")
HOME, LIST = Operation("Home", "Index"), Operation("Products", "List")
QUERY = Operation("orders-db", "query")


def build(
    *measured: MeasuredOperation,
    options: AlarmOptions | None = None,
    operations: tuple[Operation, ...] = (),
    zones: tuple[Zone, ...] = ZONES,
    resources: tuple[tuple[str, tuple[Operation, ...]], ...] = (),
) -> AlarmTree:
    declaration = AlarmDeclaration(
        workload="shop",
        zones=zones,
        region="us-east-1",
        options=options or AlarmOptions(),
        operations=operations,
        resources=resources,
    )
    return TreeBuilder(declaration).build(measured)


def find_alarms(tree: AlarmTree, in_alarm: Iterable[str], without_data: Iterable[str] = ()) -> set[str]:
    """Return the composite alarms in ALARM if some metric alarms are, some have no data, and all others are OK."""
    states = dict.fromkeys(tree.metrics, AlarmState(StateValue.OK))
    states |= dict.fromkeys(in_alarm, AlarmState(StateValue.ALARM))
    states |= dict.fromkeys(without_data, AlarmState())
    assert states.keys() == tree.metrics.keys()
    changes = tree.graph.evaluate(states, [], 0.0)
    return {each.alarm.alarm_name for each in changes if each.new.state_value is StateValue.ALARM}


AZ1, AZ2 = "use1-az1/Home/Index", "use1-az2/Home/Index"
FEW_INSTANCES = ("not-single-instance-use1-az1-errors", "not-single-instance-use1-az2-errors")


@pytest.mark.parametrize(
    ("in_alarm", "isolated"),
    [
        ([f"{AZ1}-availability-server-3-in-a-row", FEW_INSTANCES[0]], {"use1-az1"}),
        ([f"{AZ1}-availability-canary-3-of-5", FEW_INSTANCES[0]], {"use1-az1"}),
        ([f"{AZ1}-latency-server-3-of-5", "not-single-instance-use1-az1-latency"], {"use1-az1"}),
        ([f"{AZ1}-availability-server-3-in-a-row"], set()),
        ([FEW_INSTANCES[0]], set()),
        (["az1-throughput-3-in-a-row"], {"use1-az1"}),
        (["az1-throughput-3-in-a-row", "az2-throughput-3-of-5"], set()),
        ([f"{each}-availability-server-3-of-5" for each in (AZ1, AZ2)] + list(FEW_INSTANCES), set()),
        (
            [f"{each}-availability-server-3-of-5" for each in (AZ1, AZ2)]
            + [*FEW_INSTANCES, f"{AZ1}-chi-squared-3-in-a-row"],
            {"use1-az1"},
        ),
        ([f"{AZ1}-chi-squared-3-of-5", FEW_INSTANCES[0]], set()),
        (["use1-az1-silent", "use1-az2-silent"], set()),
    ],
)
def test_only_the_zone_that_alone_is_affected_by_several_instances_is_isolated(
    in_alarm: list[str], isolated: set[str]
) -> None:
    tree = build(MeasuredOperation(HOME), MeasuredOperation(HOME, Side.CANARY), MeasuredOperation(LIST))
    found = find_alarms(tree, in_alarm)
    assert {name.removesuffix("-isolated-impact") for name in found if name.endswith("-isolated-impact")} == isolated


def test_a_zone_without_data_does_not_hinder_the_isolation_of_another_zone() -> None:
    tree = build(MeasuredOperation(HOME))
    silent = [name for name in tree.metrics if "az2" in name and name != "use1-az2-silent"]
    found = find_alarms(tree, [f"{AZ1}-availability-server-3-of-5", FEW_INSTANCES[0], "use1-az2-silent"], silent)
    assert "use1-az1-isolated-impact" in found
    assert not tree.graph.get_parents("use1-az2-silent")


def test_each_kind_of_alarm_says_what_missing_data_means() -> None:
    tree = build(MeasuredOperation(HOME), resources=(("primary-database", (QUERY,)),))
    treatments = {
        "use1-az1/Home/Index-availability-server-3-in-a-row": TreatMissingData.MISSING,
        "use1-az1/Home/Index-latency-server-3-of-5": TreatMissingData.MISSING,
        "use1-az1/Home/Index-chi-squared-3-of-5": TreatMissingData.MISSING,
        "az1-throughput-3-of-5": TreatMissingData.NOT_BREACHING,
        "not-single-instance-use1-az1-errors": TreatMissingData.NOT_BREACHING,
        "use1-az1-silent": TreatMissingData.BREACHING,
        "primary-database-use1-az1/orders-db/query-availability-3-in-a-row": TreatMissingData.BREACHING,
    }
    assert {name: tree.metrics[name].alarm.treat_missing_data for name in treatments} == treatments


def test_a_shared_resource_is_blamed_if_consumers_in_two_zones_are_affected() -> None:
    tree = build(resources=(("primary-database", (QUERY,)),))
    names = [f"primary-database-{zone}/orders-db/query-latency-3-of-5" for zone in ZONES]
    assert "primary-database-impact" not in find_alarms(tree, names[:1])
    assert "primary-database-impact" in find_alarms(tree, names[1:])


def test_only_the_last_alarm_of_a_chain_has_actions() -> None:
    tree = build(MeasuredOperation(HOME), resources=(("primary-database", (QUERY,)),))
    with_actions = {name for name in (*tree.metrics, *tree.composites) if tree.get_alarm(name).alarm_actions}
    assert with_actions == {*(f"{zone}-isolated-impact" for zone in ZONES), "primary-database-impact"}
    assert tree.get_alarm("primary-database-impact").ok_actions == (EVENT_ACTION,)
    assert set(tree.roots) == with_actions | {f"{zone}-silent" for zone in ZONES}


@pytest.mark.parametrize(
    ("number", "period", "suppressor", "seconds"),
    [
        (0, 60, None, None),
        (1, 60, "resource-0-impact", 60),
        (1, 10, "resource-0-impact", 10),
        (1, 300, "resource-0-impact", 60),
        (2, 30, "any-shared-resource", 30),
        (120, 60, "any-shared-resource", 60),
    ],
)
def test_shared_resources_suppress_the_actions_of_zones_for_a_period_but_at_most_a_minute(
    number: int, period: int, suppressor: str | None, seconds: int | None
) -> None:
    resources = tuple((f"resource-{each}", (QUERY,)) for each in range(number))
    tree = build(options=AlarmOptions(period=period), resources=resources)
    for zone in ZONES:
        alarm = tree.composites[f"{zone}-isolated-impact"]
        assert alarm.actions_suppressor == suppressor
        assert alarm.actions_suppressor_wait_period == seconds
        assert alarm.actions_suppressor_extension_period == seconds
    assert ("any-shared-resource" in tree.composites) is (number > 1)
    if number > 1:
        last = [f"resource-{number - 1}-{zone}/orders-db/query-latency-3-of-5" for zone in ZONES]
        assert "any-shared-resource" in find_alarms(tree, last)
        assert "any-shared-resource" not in find_alarms(tree, last[:1])


@pytest.mark.parametrize("known", [0, 1, 44, 45, 90, 200])
@pytest.mark.no_cover
def test_a_new_operation_changes_only_its_own_alarms_and_one_roll_up_of_each_kind(known: int) -> None:
    measured = [MeasuredOperation(Operation("Shop", f"Op{number}")) for number in range(known + 1)]
    before, after = build(*measured[:-1]), build(*measured)
    added = {*after.metrics, *after.composites} - {*before.metrics, *before.composites}
    assert not {*before.metrics, *before.composites} - {*after.metrics, *after.composites}
    # A rule that is full gets one more alarm at its end.
    links = {name for name in added if f"/Shop/Op{known}-" not in name}
    is_full = known > 0 and known % MAX_ROLLED_UP == 0
    assert len(links) == (9 if is_full else 0)
    changed = {name for name in before.composites if before.composites[name] != after.composites[name]}
    assert len(changed) == 9
    assert all(before.metrics[name] == after.metrics[name] for name in before.metrics)


def test_an_operation_that_is_gone_leaves_no_alarms() -> None:
    builder = TreeBuilder(AlarmDeclaration(workload="shop", zones=ZONES))
    builder.build([MeasuredOperation(HOME), MeasuredOperation(LIST)])
    assert builder.build([MeasuredOperation(HOME)]).metrics == build_plain(MeasuredOperation(HOME)).metrics


def build_plain(*measured: MeasuredOperation) -> AlarmTree:
    return TreeBuilder(AlarmDeclaration(workload="shop", zones=ZONES)).build(measured)


def test_declared_operations_have_alarms_before_they_are_measured_and_others_never() -> None:
    tree = build(MeasuredOperation(LIST), MeasuredOperation(LIST, Side.CLIENT), operations=(HOME,))
    assert {name.partition("-availability")[0] for name in tree.about_operations if "availability-server" in name} == {
        f"{zone}/Home/Index" for zone in ZONES
    }


def test_an_operation_that_only_canaries_measure_has_no_outlier_test() -> None:
    tree = build(MeasuredOperation(HOME, Side.CANARY))
    assert not [name for name in tree.metrics if "chi-squared" in name]
    assert tree.composites["use1-az1-chi-squared"].alarm_rule == "FALSE"


def test_thresholds_and_the_statistic_come_from_the_options() -> None:
    options = AlarmOptions(period=10, min_availability=98.0, latency_statistic="Average", max_latency=0.2)
    tree = build(MeasuredOperation(HOME), options=options)
    latency = tree.metrics[f"{AZ1}-latency-server-3-of-5"].alarm
    assert (latency.statistic, latency.threshold, latency.seconds) == ("Average", 200.0, 10)
    assert tree.metrics[f"{AZ1}-availability-server-3-of-5"].alarm.threshold == 98.0


def test_descriptions_say_what_alarm_means_with_the_thresholds_of_the_settings() -> None:
    options = AlarmOptions(min_availability=99.5, latency_statistic="p99", max_latency=0.25, throughput_drop=40)
    tree = build(MeasuredOperation(HOME), options=options, resources=(("database", (QUERY,)),))
    described = {name: tree.get_alarm(name).alarm_description for name in (*tree.composites, *tree.metrics)}
    assert all(text.endswith(".") for text in described.values())
    assert described["az1-availability"] == "More than 0.5 % of the requests of an operation fail in use1-az1."
    assert described["az1-latency"] == (
        "Requests of an operation are slow in use1-az1: their p99 latency is above 0.25 s."
    )
    assert described["az1-throughput"] == "use1-az1 gets less than 60 % of its usual share of all requests."
    assert described[f"{AZ1}-availability-server-3-in-a-row"] == (
        "More than 0.5 % of the requests of Home/Index fail in use1-az1, as servers measure it, in 3 periods in a row."
    )
    assert described["not-single-instance-use1-az1-errors"] == (
        "More than 2 instances of use1-az1, and more than 5 % of all its instances, have faults, "
        "in 3 of the last 5 periods."
    )


def test_metric_alarms_know_whether_they_count_instances_or_ask_consumers() -> None:
    tree = build(MeasuredOperation(HOME), resources=(("database", (QUERY,)),))
    counting = {name for name, each in tree.metrics.items() if each.counts_contributors}
    assert counting == {f"not-single-instance-{zone}-{kind}" for zone in ZONES for kind in ("errors", "latency")}
    asking = {(name.partition("/")[0], each.consumer_zone) for name, each in tree.metrics.items() if each.consumer_zone}
    assert asking == {(f"database-{zone}", zone) for zone in ZONES}


def test_zones_with_the_same_last_part_keep_their_whole_name() -> None:
    tree = build(zones=(Zone("use1-az1"), Zone("usw2-az1")))
    assert {"use1-az1-availability", "usw2-az1-availability"} <= tree.composites.keys()


def test_names_of_operations_are_unique_and_short_enough() -> None:
    operations = [
        Operation("a/b", "c"),
        Operation("a", "b/c"),
        Operation("x" * 300, "a"),
        Operation("x" * 300, "b"),
        Operation('"', "é%2F"),
    ]
    names = [name_operation("use1-az1", each) for each in operations]
    assert len(set(names)) == len(operations)
    tree = build(*map(MeasuredOperation, operations))
    assert max(len(name) for name in tree.metrics) <= MAX_NAME
    assert tree.get_children("az1-latency") == tuple(f"{name}-latency" for name in names)
    assert tree.get_children("use1-az1-silent") == ()


def test_rules_of_long_names_are_split_before_they_are_too_long() -> None:
    operations = [Operation("x" * 300, f"{number:03}") for number in range(60)]
    tree = build(*map(MeasuredOperation, operations))
    assert "az1-availability-2" in tree.get_children("az1-availability")
    assert len(tree.get_children("az1-availability")) < MAX_ROLLED_UP


def test_detectors_are_shown_the_resources_with_their_zones_where_they_are_known() -> None:
    resources = (("orders-db", (HOME,)), ("cache", (LIST,)))
    declared = AlarmDeclaration(
        workload="shop", zones=ZONES, resources=resources, resource_zones={"orders-db": ZONES[0]}
    )
    assert declared.list_resources() == (
        SharedResource("orders-db", (HOME,), ZONES[0]),
        SharedResource("cache", (LIST,), None),
    )
