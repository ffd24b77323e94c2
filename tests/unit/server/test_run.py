"""Where the server may listen, and what it says when it cannot."""

import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import EngineUnavailable, NotAllowed
from holdfast._listen import get_base_url
from holdfast.config import ServerSettings, Settings
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.server.credentials import CredentialStore, Role
from holdfast.server.run import bind, choose_advertised_address, get_max_connections, is_loopback, require_credentials
from holdfast.testing import FakeClock

# Linux has all of them.
KEEPING = {name: getattr(socket, name) for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")}


class Names:
    """Stands in for the resolver, so that no name is asked for on the network."""

    def __init__(self, **addresses: list[str]) -> None:
        self._addresses = addresses

    def __call__(self, host: str, port: int | None, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        if host not in self._addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            (socket.AF_INET6 if ":" in address else socket.AF_INET, 1, 6, "", (address, port))
            for address in self._addresses[host]
        ]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CredentialStore]:
    with SqliteDatabase(tmp_path / "server.sqlite") as database:
        yield CredentialStore(database, FakeClock())


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("fe80::1", False),
        ("", False),
        ("a\0b", False),
        ("a" * 100, False),
    ],
)
def test_only_addresses_that_stay_on_this_machine_are_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("host", "expected"), [("inside", True), ("both", False), ("outside", False), ("unknown", False)]
)
def test_a_name_is_loopback_when_everything_it_stands_for_is(
    monkeypatch: pytest.MonkeyPatch, host: str, expected: bool
) -> None:
    names = Names(inside=["127.0.0.1", "::1"], both=["127.0.0.1", "10.0.0.1"], outside=["10.0.0.1"])
    monkeypatch.setattr(socket, "getaddrinfo", names)
    assert is_loopback(host) is expected


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
def test_port_0_takes_a_free_one_and_the_address_says_which(host: str, shown: str) -> None:
    with bind(ServerSettings(host=host, port=0)) as listener:
        port = listener.getsockname()[1]
        assert port != 0
        assert get_base_url(listener) == f"http://{shown}:{port}"
        with socket.create_connection((host, port), timeout=10):
            pass


def test_a_port_that_is_taken_is_named_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EngineUnavailable) as caught:
            bind(ServerSettings(port=port))
    assert re.fullmatch(
        rf"cannot listen on '127\.0\.0\.1' port {port}: Address already in use; .*\(--port, 0 for any free one\)",
        str(caught.value),
    )


@pytest.mark.parametrize("host", ["a\0b", "a" * 100, ""])
def test_what_could_be_no_name_is_named_with_what_to_do(host: str) -> None:
    with pytest.raises(EngineUnavailable, match=r"cannot listen on .* port 0: .*; set another server\.host"):
        bind(ServerSettings(host=host, port=0))


def test_a_name_that_does_not_resolve_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Names())
    with pytest.raises(EngineUnavailable, match="cannot listen on 'nowhere' port 1: Name or service not known; set"):
        bind(ServerSettings(host="nowhere", port=1))


def test_an_open_server_cannot_be_reached_from_elsewhere(store: CredentialStore) -> None:
    store.create(Role.OPERATOR)
    with pytest.raises(
        NotAllowed,
        match=r"server\.allow_anonymous with server\.host 0\.0\.0\.0: .* set server\.allow_anonymous = false",
    ):
        require_credentials(ServerSettings(host="0.0.0.0", allow_anonymous=True), store)


def test_a_server_that_can_be_reached_from_elsewhere_needs_an_operator(store: CredentialStore) -> None:
    settings = ServerSettings(host="0.0.0.0")
    store.create(Role.VIEWER)
    with pytest.raises(NotAllowed, match="first run `holdfast credential create --role operator`"):
        require_credentials(settings, store)
    operator, _ = store.create(Role.OPERATOR)
    require_credentials(settings, store)
    store.revoke(operator.id)
    with pytest.raises(NotAllowed, match="there is no operator yet"):
        require_credentials(settings, store)


def test_a_connection_whose_other_side_has_vanished_is_found_out() -> None:
    with (
        bind(ServerSettings(port=0)) as listener,
        socket.create_connection(listener.getsockname()[:2], timeout=10),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        seconds = {name: accepted.getsockopt(socket.IPPROTO_TCP, number) for name, number in KEEPING.items()}
        assert seconds["TCP_KEEPIDLE"] + seconds["TCP_KEEPINTVL"] * seconds["TCP_KEEPCNT"] <= 30
        assert seconds["TCP_USER_TIMEOUT"] == 30_000, "milliseconds, for one that takes nothing of what it was sent"


@pytest.mark.parametrize(
    ("wanted", "file_limit", "expected"),
    [
        (20_000, sys.maxsize, 20_000),
        (20_000, 20_000, 19_734),
        (1000, 20_000, 1000),
        (20_000, 1024, 758),
        (20_000, 256, 20),
    ],
)
def test_the_limit_of_connections_leaves_open_files_to_the_server_itself(
    wanted: int, file_limit: int, expected: int
) -> None:
    settings = Settings(server=ServerSettings(max_connections=wanted))
    assert get_max_connections(settings, file_limit) == expected


@pytest.mark.parametrize(
    ("advertised", "listening", "expected"),
    [
        (None, "http://127.0.0.1:8470", "http://127.0.0.1:8470"),
        (None, "http://[::1]:8470", "http://[::1]:8470"),
        (None, "http://0.0.0.0:8470", f"http://{socket.gethostname()}:8470"),
        (None, "http://[::]:8470", f"http://{socket.gethostname()}:8470"),
        ("https://one.example.com/", "http://127.0.0.1:8470", "https://one.example.com"),
    ],
)
def test_a_server_advertises_the_address_at_which_others_reach_it(
    advertised: str | None, listening: str, expected: str
) -> None:
    assert choose_advertised_address(ServerSettings(advertise=advertised), listening) == expected
