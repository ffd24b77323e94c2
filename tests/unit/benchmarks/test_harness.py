import gc
import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import pytest

from benchmarks._harness import (
    Benchmark,
    Contender,
    Goal,
    Results,
    Sample,
    Work,
    main,
    paired_difference,
    paired_ratio,
    run,
    table,
)


class Timer:
    """Time that passes only while a contender works."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def spend(self, *seconds_of_each_run: float) -> Work:
        """Work whose runs take these times, the warm-up first; the last one for all that follow."""
        left = list(seconds_of_each_run)

        def work(units: int) -> int:
            self.now += left.pop(0) if len(left) > 1 else left[0]
            return units

        return work


@pytest.fixture(autouse=True)
def no_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection takes a tenth of a second in a process as large as the one that runs all tests."""
    monkeypatch.setattr(gc, "collect", lambda: 0)


@pytest.fixture
def timer() -> Timer:
    return Timer()


def no_goals(_: Results) -> list[Goal]:
    return []


def one_goal(value: float) -> Callable[[bool], Benchmark]:
    """A benchmark of which 2.0 or more is expected."""
    timer = Timer()

    def build(_quick: bool) -> Benchmark:
        return Benchmark(
            contenders=[Contender.plain("only", timer.spend(0.5), 100)],
            goals=lambda _: [Goal("speed", value, 2.0, "higher")],
            rounds=3,
            timer=timer,
        )

    return build


def test_contenders_take_turns_in_an_order_that_rotates_after_one_round_to_warm_up(timer: Timer) -> None:
    turns: list[str] = []

    def contender(name: str) -> Contender:
        def work(units: int) -> int:
            turns.append(name)
            timer.now += 1
            return units

        return Contender.plain(name, work, 1)

    results = run(Benchmark(contenders=[contender(name) for name in "abc"], goals=no_goals, rounds=3, timer=timer))
    assert "".join(turns) == "abc" + "bca" + "cab" + "abc"
    assert {name: len(samples) for name, samples in results.samples.items()} == {"a": 3, "b": 3, "c": 3}


def test_the_round_that_warms_up_does_not_count(timer: Timer) -> None:
    contender = Contender.plain("slow start", timer.spend(100.0, 1.0), 10)
    results = run(Benchmark(contenders=[contender], goals=no_goals, rounds=2, timer=timer))
    assert results.samples["slow start"] == [Sample(10, 1.0), Sample(10, 1.0)]


def test_what_is_set_up_and_torn_down_in_every_round_is_not_measured(timer: Timer) -> None:
    events: list[str] = []

    @contextmanager
    def prepare() -> Iterator[Work]:
        events.append("set up")
        timer.now += 50
        yield timer.spend(2.0)
        timer.now += 50
        events.append("torn down")

    results = run(Benchmark(contenders=[Contender("c", prepare, 1)], goals=no_goals, rounds=2, timer=timer))
    assert results.seconds("c") == [2.0, 2.0]
    assert events == ["set up", "torn down"] * 3


def test_what_is_set_up_is_torn_down_when_the_work_fails(timer: Timer) -> None:
    events: list[str] = []

    def fail(_: int) -> int:
        raise OSError("out of luck")

    @contextmanager
    def prepare() -> Iterator[Work]:
        try:
            yield fail
        finally:
            events.append("torn down")

    with pytest.raises(OSError, match="out of luck"):
        run(Benchmark(contenders=[Contender("c", prepare, 1)], goals=no_goals, timer=timer))
    assert events == ["torn down"]


def test_rates_count_the_units_that_were_done_and_not_those_that_were_asked_for(timer: Timer) -> None:
    def half(units: int) -> int:
        timer.now += 2
        return units // 2

    results = run(Benchmark(contenders=[Contender.plain("half", half, 100)], goals=no_goals, rounds=1, timer=timer))
    assert results.rates("half") == [25.0]
    assert results.seconds("half") == [0.04]


def test_ratios_are_taken_within_a_round_so_that_drift_cancels_out(timer: Timer) -> None:
    """The machine grows ten times slower on the way; each round still sees one contender twice as fast."""
    benchmark = Benchmark(
        contenders=[
            Contender.plain("base", timer.spend(1, 2, 8, 20), 100),
            Contender.plain("fast", timer.spend(1, 1, 4, 10), 100),
        ],
        goals=no_goals,
        rounds=3,
        timer=timer,
    )
    results = run(benchmark)
    assert paired_ratio(results.rates("fast"), results.rates("base")) == 2.0
    assert paired_ratio(results.seconds("fast"), results.seconds("base")) == 0.5


def test_a_paired_ratio_is_the_median_of_ratios_and_not_the_ratio_of_medians() -> None:
    assert paired_ratio([10, 20, 90], [10, 5, 30]) == 3.0


def test_a_paired_difference_is_the_median_of_differences() -> None:
    assert paired_difference([10, 20, 90], [9, 5, 30]) == 15


def test_only_rounds_of_the_same_run_are_paired() -> None:
    with pytest.raises(ValueError, match="shorter"):
        paired_ratio([1, 2], [1])


