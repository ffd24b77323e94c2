"""Which guards refuse an evacuation, why, and what lifts the refusal."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast import InvalidValue, Verdict, VerdictKind, Zone, ZoneState
from holdfast.evacuate.action import Discovery, OtherEvacuation, Unreadable
from holdfast.evacuate.capacity import ServiceCapacity
from holdfast.evacuate.guards import GuardName, Situation, check_guards, list_refusals
from holdfast.evacuate.journal import RecordedRuns, Run, RunState

ONE, TWO, THREE = (Zone(f"use1-az{number}") for number in (1, 2, 3))
FAR = Zone("euw1-az1")
NOW = 1_000_000.0
VERDICT = Verdict(id="v", workload="shop", kind=VerdictKind.ISOLATED, zone=ONE, since=NOW - 60, at=NOW - 5)
CLEAR = Situation(
    zone=ONE,
    workload="shop",
    zones=(ONE, TWO, THREE),
    now=NOW,
    states={},
    runs=RecordedRuns(0, ()),
    discoveries={"zonal-shift": Discovery()},
    verdict=VERDICT,
)


def build_run(zone: Zone, workload: str | None = None) -> Run:
    return Run(id="hf-1", zone=zone, workload=workload, by="me@here", reason="", started=NOW - 600)


def refuse(situation: Situation, overrides: Mapping[str, str] | None = None) -> dict[GuardName, str]:
    return {each.name: each.finding for each in list_refusals(check_guards(situation, overrides or {}))}


def test_nothing_refuses_a_clear_situation() -> None:
    results = check_guards(CLEAR, {})
    assert [each.name for each in results] == list(GuardName)
    assert list_refusals(results) == []


def test_a_guard_names_only_what_was_read() -> None:
    found = check_guards(replace(CLEAR, has_status_store=False), {})
    other_zone = next(each for each in found if each.name is GuardName.OTHER_ZONE)
    assert other_zone.passed
    assert "NOT CHECKED: there is no status store here" in other_zone.finding


def test_of_many_services_without_enough_capacity_three_are_named() -> None:
    services = [
        ServiceCapacity(id=name, name=name, type="group", by_zone={ONE: 4, TWO: 1200}, need=1200.4, basis="a guess")
        for name in "abcde"
    ]
    found = refuse(replace(CLEAR, discoveries={"capacity": Discovery(capacities=services)}))
    assert found[GuardName.CAPACITY].startswith(
        "a has 1,200 healthy units in the other zones, and needs 1,320.5 with the margin of 10 % (a guess)"
    )
    assert found[GuardName.CAPACITY].endswith("; and 2 more services")


CASES: list[tuple[dict[str, Any], GuardName, str]] = [
    ({"states": {TWO: ZoneState.RETURNING}}, GuardName.OTHER_ZONE, "use1-az2 is returning"),
    (
        {"runs": RecordedRuns(1, (replace(build_run(TWO), started=NOW - 3600),))},
        GuardName.OTHER_ZONE,
        "run hf-1, which me@here started 60 minutes ago, is evacuating use1-az2",
    ),
    (
        {
            "discoveries": {
                "zonal-shift": Discovery(
                    other_evacuations=[OtherEvacuation(zone=THREE, source="an autoshift of AWS", resource="arn:a")]
                )
            }
        },
        GuardName.OTHER_ZONE,
        "traffic was moved away from use1-az3 by an autoshift of AWS",
    ),
    ({"zones": (ONE,)}, GuardName.LAST_ZONE, "only zone"),
    ({"verdict": None}, GuardName.VERDICT, "there is no verdict"),
    ({"now": NOW + 200}, GuardName.VERDICT, "205 s old"),
    (
        {
            "discoveries": {
                "zonal-shift": Discovery(unreadable=[Unreadable(scope="123456789012 us-east-1", reason="expired")])
            }
        },
        GuardName.UNREADABLE,
        "zonal-shift cannot read 123456789012 us-east-1: expired",
    ),
    (
        {"runs": RecordedRuns(1, (replace(build_run(ONE), state=RunState.RESTORED),))},
        GuardName.PAUSE,
        "began 10 minutes ago",
    ),
]


def test_each_guard_says_why_it_refuses_and_what_lifts_it() -> None:
    for changes, name, words in CASES:
        situation = replace(CLEAR, **changes)
        (refused,) = list_refusals(check_guards(situation, {}))
        assert refused.name is name
        assert words in refused.finding
        assert refused.remedy
        assert refuse(situation, {name: "I have looked"}) == {}


def test_verdicts_about_something_else_refuse() -> None:
    for kind, zone, words in (
        (VerdictKind.REGIONAL, None, "the verdict is regional: all fail"),
        (VerdictKind.SHARED, ONE, "the verdict is shared"),
        (VerdictKind.INSTANCE, ONE, "the verdict is instance"),
        (VerdictKind.UNKNOWN, ONE, "the verdict is unknown"),
        (VerdictKind.HEALTHY, None, "the verdict is healthy"),
        (VerdictKind.ISOLATED, TWO, "the verdict says that use1-az2 fails, not use1-az1"),
    ):
        verdict = Verdict(id="v", workload="shop", kind=kind, zone=zone, since=NOW, at=NOW, summary="all fail")
        found = refuse(replace(CLEAR, verdict=verdict))
        assert list(found) == [GuardName.VERDICT]
        assert found[GuardName.VERDICT].startswith(words)


def test_what_happens_elsewhere_is_no_reason() -> None:
    for changes in (
        {"states": {FAR: ZoneState.OUT, ONE: ZoneState.OUT, TWO: ZoneState.IN}},
        {
            "runs": RecordedRuns(
                1, (build_run(FAR), build_run(ONE, "blog"), replace(build_run(ONE), started=NOW - 1800))
            )
        },
        {"discoveries": {"a": Discovery(other_evacuations=[OtherEvacuation(zone=ONE, source="a colleague")])}},
        {"zones": ()},
    ):
        assert refuse(replace(CLEAR, **changes)) == {}


def test_an_override_needs_a_known_guard_and_a_reason() -> None:
    with pytest.raises(InvalidValue, match="there is no guard luck: expected one of other-zone"):
        check_guards(CLEAR, {"luck": "why not"})
    with pytest.raises(InvalidValue, match="overridden without a reason"):
        check_guards(CLEAR, {"pause": " "})
    assert all(not each.override for each in check_guards(CLEAR, {"pause": "in case"})), "it was not needed"


zones = st.sampled_from([ONE, TWO, THREE])


@given(
    st.dictionaries(zones, st.sampled_from(list(ZoneState))),
    st.lists(st.builds(build_run, zones, st.sampled_from([None, "shop", "blog"])), max_size=3),
    st.lists(zones, max_size=2),
)
def test_a_second_zone_is_never_evacuated(states: dict[Zone, ZoneState], runs: list[Run], shifted: list[Zone]) -> None:
    found = Discovery(other_evacuations=[OtherEvacuation(zone=each, source="somebody") for each in shifted])
    situation = replace(CLEAR, states=states, runs=RecordedRuns(1, tuple(runs)), discoveries={"a": found})
    others = {zone for zone, state in states.items() if state is not ZoneState.IN} | set(shifted)
    others |= {each.zone for each in runs}
    assert (GuardName.OTHER_ZONE in refuse(situation)) == bool(others - {ONE})
