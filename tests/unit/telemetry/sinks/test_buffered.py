"""Lines that wait to be written."""

import threading
from collections import deque
from collections.abc import Callable

import pytest

from holdfast._background import RetryLater
from holdfast.telemetry.sinks import buffered
from holdfast.telemetry.sinks.buffered import Batch, BufferedSink
from tests.unit.forked import in_child

PATIENCE = 20.0


class Written(BufferedSink):
    """A sink whose receiver is a list, which can be told to fail."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.batches: list[int] = []
        self.error: Exception | None = None
        self.before_write: Callable[[], object] = lambda: None
        self.disconnections = 0
        super().__init__(action="write")

    def _write(self, batch: Batch) -> None:
        self.before_write()
        if self.error is not None:
            raise self.error
        self.batches.append(len(batch.lines))
        self.lines += batch.lines
        self._count_sent(batch, len(batch.lines))

    def _disconnect(self) -> None:
        self.disconnections += 1


def numbers(*values: int) -> list[bytes]:
    return [b"%d" % value for value in values]


def emit(sink: BufferedSink, *lines: bytes) -> None:
    for line in lines:
        sink.emit(line)


def test_lines_are_written_in_order_in_batches_of_limited_lines_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffered, "MAX_BATCH_BYTES", 3000)
    sink = Written()
    lines = [*(b"x" * 1000 for _ in range(4)), b"y" * 5000, *numbers(*range(600))]
    emit(sink, *lines)
    assert sink.held_lines == 605
    assert sink.flush()
    assert sink.lines == lines
    assert sink.batches == [3, 1, 1, 500, 100], "a line that is longer than a batch is one of its own"
    assert (sink.held_lines, sink.sent_lines, sink.dropped_lines) == (0, 605, 0)


def test_past_the_limit_of_lines_the_oldest_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffered, "MAX_HELD_LINES", 3)
    sink = Written()
    emit(sink, *numbers(0, 1, 2, 3, 4))
    assert (sink.held_lines, sink.dropped_lines) == (3, 2)
    sink.close()
    assert (sink.lines, sink.dropped_lines) == (numbers(2, 3, 4), 2)


def test_past_the_limit_of_bytes_the_oldest_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffered, "MAX_HELD_BYTES", 10)
    sink = Written()
    emit(sink, b"aaaa", b"bbbb", b"cccc", b"dddddddd")
    sink.close()
    assert (sink.lines, sink.dropped_lines) == ([b"dddddddd"], 3)


def test_a_line_that_no_receiver_accepts_is_dropped_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffered, "MAX_LINE_BYTES", 4)
    sink = Written()
    emit(sink, b"a", b"bbbbb", b"cccc")
    sink.close()
    assert (sink.lines, sink.dropped_lines) == ([b"a", b"cccc"], 1)


@pytest.mark.parametrize("error", [OSError("no route"), RetryLater("busy", 5.0)])
def test_a_batch_that_cannot_be_written_is_kept_until_newer_lines_need_its_room(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(buffered, "MAX_HELD_LINES", 3)
    sink = Written()
    emit(sink, *numbers(0, 1))
    sink.error = error
    sink._loop.run_step()
    emit(sink, *numbers(2, 3))
    sink._loop.run_step()
    assert (sink.held_lines, sink.dropped_lines) == (4, 0)
    emit(sink, *numbers(4))
    sink._loop.run_step()
    assert (sink.held_lines, sink.dropped_lines) == (3, 2)
    sink.error = None
    sink.close()
    assert sink.lines == numbers(2, 3, 4)
    assert sink.sent_lines + sink.dropped_lines == 5


def test_after_a_failure_the_connection_is_opened_again_but_not_after_a_request_to_wait() -> None:
    sink = Written()
    emit(sink, b"a")
    sink.error = RetryLater("busy", 5.0)
    assert sink._loop.run_step() == 5.0
    assert sink.disconnections == 0
    sink.error = OSError("no route")
    sink._loop.run_step()
    assert sink.disconnections == 1


def test_a_thread_writes_and_closing_writes_the_last_lines() -> None:
    with Written() as sink:
        emit(sink, *numbers(*range(50)))
        assert sink.flush()
        assert sink.lines == numbers(*range(50))
        emit(sink, b"last")
    assert sink.lines[-1] == b"last"
    assert not sink._loop.is_running
    sink.close()
    emit(sink, b"later")
    assert sink.start().flush()
    sink.close()
    assert sink.lines[-1] == b"later"


def test_a_flush_waits_for_lines_that_a_running_step_did_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Written()
    entered, leave = threading.Event(), threading.Event()

    def block() -> None:
        sink.before_write = lambda: None
        entered.set()
        leave.wait(PATIENCE)

    sink.before_write = block
    with sink:
        emit(sink, b"first")
        sink._loop.wake()
        assert entered.wait(PATIENCE)
        emit(sink, b"second")
        wake = sink._loop.wake

        def wake_and_leave() -> None:
            wake()
            leave.set()  # so the step ends while the flush waits

        monkeypatch.setattr(sink._loop, "wake", wake_and_leave)
        assert sink.flush()
    assert sink.lines == [b"first", b"second"]


def test_neither_emitting_nor_closing_waits_for_a_receiver_that_blocks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(buffered, "STOP_SECONDS", 0.01)
    sink = Written()
    entered, leave = threading.Event(), threading.Event()

    def block() -> None:
        entered.set()
        leave.wait(PATIENCE)

    sink.before_write = block
    emit(sink, b"first")
    sink.start()
    sink._loop.wake()
    assert entered.wait(PATIENCE)
    emit(sink, b"second")
    assert not sink.flush(timeout=0.01)
    monkeypatch.setattr(Written, "flush", lambda self: BufferedSink.flush(self, 0.01))
    sink.close()
    assert caplog.messages == ["cannot write, 2 lines not sent"]
    assert sink.disconnections == 0, "the thread still uses the connection"
    leave.set()
    assert sink._loop.stop(PATIENCE)


def test_a_failure_while_closing_is_logged_and_the_lines_stay() -> None:
    sink = Written()
    emit(sink, b"a")
    sink.error = OSError("no route")
    with sink:
        assert not sink.flush()
    assert (sink.held_lines, sink.dropped_lines) == (1, 0)


def test_threads_that_emit_at_once_lose_and_repeat_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffered, "MAX_HELD_LINES", 2000)
    sink = Written()

    def work(thread: int) -> None:
        for number in range(1000):
            sink.emit(b"%d %d" % (thread, number))

    with sink:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sink.flush()
    assert sink.sent_lines + sink.dropped_lines == 8000
    assert len(sink.lines) == len(set(sink.lines)) == sink.sent_lines
    for number in range(8):
        own = [int(line.split()[1]) for line in sink.lines if line.startswith(b"%d " % number)]
        assert own == sorted(own)


def test_a_line_that_the_garbage_collector_emits_in_the_middle_of_another_does_not_block() -> None:
    sink = Written()

    class Lines(deque[bytes]):
        def append(self, line: bytes) -> None:
            if line == b"outer":
                sink.emit(b"inner")  # as the end of an abandoned request does, in the same thread
            super().append(line)

    sink._buffer._lines = Lines()
    sink.emit(b"outer")
    assert sink.flush()
    assert sink.lines == [b"inner", b"outer"]


def test_a_forked_child_writes_its_own_lines_while_a_thread_of_the_parent_held_the_lock() -> None:
    sink = Written()
    with sink:
        emit(sink, b"of the parent")
        with sink._buffer._lock, sink._steps:

            def work() -> bool:
                sink.lines.clear()
                sink.emit(b"of the child")
                return sink.flush() and sink.lines == [b"of the child"] and sink.sent_lines == 1

            in_child(work)
    assert sink.lines == [b"of the parent"]
