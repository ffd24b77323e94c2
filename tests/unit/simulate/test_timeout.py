"""A timeout that is learned holds its rate of false timeouts, and finds it again when latencies grow."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import TypeAlias

import pytest

from holdfast import InvalidValue
from holdfast.simulate import LatencyShift, WindowResult
from holdfast.simulate.timeout import FIXED, PERCENTILE, RULES, SUCCESSES, SuccessesOnly, compare
from tests.table import rows, sampled

Run: TypeAlias = tuple[float, list[WindowResult]]


@functools.cache
def happened(percent: float, seed: int, sigma: float) -> Run:
    """The share that is accepted, and what happened: in a test, and not in its set-up, which is always traced."""
    options = LatencyShift(percent=percent, seed=seed, sigma=sigma)
    return options.policy.accepted_false_timeouts, list(compare(options))


RUNS = [(99.0, 1, 0.3), (95.0, 1, 0.5), (99.9, 1, 0.5), (99.0, 2, 0.5), (99.0, 3, 1.0), (99.0, 4, 1.3)]


def heavy(test: Callable[[Run], None]) -> Callable[[tuple[float, int, float]], None]:
    """For each of the runs; half a million latencies are not traced one by one."""

    def run_of(options: tuple[float, int, float]) -> None:
        test(happened(*options))

    run_of.__name__, run_of.__doc__ = test.__name__, test.__doc__
    marked = pytest.mark.no_cover(run_of)
    return pytest.mark.parametrize("options", sampled(RUNS, 2), ids=lambda run: "p{}, seed {}, sigma {}".format(*run))(
        marked
    )


def pooled(windows: list[WindowResult], rule: str) -> float:
    return sum(window.rules[rule].false_timeouts for window in windows) / len(windows)


@heavy
def test_percentile_holds_the_accepted_rate_once_it_has_seen_two_windows(run: Run) -> None:
    """For p99.9 these are a hundred thousand latencies."""
    accepted, windows = run
    assert 0.5 * accepted <= pooled(windows[2:6], PERCENTILE) <= 1.5 * accepted


@heavy
def test_percentile_is_back_on_target_within_five_windows_of_a_shift(run: Run) -> None:
    accepted, windows = run
    shares = [window.rules[PERCENTILE].false_timeouts for window in windows[7:11]]
    assert any(0.5 * accepted <= share <= 1.5 * accepted for share in shares)  # by chance alone it varies by a sixth
    assert 0.5 * accepted <= pooled(windows[8:], PERCENTILE) <= 1.5 * accepted
    assert windows[-1].rules[PERCENTILE].timeout == pytest.approx(windows[-1].ideal_timeout, rel=0.35)


@heavy
def test_percentile_cuts_off_little_even_in_the_window_of_the_shift(run: Run) -> None:
    accepted, windows = run
    assert windows[6].rules[PERCENTILE].false_timeouts < 10 * accepted


@heavy
def test_what_learns_from_successes_alone_ratchets_down_and_locks(run: Run) -> None:
    accepted, windows = run
    shares = [window.rules[SUCCESSES].false_timeouts for window in windows]
    assert shares[:6] == sorted(shares[:6])
    assert shares[5] > 4 * accepted
    assert min(shares[7:]) > 0.25
    assert windows[-1].rules[SUCCESSES].timeout < windows[0].ideal_timeout


@heavy
def test_a_fixed_timeout_that_was_right_is_wrong_after_the_shift(run: Run) -> None:
    accepted, windows = run
    assert pooled(windows[:6], FIXED) == pytest.approx(accepted, rel=0.3)
    assert min(window.rules[FIXED].false_timeouts for window in windows[6:]) > 0.05
    assert {window.rules[FIXED].timeout for window in windows} == {windows[0].ideal_timeout}


@heavy
def test_the_right_timeout_grows_with_the_latencies(run: Run) -> None:
    _, windows = run
    assert [window.number for window in windows] == list(range(12))
    assert windows[6].ideal_timeout == pytest.approx(6 * windows[5].ideal_timeout)
    assert all(tuple(window.rules) == RULES for window in windows)
    assert all(seen.max_timeout >= seen.timeout * 0.5 for window in windows for seen in window.rules.values())


def test_the_same_seed_gives_the_same_result_and_another_one_another() -> None:
    options = LatencyShift(percent=95.0, windows=2)
    found = list(compare(options))
    assert list(compare(options)) == found
    assert list(compare(dataclasses.replace(options, seed=2))) != found


def test_requests_that_do_not_fill_the_last_look_of_a_window_count_in_it() -> None:
    """5,000 requests are not a multiple of 150."""
    (first, _) = compare(LatencyShift(percent=99.0, windows=2, rate=300.0))
    assert first.rules[FIXED].false_timeouts * 5000 == pytest.approx(50, abs=25)


def test_successes_alone_say_nothing_before_there_are_enough() -> None:
    policy = LatencyShift(percent=99.0).policy
    rule = SuccessesOnly(policy)
    assert rule.learn([0.5] * (policy.samples_needed - 1)) == policy.start_timeout
    assert rule.learn([math.inf] * 100) == policy.start_timeout
    assert rule.learn([0.5]) == pytest.approx(0.5, rel=0.04)


@rows(
    ("wrong", "told"),
    [
        ({"percent": 100.0}, "percentile 100.0"),
        ({"median": 0.0}, "median 0.0"),
        ({"factor": math.inf}, "factor inf"),
        ({"sigma": 0.0}, "sigma 0.0"),
        ({"windows": 1}, "1 windows"),
        ({"rate": 1.0}, "rate 1.0"),
        ({"rate": 2000.0}, "rate 2000.0"),
        ({"median": 5.0}, "the bounds of Percentile"),
        ({"median": 0.001}, "the bounds of Percentile"),
        ({"factor": 0.01}, "the bounds of Percentile"),
    ],
)
def test_what_cannot_be_simulated_is_refused_by_name(wrong: dict[str, float], told: str) -> None:
    with pytest.raises(InvalidValue, match=told):
        LatencyShift(**wrong)  # type: ignore[arg-type]
