"""Contending clients behave as in the article that the model is from."""

import dataclasses

import pytest

from holdfast import InvalidValue
from holdfast.calls import Backoff, Jitter
from holdfast.simulate import Contention
from holdfast.simulate.jitter import compare, contend
from holdfast.simulate.virtual import seeded_random
from tests.table import rows, sampled

# https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/, by its simulator, with 100 clients.
ARTICLE = {
    "no backoff": (2424, 2.029),
    "no jitter": (1851, 62.984),
    "equal jitter": (813, 6.562),
    "full jitter": (795, 4.843),
    "decorrelated jitter": (999, 4.480),
}


@pytest.mark.no_cover
@pytest.mark.parametrize("runs", sampled([30, 100]))
def test_the_means_are_those_of_the_article_within_a_twentieth(runs: int) -> None:
    assert Contention().runs == 100
    found = {result.strategy: (result.calls, result.seconds) for result in compare(Contention(runs=runs))}
    assert found.keys() == ARTICLE.keys()
    for name, (calls, seconds) in ARTICLE.items():
        assert found[name][0] == pytest.approx(calls, rel=0.05), name
        assert found[name][1] == pytest.approx(seconds, rel=0.05), name


def test_the_same_seed_gives_the_same_result_and_another_one_another() -> None:
    options = Contention(clients=10, runs=3)
    assert list(compare(options)) == list(compare(options))
    assert list(compare(options)) != list(compare(dataclasses.replace(options, seed=2)))


@pytest.mark.parametrize("jitter", list(Jitter))
def test_a_client_alone_makes_one_call_and_never_waits(jitter: Jitter) -> None:
    options = Contention(clients=1, spread=0.0)
    call_times, end = contend(options, Backoff(base=0.005, cap=2.0, jitter=jitter), seeded_random("alone"))
    assert call_times == pytest.approx([0.03])  # there, back, and there again
    assert end == pytest.approx(0.04)


def test_clients_that_do_not_jitter_on_a_network_that_does_not_either_are_served_one_by_one() -> None:
    """Nobody gets ahead of the others: of those that are left, each round one succeeds and all others fail."""
    options = Contention(clients=5, spread=0.0)
    call_times, _ = contend(options, Backoff(base=0.005, cap=2.0, jitter=Jitter.NONE), seeded_random("all"))
    assert len(call_times) == 5 + 4 + 3 + 2 + 1
    # After the first failure they wait for twice the base, as in the article; messages take 40 ms of each round.
    assert sorted({round(moment, 6) for moment in call_times}) == pytest.approx([0.03, 0.08, 0.14, 0.22, 0.34])


@rows(
    ("wrong", "told"),
    [
        ({"clients": 0}, "0 clients"),
        ({"clients": 2001}, "2001 clients"),
        ({"runs": 0}, "0 runs"),
        ({"base": 0.0}, "base 0.0"),
        ({"base": float("nan")}, "base nan"),
        ({"cap": 0.001}, "cap 0.001"),
        ({"network_latency": 0.0}, "network_latency 0.0"),
        ({"spread": 0.009}, "spread 0.009"),
    ],
)
def test_what_cannot_be_simulated_is_refused_by_name(wrong: dict[str, float], told: str) -> None:
    with pytest.raises(InvalidValue, match=told):
        Contention(**wrong)  # type: ignore[arg-type]
