"""What a process knows about zones that are out."""

from holdfast import Zone, ZoneStatus
from holdfast.status import Board
from holdfast.testing import FakeClock

ONE, TWO = Zone("az1"), Zone("az2")


def status(
    zone: Zone, *, out: bool = True, version: int = 1, workload: str | None = None, expires: float | None = None
) -> ZoneStatus:
    return ZoneStatus(
        zone=zone, workload=workload, out=out, since=1.0, by="test", reason="test", version=version, expires=expires
    )


def board(clock: FakeClock | None = None) -> Board:
    return Board("http://127.0.0.1:1", clock=clock or FakeClock(wall=1000.0))


def test_before_the_first_answer_no_zone_is_out() -> None:
    assert board().out() == frozenset()
    assert board().out("shop") == frozenset()
    assert board().age is None


def test_a_zone_that_is_out_for_all_is_out_for_everyone() -> None:
    known = board()
    known.learn([status(ONE)])
    assert known.out() == known.out("shop") == {ONE}


def test_a_zone_that_is_out_for_one_workload_is_in_for_the_others() -> None:
    known = board()
    known.learn([status(ONE, workload="shop"), status(TWO)])
    assert known.out("shop") == {ONE, TWO}
    assert known.out("other") == known.out() == {TWO}


def test_older_news_changes_nothing() -> None:
    known = board()
    known.learn([status(ONE, out=False, version=3)])
    known.learn([status(ONE, out=True, version=2)])
    assert known.out() == frozenset()


def test_a_zone_that_is_back_is_in() -> None:
    known = board()
    known.learn([status(ONE)])
    known.learn([status(ONE, out=False, version=2)])
    assert known.out() == frozenset()


def test_a_status_that_has_expired_counts_no_more() -> None:
    clock = FakeClock(wall=1000.0)
    known = board(clock)
    known.learn([status(ONE, expires=999.0), status(TWO, expires=1001.0)])
    assert known.out() == {TWO}
    clock.advance(1.0)
    assert known.out() == frozenset()
