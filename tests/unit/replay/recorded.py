"""Small recordings."""

from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any

from holdfast.replay.csv_bins import CsvReader
from holdfast.replay.rows import LabelTable, Rows, concatenate

HEADER = "time,workload,operation,zone,instance,requests,faults,p50_ms,p90_ms,p99_ms"
START = 1_767_225_600
ZONES = ("use1-az1", "use1-az2", "use1-az3")


def read(text: str | bytes, **options: Any) -> tuple[CsvReader, Rows, LabelTable]:
    """Read a CSV that has at least one row."""
    labels = LabelTable()
    reader = CsvReader("bins.csv", BytesIO(text if isinstance(text, bytes) else text.encode()).read, labels, **options)
    return reader, concatenate(list(reader.read())), labels


def write_lines(
    bins: int,
    *,
    failing: range = range(0),
    zone: int = 1,
    instances: Sequence[str] = ("",),
    operations: int = 2,
    requests: int = 60,
) -> Iterator[str]:
    """Yield the lines of a recording in which one zone fails 40 % of its requests in some of the bins."""
    yield HEADER
    for number in range(bins):
        at = START + 10 * number
        for operation in range(operations):
            for index, name in enumerate(ZONES):
                for instance in instances:
                    faults = requests * 2 // 5 if number in failing and index == zone else number % 2
                    labels = f"shop,cart/op{operation},{name},{instance and f'{name}-{instance}'}"
                    yield f"{at},{labels},{requests},{faults},40,{80 + number % 3},120"
