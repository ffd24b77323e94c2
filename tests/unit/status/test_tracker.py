"""What a process knows about zones that are out."""

import math
import threading
from collections.abc import Mapping

import pytest

from holdfast import InvalidValue, Zone, ZoneState, ZoneStatus
from holdfast.status import PushedSource, SilencePolicy, ZoneTracker
from holdfast.status.sources import StatusListener
from holdfast.testing import FakeClock
from tests.table import rows

ONE, TWO = Zone("az1"), Zone("az2")
STUCK = 10.0


def status(
    zone: Zone, *, out: bool = True, workload: str | None = None, expires: float | None = None, version: int = 1
) -> ZoneStatus:
    return ZoneStatus(
        zone=zone,
        workload=workload,
        state=ZoneState.OUT if out else ZoneState.IN,
        since=1.0,
        by="test",
        reason="test",
        version=version,
        expires=expires,
    )


class Silent:
    """A source that says nothing by itself."""

    def __init__(self, name: str = "silent") -> None:
        self.name = name
        self.listener: StatusListener | None = None
        self.poked = 0
        self.closed = 0

    def start(self, listener: StatusListener) -> None:
        assert self.listener is None, "started twice"
        self.listener = listener

    def refresh(self) -> None:
        self.poked += 1

    def close(self) -> None:
        self.closed += 1


def tracker(clock: FakeClock | None = None, count: int = 1) -> ZoneTracker:
    return ZoneTracker(*(Silent(f"source-{number}") for number in range(count)), clock=clock or FakeClock(wall=1000.0))


def heard(known: ZoneTracker, *statuses: ZoneStatus, index: int = 0, at: float = 1000.0) -> None:
    known.receive(index, statuses, at)
    known.decide()


def test_before_the_first_answer_no_zone_is_out() -> None:
    known = tracker()
    known.decide()
    assert known.zones_out() == known.zones_out("shop") == frozenset()
    assert known.age is None
    assert [source.age for source in known.sources()] == [None]


def test_a_zone_that_is_out_for_all_is_out_for_everyone() -> None:
    known = tracker()
    heard(known, status(ONE))
    assert known.zones_out() == known.zones_out("shop") == {ONE}


def test_a_zone_that_is_out_for_one_workload_is_in_for_the_others() -> None:
    known = tracker()
    heard(known, status(ONE, workload="shop"), status(TWO))
    assert known.zones_out("shop") == {ONE, TWO}
    assert known.zones_out("other") == known.zones_out() == {TWO}


def test_what_a_source_says_replaces_what_it_said_before() -> None:
    known = tracker()
    heard(known, status(ONE), status(TWO))
    heard(known, status(ONE, out=False), status(TWO))
    assert known.zones_out() == {TWO}
    heard(known)
    assert known.zones_out() == frozenset()


def test_a_majority_decides_and_a_minority_does_not() -> None:
    known = tracker(count=3)
    heard(known, status(ONE), index=0)
    assert not known.wait(0)
    assert known.zones_out() == frozenset()
    assert known.age is None, "one of three is not enough to know anything"
    heard(known, status(ONE), index=2)
    assert known.wait(0)
    assert known.zones_out() == {ONE}
    assert known.age == 0.0


def test_a_status_that_has_expired_counts_no_more() -> None:
    clock = FakeClock(wall=1000.0)
    known = tracker(clock)
    heard(known, status(ONE, expires=999.0), status(TWO, expires=1001.0))
    assert known.zones_out() == {TWO}
    assert known.decide() == pytest.approx(1.0)
    clock.advance(1.0)
    known.decide()
    assert known.zones_out() == frozenset()


@pytest.mark.parametrize("skew", [-7200.0, 7200.0])
def test_expiry_goes_by_the_time_of_the_source_and_not_by_the_own_clock(skew: float) -> None:
    clock = FakeClock(wall=1000.0 + skew)
    known = tracker(clock)
    heard(known, status(ONE, expires=1010.0), at=1000.0)
    clock.advance(9.0)
    known.decide()
    assert known.zones_out() == {ONE}
    clock.advance(1.0)
    known.decide()
    assert known.zones_out() == frozenset()


def test_clocks_of_sources_that_differ_are_outvoted() -> None:
    clock = FakeClock(wall=1000.0)
    known = tracker(clock, count=3)
    for index, at in enumerate((1000.0, 1000.5, 5000.0)):  # the last believes that it is over
        heard(known, status(ONE, expires=1010.0), index=index, at=at)
    assert known.zones_out() == {ONE}
    clock.advance(9.6)
    known.decide()
    assert known.zones_out() == frozenset(), "by one clock of two it is over, and a majority no longer says otherwise"


