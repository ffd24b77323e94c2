"""The text format of Prometheus. Pure.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from holdfast._errors import InvalidValue

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""What to say of it in a response."""
Labels = tuple[tuple[str, str], ...]


def checked_buckets(buckets: Sequence[float]) -> tuple[float, ...]:
    """The same, or InvalidValue for edges that no histogram can have."""
    if not buckets or list(buckets) != sorted(set(buckets)) or not all(map(math.isfinite, buckets)):
        raise InvalidValue(f"histogram buckets {buckets!r}: expected finite seconds, each more than the one before")
    return tuple(buckets)


def histogram(
    name: str, description: str, edges: Sequence[float], seen: Mapping[Labels, tuple[Sequence[float], float]]
) -> Iterator[str]:
    """The lines of a histogram: for each labels the counts of its buckets, with that beyond all edges, and the sum."""
    yield from head(name, "histogram", description, seen)
    for labels, (counts, total) in sorted(seen.items()):
        count: float = 0
        for edge, inside in zip((*edges, math.inf), counts, strict=True):
            count += inside
            yield sample(f"{name}_bucket", (*labels, ("le", number(edge))), count)
        yield sample(f"{name}_sum", labels, total)
        yield sample(f"{name}_count", labels, count)


def family(name: str, kind: str, description: str, samples: Mapping[Labels, float]) -> Iterator[str]:
    """The lines of a metric, in the order of its labels."""
    yield from head(name, kind, description, samples)
    for labels, value in sorted(samples.items()):
        yield sample(name, labels, value)


def head(name: str, kind: str, description: str, samples: Collection[Labels]) -> list[str]:
    """What a family begins with, if there is anything in it."""
    return [f"# HELP {name} {description}", f"# TYPE {name} {kind}"] if samples else []


def sample(name: str, labels: Labels, value: float) -> str:
    """One line."""
    inside = ",".join(f'{label}="{escaped(text)}"' for label, text in labels)
    return f"{name}{{{inside}}} {number(value)}"


def escaped(text: str) -> str:
    """The text as it may stand between quotes."""
    text = text.encode("utf-8", "replace").decode()  # half a character, of a name from anywhere, cannot be written
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def number(value: float) -> str:
    """The value as Prometheus reads it."""
    return "+Inf" if value == math.inf else repr(value)
