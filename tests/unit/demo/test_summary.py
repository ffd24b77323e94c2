"""What a run came to."""

import pytest

from holdfast import VerdictKind, Zone, ZoneState, ZoneStatus
from holdfast.demo.records import InjectedFault, SentRequest
from holdfast.demo.summary import Phase, summarize
from holdfast.demo.terminal import format_summary, sparkline
from holdfast.demo.timeline import draw_timeline
from holdfast.watch import RecordedVerdict


def sent(at: float, zone: str, status: int = 200) -> SentRequest:
    return SentRequest(at=at, zone=zone, address="http://127.0.0.1:1", status=status, seconds=0.1)


FAULTS = [
    InjectedFault(at=10.5, instance="i-2", zone="az2", errors=0.4, delay=0.8),
    InjectedFault(at=10.0, instance="i-1", zone="az2", errors=0.4, delay=0.8),
]
SENT = [
    sent(5, "az1"),
    sent(6, "az2"),
    sent(12, "az2", 500),
    sent(15, "az2", 0),
    sent(30, "az2"),
    sent(31, "az1"),
    sent(40, "az3", 503),
]


def verdict(zone: str, opened_at: float, kind: VerdictKind = VerdictKind.ISOLATED) -> RecordedVerdict:
    return RecordedVerdict(
        id=zone,
        workload="shop",
        kind=kind,
        zone=Zone(zone),
        resource=None,
        since=20,
        summary="",
        evidence={},
        opened_at=opened_at,
        closed_at=None,
    )


def out(zone: str, since: float) -> ZoneStatus:
    return ZoneStatus(zone=Zone(zone), state=ZoneState.OUT, since=since, by="holdfast", reason="verdict", version=1)


def test_durations_are_counted_from_the_first_instance_that_failed() -> None:
    summary = summarize("az2", FAULTS, SENT, [verdict("az2", 29.0)], [out("az2", 29.5)], shifted=["shop-web"])
    assert (summary.fault_at, summary.verdict_at, summary.out_at, summary.last_request_at) == (10.0, 29.0, 29.5, 30)
    assert (summary.seconds_to_verdict, summary.seconds_to_out, summary.seconds_to_last_request) == (19.0, 19.5, 20)
    assert summary.found


def test_every_request_belongs_to_one_part_of_the_run() -> None:
    summary = summarize("az2", FAULTS, SENT, [verdict("az2", 29.0)], [out("az2", 29.5)])
    assert summary.before_fault == Phase(2, 0)
    assert summary.until_last_request == Phase(3, 2)
    assert summary.after == Phase(2, 1)


def test_a_zone_whose_balancers_were_not_shifted_was_not_evacuated() -> None:
    summary = summarize("az2", FAULTS, SENT, [verdict("az2", 29)], [out("az2", 29.5)])
    assert not summary.found
    assert "zonal shifts            none" in format_summary(summary)


def test_a_zone_that_was_never_left_has_no_last_request() -> None:
    summary = summarize("az2", FAULTS, SENT, [], [])
    assert not summary.found
    assert (summary.seconds_to_verdict, summary.seconds_to_last_request) == (None, None)
    assert summary.until_last_request == Phase(5, 3)
    assert summary.after == Phase(0, 0)
    assert "NOT detected" in format_summary(summary)
    assert "never" in format_summary(summary)


@pytest.mark.parametrize(
    ("verdicts", "statuses"),
    [([verdict("az2", 29), verdict("az3", 33)], []), ([verdict("az2", 29)], [out("az1", 30)])],
)
def test_a_healthy_zone_that_was_accused_or_left_is_named(
    verdicts: list[RecordedVerdict], statuses: list[ZoneStatus]
) -> None:
    summary = summarize("az2", FAULTS, SENT, verdicts, [out("az2", 29.5), *statuses])
    assert len(summary.wrong_zones) == 1
    assert not summary.found
    assert "healthy zones accused" in format_summary(summary)


def test_a_zone_that_was_accused_before_it_failed_was_not_found() -> None:
    summary = summarize("az2", FAULTS, SENT, [verdict("az2", 9.0)], [out("az2", 9.5)])
    assert summary.wrong_zones == ["az2"]
    assert not summary.found


def test_a_verdict_that_isolates_nothing_accuses_nobody() -> None:
    summary = summarize("az2", FAULTS, SENT, [verdict("az3", 9, VerdictKind.INSTANCE)], [out("az2", 29.5)])
    assert summary.wrong_zones == []


def test_the_picture_shows_every_zone_every_mark_and_what_failed() -> None:
    picture = draw_timeline(SENT, ["az1", "az2", "<az3>"], {"fault": 10.0, "verdict": 29.0}, {"az2": 29.5})
    assert picture.startswith("<svg")
    for text in ("az1", "az2", "&lt;az3&gt;", "fault 5.0 s", "verdict 24.0 s", "out", "prefers-color-scheme: dark"):
        assert text in picture
    assert picture.count('class="failed"') == 2


def test_sparklines_show_low_high_and_nothing() -> None:
    assert sparkline([0.0, 1.0, None, 0.5, 9.0], 1.0) == "▁█ ▄█"
