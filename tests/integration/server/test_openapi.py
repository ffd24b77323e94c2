"""The server keeps to its own description."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.server.process import HoldfastServer, environment

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def description(server: HoldfastServer) -> dict[str, Any]:
    with server.client() as client:
        response = client.get("/openapi.json")
    assert response.headers["content-type"] == "application/json"
    found: dict[str, Any] = response.json()
    return found


def test_the_description_is_valid_openapi_3_1(description: dict[str, Any]) -> None:
    from openapi_spec_validator import OpenAPIV31SpecValidator, validate  # it takes a third of a second

    assert description["openapi"].startswith("3.1.")
    validate(description, cls=OpenAPIV31SpecValidator)


def test_every_operation_says_what_it_is_for_and_which_problems_it_answers_with(description: dict[str, Any]) -> None:
    operations = {
        f"{method} {path}": operation
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    }
    assert len(operations) >= 7
    assert len({operation["operationId"] for operation in operations.values()}) == len(operations)
    for name, operation in operations.items():
        assert operation["summary"], name
        assert operation["description"], name
        for status, response in operation["responses"].items():
            kinds = list(response.get("content", {}))
            is_answer = name.startswith("get /status/") and status == "500"  # that the zone is out, and no problem
            expected = "application/json" if is_answer else "application/problem+json"
            assert int(status) < 400 or kinds == [expected], f"{name} {status}"
        if operation.get("security"):
            assert {"401", "403", "503"} <= operation["responses"].keys(), name


@pytest.mark.parametrize("path", ["/status/{zone}", "/status/{zone}/{workload}"])
def test_what_stands_in_a_path_is_described(description: dict[str, Any], path: str) -> None:
    for operation in (description["paths"][path]["get"], description["paths"][f"/v1/zones{path[7:]}"]["put"]):
        found = {
            (each["name"], each["in"], each["required"], each["schema"]["type"]) for each in operation["parameters"]
        }
        assert found == {(name, "path", True, "string") for name in ("zone", "workload") if name in path}


def test_credentials_are_described_as_bearer_tokens(description: dict[str, Any]) -> None:
    scheme = description["components"]["securitySchemes"]["credential"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")


def test_the_zones_of_a_workload_are_described_as_text(description: dict[str, Any]) -> None:
    from openapi_schema_validator import OAS31Validator

    zones = OAS31Validator(description["components"]["schemas"]["WorkloadSettings"]["properties"]["zones"])
    assert zones.is_valid(["use1-az1", "use1-az2"])
    assert not any(zones.is_valid(wrong) for wrong in (["use1-az1"], [1, 2], ["", "use1-az1"]))


def test_what_is_sent_is_described_without_room_for_unknown_fields(description: dict[str, Any]) -> None:
    schemas = description["components"]["schemas"]
    for name in (
        "NewOperator",
        "NewViewer",
        "NewTenant",
        "NewSender",
        "NewTracker",
        "ZoneChangeRequest",
        "DeployBegin",
        "DeployEnd",
    ):
        assert schemas[name]["additionalProperties"] is False
    # What is answered may gain fields.
    assert "additionalProperties" not in schemas["CreatedCredential"]


@pytest.mark.proof
def test_every_answer_is_in_keeping_with_the_description(server: HoldfastServer, tmp_path: Path) -> None:
    finished = subprocess.run(
        [
            str(Path(sys.executable).with_name("schemathesis")),
            *("run", f"{server.address}/openapi.json", "--no-color"),
            *("--seed", "8470", "--phases", "coverage,fuzzing,stateful", "--max-examples", "30"),
            # A stream of events has no end to wait for; the tests of the server read one.
            *("--exclude-path", "/v1/events"),
            *("--exclude-path", "/v1/status/events"),
            # Without a workload, alarms and series are not found: their own tests have one.
            *("--warnings", "missing_auth,validation_mismatch"),
            # A tenant whose own limits are deleted has those of the queue: there is something to be found afterwards.
            *("--exclude-checks", "use_after_free"),
        ],
        cwd=tmp_path,
        env=environment(
            PYTHONWARNINGS="default",
            PYTHONPATH=str(ROOT),
            SCHEMATHESIS_HOOKS="tests.integration.server.schemathesis_auth",
            TEST_DATA_DIRECTORY=str(server.directory / "data"),
        ),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "No issues found" in finished.stdout
    # A zone that can be planned is found with many examples only.
    assert good_answers(server) - {"POST /v1/evacuations"} == {
        "GET /v1/whoami",
        "GET /v1/credentials",
        "POST /v1/credentials",
        "DELETE /v1/credentials",
        "GET /v1/overview",
        "GET /v1/status",
        "PUT /v1/zones",
        "GET /v1/verdicts",
        "GET /v1/alarms",
        "GET /v1/deploys",
        "GET /v1/evacuations",
        "POST /v1/telemetry",
        "GET /v1/queues",
        "POST /v1/queues",
        "PUT /v1/queues",
        "DELETE /v1/queues",
    }


def good_answers(server: HoldfastServer) -> set[str]:
    """The operations that were let through and did something: without them, nothing would have been tested."""
    return {
        " ".join([entry["http.request.method"], *re.findall("^/v1/[a-z]+", entry["url.path"])])
        for entry in server.entries()
        if entry["logger"] == "holdfast.access"
        and entry["http.response.status_code"] in (200, 201, 202)
        and entry["url.path"].startswith("/v1/")
    }
