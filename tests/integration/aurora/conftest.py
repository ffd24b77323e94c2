"""An emulator of AWS that enforces roles, and sessions on it."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.engines.aws import AwsOptions, AwsSession
from tests.services.ministack import ministack
from tests.services.run import Run
from tests.services.start import Order, start

REGION = "ap-northeast-1"


def _enforcing_ministack(directory: Path, port: int) -> Order:
    order = ministack(directory, port)
    # Its state machines do not wait, and its Lambda functions run in this Python, with the code of their zip.
    environment = {**order.environment, "AUTH": "true", "SFN_WAIT_SCALE": "0", "LAMBDA_ASYNC_RETRY_BASE_SECONDS": "0"}
    return replace(order, environment=environment)


@pytest.fixture(scope="module")
def enforcing_url(services: Run) -> str:
    """A MiniStack that refuses every call that a role does not allow. `test` is the account's root."""
    return start(_enforcing_ministack, services.private("enforcing"), services.controller)


@pytest.fixture(scope="module")
def root(enforcing_url: str) -> Iterator[AwsSession]:
    """A session that may do everything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "AWS_ACCESS_KEY_ID", "test")
        patch.setitem(os.environ, "AWS_SECRET_ACCESS_KEY", "test")
        with AwsSession(AwsOptions(region=REGION, endpoint_url=enforcing_url, max_attempts=1)) as session:
            yield session
