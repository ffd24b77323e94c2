"""The store is kept from growing by what nobody needs."""

from holdfast.queue import Outgoing, Sent
from holdfast.queue.worker.leases import EVERY
from tests.unit.queue.worker.bench import Bench


def test_a_worker_sweeps_about_once_a_minute_and_not_at_its_start() -> None:
    bench = Bench()
    bench.queue.handle()(lambda _: None)
    bench.queue.send_many([Outgoing(tenant="a", body=b"", ttl=10.0), Outgoing(tenant="a", body=b"")])
    bench.clock.advance(20)
    pauses = [bench.shift.sweeper.step()]
    assert sum(lane.ready for lane in bench.backend.backend.look("work").lanes) == 2
    pauses.append(bench.shift.sweeper.step())
    assert sum(lane.ready for lane in bench.backend.backend.look("work").lanes) == 1
    assert all(EVERY / 2 <= pause <= EVERY * 1.5 for pause in pauses)


def test_what_has_not_expired_is_left_alone() -> None:
    bench = Bench()
    bench.queue.handle()(lambda _: None)
    [sent] = bench.queue.send_many([Outgoing(tenant="a", body=b"", ttl=60.0)])
    assert isinstance(sent, Sent)
    for _ in range(3):
        bench.shift.sweeper.step()
    assert sum(lane.ready for lane in bench.backend.backend.look("work").lanes) == 1
