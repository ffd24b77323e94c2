"""`holdfast zone` works on the store of the settings, whether a server runs or not."""

import json
import os
import pwd
import re
import socket
import time
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast import SystemClock, Zone, ZoneState, ZoneStatus
from holdfast.compose import Databases, open_status_store
from holdfast.config import Settings
from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.server.status_log import StatusLog
from holdfast.status.stores.dynamodb import DynamoStatusStore
from holdfast.status.stores.s3 import S3StatusStore
from tests.support.metadata import MetadataServer, reply
from tests.unit.cli.conftest import Ran, Run, closed

WORKLOADS = """
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2"]
[[workload]]
name = "cart"
region = "us-east-1"
zones = ["use1-az2", "use1-az3"]
"""


STORE = "(store: holdfast-data/status.sqlite)"


def write(*statuses: ZoneStatus, folder: Path = Path("holdfast-data"), recorded: bool = False) -> None:
    """Make the store as a server does, with these in it, or in its record of changes."""
    values = Settings(data_directory=folder)
    with Databases(values) as databases:
        store = open_status_store(values, databases)
        log = StatusLog(databases.database("status"))
        for number, status in enumerate(statuses):
            if recorded:
                log.append(status, 1_800_000_000.0 + number)
            else:
                store.write(status, 0)


@pytest.fixture(autouse=True)
def _a_server_was_here(here: Path) -> None:
    write()


def out(run: Run, zone: str = "use1-az1", *words: str) -> Ran:
    return run("zone", "out", zone, "--reason", "gray", *words, "--json")


def test_taking_a_zone_out_is_told_and_recorded_with_who_did_it_and_why(run: Run) -> None:
    before = time.time()
    ran = run("zone", "out", "use1-az1", "--reason", "errors on checkout")
    assert (ran.code, ran.out, ran.err) == (
        0,
        f"use1-az1 is out for all workloads until it is brought in {STORE}\n",
        "",
    )
    (status,) = run("zone", "status", "--json").result
    assert before <= status.pop("since") <= time.time()
    assert status.pop("version") > 0
    assert status == {
        "zone": "use1-az1",
        "workload": None,
        "state": "out",
        "share": None,
        "by": f"{pwd.getpwuid(os.getuid()).pw_name}@{socket.gethostname()}",
        "reason": "errors on checkout",
        "expires": None,
    }


