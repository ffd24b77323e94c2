import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue, Operation
from holdfast.calls.sinks.names import Names

short = st.text("abcdef", max_size=2)


def test_the_first_names_stay_and_later_ones_are_other() -> None:
    names = Names(2)
    assert names.operation(Operation("a", "1")) == ("a", "1")
    assert names.operation(Operation("b", "1")) == ("b", "1")
    assert names.operation(Operation("a", "2")) == ("a", "other")
    assert names.operation(Operation("c", "1")) == ("other", "other")
    assert names.operation(Operation("a", "1")) == ("a", "1")
    assert names.dependency("c") == "other"


@given(st.integers(1, 5), st.lists(st.builds(Operation, short, short)))
def test_there_are_never_more_than_twice_as_many_and_one(most: int, operations: list[Operation]) -> None:
    """The operations that have names, one `other` for each dependency, and one for all others."""
    names = Names(most)
    seen = {names.operation(operation) for operation in operations}
    assert len(seen) <= 2 * most + 1
    assert seen == seen | {names.operation(operation) for operation in operations}


def test_at_least_one_has_a_name() -> None:
    with pytest.raises(InvalidValue, match="at most 0 operations"):
        Names(0)
