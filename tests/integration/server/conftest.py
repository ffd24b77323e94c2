"""One running server for all tests of a module that do not disturb each other."""

from collections.abc import Iterator

import pytest

from tests.integration.server.process import HoldfastServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldfastServer]:
    """A real server in a data directory of its own, whose first operator is known."""
    with HoldfastServer.start(tmp_path_factory.mktemp("server")) as server:
        yield server
