"""The store is kept from growing by what nobody needs."""

from holdfast.queue import OutgoingMessage, SentMessage
from holdfast.queue.worker.leases import SWEEP_SECONDS
from tests.unit.queue.worker.bench import Bench


def test_a_worker_sweeps_about_once_a_minute_and_not_at_its_start() -> None:
    bench = Bench()
    bench.queue.handle()(lambda _: None)
    bench.queue.send_many([OutgoingMessage(tenant="a", body=b"", ttl=10.0), OutgoingMessage(tenant="a", body=b"")])
    bench.clock.advance(20)
    pauses = [bench.run.sweeper.step()]
    assert sum(lane.ready for lane in bench.backend.backend.inspect("work").lanes) == 2
    pauses.append(bench.run.sweeper.step())
    assert sum(lane.ready for lane in bench.backend.backend.inspect("work").lanes) == 1
    assert all(SWEEP_SECONDS / 2 <= pause <= SWEEP_SECONDS * 1.5 for pause in pauses)


def test_what_has_not_expired_is_left_alone() -> None:
    bench = Bench()
    bench.queue.handle()(lambda _: None)
    [sent] = bench.queue.send_many([OutgoingMessage(tenant="a", body=b"", ttl=60.0)])
    assert isinstance(sent, SentMessage)
    for _ in range(3):
        bench.run.sweeper.step()
    assert sum(lane.ready for lane in bench.backend.backend.inspect("work").lanes) == 1
