"""Blocking functions run in threads that no probe waits for."""

import asyncio
import threading

import pytest

from holdfast.canary.blocking import BlockingCalls, call_function


def test_an_asynchronous_function_is_cancelled_after_its_timeout() -> None:
    cancelled: list[bool] = []

    async def hang(_: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with pytest.raises(TimeoutError):
        call_function(hang, "x", 0.001)
    assert cancelled == [True]


def test_a_result_that_comes_after_the_event_loop_was_closed_is_dropped() -> None:
    released, ended = threading.Event(), threading.Event()

    def work() -> None:
        released.wait(60)
        ended.set()

    async def run() -> None:
        calls = BlockingCalls("holdfast-canary late")
        task = asyncio.create_task(calls.run(work))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(run())
    [thread] = [thread for thread in threading.enumerate() if thread.name == "holdfast-canary late"]
    assert thread.daemon
    released.set()
    assert ended.wait(60)
    thread.join(60)
    assert not thread.is_alive()


def test_a_thread_that_cannot_be_started_is_an_error_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    calls = BlockingCalls("holdfast-canary none")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(MemoryError, match="no thread can be started: can't start new thread"):
            asyncio.run(calls.run(int))
    assert asyncio.run(calls.run(int)) == 0
