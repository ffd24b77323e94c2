"""Which statuses count against the availability of a workload."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.telemetry import FaultStatuses
from tests.table import every_row, rows


def test_5xx_are_faults_by_default_and_nothing_else() -> None:
    assert FaultStatuses() == FaultStatuses.parse(["5xx"])
    assert [status for status in range(100, 600) if FaultStatuses().counts_as_fault(status)] == list(range(500, 600))


def test_classes_and_single_statuses_are_faults_as_they_are_listed() -> None:
    rows = [
        (["5xx", "429"], 429, True),
        (["5xx", "429"], 428, False),
        (["5xx", "429"], 503, True),
        (["4xx", "5xx"], 404, True),
        (["4xx", "5xx"], 302, False),
        (["4xx"], 500, False),
        (["500", "503"], 500, True),
        (["500", "503"], 501, False),
        (["5xx", "4xx", "429"], 429, True),
    ]

    def check(row: tuple[list[str], int, bool]) -> None:
        texts, status, is_fault = row
        assert FaultStatuses.parse(texts).counts_as_fault(status) is is_fault

    every_row(rows, check)


def test_faults_of_a_record_are_counted_by_class_and_by_the_status_that_it_carries() -> None:
    rows = [
        # listed, 4xx, 5xx, status, faults
        (["5xx"], 2, 3, None, 3),
        (["5xx"], 1, 0, 429, 0),
        (["4xx", "5xx"], 2, 3, None, 5),
        (["5xx", "429"], 1, 0, 429, 1),
        (["5xx", "429"], 1, 0, 404, 0),
        (["5xx", "429"], 1, 0, None, 0),
        (["5xx", "429"], 0, 1, 503, 1),
        (["5xx", "503"], 0, 1, 503, 1),
        (["503"], 0, 1, 503, 1),
        (["503"], 0, 1, 500, 0),
        (["503"], 0, 1, None, 0),
        (["4xx"], 0, 1, None, 0),
    ]

    def check(row: tuple[list[str], int, int, int | None, int]) -> None:
        texts, count_4xx, count_5xx, status, faults = row
        assert FaultStatuses.parse(texts).count_faults(count_4xx, count_5xx, status) == faults

    every_row(rows, check)


@given(
    texts=st.lists(st.sampled_from(["4xx", "5xx", "400", "429", "500", "503"]), min_size=1),
    status=st.integers(200, 599),
)
def test_a_record_of_one_request_counts_as_its_status_says(texts: list[str], status: int) -> None:
    faults = FaultStatuses.parse(texts)
    counted = faults.count_faults(int(400 <= status < 500), int(status >= 500), status)
    assert counted == int(faults.counts_as_fault(status))


@rows("text", ["2xx", "3xx", "399", "600", "5XX", "42", "4290", "", "abc", "\uff14\uff12\uff19", " 429", "5xx\n"])
def test_a_text_that_is_no_status_is_refused_and_named(text: str) -> None:
    with pytest.raises(InvalidValue, match=re.escape(f"{text!r} is no status that can be a fault: expected 4xx, 5xx")):
        FaultStatuses.parse(["5xx", text])


def test_a_list_without_any_status_is_refused() -> None:
    with pytest.raises(InvalidValue, match="no zone could fail"):
        FaultStatuses.parse([])
