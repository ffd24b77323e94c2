"""How fast telemetry becomes bins, and what that costs the server that takes it in.

The documents are like those of a service: one request each, about 800 bytes, three dimension sets. They are in bodies
of 500, as `ServerSink` sends them, over 600 series (200 operations in three zones) or 60,000 (100 instances of each
zone). `decoding alone` uses msgspec and decodes exactly the needed members, typed.

Then, once each, with a real server: documents per second over HTTP, compressed; the 99th percentile of answers to
others while it takes in telemetry as fast as it can, compared with an idle server; and, without `--quick`, the memory
of 60,000 series for 15 minutes.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # makes `benchmarks` importable, and hides no standard module

import msgspec
from msgspec import Struct, field

from benchmarks._harness import Benchmark, Contender, Goal, Results, Work, main, paired_ratio
from benchmarks._telemetry_server import ZONES, make_documents, measure_http, measure_latency, measure_memory
from holdfast import Side
from holdfast.telemetry.collector import Collector
from holdfast.telemetry.series import SeriesTable
from holdfast.telemetry.source import SourceWorkload
from holdfast.telemetry.sources.emf import EmfDecoder
from holdfast.telemetry.sources.emf_mapping import EmfMapping

BODY_LINES = 500
WORKLOAD = SourceWorkload("shop", frozenset(ZONES))
MANY = "to bins of 60,000 series"


def make_bodies(instances: int) -> list[bytes]:
    """Return 20 bodies, with the requests of 200 operations in three zones with some instances each."""
    lines = make_documents(20 * BODY_LINES, instances=instances)
    return [b"\n".join(lines[start : start + BODY_LINES]) for start in range(0, len(lines), BODY_LINES)]


class _Directive(Struct):
    namespace: str = field(name="Namespace")


class _Metadata(Struct):
    timestamp: int = field(name="Timestamp")
    directives: list[_Directive] = field(name="CloudWatchMetrics")


class _Document(Struct):
    aws: _Metadata = field(name="_aws")
    controller: str = field(name="Controller")
    action: str = field(name="Action")
    zone: str = field(name="AZ-ID")
    instance: str = field(name="InstanceId")
    side: Side = field(name="Side", default=Side.SERVER)
    status: int = field(name="HttpStatusCode", default=0)
    count_2xx: int = field(name="2xx", default=0)
    count_3xx: int = field(name="3xx", default=0)
    count_4xx: int = field(name="4xx", default=0)
    count_5xx: int = field(name="5xx", default=0)
    success: float | None = field(name="SuccessLatency", default=None)
    fault: float | None = field(name="FaultLatency", default=None)


def run_over(bodies: Sequence[bytes], count: int) -> Iterator[bytes]:
    return islice(cycle(bodies), count // BODY_LINES)


def decode_alone(bodies: Sequence[bytes]) -> Work:
    decoder = msgspec.json.Decoder(_Document)

    def work(count: int) -> int:
        return sum(len(decoder.decode_lines(body)) for body in run_over(bodies, count))

    return work


@contextmanager
def to_bins(bodies: Sequence[bytes], mappings: Sequence[EmfMapping] = ()) -> Iterator[Work]:
    decoder, collector = EmfDecoder([WORKLOAD], mappings), Collector(SeriesTable())

    def work(count: int) -> int:
        done = 0
        for body in run_over(bodies, count):
            now = time.time()
            batch = decoder.decode(body, now)
            collector.add_requests(batch.requests, now)
            collector.add(batch.deltas, now)
            collector.pop_complete(now)
            done += batch.accepted
        return done

    work(BODY_LINES * len(bodies))  # a server knows the series that it has seen before
    yield work


FOREIGN = EmfMapping(
    namespace="shop/frontend",
    workload="shop",
    service="Controller",
    operation="Action",
    instance="InstanceId",
    counts={"2xx": "2xx", "4xx": "4xx", "5xx": "5xx"},
    latency={"success": "SuccessLatency", "fault": "FaultLatency"},
)
"""Makes the decoder read the documents member by member, as those of other emitters."""


def build(quick: bool) -> Benchmark:
    units = 20_000 if quick else 200_000
    few, many = make_bodies(1), make_bodies(100)

    def goals(results: Results) -> list[Goal]:
        alone, many_rates = results.rates("decoding alone"), results.rates(MANY)
        idle, busy = measure_latency(5.0 if quick else 20.0)
        found = [
            Goal("bins_over_decoding", paired_ratio(results.rates("to bins"), alone), 0.3, "higher"),
            Goal("bins_of_60000_series_over_decoding", paired_ratio(many_rates, alone), 0.3, "higher"),
            Goal("http_over_bins", measure_http(5.0 if quick else 20.0) / max(many_rates), 0.5, "higher"),
            Goal("answer_p99_under_ingest_over_idle", busy / idle, 3.0, "lower"),
        ]
        if not quick:
            process, blocks = measure_memory(90)
            print(f"60,000 series, 15 minutes: process {process:.0f} MB, of it blocks {blocks:.0f} MB")
            found.append(Goal("megabytes_of_60000_series", process, 1000.0, "lower"))
        return found

    contenders = [
        Contender.plain("decoding alone", decode_alone(few), units),
        Contender("to bins", lambda: to_bins(few), units),
        Contender(MANY, lambda: to_bins(many), units),
        Contender("to bins, with a mapping", lambda: to_bins(few, [FOREIGN]), units // 4),
    ]
    return Benchmark(
        contenders=contenders, goals=goals, rounds=3 if quick else 7, base="decoding alone", timer=time.process_time
    )


if __name__ == "__main__":
    sys.exit(main("telemetry", build))
