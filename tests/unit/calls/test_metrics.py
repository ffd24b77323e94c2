"""What calls measure, apart from what exporters make of it."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast import Operation
from holdfast.calls.events import AttemptEnded, BudgetExhausted
from holdfast.calls.metrics import CallMetrics
from holdfast.metrics import PrometheusExporter

short = st.text("abcdef", max_size=2)


def labels(sink: CallMetrics, operation: Operation) -> tuple[str, ...]:
    first, second = sink.measure(AttemptEnded(operation=operation, at=1.0, number=1, seconds=0.1))
    assert first.series.labels == second.series.labels
    return first.series.labels


def test_the_first_names_stay_and_later_ones_are_other() -> None:
    sink = CallMetrics(PrometheusExporter(), max_operations=2)
    assert labels(sink, Operation("a", "1")) == ("a", "1")
    assert labels(sink, Operation("b", "1")) == ("b", "1")
    assert labels(sink, Operation("a", "2")) == ("a", "other")
    assert labels(sink, Operation("c", "1")) == ("other", "other")
    assert labels(sink, Operation("a", "1")) == ("a", "1")
    [exhausted] = sink.measure(BudgetExhausted(dependency="c", at=1.0, tokens=0.0))
    assert exhausted.series.labels == ("other",)


@given(st.integers(1, 5), st.lists(st.builds(Operation, short, short)))
def test_there_are_never_more_than_twice_as_many_and_one(most: int, operations: list[Operation]) -> None:
    """The operations that have names, one `other` for each dependency, and one for all others."""
    sink = CallMetrics(max_operations=most)
    seen = {labels(sink, operation) for operation in operations}
    assert len(seen) <= 2 * most + 1
    assert seen == seen | {labels(sink, operation) for operation in operations}
