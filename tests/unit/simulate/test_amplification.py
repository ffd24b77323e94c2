"""Layers that retry multiply the load at the bottom; the defaults do not, and cost nothing when little fails."""

import dataclasses
import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.simulate import ServiceStack
from holdfast.simulate.amplification import POLICIES, AmplificationResult, Policy, amplify, compare, expected_calls
from tests.table import sampled

EVERY, ONE, DEFAULTS = POLICIES[0], POLICIES[1], POLICIES[-1]


REQUESTS = 2000


BY_NAME = {policy.name: policy for policy in POLICIES}


@functools.cache
def outage(policy: str, requests: int, rate: float = 100.0) -> AmplificationResult:
    """When the service fails always; not a fixture, whose work would be traced."""
    return amplify(ServiceStack(requests=requests, rate=rate), BY_NAME[policy])


@pytest.mark.no_cover
@pytest.mark.parametrize("requests", sampled([REQUESTS, 4000]))
@pytest.mark.parametrize(
    ("policy", "times", "more"),
    [
        ("every layer, no budget", 243.0, 0),
        ("one layer, no budget", 3.0, 0),
        ("every layer, 10 % of requests", 1.1**5, 0),
        ("every layer, 500 tokens of 5", 1.0, 5 * 100),
        ("every layer, 500 tokens of 14", 1.0, 5 * 35),
        ("every layer, gRPC 10/0.1", 1.0, 5 * 4),
    ],
)
def test_a_service_that_fails_gets_so_many_calls_for_each_request(
    policy: str, times: float, more: int, requests: int
) -> None:
    """Attempts of layers multiply; a budget is used up, in every layer that has one."""
    found = outage(policy, requests)
    assert found.calls_per_request == pytest.approx(times + more / requests, abs=6 / requests)
    assert found.success_rate == 0.0


def test_every_policy_is_compared_by_its_name() -> None:
    assert [result.policy for result in compare(ServiceStack(layers=2, requests=10))] == list(BY_NAME)
    assert len(BY_NAME) == len(POLICIES)


@pytest.mark.no_cover
@pytest.mark.parametrize("requests", sampled([4000, 20_000]))
def test_what_the_defaults_add_is_the_bucket_and_the_trickle(requests: int) -> None:
    """35 retries of a full bucket, and one every two seconds of the 200 that all requests take, as by default."""
    assert ServiceStack().requests / ServiceStack().rate == 200
    found = outage(DEFAULTS.name, requests, requests / 200)
    assert (found.requests, found.success_rate) == (requests, 0.0)
    assert found.calls_per_request <= 1.05
    assert found.calls - found.requests == pytest.approx(35 + 100, abs=2)


@pytest.mark.no_cover
@pytest.mark.parametrize("rate", sampled([0.1, 4.0, 0.5, 1.0, 10.0, 12.0, 20.0, 1000.0], 2))
def test_at_every_rate_the_defaults_add_at_most_a_twentieth_once_the_bucket_is_empty(rate: float) -> None:
    """One more for 24 requests, where the rate does not allow even fewer, and once the 35 of the bucket."""
    found = outage(DEFAULTS.name, 2400, rate)
    assert found.calls - found.requests <= 35 + found.requests / 24
    assert (found.calls - 35) / found.requests <= 1.05


def test_the_defaults_cost_nothing_when_a_tenth_fails() -> None:
    found = amplify(ServiceStack(failure_rate=0.1, requests=REQUESTS), DEFAULTS)
    assert found.calls_per_request == pytest.approx(1.11, abs=0.02)
    assert found.success_rate > 0.998  # one in a thousand fails three times


def test_retries_of_one_layer_are_enough_for_single_failures_and_those_of_five_do_no_more() -> None:
    options = ServiceStack(failure_rate=0.01, requests=REQUESTS)
    assert amplify(options, EVERY).success_rate == amplify(options, DEFAULTS).success_rate == 1.0


def test_only_the_outermost_layer_retries_when_layers_know_of_each_other() -> None:
    """Else three attempts of each of two layers would be nine."""
    assert amplify(ServiceStack(layers=2, requests=10), ONE).calls_per_request == 3.0
    assert amplify(ServiceStack(layers=2, requests=10), EVERY).calls_per_request == 9.0


@settings(max_examples=25, deadline=None)
@given(
    layers=st.integers(1, 4),
    attempts=st.integers(1, 4),
    failure_rate=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    policy=st.sampled_from([EVERY, ONE]),
)
def test_without_a_budget_it_is_what_arithmetic_says(
    layers: int, attempts: int, failure_rate: float, policy: Policy
) -> None:
    options = ServiceStack(layers=layers, max_attempts=attempts, failure_rate=failure_rate, requests=150)
    said = expected_calls(options, is_aware=policy.is_aware)
    assert amplify(options, policy).calls_per_request == pytest.approx(
        said, rel=0 if failure_rate in (0.0, 1.0) else 0.35
    )


def test_the_same_seed_gives_the_same_result_and_another_one_another() -> None:
    options = ServiceStack(failure_rate=0.3, requests=500)
    assert amplify(options, DEFAULTS) == amplify(options, DEFAULTS)
    assert amplify(options, DEFAULTS) != amplify(dataclasses.replace(options, seed=2), DEFAULTS)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"layers": 0}, "0 layers"),
        ({"max_attempts": 0}, "0 attempts"),
        ({"layers": 10, "max_attempts": 3}, "10 layers of 3 attempts"),
        ({"failure_rate": 1.5}, "failure_rate 1.5"),
        ({"failure_rate": float("nan")}, "failure_rate nan"),
        ({"requests": 0}, "0 requests"),
        ({"rate": 0.0}, "rate 0.0"),
    ],
)
def test_what_cannot_be_simulated_is_refused_by_name(wrong: dict[str, float], told: str) -> None:
    with pytest.raises(InvalidValue, match=told):
        ServiceStack(**wrong)  # type: ignore[arg-type]
