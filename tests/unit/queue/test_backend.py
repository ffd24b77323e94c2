"""The values of the seam, and what a backend that can do less is not asked for."""

import pytest

from holdfast import InvalidValue
from holdfast.queue import Limits, Outgoing
from holdfast.queue.backend import (
    FULL,
    Capabilities,
    Change,
    DeadQuery,
    LaneDepth,
    LeaseRequest,
    Snapshot,
    TenantDepth,
    Totals,
    checked_change,
    checked_query,
    checked_request,
    require_support,
    require_topics,
    totals_of,
)
from holdfast.queue.backends.memory import MemoryBackend
from tests.unit.queue.toy import LIMITED, LimitedBackend


def message(**options: object) -> Outgoing:
    return Outgoing(tenant="a", body=b"", **options)  # type: ignore[arg-type]


def test_every_field_of_the_capabilities_can_be_missing() -> None:
    assert not set(LIMITED.__struct_fields__) - {
        name for name in FULL.__struct_fields__ if getattr(LIMITED, name) != getattr(FULL, name)
    }


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (message(group="g"), "group g: these queues cannot keep the order of a group"),
        (message(key="k"), "deduplication key k: these queues keep duplicates"),
        (message(delay=61.0), "a delay of 61 s: these queues delay a message by at most 60 s"),
    ],
)
def test_what_a_backend_cannot_do_is_refused(asked: Outgoing, told: str) -> None:
    with pytest.raises(InvalidValue, match=told):
        require_support(LimitedBackend(), [message(), asked])
    require_support(MemoryBackend(), [asked])


def test_what_every_backend_can_do_is_not_refused() -> None:
    require_support(LimitedBackend(), [message(), message(delay=60.0), message(priority=0, ttl=5.0)])


def test_a_backend_may_limit_one_of_them_alone() -> None:
    class Forgetful(MemoryBackend):
        @property
        def capabilities(self) -> Capabilities:
            return Capabilities(deduplication=False)

    require_support(Forgetful(), [message(group="g", delay=1e6)])
    require_topics(Forgetful())


def test_topics_are_refused_where_there_are_none() -> None:
    with pytest.raises(InvalidValue, match="these queues have no topics"):
        require_topics(LimitedBackend())


@pytest.mark.parametrize(("count", "lease"), [(0, 1.0), (1, 0.0), (1, 1e9)])
def test_a_request_that_no_backend_can_fulfil_is_refused(count: int, lease: float) -> None:
    with pytest.raises(InvalidValue, match="expected at least 1, for more than 0 s"):
        checked_request(LeaseRequest(queue="work", count=count, lease=lease))


def test_what_is_right_is_returned_as_it_is() -> None:
    request, query = LeaseRequest(queue="work", count=1, lease=1.0), DeadQuery(queue="work")
    change = Change(limits={"a": Limits(rate=1.0)}, subscribe=["news"])
    assert (checked_request(request), checked_query(query), checked_change(change)) == (request, query, change)


def test_a_query_for_nothing_and_names_that_nobody_can_have_are_refused() -> None:
    with pytest.raises(InvalidValue, match="at most 0 dead letters"):
        checked_query(DeadQuery(queue="work", limit=0))
    with pytest.raises(InvalidValue, match="topic"):
        checked_change(Change(subscribe=["no topic"]))
    with pytest.raises(InvalidValue, match="tenant"):
        checked_change(Change(limits={"": None}))


def test_the_sums_over_lanes_keep_what_is_spilled_apart() -> None:
    lanes = [
        LaneDepth(lane=-1, ready=5, leased=1, delayed=0, dead=2, oldest=10.0),
        LaneDepth(lane=3, ready=2, leased=0, delayed=4, dead=0, oldest=20.0),
        LaneDepth(lane=4, ready=0, leased=0, delayed=0, dead=1, oldest=None),
    ]
    totals = totals_of(lanes)
    expected = Totals(ready=2, spilled=5, leased=1, delayed=4, dead=3, lanes=3, oldest=10.0, oldest_ready=20.0)
    assert (totals, totals.waiting) == (expected, 7)
    assert totals_of([]) == Totals()


def test_what_waits_of_a_tenant_is_what_is_ready_and_what_is_spilled() -> None:
    assert TenantDepth(tenant="a", ready=2, spilled=3, leased=7, delayed=7, dead=7).waiting == 5


def test_a_snapshot_without_lanes_has_no_sums() -> None:
    backend = MemoryBackend()
    backend.change("work", Change(), create=True)
    snapshot = backend.look("work", lanes=False)
    assert isinstance(snapshot, Snapshot)
    assert snapshot.totals == Totals()
