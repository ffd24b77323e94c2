"""After a stall it is the callers who decide when a service comes back: with the defaults, as without retries."""

import dataclasses
import functools
import math

import pytest

from holdfast import InvalidValue
from holdfast.simulate import Stall, StallResult
from holdfast.simulate.metastability import CALLERS, Callers, Second, compare, find_recovery, simulate_stall
from tests.table import rows, sampled

NO_RETRIES, NO_BUDGET, BY_REQUESTS, DEFAULTS = CALLERS
SEEDS = [1, 2, 3, 4]


@functools.cache
def with_the_defaults(seed: int) -> StallResult:
    """What happens in the stall that is simulated by default; asked for only by tests that are not traced."""
    return simulate_stall(Stall(seed=seed), DEFAULTS)


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", sampled(SEEDS))
def test_with_the_defaults_it_recovers_about_as_soon_as_without_retries(seed: int) -> None:
    without = simulate_stall(Stall(seed=seed), NO_RETRIES).recovery_seconds
    with_defaults = with_the_defaults(seed).recovery_seconds
    assert without is not None
    assert with_defaults is not None
    # The backlog of 10 s at 80 per second is worked off by the 20 per second that are to spare, down to one second.
    assert 25 <= without <= 50
    assert with_defaults <= 1.5 * without


@pytest.mark.no_cover
@pytest.mark.parametrize("seconds", sampled([110.0, 150.0]))
@pytest.mark.parametrize("callers", [NO_BUDGET, BY_REQUESTS], ids=["no budget", "paid by requests"])
def test_retries_that_successes_do_not_pay_for_keep_it_down(callers: Callers, seconds: float) -> None:
    found = simulate_stall(Stall(seconds=seconds), callers)
    assert found.recovery_seconds is None
    after = found.history[60:-5]
    assert sum(second.answered for second in after) < 0.05 * sum(second.offered for second in after)
    assert after[-1].queue > after[0].queue


def test_all_callers_meet_the_same_requests() -> None:
    results = list(compare(Stall(seconds=45.0)))
    assert [result.callers for result in results] == [callers.name for callers in CALLERS]
    offered = {tuple(second.offered for second in result.history) for result in results}
    assert len(offered) == 1
    assert results[0].calls_per_request == 1.0
    assert results[1].calls_per_request > 2.0


def test_without_a_stall_worth_the_name_nobody_notices() -> None:
    found = simulate_stall(Stall(stall=0.01), DEFAULTS)
    assert (found.recovery_seconds, found.calls_per_request, round(found.success_rate, 3)) == (0, 1.0, 1.0)


def test_during_the_stall_nothing_is_answered_and_what_waits_is_known() -> None:
    found = simulate_stall(Stall(seconds=60.0), NO_RETRIES)
    assert all(second.answered == second.offered for second in found.history[:8])
    assert all(second.answered == 0 for second in found.history[11:19])
    assert found.history[8].queue < 0.5
    # At the end of the stall what came during it waits: about 800 calls of 10 ms.
    assert found.history[19].queue == pytest.approx(8.0, abs=1.5)


@pytest.mark.parametrize("seed", sampled(range(1, 21), 4))
def test_a_call_that_is_under_way_when_the_server_stalls_waits_for_its_end(seed: int) -> None:
    """When the stall begins the server is idle, or whoever comes waits for all of it."""
    queue = simulate_stall(Stall(rate=0.5, capacity=1.0, seconds=45.0, seed=seed), NO_RETRIES).history[9].queue
    assert queue == 0.0 or queue > 10.0


@pytest.mark.no_cover
def test_the_budget_of_each_client_is_its_own() -> None:
    """So ten clients have ten buckets full of retries, and take longer."""
    one = with_the_defaults(Stall().seed)
    ten = simulate_stall(Stall(clients=10), DEFAULTS)
    assert ten.calls_per_request > one.calls_per_request


def test_the_same_seed_gives_the_same_result_and_another_one_another() -> None:
    options = Stall(seconds=45.0)
    found = simulate_stall(options, DEFAULTS)
    assert simulate_stall(options, DEFAULTS) == found
    assert simulate_stall(dataclasses.replace(options, seed=2), DEFAULTS) != found


def lived(*good: bool) -> tuple[Second, ...]:
    return tuple(Second(offered=100, answered=100 if one else 0, calls=100, queue=0.0) for one in good)


BAD_SECONDS = [False] * 10


def test_a_recovery_is_the_end_of_the_last_bad_second() -> None:
    options = Stall(stall_start=10.0, stall=10.0, seconds=60.0)
    history = lived(*[True] * 10, *BAD_SECONDS, *[False] * 3, True, False, *[True] * 35)
    assert len(history) == 60
    assert find_recovery(history, options) == 5
    assert find_recovery(lived(*[True] * 60), options) == 0
    assert find_recovery(lived(*[True] * 10, *BAD_SECONDS, *[True] * 40), options) == 0
    assert find_recovery(lived(*[True] * 10, *[False] * 45, *[True] * 5), options) is None
    # What came in the last seconds may still be on its way.
    assert find_recovery(lived(*[True] * 58, False, False), options) == 0


def test_results_are_values() -> None:
    assert isinstance(simulate_stall(Stall(seconds=45.0), NO_RETRIES), StallResult)


@rows(
    ("wrong", "told"),
    [
        ({"rate": 100.0}, "rate 100.0 and capacity 100.0"),
        ({"rate": 0.0}, "rate 0.0"),
        ({"capacity": math.inf}, "capacity inf"),
        ({"clients": 0}, "0 clients"),
        ({"timeout": 0.0}, "timeout 0.0"),
        ({"stall": 0.0}, "stall 0.0"),
        ({"stall_start": -1.0}, "after -1.0"),
        ({"seconds": 39.0}, "39.0 seconds in all"),
    ],
)
def test_what_cannot_be_simulated_is_refused_by_name(wrong: dict[str, float], told: str) -> None:
    with pytest.raises(InvalidValue, match=told):
        Stall(**wrong)  # type: ignore[arg-type]
