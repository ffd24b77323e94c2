from hypothesis import given
from hypothesis import strategies as st

from holdfast.metrics.cardinality import REVIEW_SECONDS, TopNames
from holdfast.queue.depth import STATES, compute_age, count_tenants_by_state
from tests.unit.queue.made import NOW, lane, snapshot, tenant


def test_a_message_waits_since_the_snapshot_says_and_never_less_than_nothing() -> None:
    looked = snapshot()
    assert [compute_age(looked, since) for since in (NOW - 9, NOW, NOW + 1, None)] == [9, 0, 0, None]


def test_tenants_without_a_place_are_other() -> None:
    looked = snapshot(
        lane(1, ready=20, leased=6, dead=3),
        lane(-5, ready=80),
        tenants=[tenant("a", ready=10, spilled=80, leased=2, dead=1), tenant("b", ready=5, leased=3)],
    )
    assert count_tenants_by_state(looked, TopNames(1)) == {
        "a": {"ready": 10, "spilled": 80, "leased": 2, "delayed": 0, "dead": 1},
        "other": {"ready": 10, "spilled": 0, "leased": 4, "delayed": 0, "dead": 2},
    }


def test_the_deepest_tenants_have_the_first_places_and_keep_them_for_a_while() -> None:
    places = TopNames(1)

    def deep(at: float, **tenants: int) -> set[str]:
        listed = [tenant(name, ready=ready) for name, ready in tenants.items()]
        looked = snapshot(lane(1, ready=sum(tenants.values())), tenants=listed, at=at)
        return count_tenants_by_state(looked, places).keys() - {"other"}

    assert deep(NOW, small=1, large=50) == {"large"}
    assert deep(NOW + 10, large=10, larger=5000) == {"large"}
    assert deep(NOW + REVIEW_SECONDS, large=10, larger=5000) == {"larger"}
    assert deep(NOW + 2 * REVIEW_SECONDS, large=9) == set()  # who has the place has nothing in the queue now


def test_a_tenant_called_other_is_among_the_others() -> None:
    looked = snapshot(lane(1, ready=7), tenants=[tenant("other", ready=4)])
    assert count_tenants_by_state(looked, TopNames(3))["other"]["ready"] == 7


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), max_size=30),
    st.integers(0, 5),
    st.integers(0, 30),
)
def test_tenants_add_up_to_the_whole_queue(owned: list[tuple[int, int, int]], places: int, listed: int) -> None:
    tenants = [
        tenant(f"t{number}", ready=shared, spilled=spilled, leased=leased)
        for number, (shared, spilled, leased) in enumerate(owned)
    ]
    lanes = [lane(1, ready=sum(one[0] for one in owned), leased=sum(one[2] for one in owned))]
    lanes += [lane(-number - 1, ready=one[1]) for number, one in enumerate(owned)]
    looked = snapshot(*lanes, tenants=tenants[:listed])
    found = count_tenants_by_state(looked, TopNames(places))
    assert len(found) <= places + 1
    for state in STATES:
        assert sum(states[state] for states in found.values()) == getattr(looked.totals, state)
