"""No thread of one test is left to the next."""

from collections.abc import Iterator

import pytest

from tests.unit.queue.worker.bench import Bench


@pytest.fixture(autouse=True)
def all_benches_are_ended() -> Iterator[None]:
    yield
    while Bench.made:
        Bench.made.pop().end()
