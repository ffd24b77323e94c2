"""What can be said about an AWS account, and what is refused at once."""

import dataclasses
from typing import Any

import pytest

from holdfast import InvalidValue
from holdfast.engines.aws import AwsOptions

ROLE = "arn:aws:iam::123456789012:role/team/evacuator"


def test_everything_has_a_default() -> None:
    options = AwsOptions()
    assert options.endpoint("dynamodb") is None
    assert options.attempts == 3


def test_options_cannot_be_changed_after_they_were_checked() -> None:
    options = AwsOptions(endpoint_urls={"sts": "http://127.0.0.1:1"})
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.attempts = 4  # type: ignore[misc]
    with pytest.raises(TypeError):
        options.endpoint_urls["sts"] = "http://127.0.0.1:2"  # type: ignore[index]


def test_an_endpoint_of_one_service_goes_before_that_of_all() -> None:
    options = AwsOptions(endpoint_url="http://127.0.0.1:1", endpoint_urls={"sqs": "https://vpce.example:8443/x"})
    assert options.endpoint("sqs") == "https://vpce.example:8443/x"
    assert options.endpoint("s3") == "http://127.0.0.1:1"


def test_an_external_id_is_not_shown() -> None:
    assert "between-us" not in repr(AwsOptions(role_arn=ROLE, external_id="between-us"))


@pytest.mark.parametrize(
    "good",
    [
        {"region": "eu-west-1"},
        {"region": "us-gov-east-1"},
        {"role_arn": ROLE, "external_id": "a:b/c=", "session_name": "h@x"},
        {"role_arn": "arn:aws-cn:iam::123456789012:role/r"},
        {"attempts": 1, "connect_timeout": 0.1, "read_timeout": 0.1},
        {"attempts": 10},
    ],
    ids=str,
)
def test_what_aws_takes_is_taken(good: dict[str, Any]) -> None:
    AwsOptions(**good)


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ({"region": "EU West"}, "region is 'EU West'"),
        ({"region": ""}, "region is ''"),
        ({"profile": ""}, "profile is ''"),
        ({"role_arn": "arn:aws:iam::12:role/x"}, "role_arn is 'arn:aws:iam::12:role/x'"),
        ({"role_arn": ROLE, "external_id": "x"}, "external_id is 'x'"),
        ({"external_id": "between-us"}, "external_id is given without role_arn"),
        ({"session_name": "with space"}, "session_name is 'with space'"),
        ({"endpoint_url": "127.0.0.1:8000"}, "'127.0.0.1:8000' of endpoint_url"),
        ({"endpoint_url": "ftp://host"}, "'ftp://host' of endpoint_url"),
        ({"endpoint_urls": {"sqs": "http://"}}, "'http://' of sqs"),
        ({"endpoint_urls": {"sqs": "http://host:port"}}, "'http://host:port' of sqs"),
        ({"connect_timeout": 0}, "connect_timeout is 0"),
        ({"read_timeout": float("inf")}, "read_timeout is inf"),
        ({"read_timeout": float("nan")}, "read_timeout is nan"),
        ({"attempts": 0}, "attempts is 0"),
        ({"attempts": 11}, "attempts is 11"),
    ],
    ids=str,
)
def test_a_bad_value_is_refused_by_name(bad: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        AwsOptions(**bad)
    assert named in str(caught.value)
