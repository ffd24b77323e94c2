import pickle
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast import (
    Carrier,
    InvalidValue,
    Operation,
    Outcome,
    RequestDetail,
    Side,
    Tenant,
    Verdict,
    VerdictKind,
    Zone,
    ZoneState,
    ZoneStatus,
)
from holdfast._types import MAX_TENANT_BYTES

ZONE = Zone("use1-az1")

# One character of every width that UTF-8 has.
WIDTHS = {1: "a", 2: "é", 3: "€", 4: "🙂"}
around_the_limit = st.builds(
    lambda width, count, filling: WIDTHS[width] * count + "a" * filling,
    st.sampled_from(sorted(WIDTHS)),
    st.integers(0, MAX_TENANT_BYTES + 2),
    st.integers(0, 4),
)


def status(*, out: bool = True, expires: float | None = None) -> ZoneStatus:
    return ZoneStatus(
        zone=ZONE, state=ZoneState.OUT if out else ZoneState.IN, since=100.0, by="ada", reason="smoke", expires=expires
    )


@given(st.text() | around_the_limit)
@example("")
@example("a" * MAX_TENANT_BYTES)
@example("a" * (MAX_TENANT_BYTES + 1))
@example("🙂" * (MAX_TENANT_BYTES // 4))
@example("🙂" * (MAX_TENANT_BYTES // 4) + "a")
@example("\0")
def test_a_tenant_is_any_text_of_1_to_256_bytes(text: str) -> None:
    size = len(text.encode())
    if 1 <= size <= MAX_TENANT_BYTES:
        tenant = Tenant(text)
        assert tenant == text
        assert type(tenant) is Tenant
    else:
        with pytest.raises(InvalidValue, match=f"{size} UTF-8 bytes: expected 1 to 256"):
            Tenant(text)


def test_the_limit_of_a_tenant_counts_bytes_and_not_characters() -> None:
    assert len(Tenant("é" * 128)) == 128
    with pytest.raises(InvalidValue):
        Tenant("é" * 129)


def test_a_tenant_that_is_too_long_is_not_repeated_in_full() -> None:
    with pytest.raises(InvalidValue) as caught:
        Tenant("x" * 1_000_000)
    assert len(str(caught.value)) < 200


@given(st.text(max_size=20), st.characters(categories=["Cs"]), st.text(max_size=20))
def test_text_that_cannot_be_stored_is_not_a_tenant(before: str, surrogate: str, after: str) -> None:
    with pytest.raises(InvalidValue, match="not valid Unicode"):
        Tenant(before + surrogate + after)


def test_a_tenant_is_found_by_its_text_in_a_mapping() -> None:
    limits: dict[str, int] = {Tenant("tenant-1"): 1}
    assert limits["tenant-1"] == 1


def test_a_tenant_stays_one_when_it_is_copied_or_sent_to_another_process() -> None:
    copy = pickle.loads(pickle.dumps(Tenant("tenant-1")))
    assert copy == "tenant-1"
    assert type(copy) is Tenant
    assert type(Tenant(copy)) is Tenant


def test_an_operation_reads_as_service_and_name() -> None:
    assert str(Operation("Catalog", "Find")) == "Catalog/Find"


def test_operations_with_the_same_service_and_name_are_the_same() -> None:
    assert {Operation("Catalog", "Find"), Operation("Catalog", "Find")} == {Operation("Catalog", "Find")}


def test_a_carrier_says_nothing_unless_told() -> None:
    carrier = Carrier()
    assert (carrier.trace, carrier.remaining, carrier.retry_owner) == (None, None, None)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Operation("Catalog", "Find"), "name"),
        (Carrier(), "remaining"),
        (RequestDetail(status=200), "status"),
        (status(), "state"),
        (Verdict(id="v1", workload="shop", kind=VerdictKind.HEALTHY, since=1.0, at=2.0), "kind"),
        (
            Outcome(workload="shop", operation=Operation("C", "F"), zone=ZONE, instance="i", at=1.0, side=Side.SERVER),
            "at",
        ),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value,
)
def test_a_shared_value_cannot_be_changed_or_given_more_fields(value: object, name: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(value, name, None)
    assert not hasattr(value, "__dict__")


def test_an_outcome_counts_nothing_unless_told_and_is_not_internal() -> None:
    outcome = Outcome(
        workload="shop", operation=Operation("Catalog", "Find"), zone=ZONE, instance="i-1", at=1.0, side=Side.CLIENT
    )
    assert (outcome.count_2xx, outcome.count_3xx, outcome.count_4xx, outcome.count_5xx) == (0, 0, 0, 0)
    assert (tuple(outcome.success_seconds), tuple(outcome.fault_seconds)) == ((), ())
    assert not outcome.is_ignored
    assert outcome.detail is None


@pytest.mark.parametrize(("status", "counted"), [(0, 2), (101, 2), (204, 2), (302, 3), (499, 4), (504, 5), (799, 5)])
def test_a_status_counts_in_its_class_or_the_nearest(status: int, counted: int) -> None:
    assert RequestDetail(status=status).status_class == counted


def test_a_status_without_an_end_stays() -> None:
    assert status().is_out(now=1e12)


@pytest.mark.parametrize(("now", "out"), [(199.9, True), (200.0, False), (200.1, False)])
def test_a_status_ends_at_the_moment_that_it_expires(now: float, out: bool) -> None:
    assert status(expires=200.0).is_out(now) is out


@given(now=st.floats(allow_nan=False), expires=st.none() | st.floats(allow_nan=False))
def test_a_zone_that_is_in_is_never_out(now: float, expires: float | None) -> None:
    assert not status(out=False, expires=expires).is_out(now)


def test_a_status_is_for_all_workloads_and_was_never_written_unless_told() -> None:
    assert status().workload is None
    assert status().version == 0


def test_sides_and_kinds_are_written_as_their_words() -> None:
    assert [f"{side}" for side in Side] == ["server", "client", "canary"]
    assert [f"{kind}" for kind in VerdictKind] == ["healthy", "instance", "isolated", "shared", "regional", "unknown"]


def test_verdicts_do_not_share_their_evidence() -> None:
    one, two = (Verdict(id=name, workload="shop", kind=VerdictKind.UNKNOWN, since=1.0, at=2.0) for name in "ab")
    assert one.evidence == {}
    assert one.evidence is not two.evidence


def test_a_draining_zone_takes_no_new_traffic_and_a_returning_one_takes_a_share() -> None:
    draining = replace(status(), state=ZoneState.DRAINING)
    assert (draining.state.is_out, draining.is_out(0.0)) == (True, True)
    returning = replace(status(expires=200.0), state=ZoneState.RETURNING, share=0.25)
    assert (returning.state.is_out, returning.is_out(0.0)) == (False, False)
    assert [returning.state_at(now) for now in (199.0, 200.0)] == [ZoneState.RETURNING, ZoneState.IN]


@pytest.mark.parametrize("expires", [None, 200.0])
def test_a_status_expires_at_its_end_and_not_without_one(expires: float | None) -> None:
    assert status(expires=expires).has_expired(200.0) is (expires is not None)
    assert not status(expires=expires).has_expired(199.0)
    assert not status(out=False, expires=expires).has_expired(200.0)


@pytest.mark.parametrize(
    ("state", "share", "complaint"),
    [
        (ZoneState.RETURNING, None, "a returning zone needs a share, and no other zone has one"),
        (ZoneState.OUT, 0.5, "a returning zone needs a share, and no other zone has one"),
        (ZoneState.RETURNING, 0.0, "expected more than 0 and less than 1"),
        (ZoneState.RETURNING, 1.0, "expected more than 0 and less than 1"),
    ],
)
def test_only_a_returning_zone_has_a_share(state: ZoneState, share: float | None, complaint: str) -> None:
    with pytest.raises(InvalidValue, match=complaint):
        replace(status(), state=state, share=share)


def test_a_state_may_be_given_as_plain_text_and_must_be_one() -> None:
    assert replace(status(), state="draining").is_out(0.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match=r"state of zone .* is 'asleep': expected in, draining, out, returning"):
        replace(status(), state="asleep")  # type: ignore[arg-type]
