"""The values of the seam, and what a backend that can do less is not asked for."""

import pytest

from holdfast import InvalidValue
from holdfast.queue import Limits, OutgoingMessage
from holdfast.queue.backend import (
    FULL_CAPABILITIES,
    Capabilities,
    DeadLetterQuery,
    LaneDepth,
    LeaseRequest,
    QueueChange,
    QueueSnapshot,
    TenantDepth,
    Totals,
    check_change,
    check_query,
    check_request,
    require_support,
    require_topics,
    sum_lanes,
)
from holdfast.queue.backends.memory import MemoryBackend
from tests.unit.queue.toy import LIMITED, LimitedBackend


def message(**options: object) -> OutgoingMessage:
    return OutgoingMessage(tenant="a", body=b"", **options)  # type: ignore[arg-type]


def test_every_field_of_the_capabilities_can_be_missing() -> None:
    assert not set(LIMITED.__struct_fields__) - {
        name
        for name in FULL_CAPABILITIES.__struct_fields__
        if getattr(LIMITED, name) != getattr(FULL_CAPABILITIES, name)
    }


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (message(group="g"), "group g: this backend does not support groups"),
        (message(key="k"), "deduplication key k: this backend does not support deduplication"),
        (message(delay=61.0), "a delay of 61 s: this backend delays messages by at most 60 s"),
    ],
)
def test_what_a_backend_cannot_do_is_refused(asked: OutgoingMessage, told: str) -> None:
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
    with pytest.raises(InvalidValue, match="this backend does not support topics"):
        require_topics(LimitedBackend())


@pytest.mark.parametrize(("count", "lease"), [(0, 1.0), (1, 0.0), (1, 1e9)])
def test_a_request_that_no_backend_can_fulfil_is_refused(count: int, lease: float) -> None:
    with pytest.raises(InvalidValue, match="expected at least 1, for more than 0 s"):
        check_request(LeaseRequest(queue="work", count=count, lease=lease))


def test_what_is_right_is_returned_as_it_is() -> None:
    request, query = LeaseRequest(queue="work", count=1, lease=1.0), DeadLetterQuery(queue="work")
    change = QueueChange(limits={"a": Limits(spill_rate=1.0)}, subscribe=["news"])
    assert (check_request(request), check_query(query), check_change(change)) == (request, query, change)


def test_a_query_for_nothing_and_names_that_nobody_can_have_are_refused() -> None:
    with pytest.raises(InvalidValue, match="at most 0 dead letters"):
        check_query(DeadLetterQuery(queue="work", limit=0))
    with pytest.raises(InvalidValue, match="topic"):
        check_change(QueueChange(subscribe=["no topic"]))
    with pytest.raises(InvalidValue, match="tenant"):
        check_change(QueueChange(limits={"": None}))


def test_the_sums_over_lanes_keep_what_is_spilled_apart() -> None:
    lanes = [
        LaneDepth(lane=-1, ready=5, leased=1, delayed=0, dead=2, oldest_since=10.0),
        LaneDepth(lane=3, ready=2, leased=0, delayed=4, dead=0, oldest_since=20.0),
        LaneDepth(lane=4, ready=0, leased=0, delayed=0, dead=1, oldest_since=None),
    ]
    totals = sum_lanes(lanes)
    expected = Totals(
        ready=2, spilled=5, leased=1, delayed=4, dead=3, lanes_in_use=3, oldest_since=10.0, oldest_ready_since=20.0
    )
    assert (totals, totals.waiting) == (expected, 7)
    assert sum_lanes([]) == Totals()


def test_what_waits_of_a_tenant_is_what_is_ready_and_what_is_spilled() -> None:
    assert TenantDepth(tenant="a", ready=2, spilled=3, leased=7, delayed=7, dead=7).waiting == 5


def test_a_snapshot_without_lanes_has_no_sums() -> None:
    backend = MemoryBackend()
    backend.change("work", QueueChange(), create=True)
    snapshot = backend.inspect("work", lanes=False)
    assert isinstance(snapshot, QueueSnapshot)
    assert snapshot.totals == Totals()
