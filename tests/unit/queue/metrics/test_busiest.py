from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.queue.metrics.busiest import REVIEW, Busiest, Places, Sketch, checked_most
from holdfast.testing import seeded


@given(st.lists(st.tuples(st.sampled_from("abcdefghij"), st.integers(1, 5))), st.integers(1, 6))
def test_a_sketch_is_small_and_too_low_by_at_most_its_share(came: list[tuple[str, int]], most: int) -> None:
    sketch, exact = Sketch(most), Counter[str]()
    for name, by in came:
        sketch.add(name, by)
        exact[name] += by
        assert len(sketch.counts) <= most
    assert sketch.total == exact.total()
    for name, count in exact.items():
        assert 0 <= count - sketch.counts.get(name, 0) <= exact.total() / (most + 1)


def test_what_was_counted_fades() -> None:
    sketch = Sketch(5)
    sketch.add("acme", 9)
    sketch.add("once", 1)
    sketch.fade()
    assert (sketch.counts, sketch.total) == ({"acme": 4}, 5)


def test_the_first_tenants_have_names_at_once_and_the_others_none() -> None:
    places = Places(2)
    assert [places.name(tenant) for tenant in ("a", "b", "c", "a", "d")] == ["a", "b", "other", "a", "other"]


def test_without_places_everybody_is_other() -> None:
    places = Places(0)
    places.review({"a": 1000}, 1000, 0.0)
    assert places.name("a") == "other"


def test_a_tenant_with_twice_the_traffic_takes_the_place_of_the_weakest() -> None:
    busiest = Busiest(2)
    for tenant in ("a", "b"):
        busiest.name(tenant)
    busiest.came({"a": 100, "b": 50, "c": 120}, 0.0)
    assert busiest.name("c") == "other"  # it is not time yet
    busiest.came({}, REVIEW)
    assert busiest.names == {"a", "c"}
    assert [busiest.name(tenant) for tenant in ("a", "b", "c")] == ["a", "other", "c"]


def test_traffic_of_long_ago_does_not_keep_a_place() -> None:
    busiest = Busiest(1)
    busiest.name("then")
    busiest.came({"then": 10_000}, 0.0)
    for minute in range(1, 10):
        busiest.came({"now": 100}, minute * REVIEW)
    assert busiest.names == {"now"}


@pytest.mark.parametrize(
    ("weights", "total"),
    [
        ({"a": 100, "b": 50, "c": 99}, 249),  # not twice as much
        ({"c": 9}, 9),  # hardly anything
        ({"c": 100}, 1000),  # a small share of all, also where the others do nothing now
    ],
)
def test_nobody_loses_a_place_for_little(weights: dict[str, int], total: int) -> None:
    places = Places(2)
    places.name("a")
    places.name("b")
    places.review(weights, total, 0.0)
    assert places.names == {"a", "b"}


def test_names_that_are_used_up_stay_with_those_who_had_them() -> None:
    places = Places(1, 2)
    assert [places.name(tenant) for tenant in ("a", "b")] == ["a", "other"]
    places.review({"b": 100}, 100, 0.0)
    places.review({"c": 1000, "a": 800}, 1500, 60.0)
    assert places.names == {"a"}  # the third does not get one, and the first has its own again
    places.names.clear()
    assert [places.name(tenant) for tenant in ("c", "b")] == ["other", "b"]


def test_free_places_are_given_in_a_review_too() -> None:
    places = Places(2)
    places.review({"a": 1, "b": 3, "c": 2}, 6, 0.0)
    assert places.names == {"b", "c"}


def test_a_clock_that_was_set_back_does_not_put_off_the_review() -> None:
    places = Places(1)
    assert [places.is_due(at) for at in (1000.0, 1030.0, 1060.0, 10.0)] == [False, False, True, True]


def test_ten_thousand_tenants_who_do_the_same_do_not_take_turns() -> None:
    busiest, random = Busiest(20), seeded("tenants")
    seen: set[str] = set()
    for poll in range(1500):
        counts = Counter(f"tenant {random.randrange(10_000)}" for _ in range(100))
        for tenant in counts:
            seen.add(busiest.name(tenant))
        busiest.came(counts, poll * 0.5)
    assert len(seen) == 21
    assert len(busiest._sketch.counts) <= 161


def test_ten_thousand_tenants_who_send_a_batch_each_do_not_take_turns() -> None:
    busiest = Busiest(20)
    seen: set[str] = set()
    for number in range(10_000):
        seen.add(busiest.name(f"tenant {number}"))
        busiest.came({f"tenant {number}": 100}, number * 0.1)
    assert len(seen) == 21


def test_who_is_noisy_among_ten_thousand_has_a_name_within_a_review() -> None:
    busiest, random = Busiest(20), seeded("noise")
    for poll in range(1000):
        counts = Counter(f"tenant {random.randrange(10_000)}" for _ in range(50))
        for tenant in counts:
            busiest.name(tenant)
        if poll >= 500:
            counts["noisy"] = 50
        busiest.came(counts, poll * 0.5)
    assert busiest.name("noisy") == "noisy"


@pytest.mark.parametrize("most", [-1, 1001])
def test_a_number_of_tenants_that_makes_no_sense_is_refused(most: int) -> None:
    with pytest.raises(InvalidValue, match=f"{most} tenants"):
        checked_most(most)