def test_the_table_shows_median_spread_and_ratio(timer: Timer) -> None:
    benchmark = Benchmark(
        contenders=[
            Contender.plain("base", timer.spend(9, 1, 2, 4), 1000),
            Contender.plain("fast", timer.spend(9, 0.5, 1, 1), 1000),
        ],
        goals=no_goals,
        rounds=3,
        base="base",
        timer=timer,
    )
    head, base, fast = (line.split() for line in table(benchmark, run(benchmark)))
    assert head == ["contender", "rounds", "median", "min", "max", "units/s"]
    assert base == ["base", "3", "500", "250", "1,000"]
    assert fast == ["fast", "3", "1,000", "1,000", "2,000", "2.00", "x", "base"]


def test_the_table_can_show_seconds_and_needs_no_base(timer: Timer) -> None:
    contenders = [Contender.plain("one", timer.spend(9, 0.25), 2)]
    benchmark = Benchmark(contenders=contenders, goals=no_goals, rounds=1, show="seconds", timer=timer)
    head, one = (line.split() for line in table(benchmark, run(benchmark)))
    assert head[-1] == "seconds/unit"
    assert one == ["one", "1", "0.125", "0.125", "0.125"]


@pytest.mark.parametrize(
    ("value", "better", "met"),
    [
        (1.9, "higher", False),
        (2.0, "higher", True),
        (2.1, "higher", True),
        (1.9, "lower", True),
        (2.0, "lower", True),
        (2.1, "lower", False),
        (float("nan"), "higher", False),
        (float("nan"), "lower", False),
    ],
)
def test_a_goal_is_met_by_a_value_at_least_as_good(value: float, better: Literal["higher", "lower"], met: bool) -> None:
    assert Goal("speed", value, 2.0, better).met is met


@pytest.mark.parametrize(("value", "met", "status"), [(3.0, True, 0), (1.0, False, 1)])
def test_the_last_line_is_json_and_a_missed_goal_is_an_exit_status(
    value: float, met: bool, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main("example", one_goal(value), []) == status
    *lines, last = capsys.readouterr().out.splitlines()
    assert json.loads(last) == {
        "benchmark": "example",
        "goals": [{"name": "speed", "value": value, "goal": 2.0, "better": "higher", "met": met}],
    }
    assert not any(line.startswith("{") for line in lines)
    assert lines[1].split() == ["only", "3", "200", "200", "200"]


def test_a_benchmark_without_goals_only_reports(timer: Timer, capsys: pytest.CaptureFixture[str]) -> None:
    benchmark = Benchmark(contenders=[Contender.plain("a", timer.spend(1), 1)], goals=no_goals, timer=timer)
    assert main("example", lambda _: benchmark, []) == 0
    assert capsys.readouterr().out.splitlines()[-1] == '{"benchmark": "example", "goals": []}'


def test_a_value_that_is_no_number_is_not_reported_as_json() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        main("example", one_goal(float("nan")), [])


@pytest.mark.parametrize(("arguments", "quick"), [([], False), (["--quick"], True)])
def test_the_benchmark_is_told_whether_to_be_quick(arguments: list[str], quick: bool) -> None:
    told: list[bool] = []

    def build(asked: bool) -> Benchmark:
        told.append(asked)
        return one_goal(3.0)(asked)

    main("example", build, arguments)
    assert told == [quick]


def test_an_unknown_argument_is_a_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main("example", one_goal(3.0), ["--fast"])
    assert caught.value.code == 2
    assert "--fast" in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_every_round_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    main("example", one_goal(3.0), [])
    rounds = [f"example: round {number} of 3" for number in (1, 2, 3)]
    assert terminal.getvalue().splitlines() == ["example: warming up", *rounds]


def test_a_log_sees_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    main("example", one_goal(3.0), [])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("units", "seconds"), [(0, 1.0), (1, 0.0)])
def test_work_that_is_too_little_to_measure_is_refused(units: int, seconds: float, timer: Timer) -> None:
    contender = Contender.plain("tiny", timer.spend(seconds), units)
    with pytest.raises(ValueError, match=r"tiny: .* too little to measure"):
        run(Benchmark(contenders=[contender], goals=no_goals, timer=timer))


def test_contenders_have_names_of_their_own(timer: Timer) -> None:
    twins = [Contender.plain("twin", timer.spend(1), 1)] * 2
    for contenders in ([], twins):
        with pytest.raises(ValueError, match="every name once"):
            Benchmark(contenders=contenders, goals=no_goals)


def test_the_base_is_one_of_the_contenders(timer: Timer) -> None:
    with pytest.raises(ValueError, match="base 'other': expected one of"):
        Benchmark(contenders=[Contender.plain("one", timer.spend(1), 1)], goals=no_goals, base="other")


def test_at_least_one_round_counts(timer: Timer) -> None:
    with pytest.raises(ValueError, match="rounds 0"):
        Benchmark(contenders=[Contender.plain("one", timer.spend(1), 1)], goals=no_goals, rounds=0)
