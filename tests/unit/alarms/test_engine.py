"""All alarms of a workload, evaluated with its measurements minute by minute."""

import json

import pytest

from holdfast import NotFound, Operation, Side, Zone
from holdfast._alarm_options import AlarmOptions
from holdfast.alarms import ConfigurationVerb, Evaluation, StateValue
from holdfast.alarms.engine import SavedAlarms
from holdfast.alarms.metric_evaluation import EvaluationRule
from holdfast.telemetry.bins import LONG_TERM
from holdfast.telemetry.collector import Amendment
from tests.unit.alarms.world import HOME, LIST, START, ZONES, World, bins

AZ1, AZ2, AZ3 = ZONES
OTHERS = ZONES[1:]
QUERY = Operation("orders-db", "query")


def get_deleted(evaluation: Evaluation) -> set[str]:
    return {each.alarm_name for each in evaluation.configuration if each.verb is ConfigurationVerb.DELETED}


def get_actions(evaluation: Evaluation) -> list[tuple[str, str | None]]:
    return [(each.alarm.alarm_name, each.suppressed_by) for each in evaluation.actions]


def test_a_healthy_workload_has_no_alarm() -> None:
    world = World()
    for _ in range(10):
        world.minute(bins(), bins(operation=LIST, faults=1))
    assert not world.find()
    assert {"use1-az1-isolated-impact", "az1-availability", "use1-az1-silent"} <= world.find(StateValue.OK)


@pytest.mark.parametrize(
    ("faults", "seconds", "instances", "in_alarm"),
    [
        (2, 0.02, 10, {"az1-availability"}),
        (30, 0.02, 10, {"az1-availability", "use1-az1-isolated-impact"}),
        (1, 0.02, 10, set()),
        (0, 2.0, 10, {"az1-latency", "use1-az1-isolated-impact"}),
        (30, 0.02, 2, {"az1-availability"}),
    ],
)
def test_trouble_in_one_zone_is_isolated_in_the_third_minute_if_several_instances_have_it(
    faults: int, seconds: float, instances: int, in_alarm: set[str]
) -> None:
    world = World()
    for _ in range(5):
        world.minute(bins(instances=instances))
    for minute in range(1, 4):
        assert not world.find(), minute
        world.minute(bins(OTHERS), bins([AZ1], faults=faults, seconds=seconds, instances=instances))
    found = {name for name in world.find() if name in in_alarm or "isolated" in name or name == "az1-availability"}
    assert found == in_alarm


def test_trouble_in_two_zones_is_not_isolated_unless_one_is_an_outlier() -> None:
    world = World()
    for _ in range(3):
        world.minute(bins([AZ3]), bins([AZ1, AZ2], faults=20))
    assert {"az1-availability", "az2-availability"} <= world.find()
    assert not [name for name in world.find() if "isolated" in name]
    for _ in range(3):
        world.minute(bins([AZ3]), bins([AZ2], faults=4), bins([AZ1], faults=45))
    assert {"az1-availability", "az2-availability", "use1-az1-chi-squared", "use1-az1-isolated-impact"} <= world.find()
    assert "use1-az2-isolated-impact" not in world.find()


def test_a_canary_alone_can_show_that_a_zone_is_affected() -> None:
    world = World()
    for _ in range(3):
        world.minute(bins(), bins([AZ2], requests=5, faults=5, instances=1, side=Side.CANARY))
    assert "az2-availability" in world.find()


def test_a_zone_that_loses_its_traffic_is_isolated_unless_it_is_out() -> None:
    world = World()
    for _ in range(20):
        world.minute(bins())
    for _ in range(3):
        world.minute(bins(OTHERS))
    assert {"az1-throughput", "use1-az1-isolated-impact"} <= world.find()
    for _ in range(2):  # until no datapoint is left
        assert "use1-az1-silent" not in world.find()
        world.minute(bins(OTHERS))
    assert "use1-az1-silent" in world.find()
    for _ in range(3):
        world.minute(bins(OTHERS), zones_out=frozenset({AZ1, Zone("elsewhere")}))
    assert world.find() == {"use1-az1-silent"}


