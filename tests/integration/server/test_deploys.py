"""Deploys are announced to a real server: over HTTP, with the command, and by the program that deploys."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import InvalidValue
from holdfast.watch import announce_deploy
from tests.integration.server.process import HoldfastServer, holdfast
from tests.services.start import free_port

SETTINGS = """
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2"]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldfastServer]:
    with HoldfastServer.start(tmp_path_factory.mktemp("deploys"), settings=SETTINGS) as started:
        yield started


def list_deploys(server: HoldfastServer) -> list[dict[str, Any]]:
    with server.operator() as operator:
        found: list[dict[str, Any]] = operator.get("/v1/deploys").raise_for_status().json()
    return found


def test_the_block_of_a_deploy_is_announced_and_ends_with_it_also_after_an_exception(server: HoldfastServer) -> None:
    with announce_deploy(server.address, workload="shop", zone="use1-az1", note="v1", token=server.token):
        [running] = list_deploys(server)
        assert (running["zone"], running["note"], running["ended_at"]) == ("use1-az1", "v1", None)
        assert running["by"].startswith("credential ")
        with server.operator() as operator:
            assert operator.get("/v1/overview").json()["deploys"] == [running]
    assert list_deploys(server)[0]["ended_at"] is not None

    async def deploy() -> None:
        async with announce_deploy(server.address, workload="shop", by="ci", seconds=60, token=server.token):
            assert list_deploys(server)[0]["ended_at"] is None
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(deploy())
    last = list_deploys(server)[0]
    assert (last["by"], last["zone"], last["ended_at"] is None) == ("ci", None, False)
    assert last["expires_at"] - last["started_at"] == 60


def test_a_deploy_goes_on_without_its_announcement(server: HoldfastServer, caplog: pytest.LogCaptureFixture) -> None:
    done = []
    with caplog.at_level(logging.WARNING, logger="holdfast.deploys"):
        with announce_deploy(f"http://127.0.0.1:{free_port()}", workload="shop"):
            done.append("unreachable")
        with announce_deploy(server.address, workload="cart", token=server.token):
            done.append("unknown")
        with announce_deploy(server.address, workload="shop", token="hf_wrong"):
            done.append("refused")
    assert done == ["unreachable", "unknown", "refused"]
    messages = [each.getMessage() for each in caplog.records if each.name == "holdfast.deploys"]
    assert len(messages) == 6
    assert "Connection refused" in messages[0]
    assert "HTTP 404: no workload cart is configured" in messages[2]
    assert "HTTP 401" in messages[4]
    with pytest.raises(InvalidValue, match="expected an AZ-ID"):
        announce_deploy(server.address, workload="shop", zone="?")


def test_the_command_announces_to_a_remote_server(server: HoldfastServer) -> None:
    assert server.token is not None
    remote = ("--server", server.address, "--json")

    def run(*words: str) -> str:
        ran = holdfast("deploy", *words, *remote, directory=server.directory, HOLDFAST_TOKEN=server.token or "")
        return ran.stdout + ran.stderr

    assert '"zone": "use1-az2"' in run("begin", "--workload", "shop", "--zone", "use1-az2")
    assert '"ended_at": 1' in run("end", "--workload", "shop", "--zone", "use1-az2")
    assert '"zone": "use1-az2"' in run("list", "--workload", "shop")


@pytest.mark.parametrize(
    ("path", "body", "status", "problem"),
    [
        ("", {"workload": "cart"}, 404, "no workload cart is configured"),
        ("", {"workload": "shop", "zone": "use1-az9"}, 404, "no zone use1-az9 is configured for shop"),
        ("", {"workload": "shop", "at": 99_999_999_999}, 400, "in the future"),
        ("/end", {"id": "nothing"}, 404, "there is no deploy nothing"),
        ("/end", {"workload": "shop", "zone": "use1-az1"}, 404, "no deploy of zone use1-az1 of shop is running"),
        ("/end", {}, 404, "name a workload: expected one of shop"),
    ],
)
def test_a_wrong_request_is_refused_with_the_reason(
    server: HoldfastServer, path: str, body: dict[str, Any], status: int, problem: str
) -> None:
    with server.operator() as operator:
        answer = operator.post(f"/v1/deploys{path}", json=body)
    assert (answer.status_code, problem in answer.json()["detail"]) == (status, True), answer.text
    assert len([each for each in list_deploys(server) if each["ended_at"] is None]) == 0
