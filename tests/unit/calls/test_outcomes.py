import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Operation, Outcome, RequestDetail, Side, Zone
from holdfast.calls import Dependency, Endpoints, FailureKind, current_attempt
from holdfast.calls.events import AttemptEnded, BudgetExhausted, CallEvent, GaveUp
from holdfast.calls.outcomes import OutcomeSink, build_outcome
from holdfast.calls.retry import GiveUpReason
from holdfast.testing.calls import instant_calls

PRICE = Operation("pricing", "price")
ZONE = Zone("use1-az1")


class Kept:
    def __init__(self) -> None:
        self.all: list[Outcome] = []

    def emit(self, event: Outcome) -> None:
        self.all.append(event)


def attempted(
    failure: FailureKind | None = None,
    status: int | None = None,
    zone: Zone | None = ZONE,
    address: str | None = "10.0.1.7:443",
) -> AttemptEnded:
    return AttemptEnded(
        operation=PRICE, at=7.0, number=1, seconds=0.25, failure=failure, status=status, zone=zone, address=address
    )


def test_a_success_is_one_of_the_client_in_its_zone_and_on_its_instance() -> None:
    assert build_outcome(attempted(), "shop") == Outcome(
        workload="shop",
        operation=PRICE,
        zone=ZONE,
        instance="10.0.1.7:443",
        at=7.0,
        side=Side.CLIENT,
        count_2xx=1,
        success_seconds=(0.25,),
        detail=RequestDetail(status=200),
    )


@pytest.mark.parametrize("kind", [FailureKind.TIMEOUT, FailureKind.UNSENT, FailureKind.TRANSIENT])
@pytest.mark.parametrize("status", [None, 0])
def test_timeouts_and_connections_that_fail_are_faults(kind: FailureKind, status: int | None) -> None:
    outcome = build_outcome(attempted(kind, status), "shop")
    assert outcome is not None
    assert (outcome.count_5xx, outcome.fault_seconds, outcome.success_seconds) == (1, (0.25,), ())


@pytest.mark.parametrize("kind", [FailureKind.THROTTLED, FailureKind.NOT_VISIBLE_YET])
def test_what_the_caller_did_too_much_or_too_soon_is_no_fault(kind: FailureKind) -> None:
    outcome = build_outcome(attempted(kind), "shop")
    assert outcome is not None
    assert (outcome.count_4xx, outcome.count_5xx, outcome.fault_seconds) == (1, 0, ())


@given(st.integers(200, 599), st.sampled_from(FailureKind))
def test_an_answer_counts_by_its_status_once_and_its_time_on_one_side(status: int, kind: FailureKind) -> None:
    outcome = build_outcome(attempted(kind, status), "shop")
    assert outcome is not None
    counts = [outcome.count_2xx, outcome.count_3xx, outcome.count_4xx, outcome.count_5xx]
    assert counts == [int(status // 100 == hundreds) for hundreds in (2, 3, 4, 5)]
    assert [*outcome.success_seconds, *outcome.fault_seconds] == [0.25]
    assert bool(outcome.fault_seconds) == (status >= 500)
    assert outcome.detail == RequestDetail(status=status)


@pytest.mark.parametrize(("kind", "status"), [(FailureKind.THROTTLED, 429), (FailureKind.TIMEOUT, 504)])
def test_a_failure_without_a_status_has_the_one_a_gateway_would_send(kind: FailureKind, status: int) -> None:
    outcome = build_outcome(attempted(kind), "shop")
    assert outcome is not None
    assert outcome.detail == RequestDetail(status=status)


@pytest.mark.parametrize(
    "event",
    [
        attempted(zone=None),
        attempted(address=None),
        attempted(FailureKind.PERMANENT),
        GaveUp(operation=PRICE, at=1.0, attempts=1, reason=GiveUpReason.PERMANENT, seconds=1.0),
        BudgetExhausted(dependency="pricing", at=1.0, tokens=0.0),
    ],
)
def test_what_says_nothing_about_a_zone_is_left_out(event: CallEvent) -> None:
    kept = Kept()
    OutcomeSink("shop", kept).emit(event)
    assert kept.all == []


def test_what_a_dependency_sees_of_its_endpoints_is_handed_on() -> None:
    kept = Kept()
    endpoints = Endpoints({ZONE: ["10.0.1.7"], Zone("use1-az2"): ["10.0.2.7"]})
    with instant_calls():
        pricing = Dependency("pricing", endpoints=endpoints, sink=OutcomeSink("shop", kept))

        @pricing.call(idempotent=True)
        def price() -> str:
            if current_attempt().endpoint.zone == ZONE:
                raise ConnectionResetError
            return current_attempt().endpoint.address

        assert price() == "10.0.2.7"
    assert [(seen.zone, seen.instance, seen.count_2xx, seen.count_5xx) for seen in kept.all] == [
        (ZONE, "10.0.1.7", 0, 1),
        ("use1-az2", "10.0.2.7", 1, 0),
    ]