def test_a_zone_that_is_brought_in_again_is_not_blamed_for_the_time_without_traffic() -> None:
    world = World()
    for _ in range(20):
        world.minute(bins())
    for _ in range(10):
        world.minute(bins(OTHERS), zones_out=frozenset({AZ1}))
    for _ in range(10):
        world.minute(bins())
        assert not world.find()
    for _ in range(3):
        world.minute(bins(OTHERS))
    assert "use1-az1-isolated-impact" in world.find()


def test_a_restart_soon_after_a_zone_was_brought_in_again_does_not_blame_it_either() -> None:
    world = World()
    for _ in range(20):
        world.minute(bins())
    for _ in range(10):
        world.minute(bins(OTHERS), zones_out=frozenset({AZ1}))
    for _ in range(10):
        world.engine = world.start(world.save())
        world.minute(bins())
        assert not world.find()
    assert world.save().notes == []


def test_a_silent_zone_blocks_the_isolation_of_another_for_an_hour_at_most() -> None:
    world = World()
    for _ in range(20):
        world.minute(bins())
    for _ in range(70):
        world.minute(bins(OTHERS))
    assert world.find() == {"use1-az1-silent"}
    for _ in range(3):
        world.minute(bins([AZ3]), bins([AZ2], faults=30))
    assert {"use1-az1-silent", "use1-az2-isolated-impact"} <= world.find()


def test_a_shared_resource_that_its_consumers_cannot_reach_is_blamed() -> None:
    world = World(resources=(("primary-database", (QUERY,)),))
    for _ in range(3):
        world.minute(bins(), bins(operation=QUERY, side=Side.CLIENT))
    assert not world.find()
    for _ in range(3):
        world.minute(bins(), bins([AZ1], QUERY, side=Side.CLIENT), bins([AZ2], QUERY, faults=50, side=Side.CLIENT))
    for _ in range(3):
        world.minute(bins(), bins([AZ1], QUERY, side=Side.CLIENT), bins([AZ2], QUERY, faults=50, side=Side.CLIENT))
    assert "primary-database-impact" in world.find()
    assert not [name for name in world.engine.tree.about_operations if "orders-db" in name]


def test_consumers_in_a_zone_that_is_out_do_not_blame_a_shared_resource() -> None:
    world = World(resources=(("primary-database", (QUERY,)),))
    for _ in range(5):
        world.minute(bins(), bins(operation=QUERY, side=Side.CLIENT))
    for _ in range(8):
        calls = bins([AZ2], QUERY, side=Side.CLIENT), bins([AZ3], QUERY, faults=50, side=Side.CLIENT)
        world.minute(bins(OTHERS), *calls, zones_out=frozenset({AZ1}))
    assert "primary-database-use1-az3" in world.find()
    assert not {"primary-database-use1-az1", "primary-database-impact"} & world.find()
    for _ in range(3):
        world.minute(bins(), bins([AZ2], QUERY, side=Side.CLIENT), bins([AZ3], QUERY, faults=50, side=Side.CLIENT))
    assert "primary-database-impact" in world.find()


TROUBLE = bins(OTHERS), bins([AZ1], faults=30)
CALLS, FAILING_CALLS = bins(operation=QUERY, side=Side.CLIENT), bins(operation=QUERY, faults=50, side=Side.CLIENT)
ZONE, RESOURCE = "use1-az1-isolated-impact", "primary-database-impact"


@pytest.mark.parametrize("names", [("primary-database",), ("primary-database", "cache")])
def test_an_affected_resource_suppresses_the_actions_of_zones_until_a_minute_after_its_end(
    names: tuple[str, ...],
) -> None:
    world = World(resources=tuple((name, (QUERY,)) for name in names))
    for _ in range(5):
        world.minute(bins(), CALLS)
    for _ in range(2):
        assert get_actions(world.minute(*TROUBLE, FAILING_CALLS)) == []
    impacts = [(f"{name}-impact", None) for name in names]
    assert get_actions(world.minute(*TROUBLE, FAILING_CALLS)) == [*impacts, (ZONE, "Alarm")]
    found = world.explain(ZONE).suppressed
    assert found is not None
    assert found.suppressor == (RESOURCE if len(names) == 1 else "any-shared-resource")
    for _ in range(2):
        assert get_actions(world.minute(*TROUBLE, CALLS)) == []
    assert get_actions(world.minute(*TROUBLE, CALLS)) == impacts  # OK again
    assert get_actions(world.minute(*TROUBLE, CALLS)) == [(ZONE, None)]
    assert world.explain(RESOURCE).suppressed is None