def test_nobody_can_pass_as_another_user_by_a_variable(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USER", "LOGNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    assert "somebody-else" not in out(run).result["by"]


def test_a_user_without_a_name_is_recorded_by_number(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 999_999)
    assert out(run).result["by"] == f"uid-999999@{socket.gethostname()}"


def test_a_zone_that_was_brought_in_is_shown_as_in(run: Run) -> None:
    out(run)
    ran = run("zone", "in", "use1-az1", "--reason", "mended")
    assert (ran.code, ran.out, ran.err) == (0, f"use1-az1 is in for all workloads {STORE}\n", "")
    (status,) = run("zone", "status", "--json").result
    assert (status["state"], status["reason"]) == ("in", "mended")
    again = run("zone", "in", "use1-az1", "--reason", "mended twice", "--json").result
    assert again == status, "one that is in stays as it is"


def test_a_zone_is_out_for_as_long_as_was_said(run: Run) -> None:
    status = out(run, "use1-az1", "--for", "2h30m").result
    assert status["expires"] - status["since"] == pytest.approx(9000, abs=1)
    ran = run("zone", "out", "use1-az1", "--reason", "gray", "--for", "90s")
    assert re.fullmatch(
        r"use1-az1 is out for all workloads until \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ \(store: .*\)\n", ran.out
    )
    assert ran.err == "", "everybody who reads this store knows of the end"
    (status,) = run("zone", "status", "--json").result
    assert status["expires"] == pytest.approx(time.time() + 90, abs=10)


def test_what_has_expired_is_in_also_if_no_server_was_there_to_see_it(run: Run) -> None:
    write(
        ZoneStatus(
            zone=Zone("use1-az1"), workload=None, state=ZoneState.OUT, since=1.0, by="me", reason="gray", expires=2.0
        )
    )
    (shown,) = run("zone", "status", "--json").result
    assert (shown["state"], shown["expires"]) == ("in", None)
    header, row = (re.split(r"  +", line.strip()) for line in run("zone", "status").out.splitlines())
    assert dict(zip(header, row, strict=False))["state"] == "in"
    assert "1970-01-01 00:00:02Z" not in row, "no end that is past"
    assert out(run, "use1-az2").code == 0, "so another zone may be taken out"


def test_people_get_a_table_with_text_as_it_was_written(run: Run) -> None:
    out(run, "use1-az2", "--workload", "shop", "--for", "1d")
    run("zone", "out", "use1-az2", "--reason", "[/x] [bold]b ä", "--workload", "cart")
    run("zone", "in", "use1-az2", "--reason", "mended", "--workload", "cart")
    ran = run("zone", "status")
    assert (ran.code, ran.err) == (0, "")
    header, *rows = (re.split(r"  +", line.strip()) for line in ran.out.splitlines())
    assert header == ["zone", "workload", "state", "since", "until", "by", "reason"]
    assert [row[:3] for row in rows] == [["use1-az2", "cart", "in"], ["use1-az2", "shop", "out"]]
    assert [row[-1] for row in rows] == ["mended", "gray"]
    run("zone", "out", "use1-az2", "--reason", "[/x] [bold]b ä")
    assert "(all)" in run("zone", "status").out
    assert "[/x] [bold]b ä" in run("zone", "status").out


def test_only_what_was_asked_for_is_shown(run: Run) -> None:
    out(run, "use1-az2", "--workload", "shop")
    out(run, "use1-az2", "--workload", "cart")
    out(run, "use1-az2")
    out(run, "use1-az1", "--force")

    def shown(*words: str) -> list[tuple[str, str | None]]:
        return [(each["zone"], each["workload"]) for each in run("zone", "status", *words, "--json").result]

    every = [("use1-az1", None), ("use1-az2", None), ("use1-az2", "cart"), ("use1-az2", "shop")]
    assert shown() == every
    assert shown("use1-az2") == every[1:]
    assert shown("--workload", "shop") == [every[0], every[1], every[3]], "what is out for all is so for each"
    assert shown("use1-az1", "--workload", "cart") == [every[0]]
    assert shown("use1-az9") == []


def test_where_no_zone_was_ever_taken_out_people_are_told_so(run: Run) -> None:
    out(run, "use1-az1", "--workload", "cart")
    assert run("zone", "status", "use1-az2").out == "use1-az2 was never taken out\n"
    assert run("zone", "status", "--workload", "shop").out == "no zone was ever taken out for shop\n"


def test_a_second_zone_is_taken_out_by_force_only(run: Run) -> None:
    out(run, "use1-az1", "--workload", "shop")
    refused = out(run, "use1-az2")
    assert (refused.code, refused.error["error"]) == (1, "conflict")
    assert "zone use1-az1 is out, and only one zone of a region may be out" in refused.error["detail"]
    assert out(run, "use1-az2", "--workload", "cart").code == 0, "nobody has two zones out"
    assert out(run, "use1-az2", "--force").code == 0


def test_a_zone_that_is_out_for_all_cannot_come_in_for_one(run: Run) -> None:
    out(run)
    ran = run("zone", "in", "use1-az1", "--reason", "x", "--workload", "shop", "--json")
    assert (ran.code, ran.error["error"]) == (1, "conflict")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["out", "us-east-1a", "--reason", "x"], "us-east-1a is the name of a zone"),
        (["out", "a/b", "--reason", "x"], "expected an AZ-ID"),
        (["in", "us-east-1a", "--reason", "x"], "us-east-1a is the name of a zone"),
        (["status", "us-east-1a"], "us-east-1a is the name of a zone"),
        (["out", "use1-az1", "--reason", ""], "reason of 0 characters"),
        (["out", "use1-az1", "--reason", "x" * 501], "reason of 501 characters"),
        (["out", "use1-az1", "--reason", "\udcff", "--force"], "reason '"),
        (["out", "use1-az1", "--reason", "x", "--workload", "a b"], "workload 'a b'"),
        (["in", "use1-az1", "--reason", "x", "--workload", ""], "workload ''"),
        (["status", "--workload", "a/b"], "workload 'a/b'"),
        (["out", "use1-az1", "--reason", "x", "--for", "soon"], "duration 'soon': expected a duration such as 90s"),
        (["out", "use1-az1", "--reason", "x", "--for", "0"], "at least 1 second"),
        (["out", "use1-az1", "--reason", "x", "--for", "0.5"], "at least 1 second"),
        (["out", "use1-az1", "--reason", "x", "--for", "-5m"], "duration '-5m': expected a duration such as 90s"),
        (["out", "use1-az1", "use1-az2", "--reason", "x"], "give one zone"),
        (["in", "use1-az1", "use1-az2", "--reason", "x"], "give one zone"),
        (["status", "use1-az1", "use1-az2"], "give one zone"),
        (
            ["out", "use1-az1", "--reason", "errors", "on", "checkout"],
            "unexpected arguments 'on checkout': give one zone, and put a reason of several words in quotes",
        ),
        (["out", "use1-az1", "--reason", "x", "--server", "nonsense"], "expected one such as http://127.0.0.1:8470"),
    ],
)
def test_what_cannot_be_right_is_refused_and_nothing_is_changed(run: Run, words: list[str], told: str) -> None:
    out(run, "use1-az9")
    ran = run("zone", *words, "--json")
    assert (ran.code, ran.error["error"]) == (2, "invalid-value")
    assert told in ran.error["detail"]
    assert [each["zone"] for each in run("zone", "status", "--json").result] == ["use1-az9"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["out", "use1-az1"], "--reason is needed"),
        (["in", "use1-az1"], "--reason is needed"),
        (["out", "--reason", "x"], "ZONE is needed"),
        (["out"], "ZONE is needed"),
        (["out", "use1-az1", "--reason"], 'Command "zone out" parameter --reason requires an argument.'),
    ],
)
def test_a_zone_and_a_reason_have_to_be_given(run: Run, words: list[str], told: str) -> None:
    assert run("zone", *words).err == f"holdfast: {told}\n"
    ran = run("zone", words[0], "--json", *words[1:])
    assert (ran.code, ran.error) == (2, {"error": "usage", "detail": told})


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["use1-az4"], "no zone use1-az4 is configured: expected one of use1-az1, use1-az2, use1-az3"),
        (
            ["use1-az3", "--workload", "shop"],
            "no zone use1-az3 is configured for shop: expected one of use1-az1, use1-az2",
        ),
        (["use1-az1", "--workload", "chop"], "no workload chop is configured: expected one of shop, cart"),
    ],
)
def test_what_is_not_configured_is_a_slip(run: Run, here: Path, words: list[str], told: str) -> None:
    (here / "holdfast.toml").write_text(WORKLOADS)
    assert out(run, "use1-az2", "--workload", "shop").code == 0
    for command in ("out", "in"):
        ran = run("zone", command, *words, "--reason", "x", "--json")
        assert (ran.code, ran.error) == (1, {"error": "not-found", "detail": told})
    ran = run("zone", "status", *words, "--json")
    assert (ran.code, ran.error) == (1, {"error": "not-found", "detail": told})


