"""How an attempt with httpx is followed, step by step, on a clock of the test's own."""

from typing import Any

import httpx
import pytest

from holdfast import AttemptTimedOut, DeadlineExceeded
from holdfast.calls import Attempt, Dependency, Timeouts
from holdfast.calls.adapters.httpx import (
    HttpxAttemptTimedOut,
    HttpxConnectTimedOut,
    HttpxDeadlineExceeded,
    HttpxPoolTimedOut,
)
from holdfast.calls.adapters.httpx.progress import DEFAULT, Progress
from holdfast.calls.adapters.rules import MIN_TIMEOUT
from holdfast.calls.dependency import state_of
from holdfast.calls.runtime import Runtime
from holdfast.testing import FakeClock

CLIENTS = {"connect": 60.0, "read": 60.0, "write": 60.0, "pool": 60.0}


class Attempting:
    """An attempt of 1 second, 4 for a connection and 10 for the whole call."""

    def __init__(self, asked: Any = CLIENTS, *, is_cancellable: bool = False, **timeouts: Any) -> None:
        self.clock = FakeClock()
        bounds = {"connect": 4.0, "attempt": 1.0, "total": 10.0, **timeouts}
        runtime = Runtime(self.clock, lambda: 0.5)
        self.dependency = state_of(Dependency("pricing", timeouts=Timeouts(**bounds), runtime=runtime))
        now = self.clock.monotonic()
        limit = now + self.dependency.total
        self.attempt = Attempt(min(limit, now + self.dependency.timeout), None, None, self.dependency, limit)
        self.progress = Progress(self.attempt, asked, is_cancellable=is_cancellable)

    def on_step(self, step: str, after: float = 0.0) -> dict[str, Any]:
        self.clock.sleep(after)
        about: dict[str, Any] = {"timeout": self.progress.timeouts["connect"]}
        self.progress.on_step(step, about)
        return about


def test_waiting_for_a_connection_and_setting_it_up_are_bounded_from_the_beginning() -> None:
    assert Attempting().progress.timeouts == {"connect": 4.0, "read": 60.0, "write": 60.0, "pool": pytest.approx(0.9)}


def test_the_clients_own_timeouts_hold_if_they_are_shorter() -> None:
    it = Attempting({"connect": 0.3, "read": 0.2, "write": 0.1, "pool": 0.4})
    it.on_step("http11.send_request_headers.started")
    assert it.progress.timeouts == {"connect": 0.3, "read": 0.2, "write": 0.1, "pool": 0.4}


def test_tcp_and_tls_share_the_time_for_a_connection() -> None:
    it = Attempting()
    assert it.on_step("connection.connect_tcp.started")["timeout"] == pytest.approx(4.0)
    assert it.on_step("connection.start_tls.started", after=3.0)["timeout"] == pytest.approx(1.0)


def test_after_a_set_up_the_attempt_has_its_whole_time() -> None:
    it = Attempting()
    it.on_step("connection.connect_tcp.started")
    it.on_step("connection.start_tls.started", after=3.0)
    it.on_step("http11.send_request_headers.started", after=0.5)
    assert it.progress.timeouts["write"] == pytest.approx(1.0)
    assert it.attempt.setup_seconds == pytest.approx(3.5)
    assert it.dependency.connect_estimator.histogram.total == 1
    it.on_step("http11.receive_response_headers.started", after=0.25)
    assert it.progress.timeouts["read"] == pytest.approx(0.75)


def test_waiting_for_the_pool_is_neither_a_set_up_nor_latency_nor_taken_from_the_attempt() -> None:
    it = Attempting()
    it.on_step("http11.send_request_headers.started", after=0.75)
    assert it.attempt.setup_seconds == pytest.approx(0.75)
    assert it.dependency.connect_estimator.histogram.total == 0
    assert it.progress.timeouts["read"] == pytest.approx(1.0)


def test_the_whole_call_takes_no_longer_for_it() -> None:
    it = Attempting(total=1.2)
    it.on_step("http11.send_request_headers.started", after=0.75)
    assert it.progress.timeouts["read"] == pytest.approx(0.45)


def test_a_connection_that_is_free_at_once_needs_no_other_timer() -> None:
    it = Attempting()
    expires = it.attempt.expires
    it.on_step("http11.send_request_headers.started", after=0.0005)
    assert it.attempt.expires == expires


def test_a_tunnel_is_set_up_in_two_parts() -> None:
    it = Attempting()
    it.on_step("connection.connect_tcp.started")
    it.on_step("http11.send_request_headers.started", after=0.5)
    it.on_step("proxy.start_tls.started", after=0.5)
    it.on_step("http11.send_request_headers.started", after=1.0)
    assert it.attempt.setup_seconds == pytest.approx(2.0)
    assert it.progress.timeouts["read"] == pytest.approx(1.0)


def test_a_body_that_is_handed_over_is_bounded_by_the_call() -> None:
    it = Attempting()
    it.on_step("http11.send_request_headers.started")
    it.progress.is_whole_call = True
    it.on_step("http11.receive_response_body.started", after=2.0)
    assert it.progress.timeouts["read"] == pytest.approx(8.0)
    it.progress.check()
    it.clock.sleep(8.0)
    with pytest.raises(DeadlineExceeded):
        it.progress.check()