def test_the_action_of_a_zone_waits_for_a_minute_and_no_suppressor_means_no_wait() -> None:
    for resources, expected in (
        ((("primary-database", (QUERY,)),), [[(ZONE, "WaitPeriod")], [(ZONE, None)]]),
        ((), [[(ZONE, None)], []]),
    ):
        world = World(resources=resources)
        for _ in range(5):
            world.minute(bins(), CALLS)
        found = [get_actions(world.minute(*TROUBLE, CALLS)) for _ in range(4)]
        assert found == [[], [], *expected]


def test_a_resource_that_is_affected_one_minute_later_still_suppresses_the_action_of_the_zone() -> None:
    world = World(resources=(("primary-database", (QUERY,)),))
    for _ in range(5):
        world.minute(bins(), CALLS)
    found = [get_actions(world.minute(*TROUBLE, CALLS if minute == 0 else FAILING_CALLS)) for minute in range(6)]
    assert found == [[], [], [(ZONE, "WaitPeriod")], [(RESOURCE, None)], [], []]


@pytest.mark.parametrize("minutes", [0, 20])
def test_a_wait_that_ended_while_holdfast_did_not_run_lets_the_action_run_after_the_start(minutes: int) -> None:
    world = World(resources=(("primary-database", (QUERY,)),))
    for _ in range(5):
        world.minute(bins(), CALLS)
    found = [get_actions(world.minute(*TROUBLE, CALLS)) for _ in range(3)]
    assert found[-1] == [(ZONE, "WaitPeriod")]
    saved = world.save()
    world.at += 60 * minutes
    world.engine = world.start(saved)
    if minutes:  # also before the first data
        assert get_actions(world.engine.evaluate(world.at)) == [(ZONE, None)]
    assert get_actions(world.minute(*TROUBLE, CALLS)) == ([] if minutes else [(ZONE, None)])


def test_a_restart_with_the_same_settings_changes_no_configuration() -> None:
    world = World()
    created = world.minute(bins()).configuration
    assert {each.alarm_name for each in created} == {*world.engine.tree.metrics, *world.engine.tree.composites}
    world.engine = world.start(world.save())
    assert world.minute(bins()).configuration == []
    [verb] = {each.verb for each in world.minute(bins(), bins(operation=LIST)).configuration if "/" in each.alarm_name}
    assert verb is ConfigurationVerb.CREATED


@pytest.mark.parametrize("extra_periods", [None, 0, 3])
def test_a_zone_that_reports_nothing_does_not_blame_a_shared_resource(extra_periods: int | None) -> None:
    world = World(AlarmOptions(extra_periods=extra_periods), resources=(("primary-database", (QUERY,)),))
    for _ in range(5):
        world.minute(bins(), bins(operation=QUERY, side=Side.CLIENT))
    for _ in range(12):
        calls = bins([AZ2], QUERY, side=Side.CLIENT), bins([AZ3], QUERY, faults=50, side=Side.CLIENT)
        world.minute(bins(OTHERS), *calls)
        assert not {"primary-database-use1-az1", "primary-database-impact"} & world.find()
    assert {"primary-database-use1-az3", "use1-az1-no-telemetry"} <= world.find()
    found = world.explain("primary-database-use1-az1/orders-db/query-availability-3-in-a-row").decision
    assert found is not None
    assert found.rule is EvaluationRule.ZONE_WITHOUT_DATA
    for _ in range(9):  # its servers report again, but its consumers still make no call
        world.minute(bins(), bins([AZ2], QUERY, side=Side.CLIENT), bins([AZ3], QUERY, faults=50, side=Side.CLIENT))
    assert {"primary-database-use1-az1", "primary-database-impact"} <= world.find()


