"""Which operations of AWS may be repeated, and which of its errors are worth it."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.session import Session
from hypothesis import given
from hypothesis import strategies as st

from holdfast.calls import Failure, FailureKind
from holdfast.calls.adapters.botocore.operations import LONG_POLLS, is_long_poll, is_repeatable, refine_failure
from tests.table import rows


@dataclass
class Shape:
    name: str
    metadata: dict[str, Any] = field(default_factory=dict)


def repeatable(service: str, operation: str) -> bool:
    """By the real model."""
    model = Session().get_service_model(service).operation_model(operation)
    return is_repeatable(service, operation, model.http["method"], model.idempotent_members)


@rows(
    ("service", "operation"),
    [
        ("dynamodb", "GetItem"),
        ("dynamodb", "BatchGetItem"),
        ("dynamodb", "Query"),
        ("dynamodb", "Scan"),
        ("dynamodb", "TransactGetItems"),
        ("cloudwatch", "DescribeAlarms"),
        ("servicediscovery", "DiscoverInstances"),
        ("cloudtrail", "LookupEvents"),
        ("cognito-idp", "AdminGetUser"),
    ],
)
def test_what_reads_is_repeatable(service: str, operation: str) -> None:
    assert repeatable(service, operation)


@pytest.mark.parametrize(
    ("service", "operation"), [("s3", "PutObject"), ("s3", "DeleteObject"), ("s3", "HeadObject"), ("s3", "GetObject")]
)
def test_methods_of_http_that_are_idempotent_are_repeatable(service: str, operation: str) -> None:
    assert repeatable(service, operation)


@pytest.mark.parametrize(("service", "operation"), [("ec2", "RunInstances"), ("dynamodb", "TransactWriteItems")])
def test_an_idempotency_token_makes_a_write_repeatable(service: str, operation: str) -> None:
    assert repeatable(service, operation)


def test_a_token_that_is_not_declared_as_one_is_filled_in_by_nobody_and_does_not_count() -> None:
    assert not repeatable("ecs", "CreateService")


@pytest.mark.parametrize(
    ("service", "operation"),
    [
        ("dynamodb", "PutItem"),
        ("dynamodb", "UpdateItem"),
        ("sqs", "SendMessage"),
        ("sns", "Publish"),
        ("cloudwatch", "PutMetricData"),
        ("s3", "CompleteMultipartUpload"),
    ],
)
def test_other_writes_are_not_repeatable(service: str, operation: str) -> None:
    assert not repeatable(service, operation)


@pytest.mark.parametrize(("service", "operation"), sorted(LONG_POLLS))
def test_a_long_poll_hands_out_work_and_is_never_repeatable_whatever_its_name(service: str, operation: str) -> None:
    assert is_long_poll(service, operation)
    assert not repeatable(service, operation)


def test_a_poll_of_another_service_is_no_long_poll() -> None:
    assert not is_long_poll("kinesis", "GetRecords")


THROTTLING = Shape("SlowerPlease", {"retryable": {"throttling": True}})
AGAIN = Shape("TryAgain", {"retryable": {"throttling": False}})
CODED = Shape("CodedException", {"retryable": {}, "error": {"code": "Coded"}})
PLAIN = Shape("Plain")
SHAPES = (PLAIN, THROTTLING, AGAIN, CODED)


@rows(
    ("status", "code", "kind"),
    [
        (400, "SlowerPlease", FailureKind.THROTTLED),
        (409, "TryAgain", FailureKind.TRANSIENT),
        (400, "Coded", FailureKind.TRANSIENT),
        (400, "CodedException", FailureKind.TRANSIENT),
        (400, "Plain", FailureKind.PERMANENT),
        (400, "Unknown", FailureKind.PERMANENT),
        (509, "BandwidthLimitExceeded", FailureKind.THROTTLED),
        (400, "IDPCommunicationError", FailureKind.TRANSIENT),
        (400, "BadDigest", FailureKind.TRANSIENT),
    ],
)
def test_an_error_that_is_declared_worth_another_attempt_is(status: int, code: str, kind: FailureKind) -> None:
    failure = refine_failure(Failure(FailureKind.PERMANENT, status, code, 1.5), SHAPES)
    assert failure == Failure(kind, status, code, 1.5)


def test_an_error_without_a_code_is_not_taken_for_one_whose_model_has_none() -> None:
    assert refine_failure(Failure(FailureKind.PERMANENT), SHAPES) == Failure(FailureKind.PERMANENT)


@given(st.sampled_from([kind for kind in FailureKind if kind is not FailureKind.PERMANENT]), st.integers(400, 599))
def test_what_is_understood_already_stays(kind: FailureKind, status: int) -> None:
    failure = Failure(kind, status, "SlowerPlease")
    assert refine_failure(failure, SHAPES) is failure
