"""Changes of definitions are noticed by a comparison with the saved ones."""

from dataclasses import replace

from holdfast import Operation, Zone
from holdfast._alarm_options import AlarmOptions
from holdfast.alarms import ConfigurationVerb, TreeBuilder
from holdfast.alarms.configuration import DefinitionLog, describe_alarm
from holdfast.alarms.declaration import AlarmDeclaration, MeasuredOperation

SHOP = AlarmDeclaration(workload="shop", zones=(Zone("use1-az1"), Zone("use1-az2")))
HOME, LIST = MeasuredOperation(Operation("Home", "Index")), MeasuredOperation(Operation("Products", "List"))
CREATED, UPDATED, DELETED = ConfigurationVerb


def test_all_alarms_of_a_first_tree_are_created_and_those_of_the_same_settings_are_unchanged() -> None:
    builder = TreeBuilder(SHOP)
    tree, log = builder.build([HOME]), DefinitionLog({})
    changes = log.update(tree, 60.0)
    assert {each.alarm_name for each in changes} == {*tree.metrics, *tree.composites}
    assert {(each.verb, each.at) for each in changes} == {(CREATED, 60.0)}
    assert {each.alarm_name for each in changes if not each.is_recorded} == tree.about_operations
    assert log.update(builder.build([HOME]), 120.0) == []
    assert DefinitionLog(log.known).update(TreeBuilder(SHOP).build([HOME]), 180.0) == []


def test_a_new_threshold_updates_the_alarms_that_have_it() -> None:
    log = DefinitionLog({})
    log.update(TreeBuilder(SHOP).build([HOME]), 60.0)
    changed = replace(SHOP, options=AlarmOptions(min_availability=99.9))
    changes = DefinitionLog(log.known).update(TreeBuilder(changed).build([HOME]), 120.0)
    metrics = {
        f"{zone}/Home/Index-availability-server-3-{pattern}" for zone in SHOP.zones for pattern in ("in-a-row", "of-5")
    }
    # Their descriptions have it, too.
    composites = {
        name for zone in SHOP.zones for name in (f"{zone}/Home/Index-availability", f"{zone[-3:]}-availability")
    }
    assert {each.alarm_name for each in changes} == metrics | composites
    assert {(each.verb, each.is_recorded) for each in changes} == {(UPDATED, True)}
    assert {each.configuration["threshold"] for each in changes if each.alarm_name in metrics} == {99.9}


def test_changes_by_traffic_are_not_recorded() -> None:
    builder, log = TreeBuilder(SHOP), DefinitionLog({})
    assert all(each.is_first for each in log.update(builder.build([]), 60.0))
    changes = log.update(builder.build([HOME]), 120.0, is_by_traffic=True)
    assert {"az1-availability", "use1-az1/Home/Index-availability"} <= {each.alarm_name for each in changes}
    assert not [each for each in changes if each.is_recorded or each.is_first]
    assert DELETED in {each.verb for each in log.update(builder.build([]), 180.0, is_by_traffic=True)}


def test_alarms_that_are_gone_are_deleted_and_only_those_of_operations_without_an_item() -> None:
    both = replace(SHOP, resources=(("database", (Operation("db", "query"),)),))
    log = DefinitionLog({})
    log.update(TreeBuilder(both).build([HOME, LIST]), 60.0)
    changes = DefinitionLog(log.known).update(TreeBuilder(SHOP).build([HOME]), 120.0)
    found = {each.alarm_name: each for each in changes}
    assert found["database-impact"].verb is DELETED
    assert found["database-impact"].is_recorded
    assert found["database-impact"].configuration == {"alarmName": "database-impact"}
    gone = found["use1-az1/Products/List-availability"]
    assert (gone.verb, gone.is_recorded) == (DELETED, False)
    # The actions of zones have no suppressor any more, and the roll-ups have one operation fewer.
    assert found["use1-az1-isolated-impact"].verb is UPDATED
    assert found["az1-availability"].verb is UPDATED


def test_a_description_has_the_fields_that_are_set_with_the_names_of_cloudwatch() -> None:
    tree = TreeBuilder(SHOP).build([])
    assert describe_alarm(tree.composites["use1-az1-isolated-impact"]) == {
        "alarmName": "use1-az1-isolated-impact",
        "alarmDescription": "Only use1-az1 is affected, and not by single instances: consider taking it out.",
        "actionsEnabled": True,
        "okActions": ("holdfast:event",),
        "alarmActions": ("holdfast:event",),
        "alarmRule": 'ALARM("use1-az1-aggregate-alarm") AND ALARM("not-single-instance-use1-az1")',
    }