def test_a_zone_that_could_not_use_a_shared_resource_before_its_silence_does_not_blame_it_any_more() -> None:
    world = World(resources=(("primary-database", (QUERY,)),))
    healthy, failing = bins([AZ2], QUERY, side=Side.CLIENT), bins([AZ1], QUERY, faults=50, side=Side.CLIENT)
    for _ in range(5):
        world.minute(bins(), healthy, failing, bins([AZ3], QUERY, side=Side.CLIENT))
    assert "primary-database-use1-az1" in world.find()
    for _ in range(8):
        world.minute(bins(OTHERS), healthy, bins([AZ3], QUERY, faults=50, side=Side.CLIENT))
    assert "primary-database-use1-az3" in world.find()
    assert not {"primary-database-use1-az1", "primary-database-impact"} & world.find()


@pytest.mark.parametrize("minutes", [3, 5, 20])
def test_a_gap_in_all_telemetry_does_not_blame_a_shared_resource(minutes: int) -> None:
    world = World(resources=(("primary-database", (QUERY,)),))
    healthy = bins(), bins(operation=QUERY, side=Side.CLIENT)
    for _ in range(8):
        world.minute(*healthy)
    for _ in range(minutes):
        world.minute({})
        assert "primary-database-impact" not in world.find()
    for _ in range(8):
        world.minute(*healthy)
        assert not {name for name in world.find() if name.startswith("primary-database")}


def test_consumers_without_servers_blame_a_shared_resource() -> None:
    world = World(resources=(("primary-database", (QUERY,)),))
    for _ in range(3):
        world.minute(bins(operation=QUERY, faults=50, side=Side.CLIENT))
    assert "primary-database-impact" in world.find()


def test_changes_by_settings_are_recorded_at_a_restart_and_those_by_operations_that_come_and_go_are_not() -> None:
    world = World()
    first = world.minute(bins()).configuration
    assert {each.is_first for each in first if each.is_recorded} == {True}
    later = world.minute(bins(), bins(operation=LIST)).configuration
    assert "az1-availability" in {each.alarm_name for each in later}
    assert not [each for each in later if each.is_recorded]
    other = World(AlarmOptions(min_availability=90))
    other.engine = other.start(world.save())
    changed = other.minute(bins(), bins(operation=QUERY)).configuration
    assert "use1-az1/orders-db/query-availability" in {each.alarm_name for each in changed}
    assert {each.alarm_name for each in changed if each.is_recorded and not each.definition.is_about_operation} == {
        "az1-availability",
        "az2-availability",
        "az3-availability",
    }
    assert not [each for each in changed if each.is_first]


def test_an_operation_has_alarms_from_its_first_minute_until_a_day_after_its_last() -> None:
    world = World()
    world.minute(bins())
    world.minute(bins(), bins(operation=LIST))
    name = "use1-az1/Products/List-availability"
    assert name in world.engine.tree.composites
    world.at += LONG_TERM - 60
    evaluation = world.minute(bins())
    assert name in world.engine.tree.composites
    evaluation = world.minute(bins())
    assert name in get_deleted(evaluation)
    assert name not in world.engine.states
    assert not world.minute(bins(), bins(operation=HOME)).configuration


def test_states_survive_a_restart() -> None:
    world = World()
    for _ in range(4):
        world.minute(bins(OTHERS), bins([AZ1], faults=30), bins(operation=LIST))
    before = world.find()
    saved = world.save()
    world.engine = world.start(saved)
    assert world.find() == before
    evaluation = world.minute(bins(OTHERS), bins([AZ1], faults=30), bins(operation=LIST))
    assert evaluation.changes == []
    assert world.engine.tree.composites == world.start(world.save()).tree.composites


