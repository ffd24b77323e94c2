"""`holdfast calls simulate`: backoff, retry budgets and timeouts in virtual time, with the engine of real calls."""

from typing import Annotated, TypeAlias

from cyclopts import Parameter

from holdfast.cli.calls.advise import show_progress
from holdfast.cli.output import NO_PICTURE, Json, PictureOptions, pick_attributes, print_json, print_rows, print_table

Seed: TypeAlias = Annotated[int, Parameter(help="Seed of the random numbers. The same seed gives the same result.")]


def jitter(
    *,
    clients: Annotated[int, Parameter(help="Clients that start at the same moment.")] = 100,
    runs: Annotated[int, Parameter(help="Number of runs; the result is their mean.")] = 100,
    base: Annotated[float, Parameter(help="Seconds of the first delay, which then doubles.")] = 0.005,
    cap: Annotated[float, Parameter(help="Maximum delay in seconds.")] = 2.0,
    seed: Seed = 1,
    picture: PictureOptions = NO_PICTURE,
    json: Json = False,
) -> None:
    """Compare five backoff strategies, with and without jitter, for clients that contend for one row.

    The model, with figures to compare: aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter.
    The picture shows the calls over time.
    Example: holdfast calls simulate jitter --clients 50 --svg jitter.svg
    """
    from holdfast.simulate import Contention, pictures
    from holdfast.simulate.jitter import compare

    options = Contention(clients=clients, runs=runs, base=base, cap=cap, seed=seed)
    picture.check()
    results = list(show_progress(compare(options), len(options.strategies()), "backoff strategies"))
    picture.draw(lambda: pictures.draw_contention(results))
    least = min(one.calls for one in results)
    print_rows(
        [pick_attributes(one, "strategy", "calls", "seconds") for one in results],
        ("backoff", "calls", "seconds", "times the fewest"),
        [(one.strategy, f"{one.calls:,.0f}", f"{one.seconds:.2f}", f"{one.calls / least:.2f}") for one in results],
        as_json=json,
    )


def amplification(
    *,
    layers: Annotated[int, Parameter(help="Layers above the service, each of which calls the next.")] = 5,
    max_attempts: Annotated[int, Parameter(help="Maximum attempts of each layer.")] = 3,
    failure_rate: Annotated[float, Parameter(help="Share of calls to the service that fail, 0 to 1.")] = 1.0,
    requests: Annotated[int, Parameter(help="Requests to the first layer.")] = 20_000,
    rate: Annotated[float, Parameter(help="Requests per second (affects the minimum retry rate of budgets).")] = 100.0,
    seed: Seed = 1,
    picture: PictureOptions = NO_PICTURE,
    json: Json = False,
) -> None:
    """Count the calls to a failing service when every layer above it retries, and when only one does.

    Example: holdfast calls simulate amplification --failure-rate 0.1
    """
    from holdfast.simulate import ServiceStack, pictures
    from holdfast.simulate.amplification import POLICIES, compare

    options = ServiceStack(
        layers=layers, max_attempts=max_attempts, failure_rate=failure_rate, requests=requests, rate=rate, seed=seed
    )
    picture.check()
    results = list(show_progress(compare(options), len(POLICIES), "policies"))
    picture.draw(lambda: pictures.draw_amplification(results))
    print_rows(
        [pick_attributes(one, "policy", "requests", "calls", "calls_per_request", "success_rate") for one in results],
        ("retries", "calls per request", "succeeded", "simulated"),
        [
            (one.policy, f"{one.calls_per_request:,.3f}", f"{one.success_rate:.2%}", f"{one.requests:,}")
            for one in results
        ],
        as_json=json,
    )


def metastability(
    *,
    rate: Annotated[float, Parameter(help="Requests per second of all callers together.")] = 80.0,
    capacity: Annotated[float, Parameter(help="Calls per second that the server can process.")] = 100.0,
    clients: Annotated[int, Parameter(help="Calling processes; each has its own retry budget.")] = 1,
    timeout: Annotated[float, Parameter(help="Seconds that a caller waits for a response.")] = 1.0,
    stall: Annotated[float, Parameter(help="Seconds of the server's stall.")] = 10.0,
    seconds: Annotated[float, Parameter(help="Seconds to simulate.")] = 200.0,
    seed: Seed = 1,
    picture: PictureOptions = NO_PICTURE,
    json: Json = False,
) -> None:
    """Show how long a server stays overloaded after a stall, depending on how its callers retry.

    Recovered means that from then on 95 % of the requests of every second succeed. The picture shows the successful
    requests and the queue over time.
    Example: holdfast calls simulate metastability --stall 20 --svg stall.svg
    """
    from holdfast.simulate import Stall, pictures
    from holdfast.simulate.metastability import CALLERS, compare

    options = Stall(
        rate=rate, capacity=capacity, clients=clients, timeout=timeout, stall=stall, seconds=seconds, seed=seed
    )
    picture.check()
    results = list(show_progress(compare(options), len(CALLERS), "kinds of callers"))
    picture.draw(lambda: pictures.draw_metastability(options, results))
    print_rows(
        results,
        ("callers", "recovered after", "calls per request", "succeeded"),
        [
            (
                one.callers,
                f"not in {options.seconds - options.stall_end:g} s"
                if one.recovery_seconds is None
                else f"{one.recovery_seconds} s",
                f"{one.calls_per_request:.3f}",
                f"{one.success_rate:.1%}",
            )
            for one in results
        ],
        as_json=json,
    )


def timeout(
    *,
    percent: Annotated[float, Parameter(help="Percentile of the latency to use as the timeout.")] = 99.9,
    median: Annotated[float, Parameter(help="Median latency in seconds, before the change.")] = 0.02,
    sigma: Annotated[float, Parameter(help="Spread of latencies: small with 0.5, a long tail with 1.")] = 0.5,
    factor: Annotated[float, Parameter(help="Factor by which all latencies grow in the middle.")] = 6.0,
    windows: Annotated[int, Parameter(help="Windows to simulate, of 50,000 requests for the 99.9th percentile.")] = 12,
    rate: Annotated[float, Parameter(help="Requests per second, 2 to 1024. Rules learn twice a second.")] = 200.0,
    seed: Seed = 1,
    picture: PictureOptions = NO_PICTURE,
    json: Json = False,
) -> None:
    """Compare the false timeouts of a fixed timeout, one learned only from successes, and Percentile.

    Example: holdfast calls simulate timeout --sigma 1 --svg timeout.svg
    """
    from holdfast.simulate import LatencyShift, pictures
    from holdfast.simulate.timeout import RULES, compare

    options = LatencyShift(
        percent=percent, median=median, sigma=sigma, factor=factor, windows=windows, rate=rate, seed=seed
    )
    picture.check()
    found = list(show_progress(compare(options), options.windows, "windows"))
    picture.draw(lambda: pictures.draw_timeouts(options, found))
    if json:
        print_json(
            {
                "window_requests": options.policy.window,
                "accepted_false_timeouts": options.policy.accepted_false_timeouts,
                "windows": found,
            }
        )
        return
    print(f"false timeouts, and the timeout; {options.policy.accepted_false_timeouts:.3%} are accepted")
    print(
        f"a window is {options.policy.window:,} requests; latencies are {factor:g} times as long from window "
        f"{options.first_slow_window + 1} on\n"
    )
    print_table(
        ("window", "ideal", *RULES),
        [
            (
                one.number + 1,
                f"{one.ideal_timeout:.3f} s",
                *(f"{one.rules[rule].false_timeouts:.3%} {one.rules[rule].timeout:.3f} s" for rule in RULES),
            )
            for one in found
        ],
    )
