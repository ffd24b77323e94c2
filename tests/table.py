"""A table of cases in one test: hundreds of small ones cost less together, and every row that fails is named."""

from collections.abc import Callable, Iterable
from typing import TypeVar

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
