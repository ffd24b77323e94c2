"""Sessions on the emulators of AWS, for everything about statuses that lives there."""

from collections.abc import Callable, Iterator

import pytest

from holdfast.engines.aws import AwsOptions, AwsSession
from tests.table import sampled

Open = Callable[..., AwsSession]


@pytest.fixture(autouse=True)
def some_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")


@pytest.fixture
def connect() -> Iterator[Open]:
    opened: list[AwsSession] = []

    def connect(url: str, region: str = "us-east-1", attempts: int = 1) -> AwsSession:
        opened.append(AwsSession(AwsOptions(region=region, endpoint_url=url, max_attempts=attempts)))
        return opened[-1]

    yield connect
    for session in opened:
        session.close()


@pytest.fixture(params=sampled(["moto_url", "ministack_url"]))
def emulator(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(request.param)
    return url
