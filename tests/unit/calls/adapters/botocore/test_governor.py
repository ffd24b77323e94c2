"""Errors of Holdfast that are errors of botocore as well."""

import pickle

import pytest
from botocore.exceptions import BotoCoreError

from holdfast import AttemptTimedOut, CallError, DeadlineExceeded, LimitReached, RetryAfterTooLong
from holdfast.calls import classify
from holdfast.calls.adapters.botocore.governor import to_botocore_error

REFUSALS = [DeadlineExceeded, RetryAfterTooLong, LimitReached]


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_refusal_has_a_twin_that_both_kinds_of_clauses_catch(kind: type[CallError]) -> None:
    error = kind("what {happened}")
    error.add_note("tried twice")
    error.__cause__ = ValueError("why")
    twin = to_botocore_error(error)
    assert isinstance(twin, kind)
    assert isinstance(twin, BotoCoreError)
    assert (str(twin), twin.slug, twin.__notes__) == ("what {happened}", error.slug, ["tried twice"])
    assert twin.__cause__ is error.__cause__
    assert classify(twin, lambda: 0.0).kind is classify(error, lambda: 0.0).kind


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_twin_survives_the_way_to_another_process(kind: type[CallError]) -> None:
    twin = to_botocore_error(kind("what happened"))
    back = pickle.loads(pickle.dumps(twin))
    assert (type(back), str(back)) == (type(twin), "what happened")


def test_what_has_no_counterpart_stays_as_it_is() -> None:
    error = AttemptTimedOut("x")
    assert to_botocore_error(error) is error
