"""Simulated AWS accounts over HTTP."""

from collections.abc import Iterator

import pytest

from holdfast.simulate.aws.control_plane import serve
from holdfast.simulate.aws.region import SimulatedRegion
from holdfast.testing import FakeClock
from tests.unit.evacuate.cloud import Cloud


@pytest.fixture(scope="session")
def shared_cloud() -> Iterator[Cloud]:
    regions = [SimulatedRegion(FakeClock())]
    with serve(regions) as address:
        cloud = Cloud(address, regions)
        yield cloud
        cloud.close()


@pytest.fixture
def cloud(shared_cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """A cloud with one empty account."""
    shared_cloud.regions[:] = [SimulatedRegion(FakeClock())]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", shared_cloud.regions[0].access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    return shared_cloud


@pytest.fixture
def region(cloud: Cloud) -> SimulatedRegion:
    """The account of the default credentials, in us-east-1."""
    return cloud.regions[0]
