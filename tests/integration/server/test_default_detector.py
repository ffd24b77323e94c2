"""The default detector on a real server: it learns from a history, isolates a failing zone, and explains itself."""

import json
import time
from pathlib import Path

import httpx

from holdfast.demo.history import generate_history
from tests.integration.server.process import HoldfastServer, holdfast
from tests.integration.server.test_detection import ZONES, Load, read_verdict, send, until

SETTINGS = """
[evacuation]
mode = "automatic"
[telemetry]
bin_seconds = 2
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2", "use1-az3"]
[[workload.alarms.resource]]
name = "orders"
operations = ["db/query"]
"""


def send_history(operator: httpx.Client) -> None:
    instances = {zone: [f"i-{zone}-{number}" for number in range(3)] for zone in ZONES}
    lines = list(generate_history(instances, "us-east-1", 60.0, 2.0, time.time()))
    for start in range(0, len(lines), 1000):
        answer = send(operator, b"\n".join(lines[start : start + 1000]))
        assert (answer.status_code, answer.json()["refused"], answer.json()["too_late"]) == (202, 0, 0)


def test_a_zone_that_fails_after_half_an_hour_of_history_is_isolated_explained_and_taken_out(tmp_path: Path) -> None:
    """Takes about 20 seconds: learning takes some, and the failure must last for several bins of two seconds."""
    with HoldfastServer.start(tmp_path, settings=SETTINGS) as server, server.operator() as operator:
        assert server.token is not None
        early = operator.get("/v1/verdicts/explanation")
        assert early.status_code in (200, 404), "there may be no verdict yet"
        send_history(operator)
        with Load(server) as load:
            until(lambda: read_verdict(operator)["kind"] == "healthy")
            found = operator.get("/v1/verdicts/explanation", params={"workload": "shop"}).json()
            assert (found["detector"], found["verdict"]["kind"]) == ("calibrated", "healthy")
            assert [zone["zone"] for zone in found["zones"]] == list(ZONES)
            assert {signal["signal"] for signal in found["zones"][0]["signals"]} >= {"faults", "latency"}
            assert found["resources"][0]["observability"] == "healthy"
            load.failing = ZONES[1]
            until(lambda: read_verdict(operator)["kind"] == "isolated")
            until(lambda: operator.get("/status/use1-az2/shop").status_code == 500)
        words = ("verdict", "explain", "shop")
        told = holdfast(*words, "--server", server.address, directory=tmp_path, HOLDFAST_TOKEN=server.token)
        assert told.returncode == 0, told.stderr
        assert told.stdout.startswith("shop: isolated (use1-az2), by detector calibrated\n  use1-az2 fails ")
        assert "  evacuation done: use1-az2 is out\n" in told.stdout
        assert "\nuse1-az2 (out): " in told.stdout
        unknown = operator.get("/v1/verdicts/explanation", params={"workload": "cart"})
        assert (unknown.status_code, "expected one of shop" in unknown.json()["detail"]) == (404, True)
        [recorded] = [each for each in operator.get("/v1/verdicts").json() if each["kind"] == "isolated"]
    stored = json.loads(holdfast("verdict", "explain", "--json", directory=tmp_path).stdout)
    assert (stored["verdict"]["id"], stored["verdict"]["zone"]) == (recorded["id"], "use1-az2"), "while no server runs"