def test_no_timeout_is_zero_when_there_is_no_time_left() -> None:
    it = Attempting()
    it.on_step("http11.receive_response_headers.started", after=5.0)
    assert it.progress.timeouts["read"] == MIN_TIMEOUT
    with pytest.raises(AttemptTimedOut):
        it.progress.check()


def test_without_bounds_the_clients_timeouts_stay() -> None:
    it = Attempting({"read": None, "write": 7.0}, attempt=None, total=None)
    it.on_step("http11.send_request_headers.started")
    assert it.progress.timeouts == {"read": None, "write": 7.0, "pool": None, "connect": 4.0}


def test_where_attempts_are_cut_off_reads_and_writes_are_the_clients() -> None:
    it = Attempting(is_cancellable=True)
    it.on_step("http11.send_request_headers.started")
    assert (it.progress.timeouts["read"], it.progress.timeouts["write"]) == (60.0, 60.0)


def test_an_attempt_that_ended_before_it_had_a_connection_has_sent_nothing() -> None:
    waiting, sent, connecting = Attempting(), Attempting(), Attempting()
    sent.on_step("http11.send_request_headers.started")
    connecting.on_step("connection.connect_tcp.started")
    for it in (waiting, sent, connecting):
        it.progress.mark_unsent()
    assert [it.attempt.timed_out_in_pool for it in (waiting, sent, connecting)] == [True, False, False]
    assert waiting.attempt.connecting_since is None, "it says nothing of how long connections take"


# The default of httpx

UNSET = httpx.Timeout(5.0).as_dict()


def test_the_clients_default_is_the_one_that_is_known() -> None:
    with httpx.Client() as client:
        assert client.timeout.as_dict() == DEFAULT


def test_timeouts_that_nobody_chose_do_not_undercut_the_dependency() -> None:
    it = Attempting(UNSET, connect=20.0, attempt=30.0, total=60.0)
    it.on_step("http11.send_request_headers.started")
    assert it.progress.timeouts == {"connect": 20.0, "read": 30.0, "write": 30.0, "pool": pytest.approx(27.0)}


def test_nor_do_they_where_attempts_are_cut_off() -> None:
    it = Attempting(UNSET, is_cancellable=True, connect=20.0, attempt=30.0, total=60.0)
    it.on_step("http11.send_request_headers.started")
    assert it.progress.timeouts == {"connect": 20.0, "read": None, "write": None, "pool": pytest.approx(27.0)}


@pytest.mark.parametrize("is_cancellable", [False, True])
def test_they_stay_where_there_is_no_other_bound(is_cancellable: bool) -> None:
    it = Attempting(UNSET, is_cancellable=is_cancellable, attempt=None, total=None)
    it.on_step("http11.send_request_headers.started")
    assert it.progress.timeouts == {"connect": 4.0, "read": 5.0, "write": 5.0, "pool": 5.0}


def test_timeouts_that_differ_from_it_in_one_are_chosen() -> None:
    it = Attempting({**UNSET, "read": 6.0}, connect=20.0, attempt=30.0, total=60.0)
    it.on_step("http11.send_request_headers.started")
    assert it.progress.timeouts == {"connect": 5.0, "read": 6.0, "write": 5.0, "pool": 5.0}


# Timeouts of httpx


def over(it: Attempting, error: httpx.TimeoutException, after: float) -> Exception:
    it.clock.sleep(after)
    return it.progress.translate_timeout(error)


def test_a_timeout_of_httpx_is_holdfasts_when_it_was_the_attempt_that_was_over() -> None:
    it = Attempting()
    it.on_step("http11.receive_response_headers.started")
    error = over(it, httpx.ReadTimeout("slow"), 1.0)
    assert isinstance(error, HttpxAttemptTimedOut)
    assert str(error) == "pricing: attempt 1 timed out after 1.000 s"
    assert it.progress.translate_timeout(error) is error


def test_it_is_a_deadline_when_that_has_passed() -> None:
    it = Attempting(total=0.5)
    it.on_step("http11.receive_response_headers.started")
    assert isinstance(over(it, httpx.ReadTimeout("slow"), 0.5), HttpxDeadlineExceeded)


def test_it_stays_httpxs_when_it_was_the_clients_own_time() -> None:
    error = httpx.ReadTimeout("slow")
    assert over(Attempting({"read": 0.2}), error, 0.2) is error


def test_a_connection_that_took_too_long_is_told_apart() -> None:
    it = Attempting()
    it.on_step("connection.connect_tcp.started")
    error = over(it, httpx.ConnectTimeout("slow"), 4.0)
    assert isinstance(error, HttpxConnectTimedOut)
    assert str(error) == "pricing: no connection in 4.000 s"


def test_so_is_a_pool_without_a_free_one() -> None:
    error = over(Attempting(), httpx.PoolTimeout("full"), 0.9)
    assert isinstance(error, HttpxPoolTimedOut)
    assert str(error) == "pricing: no connection was free in 0.900 s"


def test_a_pool_for_which_the_client_waits_no_longer_is_httpxs_to_tell() -> None:
    error = httpx.PoolTimeout("full")
    assert over(Attempting({"pool": 0.1}), error, 0.1) is error
