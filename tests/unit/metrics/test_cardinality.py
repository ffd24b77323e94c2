from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.metrics.cardinality import (
    REVIEW_SECONDS,
    BusiestNames,
    CardinalityLimit,
    FrequencySketch,
    TopNames,
    check_max_busiest,
)
from holdfast.testing import seeded


@given(st.lists(st.tuples(st.sampled_from("abcdefghij"), st.integers(1, 5))), st.integers(1, 6))
def test_a_sketch_is_small_and_too_low_by_at_most_its_share(came: list[tuple[str, int]], max_names: int) -> None:
    sketch, exact = FrequencySketch(max_names), Counter[str]()
    for name, by in came:
        sketch.add(name, by)
        exact[name] += by
        assert len(sketch.counts) <= max_names
    assert sketch.total == exact.total()
    for name, count in exact.items():
        assert 0 <= count - sketch.counts.get(name, 0) <= exact.total() / (max_names + 1)


def test_what_was_counted_fades() -> None:
    sketch = FrequencySketch(5)
    sketch.add("acme", 9)
    sketch.add("once", 1)
    sketch.fade()
    assert (sketch.counts, sketch.total) == ({"acme": 4}, 5)


def test_the_first_tenants_have_names_at_once_and_the_others_none() -> None:
    names = TopNames(2)
    assert [names.name(tenant) for tenant in ("a", "b", "c", "a", "d")] == ["a", "b", "other", "a", "other"]


def test_without_room_everybody_is_other() -> None:
    names = TopNames(0)
    names.review({"a": 1000}, 1000, 0.0)
    assert names.name("a") == "other"


def test_a_tenant_with_twice_the_traffic_replaces_the_weakest() -> None:
    busiest = BusiestNames(2)
    for tenant in ("a", "b"):
        busiest.name(tenant)
    busiest.count({"a": 100, "b": 50, "c": 120}, 0.0)
    assert busiest.name("c") == "other"  # it is not time yet
    assert busiest.count({}, REVIEW_SECONDS) == {"b"}, "it is no longer told apart"
    assert busiest.names == {"a", "c"}
    assert [busiest.name(tenant) for tenant in ("a", "b", "c")] == ["a", "other", "c"]


def test_traffic_of_long_ago_does_not_keep_a_name() -> None:
    busiest = BusiestNames(1)
    busiest.name("then")
    busiest.count({"then": 10_000}, 0.0)
    for minute in range(1, 10):
        busiest.count({"now": 100}, minute * REVIEW_SECONDS)
    assert busiest.names == {"now"}


@pytest.mark.parametrize(
    ("weights", "total"),
    [
        ({"a": 100, "b": 50, "c": 99}, 249),  # not twice as much
        ({"c": 9}, 9),  # hardly anything
        ({"c": 100}, 1000),  # a small share of all, also where the others do nothing now
    ],
)
def test_nobody_loses_a_name_for_little(weights: dict[str, int], total: int) -> None:
    names = TopNames(2)
    names.name("a")
    names.name("b")
    names.review(weights, total, 0.0)
    assert names.names == {"a", "b"}


def test_free_names_are_given_in_a_review_too() -> None:
    names = TopNames(2)
    names.review({"a": 1, "b": 3, "c": 2}, 6, 0.0)
    assert names.names == {"b", "c"}


def test_a_clock_that_was_set_back_does_not_put_off_the_review() -> None:
    names = TopNames(1)
    assert [names.is_due(at) for at in (1000.0, 1030.0, 1060.0, 10.0)] == [False, False, True, True]


@pytest.mark.no_cover
def test_ten_thousand_tenants_who_do_the_same_do_not_take_turns() -> None:
    busiest, random = BusiestNames(20), seeded("tenants")
    seen: set[str] = set()
    for poll in range(1500):
        counts = Counter(f"tenant {random.randrange(10_000)}" for _ in range(100))
        for tenant in counts:
            seen.add(busiest.name(tenant))
        busiest.count(counts, poll * 0.5)
    assert len(seen) == 21
    assert len(busiest._sketch.counts) <= 161


def test_ten_thousand_tenants_who_send_a_batch_each_do_not_take_turns() -> None:
    busiest = BusiestNames(20)
    seen: set[str] = set()
    for number in range(10_000):
        seen.add(busiest.name(f"tenant {number}"))
        busiest.count({f"tenant {number}": 100}, number * 0.1)
    assert len(seen) == 21


def test_who_is_noisy_among_ten_thousand_has_a_name_within_a_review() -> None:
    busiest, random = BusiestNames(20), seeded("noise")
    for poll in range(1000):
        counts = Counter(f"tenant {random.randrange(10_000)}" for _ in range(50))
        for tenant in counts:
            busiest.name(tenant)
        if poll >= 500:
            counts["noisy"] = 50
        busiest.count(counts, poll * 0.5)
    assert busiest.name("noisy") == "noisy"


@pytest.mark.parametrize("max_names", [-1, 1001])
def test_a_number_of_tenants_that_makes_no_sense_is_refused(max_names: int) -> None:
    with pytest.raises(InvalidValue, match=f"{max_names} names"):
        check_max_busiest(max_names)


def test_the_first_names_are_admitted_and_later_ones_are_not() -> None:
    names = CardinalityLimit(2)
    assert [names.admits(name) for name in ("a", ("b", "c"), "d", "a", ("b", "c"))] == [True, True, False, True, True]


def test_at_least_one_has_a_name() -> None:
    with pytest.raises(InvalidValue, match="at most 0 names"):
        CardinalityLimit(0)
