"""Many cases: a table of them in one test, which names every row that fails, and samples of those that take long."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, TypeAlias, TypeVar

import pytest

Row = TypeVar("Row")
Test: TypeAlias = Callable[..., None]


def every_row(rows: Iterable[Row], check: Callable[[Row], None], name: Callable[[Row], str] = repr) -> None:
    """Call `check` with every row, and fail with the names and reasons of all rows for which it raised."""
    failed: list[str] = []
    count = 0
    for row in rows:
        count += 1
        try:
            check(row)
        except (Exception, pytest.fail.Exception) as error:
            failed.append(f"{name(row)}: {type(error).__name__}: {error}")
    assert count, "the table is empty"
    assert not failed, f"{len(failed)} of {count} rows failed:\n" + "\n".join(failed)


def rows(names: str | Sequence[str], values: Iterable[Any]) -> Callable[[Test], Test]:
    """Call a test with every row of `values`, as `parametrize` does, but as one test: all rows share its fixtures.

    Use it for many quick cases. Each test of `parametrize` costs a run several milliseconds.
    """
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = [value if len(arguments) > 1 else (value,) for value in values]

    def decorate(test: Test) -> Test:
        @wraps(test)
        def test_every_row(*given: Any, **fixtures: Any) -> None:
            def check(row: Sequence[Any]) -> None:
                test(*given, **fixtures, **dict(zip(arguments, row, strict=True)))

            every_row(table, check)

        signature = inspect.signature(test)
        left = [each for name, each in signature.parameters.items() if name not in arguments]
        test_every_row.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return test_every_row

    return decorate


def sampled(values: Iterable[Any], keep: int = 1) -> list[Any]:
    """Return `values` for `parametrize`: the first `keep` for every run, and the others for `make proof`."""
    every = list(values)
    return every[:keep] + [pytest.param(value, marks=pytest.mark.proof) for value in every[keep:]]
