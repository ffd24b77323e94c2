"""A store in memory is as strict with threads as a database is with processes."""

import sys
from collections.abc import Iterator

import pytest

from holdfast.status.stores.memory import MemoryStatusStore
from holdfast.testing.status import attempt, out, together


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Lets threads interrupt each other between any two steps, instead of every few milliseconds."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("eager_threads")
def test_of_threads_that_interrupt_each_other_one_at_a_time_succeeds() -> None:
    store = MemoryStatusStore()
    rounds = 100
    written = together(lambda _: [attempt(store, out(), number) for number in range(rounds)])
    versions = [status.version for statuses in written for status in statuses if status is not None]
    assert sorted(versions) == list(range(1, len(versions) + 1))
    assert [status.version for status in store.read()] == [len(versions)]
