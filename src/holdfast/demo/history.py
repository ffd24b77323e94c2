"""Generate measurements from before the demo began. The detector learns from them what is usual.

A line has the requests of one operation and instance in one bin, as sent by services that sum up their requests before
they report. The shop's own lines have one request each.
"""

import gzip
import random
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from holdfast._errors import EngineUnavailable
from holdfast._types import Zone
from holdfast.demo.shop import NAMESPACE, OPERATIONS, USUAL_SECONDS
from holdfast.status.sources.web import connect
from holdfast.telemetry import RequestRecord, encode_emf

MINUTES = 35
"""Length of the history: the detector learns for 30 minutes."""
_LINES = 1_000
"""Lines of one request: together about 1 MB, and a tenth of that compressed."""
_MAX_VALUES = 100
"""Values that a metric may have in a line of embedded metric format."""


def generate_history(
    instances: Mapping[str, Sequence[str]], region: str, rate: float, bin_seconds: float, now: float
) -> Iterator[bytes]:
    """Yield lines of the last minutes before `now`, in which all zones together had `rate` requests a second.

    No request failed, and each took as long as the shop usually takes.
    """
    randomness = random.Random(region)
    series = [(zone, instance, path) for zone, names in instances.items() for instance in names for path in OPERATIONS]
    mean = rate * bin_seconds / len(series)
    bins = round(MINUTES * 60 / bin_seconds)
    for number in range(bins):
        at = now - (bins - number - 0.5) * bin_seconds
        for zone, instance, path in series:
            left = max(0, round(randomness.gauss(mean, mean**0.5)))
            while left:
                count = min(left, _MAX_VALUES)
                left -= count
                record = RequestRecord(
                    namespace=NAMESPACE,
                    operation=OPERATIONS[path],
                    region=region,
                    zone=Zone(zone),
                    instance=instance,
                    at=at,
                    status=200,
                    seconds=0.0,
                    path=path,
                )
                latencies = [round(1000 * randomness.uniform(*USUAL_SECONDS), 2) for _ in range(count)]
                line = msgspec.json.decode(encode_emf(record)) | {"2xx": count, "SuccessLatency": latencies}
                yield msgspec.json.encode(line)


def send_history(server: str, lines: Iterator[bytes]) -> None:
    """Send lines to the server. Raise EngineUnavailable if it does not store all of them."""
    connection = connect(server, timeout=10.0)
    try:
        while batch := [line for line, _ in zip(lines, range(_LINES), strict=False)]:
            body = gzip.compress(b"\n".join(batch), 1)
            connection.request("POST", "/v1/telemetry", body, {"Content-Encoding": "gzip"})
            response = connection.getresponse()
            content = response.read()
            answer = msgspec.json.decode(content) if response.status == 202 else {}
            if answer.get("accepted") != len(batch) or answer["too_late"]:
                raise EngineUnavailable(f"the server did not store the history: {content.decode(errors='replace')}")
    finally:
        connection.close()
