"""What all stores have in common: versions that grow, and statuses that every one of them can hold."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import InvalidValue, Zone, ZoneStatus
from holdfast.status.stores.rules import checked, expired, is_over
from holdfast.status.stores.versions import Versions
from holdfast.testing import FakeClock

STATUS = ZoneStatus(
    zone=Zone("use1-az1"), out=True, since=100.0, by="operator", reason="slow", expires=200.0, version=7
)


def test_a_good_status_passes_unchanged() -> None:
    assert checked(STATUS) is STATUS


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"workload": ""}, "workload is ''"),
        ({"by": "a\0b"}, "by 'a"),
        ({"reason": "\ud800"}, "reason '"),
        ({"since": -1.0}, "since of zone use1-az1 is -1.0"),
        ({"expires": 253_402_300_800.0}, "expires of zone use1-az1"),
    ],
)
def test_what_a_store_cannot_hold_is_refused_by_name(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidValue, match=named):
        checked(dataclasses.replace(STATUS, **wrong))


def test_an_expired_status_is_in_and_still_says_why_it_was_out() -> None:
    assert is_over(STATUS, 200.0)
    assert not is_over(STATUS, 199.9)
    assert expired(STATUS, 205.0, 8) == ZoneStatus(
        zone=Zone("use1-az1"),
        out=False,
        since=205.0,
        by="expiry",
        reason="the time it was out for is over (it was out for: slow)",
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
    versions.see("a", 5_000_000)
    versions.see("a", 4_000_000)
    assert versions.next("a", 0) == 5_000_001
    assert versions.next("b", 0) == 1_000_000


def test_threads_never_get_the_same_version() -> None:
    versions = Versions(FakeClock())
    with ThreadPoolExecutor(8) as threads:
        handed_out = list(threads.map(lambda _: versions.next("a", 0), range(1000)))
    assert len(set(handed_out)) == 1000
