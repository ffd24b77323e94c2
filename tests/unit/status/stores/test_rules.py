"""What all stores have in common: versions that grow, and statuses that every one of them can hold."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from holdfast import InvalidValue, Zone, ZoneState, ZoneStatus
from holdfast.status.stores.aws import Versions
from holdfast.status.stores.rules import check_status, expire_status
from holdfast.testing import FakeClock

STATUS = ZoneStatus(
    zone=Zone("use1-az1"), state=ZoneState.OUT, since=100.0, by="operator", reason="slow", expires=200.0, version=7
)


def test_a_good_status_passes_unchanged() -> None:
    assert check_status(STATUS) is STATUS


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (replace(STATUS, workload=""), "workload is ''"),
        (replace(STATUS, workload="a\0b"), "workload 'a.*without NUL"),
        (replace(STATUS, reason="\ud800"), "reason .*expected Unicode text"),
        (replace(STATUS, since=-1.0), "since of zone use1-az1 is -1.0"),
        (replace(STATUS, expires=math.inf), "expires of zone use1-az1 is inf"),
    ],
)
def test_a_status_that_not_every_store_can_hold_is_refused(bad: ZoneStatus, complaint: str) -> None:
    with pytest.raises(InvalidValue, match=complaint):
        check_status(bad)


def test_an_expired_status_is_in_and_still_says_why_it_was_out() -> None:
    assert STATUS.has_expired(200.0)
    assert not STATUS.has_expired(199.9)
    assert expire_status(STATUS, 205.0, 8) == ZoneStatus(
        zone=Zone("use1-az1"),
        state=ZoneState.IN,
        since=205.0,
        by="expiry",
        reason="the status has expired (its reason was: slow)",
        version=8,
    )


def test_versions_follow_the_clock() -> None:
    clock = FakeClock(wall=1000.5)
    versions = Versions(clock)
    assert versions.next("a", 0) == 1_000_500
    clock.advance(2)
    assert versions.next("a", 1_000_500) == 1_002_500


def test_versions_grow_while_the_clock_stands_still_or_goes_back() -> None:
    clock = FakeClock(wall=1000.0)
    versions = Versions(clock)
    first = versions.next("a", 0)
    clock.jump_wall(-500)
    assert versions.next("a", 0) == first + 1
    assert versions.next("a", first + 10) == first + 11


def test_versions_grow_past_what_was_seen_of_others_for_the_same_key_only() -> None:
    versions = Versions(FakeClock(wall=1000.0))
    versions.observe("a", 5_000_000)
    versions.observe("a", 4_000_000)
    assert versions.next("a", 0) == 5_000_001
    assert versions.next("b", 0) == 1_000_000


def test_threads_never_get_the_same_version() -> None:
    versions = Versions(FakeClock())
    with ThreadPoolExecutor(8) as threads:
        handed_out = list(threads.map(lambda _: versions.next("a", 0), range(1000)))
    assert len(set(handed_out)) == 1000