def test_operations_whose_measurements_always_come_late_have_alarms() -> None:
    world = World()
    for _ in range(3):
        late = world.at
        world.minute({})
        added = bins(OTHERS) | bins([AZ1], faults=30)
        world.store.amend({int(late // 10): Amendment(added=added)}, {}, late)
    world.minute({})
    assert "use1-az1-isolated-impact" in world.find()


@pytest.mark.parametrize("minutes", [0, 1, 3, 20])
def test_time_in_which_holdfast_did_not_run_changes_no_state_and_is_no_outage(minutes: int) -> None:
    world = World(resources=(("primary-database", (QUERY,)),))
    healthy = bins(), bins(operation=QUERY, side=Side.CLIENT)
    for _ in range(minutes and 10):
        world.minute(*healthy)
    before = dict(world.engine.states)
    for _ in range(minutes):
        world.at += 60
        assert world.engine.evaluate(world.at).changes == []
    assert world.engine.states == before
    for _ in range(3):
        world.minute(*healthy)
        assert not world.find()
    for _ in range(5):
        world.minute(bins())
    assert "primary-database-impact" in world.find()


def test_an_alarm_lasts_while_holdfast_does_not_run_and_ends_with_the_trouble() -> None:
    world = World()
    trouble = bins(OTHERS), bins([AZ1], faults=30)
    for _ in range(10):
        world.minute(*trouble)
    before = world.find()
    assert "use1-az1-isolated-impact" in before
    world.at += 20 * 60
    world.engine = world.start(world.save())
    for _ in range(5):
        world.minute(*trouble)
        assert world.find() == before
    changes = [each for _ in range(3) for each in world.minute(bins()).changes]
    assert not world.find()
    [reason] = [new.state_reason for alarm, _, new, _ in changes if alarm.alarm_name == "use1-az1-isolated-impact"]
    assert "transitioned to OK" in reason


@pytest.mark.parametrize("minutes", [1, 5, 20])
def test_a_pause_of_holdfast_changes_no_state_although_empty_bins_are_stored(minutes: int) -> None:
    world = World(resources=(("primary-database", (QUERY,)),))
    calls = bins(operation=QUERY, side=Side.CLIENT)
    for _ in range(20):
        world.minute(bins(OTHERS), bins([AZ1], faults=30), calls)
    before = world.find()
    assert "use1-az1-isolated-impact" in before
    for _ in range(minutes):
        world.fill(bins([AZ3], requests=90))  # a part of the telemetry arrives later
        assert world.engine.evaluate(world.at, is_paused=True).changes == []
    world.engine = world.start(world.save())
    for _ in range(7):
        world.minute(bins(OTHERS), bins([AZ1], faults=30), calls)
        assert world.find() == before


def test_an_explanation_agrees_with_the_state_while_a_zone_is_out_or_silent_and_after_a_pause() -> None:
    world = World(resources=(("primary-database", (QUERY,)),))
    everything = bins(), bins(operation=QUERY, side=Side.CLIENT)
    without = bins(OTHERS), bins(OTHERS, QUERY, side=Side.CLIENT)
    out = frozenset({AZ1})
    told = [(everything, frozenset[Zone](), False)] * 15
    told += [(without, out, False)] * 4 + [(everything, frozenset(), False)] * 2 + [(without, frozenset(), False)] * 6
    told += [(everything, frozenset(), False)] * 2 + [(without, frozenset(), True)] * 3
    told += [(without, frozenset(), False)] * 2 + [(everything, frozenset(), False)] * 2
    compared = ["az1-throughput-3-in-a-row", "az1-throughput-3-of-5", "use1-az1-silent", "use1-az1-no-telemetry"]
    compared += [f"primary-database-use1-az1/orders-db/query-availability-{name}" for name in ("3-in-a-row", "3-of-5")]
    for minute, (content, zones_out, is_paused) in enumerate(told):
        world.fill(*content)
        world.engine.evaluate(world.at, zones_out, is_paused=is_paused)
        for name in compared:
            found = world.explain(name)
            assert found.decision is not None
            assert found.decision.state is found.state.state_value, (name, minute)
        if zones_out:
            assert {each.value for each in world.explain("az1-throughput-3-of-5").datapoints} == {None}


@pytest.mark.parametrize("faults", [0, 30])
def test_an_explanation_agrees_with_the_state_after_every_gap(faults: int) -> None:
    world = World()
    names = ["use1-az1-silent", "not-single-instance-use1-az1-errors", "use1-az1/Home/Index-availability-server-3-of-5"]
    for gap in range(1, 9):
        for minute in range(gap):
            world.minute(bins(OTHERS), bins([AZ1] if minute % 3 else [], faults=faults))
            for name in names:
                found = world.explain(name)
                assert found.decision is not None
                assert found.decision.state is found.state.state_value, (name, gap, minute)
        world.at += 60 * gap


def test_alarms_that_changed_settings_no_longer_have_are_removed_after_a_restart() -> None:
    world = World(resources=(("primary-database", (QUERY,)),))
    world.minute(bins())
    saved, other = world.save(), World()
    other.engine = other.start(saved)
    deleted = get_deleted(other.minute(bins()))
    assert "primary-database-impact" in deleted
    assert "use1-az1-isolated-impact" not in deleted
    assert not other.minute(bins()).configuration


def test_an_hour_of_data_replayed_twice_gives_the_same_states_and_reasons() -> None:
    def replay() -> list[object]:
        world = World()
        found: list[object] = []
        for minute in range(60):
            trouble = bins([ZONES[minute // 20]], faults=minute % 7 * 5, seconds=0.4 if minute % 11 < 6 else 0.8)
            found.append(world.minute(bins(), trouble, bins(operation=LIST, faults=minute % 3)))
        return [*found, dict(world.engine.states)]

    assert replay() == replay()


def test_only_the_first_evaluation_after_a_restart_looks_at_all_composite_alarms() -> None:
    world = World()
    for _ in range(4):
        world.minute(bins())
    saved = world.save()
    changed = SavedAlarms(
        {**saved.states, "az1-availability": saved.states["az1-availability"].__class__(StateValue.ALARM)},
        saved.operations,
        saved.evaluated_at,
    )
    world.engine = world.start(changed)
    assert [each.alarm.alarm_name for each in world.minute(bins()).changes] == ["az1-availability"]


def test_the_first_change_after_a_restart_names_the_alarm_that_caused_it() -> None:
    world = World()
    world.minute(bins())
    trouble = bins(OTHERS), bins([AZ1], faults=30)
    for _ in range(2):
        world.minute(*trouble)
    world.engine = world.start(world.save())
    changes = world.minute(*trouble).changes
    [reason] = [new.state_reason for alarm, _, new, _ in changes if alarm.alarm_name == "az1-availability"]
    assert reason.startswith("use1-az1/Home/Index-availability transitioned to ALARM")


class TestExplain:
    def test_a_metric_alarm_shows_its_datapoints_and_inputs_and_the_rule_that_decided(self) -> None:
        world = World()
        for faults in (0, 0, 20, 20, 20):
            world.minute(bins([AZ1], faults=faults))
        found = world.explain("use1-az1/Home/Index-availability-server-3-in-a-row")
        assert found.state.state_value is StateValue.ALARM
        assert found.decision is not None
        assert found.decision.rule is EvaluationRule.ENOUGH_DATA
        assert [each.value for each in found.decision.evaluated] == [80.0, 80.0, 80.0]
        assert found.inputs == {
            "requests": [600.0] * 5,
            "faults": [0.0, 0.0, 120.0, 120.0, 120.0],
        }
        contributors = world.explain("not-single-instance-use1-az1-errors")
        assert contributors.inputs["5xx-errors-use1-az1"][-1] == 10
        assert world.explain("use1-az1/Home/Index-latency-server-3-of-5").inputs == {}

    @pytest.mark.parametrize(("extra_periods", "number"), [(None, 5), (0, 3), (6, 9)])
    def test_a_zones_throughput_is_explained_with_the_values_of_the_evaluation(
        self, extra_periods: int | None, number: int
    ) -> None:
        world = World(AlarmOptions(extra_periods=extra_periods))
        for minute in range(20):
            world.minute(bins(OTHERS), bins([AZ1], requests=100 + 20 * minute))
        for _ in range(3):
            world.minute(bins(OTHERS), bins([AZ1], requests=50))
        found = world.explain("az1-throughput-3-in-a-row")
        assert found.decision is not None
        assert (found.state.state_value, found.decision.state) == (StateValue.ALARM, StateValue.ALARM)
        assert found.state.state_reason_data is not None
        evaluated = json.loads(found.state.state_reason_data)["recentDatapoints"]
        assert [each.value for each in reversed(found.decision.evaluated)] == evaluated
        assert len(found.datapoints) == number

    def test_a_composite_alarm_shows_the_part_of_its_rule_that_decided(self) -> None:
        world = World()
        for _ in range(3):
            world.minute(bins(OTHERS), bins([AZ1], faults=2))
        found = world.explain("use1-az1-isolated-impact").result
        assert found is not None
        assert found.find_deciding_alarms() == (("not-single-instance-use1-az1", StateValue.OK),)

    def test_an_alarm_that_was_never_evaluated_has_no_reason(self) -> None:
        world = World(operations=(HOME,))
        found = world.explain("use1-az1/Home/Index-availability-server-3-of-5")
        assert (found.decision, found.state.state_value) == (None, StateValue.INSUFFICIENT_DATA)
        assert world.explain("az1-availability").state.state_value is StateValue.INSUFFICIENT_DATA

    def test_missing_data_from_before_the_start_decides_nothing(self) -> None:
        world = World()
        world.minute(bins(OTHERS))
        found = world.explain("use1-az1-silent")
        assert found.state.state_value is StateValue.INSUFFICIENT_DATA
        assert found.decision is not None
        assert (found.decision.state, found.decision.rule) == (found.state.state_value, EvaluationRule.NOT_RUNNING)
        for _ in range(2):
            world.minute(bins(OTHERS))
        found = world.explain("use1-az1-silent")
        assert found.decision is not None
        assert found.decision.rule is EvaluationRule.NOT_RUNNING, "it may have started at the end of the first minute"
        world.minute(bins(OTHERS))
        found = world.explain("use1-az1-silent")
        assert found.decision is not None
        assert (found.decision.state, found.decision.rule) == (StateValue.ALARM, EvaluationRule.NO_DATA)

    def test_an_unknown_alarm_is_not_found(self) -> None:
        with pytest.raises(NotFound, match="there is no alarm nothing"):
            World().explain("nothing")


def test_short_periods_are_evaluated_with_bins_of_ten_seconds() -> None:
    world = World(AlarmOptions(period=10))
    for _ in range(3):
        world.store.close_bin(int(world.at // 10), bins(OTHERS) | bins([AZ1], faults=30), ["shop"])
        world.at += 10
        world.engine.evaluate(world.at)
    assert world.at == START + 30
    assert "use1-az1-isolated-impact" in world.find()


def test_periods_of_five_minutes_are_evaluated_every_minute() -> None:
    world = World(AlarmOptions(period=300))
    for _ in range(35):
        world.minute(bins())
    for minute in range(1, 12):
        assert not world.find(), minute
        world.minute(bins(OTHERS), bins([AZ1], faults=6))
    # After 11 minutes, the oldest of three windows has one bad minute of five: 98.8 %.
    assert {"az1-availability", "use1-az1-isolated-impact"} <= world.find()
    reason = world.explain("use1-az1/Home/Index-availability-server-3-in-a-row")
    assert len(reason.datapoints) == 5
    assert reason.datapoints[-1].timestamp == world.at - 300


@pytest.mark.parametrize(("extra_periods", "minutes"), [(None, 5), (0, 3), (4, 7)])
def test_extra_periods_decide_how_long_old_datapoints_count(extra_periods: int | None, minutes: int) -> None:
    world = World(AlarmOptions(extra_periods=extra_periods))
    for _ in range(10):
        world.minute(bins())
    for minute in range(1, minutes + 1):
        assert "use1-az1-silent" not in world.find(), minute
        world.minute(bins(OTHERS))
        found = world.explain("use1-az1-silent")
        assert found.decision is not None
        assert found.decision.state is found.state.state_value
    assert "use1-az1-silent" in world.find()


def test_contributors_of_long_periods_that_another_process_cannot_read_do_not_decide_its_explanation() -> None:
    world = World(AlarmOptions(period=600))
    name = "not-single-instance-use1-az1-errors"
    for minute in range(60):
        world.minute(bins(OTHERS), bins([AZ1], faults=30 if minute > 15 else 0))
        world.store.prune(world.at)
    found = world.explain(name)
    assert found.state.state_value is StateValue.ALARM
    assert found.decision is not None
    assert (found.decision.state, found.decision.rule) == (StateValue.ALARM, EvaluationRule.INSTANCES_UNKNOWN)
