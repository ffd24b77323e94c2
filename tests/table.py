"""Many cases: a table of them in one test, which names every row that fails, and samples of those that take long."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

Row = TypeVar("Row")


def every_row(rows: Iterable[Row], check: Callable[[Row], None], name: Callable[[Row], str] = repr) -> None:
    """Call `check` with every row, and fail with the names and reasons of all rows for which it raised."""
    failed: list[str] = []
    count = 0
    for row in rows:
        count += 1
        try:
            check(row)
        except Exception as error:
            failed.append(f"{name(row)}: {type(error).__name__}: {error}")
    assert count, "the table is empty"
    assert not failed, f"{len(failed)} of {count} rows failed:\n" + "\n".join(failed)


def sampled(values: Iterable[Any], keep: int = 1) -> list[Any]:
    """Return `values` for `parametrize`: the first `keep` for every run, and the others for `make proof`."""
    every = list(values)
    return every[:keep] + [pytest.param(value, marks=pytest.mark.proof) for value in every[keep:]]
