"""`holdfast zone` works on the store of the settings, whether a server runs or not."""

import os
import pwd
import re
import socket
import time
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast import SystemClock
from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.status.stores.dynamodb import DynamoStatusStore
from tests.unit.cli.conftest import Ran, Run

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


def out(run: Run, zone: str = "use1-az1", *words: str) -> Ran:
    return run("zone", "out", zone, "--reason", "gray", *words, "--json")


def test_taking_a_zone_out_is_told_and_recorded_with_who_did_it_and_why(run: Run) -> None:
    before = time.time()
    ran = run("zone", "out", "use1-az1", "--reason", "errors on checkout")
    assert (ran.code, ran.out, ran.err) == (0, "use1-az1 is out for all workloads until it is brought in\n", "")
    (status,) = run("zone", "status", "--json").result
    assert before <= status.pop("since") <= time.time()
    assert status == {
        "zone": "use1-az1",
        "workload": None,
        "out": True,
        "by": f"{pwd.getpwuid(os.getuid()).pw_name}@{socket.gethostname()}",
        "reason": "errors on checkout",
        "expires": None,
        "version": 1,
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
    assert (ran.code, ran.out, ran.err) == (0, "use1-az1 is in for all workloads\n", "")
    (status,) = run("zone", "status", "--json").result
    assert (status["out"], status["reason"], status["version"]) == (False, "mended", 2)
    again = run("zone", "in", "use1-az1", "--reason", "mended twice", "--json").result
    assert again == status, "one that is in stays as it is"


def test_a_zone_is_out_for_as_long_as_was_said(run: Run) -> None:
    status = out(run, "use1-az1", "--for", "2h30m").result
    assert status["expires"] - status["since"] == pytest.approx(9000, abs=1)
    ran = run("zone", "out", "use1-az1", "--reason", "gray", "--for", "90s")
    assert re.fullmatch(r"use1-az1 is out for all workloads until \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ\n", ran.out)
    (status,) = run("zone", "status", "--json").result
    assert status["expires"] == pytest.approx(time.time() + 90, abs=10)


def test_what_has_expired_is_in_also_if_no_server_was_there_to_see_it(run: Run) -> None:
    status = out(run, "use1-az1", "--for", "0.001").result
    while time.time() < status["expires"]:
        pass
    (shown,) = run("zone", "status", "--json").result
    assert shown["out"] is False
    assert "  in  " in run("zone", "status").out
    assert out(run, "use1-az2").code == 0, "so another zone may be taken out"


def test_people_get_a_table_with_text_as_it_was_written(run: Run) -> None:
    out(run, "use1-az2", "--workload", "shop", "--for", "1d")
    run("zone", "out", "use1-az2", "--reason", "[/x] [bold]b ä", "--workload", "cart")
    run("zone", "in", "use1-az2", "--reason", "mended", "--workload", "cart")
    ran = run("zone", "status")
    assert (ran.code, ran.err) == (0, "")
    header, *rows = (re.split(r"  +", line.strip()) for line in ran.out.splitlines())
    assert header == ["zone", "workload", "status", "since", "until", "by", "reason"]
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
    assert "zone use1-az1 is out: never a second zone while one is" in refused.error["detail"]
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
        (["out", "use1-az1", "--reason", "\udcff", "--force"], "expected Unicode text"),
        (["out", "use1-az1", "--reason", "x", "--workload", "a b"], "workload 'a b'"),
        (["in", "use1-az1", "--reason", "x", "--workload", ""], "workload ''"),
        (["status", "--workload", "a/b"], "workload 'a/b'"),
        (["out", "use1-az1", "--reason", "x", "--for", "soon"], "duration 'soon': expected one such as 90s"),
        (["out", "use1-az1", "--reason", "x", "--for", "0"], "more than 0"),
        (["out", "use1-az1", "--reason", "x", "--server", "nonsense"], "expected one such as http://127.0.0.1:8470"),
    ],
)
def test_what_cannot_be_right_is_refused_and_nothing_is_changed(run: Run, words: list[str], told: str) -> None:
    out(run, "use1-az9")
    ran = run("zone", *words, "--json")
    assert (ran.code, ran.error["error"]) == (2, "invalid-value")
    assert told in ran.error["detail"]
    assert [each["zone"] for each in run("zone", "status", "--json").result] == ["use1-az9"]


@pytest.mark.parametrize("words", [["out", "use1-az1"], ["in", "use1-az1"], ["out", "--reason", "x"], ["out"]])
def test_a_zone_and_a_reason_have_to_be_given(run: Run, words: list[str]) -> None:
    ran = run("zone", *words, "--json")
    assert (ran.code, ran.error["error"]) == (2, "usage")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["use1-az4"], "no zone use1-az4 is configured: use1-az1, use1-az2, use1-az3"),
        (["use1-az3", "--workload", "shop"], "no zone use1-az3 is configured for shop: use1-az1, use1-az2"),
        (["use1-az1", "--workload", "chop"], "no workload chop is configured: shop, cart"),
    ],
)
def test_what_is_not_configured_is_a_slip(run: Run, here: Path, words: list[str], told: str) -> None:
    (here / "holdfast.toml").write_text(WORKLOADS)
    assert out(run, "use1-az2", "--workload", "shop").code == 0
    for command in ("out", "in"):
        ran = run("zone", command, *words, "--reason", "x", "--json")
        assert (ran.code, ran.error) == (1, {"error": "not-found", "detail": told})


def test_a_zone_can_be_taken_out_before_the_first_start_and_looking_makes_nothing(run: Run, here: Path) -> None:
    for words in (["status"], ["in", "use1-az1", "--reason", "x"]):
        ran = run("zone", *words, "--json")
        assert (ran.code, ran.error["error"]) == (1, "not-found")
        assert "there is no store at holdfast-data/status.sqlite" in ran.error["detail"]
    assert list(here.iterdir()) == []
    assert out(run, "use1-az1", "--data-directory", "elsewhere").code == 0
    assert (here / "elsewhere" / "status.sqlite").exists()
    assert len(run("zone", "status", "--data-directory", "elsewhere", "--json").result) == 1


def test_a_settings_file_says_where_the_store_is(run: Run, here: Path) -> None:
    (here / "one.toml").write_text("data_directory = 'one'\n")
    assert out(run, "use1-az1", "--settings", "one.toml").code == 0
    assert len(run("zone", "status", "--data-directory", "one", "--json").result) == 1


def test_what_is_kept_in_dynamodb_is_changed_there_and_makes_no_store_here(
    run: Run, here: Path, moto_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"zones-{uuid4()}"
    for name, value in {
        "HOLDFAST_STATUS__STORE": f"dynamodb:{table}",
        "HOLDFAST_AWS__ENDPOINT_URL": moto_url,
        "HOLDFAST_AWS__REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
    }.items():
        monkeypatch.setenv(name, value)
    missing = run("zone", "status", "--json")
    assert (missing.code, missing.error["error"]) == (2, "settings")
    with AwsSession(AwsOptions(region="us-east-1", endpoint_url=moto_url)) as session:
        store = DynamoStatusStore(session, table, SystemClock())
        store.create_table()
        out(run, "use1-az1", "--workload", "shop")
        (status,) = store.read()
        assert (status.zone, status.workload, status.out) == ("use1-az1", "shop", True)
    assert [each["zone"] for each in run("zone", "status", "--json").result] == ["use1-az1"]
    assert list(here.iterdir()) == []
