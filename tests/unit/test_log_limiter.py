"""The limit on log records of one kind."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast._log_limiter import LogLimiter


@given(st.integers(1, 4), st.lists(st.floats(0, 0.7), max_size=60))
def test_a_gate_lets_through_or_counts_each_one_and_never_too_many_at_once(most: int, pauses: list[float]) -> None:
    gate = LogLimiter(most, 1.0)
    now, through, told = 0.0, [], 0
    for pause in pauses:
        now += pause
        suppressed = gate.admit("a", now)
        if suppressed is not None:
            through.append(now)
            told += suppressed
    assert len(through) + told + gate.pop_suppressed().get("a", 0) == len(pauses)
    for index in range(len(through) - 2 * most):
        assert through[index + 2 * most] - through[index] >= 1.0  # two windows may touch