def test_a_workload_that_is_configured_can_be_asked_for_alone_and_no_other(run: Run, here: Path) -> None:
    (here / "holdfast.toml").write_text(WORKLOADS)
    assert run("zone", "status", "--workload", "shop", "--json").result == []
    ran = run("zone", "status", "--workload", "chop", "--json")
    assert (ran.code, ran.error["detail"]) == (1, "no workload chop is configured: expected one of shop, cart")


COMMANDS = [
    ["status"],
    ["history"],
    ["in", "use1-az1", "--reason", "x"],
    ["out", "use1-az1", "--reason", "x"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_where_there_is_no_store_none_is_made_and_people_are_told_what_to_name(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    ran = run("zone", *words, "--data-directory", "elsewhere", "--json")
    assert (ran.code, ran.error["error"]) == (1, "not-found")
    assert ran.error["detail"] == (
        "there is no store at elsewhere/status.sqlite: name the settings or the directory that the server uses, with "
        "--settings, HOLDFAST_SETTINGS or --data-directory, or ask the server with --server URL"
    )
    monkeypatch.setenv("HOLDFAST_TOKEN", "hf_1")
    ran = run("zone", *words, "--data-directory", "elsewhere", "--json")
    assert ran.error["detail"].endswith("; HOLDFAST_TOKEN is set, so --server was probably meant")
    assert not (here / "elsewhere").exists()


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_store_of_another_user_is_told_with_that_user(run: Run, here: Path, words: list[str]) -> None:
    run("zone", "status")  # imports what nobody else may
    with closed(here / "holdfast-data") as owner:
        ran = run("zone", *words, "--json")
    assert (ran.code, ran.error["error"]) == (2, "settings")
    assert f"belongs to {owner}; do this as {owner}" in ran.error["detail"]


def test_a_zone_that_comes_in_for_all_is_not_called_so_while_it_is_out_for_single_workloads(run: Run) -> None:
    for workload in ("shop", "cart", "over"):
        out(run, "use1-az1", "--workload", workload)
    run("zone", "in", "use1-az1", "--workload", "over", "--reason", "mended")
    out(run, "use1-az1")
    ran = run("zone", "in", "use1-az1", "--reason", "mended")
    told = f"use1-az1 is no longer out for all workloads, but still out for cart, shop {STORE}\n"
    assert (ran.code, ran.out, ran.err) == (0, told, "")
    out(run, "use1-az1")
    ran = run("zone", "in", "use1-az1", "--reason", "mended", "--json")
    assert json.loads(ran.out)["state"] == "in"
    assert json.loads(ran.err) == {"note": "use1-az1 is still out for cart, shop"}


def test_what_servers_recorded_is_shown_the_latest_first(run: Run) -> None:
    assert run("zone", "history").out == "no server has recorded a change yet\n"
    first = ZoneStatus(
        zone=Zone("use1-az1"),
        workload="shop",
        state=ZoneState.OUT,
        since=1.0,
        by="me",
        reason="[b]gray",
        expires=9.0,
        version=1,
    )
    second = ZoneStatus(
        zone=Zone("use1-az2"), workload=None, state=ZoneState.IN, since=3.0, by="expiry", reason="over", version=2
    )
    write(first, second, recorded=True)
    ran = run("zone", "history")
    assert (ran.code, ran.err) == (0, "")
    header, *rows = (re.split(r"  +", line.strip()) for line in ran.out.splitlines())
    assert header == ["seen", "zone", "workload", "state", "since", "until", "by", "reason"]
    day = "1970-01-01 00:00:0"
    assert rows == [
        ["2027-01-15 08:00:01Z", "use1-az2", "(all)", "in", f"{day}3Z", "expiry", "over"],
        ["2027-01-15 08:00:00Z", "use1-az1", "shop", "out", f"{day}1Z", f"{day}9Z", "me", "[b]gray"],
    ]
    (only,) = run("zone", "history", "--limit", "1", "--json").result
    assert (only["number"], only["seen_at"], only["status"]["reason"]) == (2, 1_800_000_001.0, "over")


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "x"])
def test_as_many_changes_as_a_server_would_tell_can_be_asked_for(run: Run, limit: str) -> None:
    ran = run("zone", "history", "--limit", limit, "--json")
    assert (ran.code, ran.error["error"]) == (2, "usage")


def test_a_settings_file_says_where_the_store_is(run: Run, here: Path) -> None:
    write(folder=Path("one"))
    (here / "one.toml").write_text("data_directory = 'one'\n")
    assert out(run, "use1-az1", "--settings", "one.toml").code == 0
    assert len(run("zone", "status", "--data-directory", "one", "--json").result) == 1


@pytest.fixture
def in_aws(monkeypatch: pytest.MonkeyPatch, moto_url: str) -> None:
    for name, value in {
        "HOLDFAST_DATA_DIRECTORY": "none-here",
        "HOLDFAST_AWS__ENDPOINT_URL": moto_url,
        "HOLDFAST_AWS__REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("in_aws")
def test_what_is_kept_in_dynamodb_is_changed_there_and_makes_no_store_here(
    run: Run, here: Path, moto_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"zones-{uuid4()}"
    monkeypatch.setenv("HOLDFAST_STATUS__STORE", f"dynamodb:{table}")
    missing = run("zone", "status", "--json")
    assert (missing.code, missing.error["error"]) == (2, "settings")
    with AwsSession(AwsOptions(region="us-east-1", endpoint_url=moto_url)) as session:
        store = DynamoStatusStore(session, table, SystemClock())
        store.create_table()
        out(run, "use1-az1", "--workload", "shop")
        (status,) = store.read()
        assert (status.zone, status.workload, status.state.is_out) == ("use1-az1", "shop", True)
        told = run("zone", "out", "use1-az1", "--workload", "shop", "--reason", "gray")
        assert told.out == f"use1-az1 is out for shop until it is brought in (store: dynamodb:{table})\n"
        assert told.err == ""
        _expect_note(run)
    assert [each["zone"] for each in run("zone", "status", "--json").result] == ["use1-az1"]
    assert not (here / "none-here").exists()


@pytest.mark.usefixtures("in_aws")
def test_whoever_sets_an_end_in_s3_is_told_who_has_to_see_to_it(
    run: Run, moto_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = f"zones-{uuid4()}"
    monkeypatch.setenv("HOLDFAST_STATUS__STORE", f"s3:{bucket}")
    with AwsSession(AwsOptions(region="us-east-1", endpoint_url=moto_url)) as session:
        session.client("s3").create_bucket(Bucket=bucket)
        _expect_note(run)
        assert [status.zone for status in S3StatusStore(session, bucket, SystemClock()).read()] == ["use1-az1"]


def _expect_note(run: Run) -> None:
    words = ["zone", "out", "use1-az1", "--workload", "shop", "--reason", "gray", "--for", "1h"]
    note = "a Holdfast server must run at that time, or readers that ignore expiry, such as Route 53, keep it out"
    ran = run(*words)
    assert (ran.code, ran.err) == (0, f"holdfast: {note}\n")
    ran = run(*words, "--json")
    assert json.loads(ran.out)["expires"] is not None
    assert json.loads(ran.err) == {"note": note}


class TestHere:
    """`holdfast zone here` asks real servers in the place of metadata services, and an emulator of EC2."""

    def test_the_zone_of_the_settings_is_printed_with_where_it_comes_from(self, run: Run, here: Path) -> None:
        (here / "holdfast.toml").write_text("[agent]\nzone = 'use1-az1'\n")
        assert run("zone", "here").out == "use1-az1 (setting)\n"
        assert run("zone", "here", "--json").result == {
            "zone": "use1-az1",
            "source": "setting",
            "name": None,
            "cached": False,
        }

    def test_an_instance_is_asked(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        with MetadataServer() as metadata:
            metadata.on_instance(reply("use1-az4"))
            monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
            monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url)
            assert run("zone", "here").out == "use1-az4 (EC2 instance metadata)\n"

    def test_a_name_is_mapped_and_then_cached(
        self, run: Run, here: Path, monkeypatch: pytest.MonkeyPatch, moto_url: str
    ) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "testing")
        monkeypatch.setenv("HOLDFAST_AWS__ENDPOINT_URL", moto_url)
        # A role of another account would have other names for its zones. It is not assumed.
        monkeypatch.setenv("HOLDFAST_AWS__ROLE_ARN", "arn:aws:iam::210987654321:role/other")
        monkeypatch.setenv("XDG_CACHE_HOME", str(here / "cache"))
        task = {"AvailabilityZone": "us-east-1a", "TaskARN": "arn:aws:ecs:us-east-1:123456789012:task/shop/1"}
        with MetadataServer() as metadata:
            metadata.on("GET /v4/task", reply(json.dumps(task)))
            monkeypatch.setenv("ECS_CONTAINER_METADATA_URI_V4", f"{metadata.url}/v4")
            assert run("zone", "here").out == "use1-az6 (ECS task metadata, where it is called us-east-1a)\n"
            assert run("zone", "here", "--json").result == {
                "zone": "use1-az6",
                "source": "ecs-task",
                "name": "us-east-1a",
                "cached": True,
            }
            assert run("zone", "here").out.endswith("where it is called us-east-1a, from the cache)\n")

    def test_a_zone_that_cannot_be_found_is_an_error_that_names_all_sources(self, run: Run) -> None:
        ran = run("zone", "here", "--json")
        assert (ran.code, ran.error["error"]) == (1, "not-found")
        for title in ("Lambda metadata", "ECS task metadata", "Kubernetes", "EC2 instance metadata", "interface"):
            assert title in ran.error["detail"]

    def test_an_interface_is_looked_for_in_the_region_of_the_settings(
        self, run: Run, monkeypatch: pytest.MonkeyPatch, moto_url: str
    ) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "testing")
        with MetadataServer() as metadata:
            metadata.on("GET /live", reply("192.0.2.9"))
            variables = {"ENDPOINT_URL": moto_url, "REGION": "eu-west-1", "ADDRESS_ENDPOINT": f"{metadata.url}/live"}
            for name, value in variables.items():
                monkeypatch.setenv(f"HOLDFAST_AWS__{name}", value)
            assert "192.0.2.9 in any VPC belongs to network interfaces in 0 zones" in run("zone", "here").err
