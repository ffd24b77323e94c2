"""Addresses that can be had are, and of others it is said what to set."""

import pytest

from holdfast import EngineUnavailable
from holdfast._listen import get_base_url, listen


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("localhost", "127.0.0.1")])
def test_an_address_is_told_as_others_reach_it(host: str, shown: str) -> None:
    with listen(host, 0, section="agent", backlog=1) as listener:
        port = listener.getsockname()[1]
        assert get_base_url(listener) in (f"http://{shown}:{port}", f"http://[::1]:{port}")


def test_an_address_that_cannot_be_had_is_told_with_what_to_set() -> None:
    with listen("127.0.0.1", 0, section="agent", backlog=1) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EngineUnavailable, match=rf"cannot listen on '127.0.0.1' port {port}: .*agent.port"):
            listen("127.0.0.1", port, section="agent", backlog=1)
    with pytest.raises(EngineUnavailable, match=r"cannot listen on 'a\.\.b' port 0: .*server.host"):
        listen("a..b", 0, section="server", backlog=1)
