"""Clients are made once, whoever asks, and mistakes are told apart before anything is sent."""

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast import EngineError, InvalidValue, SettingsError
from holdfast.engines.aws import AwsOptions, AwsSession

# Nobody listens there: a test that sent something would fail.
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def session() -> Iterator[AwsSession]:
    with AwsSession(AwsOptions(region="eu-west-1", endpoint_url=NOWHERE, max_attempts=1)) as session:
        yield session


def test_threads_that_ask_at_once_get_the_same_client(session: AwsSession) -> None:
    with ThreadPoolExecutor(8) as pool:
        clients = list(pool.map(session.client, ["sts", "sqs"] * 16))
    assert len({id(client) for client in clients}) == 2


def test_a_closed_session_says_so_and_may_be_closed_again(session: AwsSession) -> None:
    session.client("sts")
    session.close()
    session.close()
    with pytest.raises(EngineError, match="closed"):
        session.client("sts")


def test_a_client_goes_where_the_options_say() -> None:
    options = AwsOptions(region="eu-west-1", endpoint_url=NOWHERE, endpoint_urls={"sqs": "http://127.0.0.1:10"})
    with AwsSession(options) as session:
        assert session.client("sqs").meta.endpoint_url == "http://127.0.0.1:10"
        assert session.client("sts").meta.endpoint_url == NOWHERE
        assert session.client("sts").meta.region_name == "eu-west-1"


def test_botocore_alone_retries_and_as_often_as_the_options_say() -> None:
    with AwsSession(AwsOptions(region="eu-west-1", max_attempts=5, connect_timeout=1.5, read_timeout=2.5)) as session:
        config = session.client("dynamodb").meta.config
    assert config.retries == {"mode": "standard", "total_max_attempts": 5}
    assert (config.connect_timeout, config.read_timeout) == (1.5, 2.5)


def test_an_unknown_service_is_refused_by_name(session: AwsSession) -> None:
    with pytest.raises(InvalidValue, match="'dynamo'"):
        session.client("dynamo")


def test_an_unknown_profile_is_an_error_at_once() -> None:
    with pytest.raises(SettingsError, match="nobody"):
        AwsSession(AwsOptions(profile="nobody"))


def test_a_missing_region_is_an_error_when_a_client_is_asked_for() -> None:
    with AwsSession(AwsOptions()) as session, pytest.raises(SettingsError, match=r"dynamodb.*AWS_DEFAULT_REGION"):
        session.client("dynamodb")


def test_missing_credentials_are_an_error_when_a_call_is_made(session: AwsSession) -> None:
    with pytest.raises(SettingsError, match=r"sqs ListQueues.*AWS_ACCESS_KEY_ID"):
        session.client("sqs").list_queues()


def test_a_role_cannot_be_assumed_without_credentials() -> None:
    options = AwsOptions(region="eu-west-1", endpoint_url=NOWHERE, role_arn="arn:aws:iam::123456789012:role/r")
    with AwsSession(options) as session, pytest.raises(SettingsError, match="AWS_ACCESS_KEY_ID"):
        session.client("sqs")


def test_a_profile_brings_its_region_and_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "config"
    shared.write_text("[profile ops]\nregion = eu-north-1\naws_access_key_id = a\naws_secret_access_key = b\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(shared))
    with AwsSession(AwsOptions(profile="ops")) as session:
        assert session.client("sqs").meta.region_name == "eu-north-1"


@pytest.mark.parametrize("operation", ["put_object", "no_such_thing"])
def test_only_operations_with_pages_can_be_paged(session: AwsSession, operation: str) -> None:
    with pytest.raises(InvalidValue, match=f"s3 {operation}"):
        session.paginate("s3", operation)


def test_a_list_that_pages_do_not_have_is_refused_with_those_they_have(session: AwsSession) -> None:
    with pytest.raises(InvalidValue, match=r"'Things'.*Contents, CommonPrefixes"):
        session.paginate("s3", "list_objects_v2", result="Things", Bucket="b")


def test_without_boto3_the_message_says_what_to_install() -> None:
    script = "import sys; sys.modules['boto3'] = None; from holdfast.engines.aws import AwsSession"
    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "MissingExtra: the AWS engine needs the extra 'aws'" in outcome.stderr


ROLE = "arn:aws:iam::123456789012:role/team/evacuator"


def test_everything_has_a_default() -> None:
    options = AwsOptions()
    assert options.endpoint("dynamodb") is None
    assert options.max_attempts == 3


def test_options_cannot_be_changed_after_they_were_checked() -> None:
    options = AwsOptions(endpoint_urls={"sts": "http://127.0.0.1:1"})
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.max_attempts = 4  # type: ignore[misc]
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
        {"max_attempts": 1, "connect_timeout": 0.1, "read_timeout": 0.1},
        {"max_attempts": 10},
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
        ({"external_id": "between-us"}, "external_id is set without role_arn"),
        ({"session_name": "with space"}, "session_name is 'with space'"),
        ({"endpoint_url": "127.0.0.1:8000"}, "'127.0.0.1:8000' of endpoint_url"),
        ({"endpoint_url": "ftp://host"}, "'ftp://host' of endpoint_url"),
        ({"endpoint_urls": {"sqs": "http://"}}, "'http://' of sqs"),
        ({"endpoint_urls": {"sqs": "http://host:port"}}, "'http://host:port' of sqs"),
        ({"connect_timeout": 0}, "connect_timeout is 0"),
        ({"read_timeout": float("inf")}, "read_timeout is inf"),
        ({"read_timeout": float("nan")}, "read_timeout is nan"),
        ({"max_attempts": 0}, "max_attempts is 0"),
        ({"max_attempts": 11}, "max_attempts is 11"),
    ],
    ids=str,
)
def test_a_bad_value_is_refused_by_name(bad: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        AwsOptions(**bad)
    assert named in str(caught.value)