def test_an_outage_of_all_sources_changes_nothing() -> None:
    clock = FakeClock(wall=1000.0)
    known = tracker(clock, count=3)
    for index in range(3):
        heard(known, status(ONE), index=index)
    clock.advance(86_400.0)
    known.decide()
    assert known.zones_out() == {ONE}
    assert known.age == 86_400.0


def test_silence_can_be_set_to_mean_that_all_zones_are_in() -> None:
    clock = FakeClock(wall=1000.0)
    known = ZoneTracker(Silent(), when_silent="all_in", stale_after=5.0, clock=clock)
    heard(known, status(ONE))
    assert known.decide() == pytest.approx(5.0)
    clock.advance(5.0)
    known.decide()
    assert known.zones_out() == frozenset()


def test_the_name_of_a_zone_is_refused() -> None:
    with pytest.raises(InvalidValue, match="us-east-1b"):
        ZoneTracker(Silent(), zone=Zone("us-east-1b"))


def test_silence_can_be_set_to_mean_that_the_own_zone_is_out() -> None:
    clock = FakeClock(wall=1000.0)
    known = ZoneTracker(Silent(), zone=TWO, when_silent=SilencePolicy.OWN_ZONE_OUT, stale_after=5.0, clock=clock)
    heard(known, status(ONE))
    clock.advance(5.0)
    known.decide()
    assert known.zones_out() == {ONE, TWO}
    heard(known)
    assert known.zones_out() == frozenset()


@rows(
    ("sources", "options", "message"),
    [
        ((), {}, "at least one"),
        (("http://127.0.0.1:1",), {"when_silent": "own_zone_out"}, "zone of this host"),
        (("http://127.0.0.1:1",), {"when_silent": "panic"}, "panic"),
        (("http://127.0.0.1:1",), {"stale_after": 0}, "stale_after is 0"),
        (("http://127.0.0.1:1",), {"stale_after": math.inf}, "stale_after"),
        (("127.0.0.1:8470",), {}, "expected one such as"),
        (("http://127.0.0.1:port",), {}, "expected one such as"),
        (("http://host with spaces",), {}, "expected one such as"),
        (("ftp://127.0.0.1",), {}, "expected one such as"),
        (("http://",), {}, "expected one such as"),
        (("http://127.0.0.1/status/{zone}",), {}, "without zones"),
        (("http://127.0.0.1:1", "http://127.0.0.1:1/"), {}, "each has one vote"),
        (("exists+http://127.0.0.1/az1.txt",), {"zone": ONE}, "expected one such as"),
    ],
)
def test_what_makes_no_sense_is_refused_when_it_is_built(
    sources: tuple[str, ...], options: Mapping[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ZoneTracker(*sources, **options)  # type: ignore[arg-type]


def test_whoever_wants_to_know_is_told_of_changes_and_of_nothing_else() -> None:
    told: list[object] = []
    clock = FakeClock(wall=1000.0)
    known = ZoneTracker(Silent(), on_change=told.append, clock=clock)
    known.decide()
    heard(known, status(ONE))
    heard(known, status(ONE, version=2))
    heard(known)
    assert told == [{None: {ONE}}, {None: frozenset()}]


def test_somebody_who_fails_to_act_on_a_change_does_not_harm_the_board() -> None:
    def fail(_: object) -> None:
        raise RuntimeError("no")

    known = ZoneTracker(Silent(), on_change=fail, clock=FakeClock(wall=1000.0))
    heard(known, status(ONE))
    assert known.zones_out() == {ONE}


def test_sources_are_started_poked_and_closed() -> None:
    first, second = Silent("first"), Silent("second")
    with ZoneTracker(first, second, clock=FakeClock(wall=1000.0)) as known:
        known.start()
        known.refresh()
        assert [source.name for source in known.sources()] == ["first", "second"]
    known.close()
    for source in (first, second):
        assert (source.poked, source.closed) == (1, 2)


def test_what_is_told_is_known_without_anybody_asking() -> None:
    changed = threading.Event()
    source = PushedSource("told")
    with ZoneTracker(source, on_change=lambda _: changed.set()) as known:
        source.push(status(ONE))
        assert changed.wait(STUCK)
        assert known.zones_out() == {ONE}
        changed.clear()
        source.push(status(ONE, out=False))
        assert changed.wait(STUCK)
        assert known.zones_out() == frozenset()
