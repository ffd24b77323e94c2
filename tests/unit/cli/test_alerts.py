"""`holdfast alerts`: who was told, acknowledge, snooze, and tests of the channels."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.alerts import AlertEvent, AlertStore
from holdfast.engines.sqlite import SqliteDatabase
from tests.services.start import free_port
from tests.support.alert_receivers import WebhookReceiver, receiving
from tests.unit.alerts.world import START, verdict
from tests.unit.cli.conftest import Run

ID = verdict().id
SETTINGS = """data_directory = "data"
[server]
public_url = "https://holdfast.example"
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2"]
"""


@pytest.fixture
def store(here: Path) -> Iterator[AlertStore]:
    (here / "holdfast.toml").write_text(SETTINGS)
    (here / "data").mkdir()
    with SqliteDatabase(here / "data" / "alerts.sqlite") as database:
        store = AlertStore(database)
        store.add_verdicts([verdict(), verdict("ended", opened_at=START)])
        store.queue_message(ID, "chat", 1, AlertEvent.OPENED, START + 30)
        claimed = store.claim("chat", START + 30, START + 90)
        assert claimed is not None
        store.mark_delivered(claimed[0], START + 31)
        store.queue_message(ID, "mail", 1, AlertEvent.OPENED, START + 30)
        store.close_verdict("ended", START + 5)
        yield store


@pytest.mark.usefixtures("store")
def test_verdicts_are_listed_with_those_who_were_told(run: Run) -> None:
    header, first, second = run("alerts", "list").out.splitlines()
    assert header.split() == ["verdict", "kind", "opened", "state", "told"]
    assert first.split() == [ID, "isolated", "2025-06-15", "15:07:10Z", "open", "chat,", "mail", "(waiting)"]
    assert second.split()[-3:] == ["2025-06-15", "15:06:45Z", "nobody"]
    [found] = run("alerts", "list", "--limit", "1", "--json").result
    assert found["verdict"]["id"] == ID
    assert [each["state"] for each in found["deliveries"]] == ["delivered", "waiting"]


def test_one_verdict_is_shown_with_every_message(run: Run, store: AlertStore) -> None:
    run("alerts", "acknowledge", ID, "--by", "anna")
    run("alerts", "snooze", ID, "--for", "2h", "--by", "bert")
    lines = run("alerts", "show", ID).out.splitlines()
    assert lines[0] == f"{ID}: {verdict().summary}"
    assert lines[2] == "  acknowledged by anna"
    assert lines[4].endswith("by bert")
    assert lines[6].split()[:5] == ["chat", "opened", "delivered", "2025-06-15", "15:07:11Z"]
    missing = run("alerts", "show", "nothing")
    assert (missing.code, missing.err) == (
        1,
        "holdfast: no alert is about a verdict 'nothing': see `holdfast alerts list`\n",
    )
    assert run("alerts", "show", "ended").out.splitlines()[2] == "  resolved 2025-06-15 15:06:45Z"


def test_an_acknowledgement_and_a_snooze_are_recorded_with_who_did_it(run: Run, store: AlertStore) -> None:
    assert run("alerts", "acknowledge", ID).out.startswith(f"{ID}: acknowledged by ")
    assert "@" in str(store.get(ID).verdict.acknowledged_by), "the user and the host"
    snoozed = run("alerts", "snooze", "--workload", "shop", "--for", "30m", "--by", "anna", "--json").result
    assert (snoozed["workload"], snoozed["by"]) == ("shop", "anna")
    assert store.get(ID).verdict.snoozed_until == snoozed["until"]
    assert "nobody is told until" in run("alerts", "snooze", ID, "--for", "90s").out
    ended = run("alerts", "acknowledge", "ended", "--json")
    assert (ended.code, ended.error["error"]) == (1, "conflict")


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("--for", "2h"), 2, "expected either the ID of a verdict or --workload"),
        ((ID, "--workload", "shop", "--for", "2h"), 2, "expected either the ID of a verdict or --workload"),
        ((ID, "--for", "soon"), 2, "expected a duration such as 90s"),
        (("--workload", "bank", "--for", "2h"), 1, "no workload bank is configured"),
    ],
)
def test_a_snooze_needs_one_object_and_a_duration(words: tuple[str, ...], code: int, complaint: str, run: Run) -> None:
    ran = run("alerts", "snooze", *words)
    assert ran.code == code
    assert complaint in ran.err


def test_without_a_store_nothing_is_created(run: Run, here: Path) -> None:
    (here / "holdfast.toml").write_text(SETTINGS)
    ran = run("alerts", "list")
    assert ran.code == 1
    assert "there is no store at data/alerts.sqlite" in ran.err
    assert not (here / "data").exists()


def test_an_empty_store_says_so(run: Run, here: Path) -> None:
    (here / "holdfast.toml").write_text(SETTINGS)
    (here / "data").mkdir()
    with SqliteDatabase(here / "data" / "alerts.sqlite") as database:
        AlertStore(database)
    assert run("alerts", "list").out == "there was no verdict to tell of yet\n"
    assert run("alerts", "list", "--json").result == []


class TestTest:
    @pytest.fixture
    def receiver(self, here: Path) -> Iterator[WebhookReceiver]:
        with receiving() as receiver:
            alerts = {
                "good": receiver.url,
                "down": f"http://127.0.0.1:{free_port()}/",
                "unset": "env:NO_SUCH_VARIABLE_FOR_ALERTS",
            }
            blocks = [
                f'[[alert]]\nname = "{name}"\nchannel = "webhook"\noptions = {{ url = "{url}" }}\n'
                for name, url in alerts.items()
            ]
            (here / "holdfast.toml").write_text(SETTINGS + "".join(blocks))
            yield receiver

    def test_each_channel_is_tested_and_one_failure_is_a_failure(self, run: Run, receiver: WebhookReceiver) -> None:
        ran = run("alerts", "test", "--json")
        assert ran.code == 1
        results = {each["alert"]: each["error"] for each in json.loads(ran.out)}
        assert results["good"] is None
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+ cannot be reached: Connection refused", results["down"])
        assert results["unset"] == (
            "alert unset: environment variable NO_SUCH_VARIABLE_FOR_ALERTS is not set, or empty"
        )
        assert json.loads(ran.err)["error"] == "delivery-failed"
        [request] = receiver.requests
        assert request.content["event"] == "test"
        assert request.content["link"] == "https://holdfast.example/"
        assert request.content["command"] is None, "no store has the test"

    def test_json_is_the_only_document_on_standard_output(self, run: Run, here: Path) -> None:
        (here / "holdfast.toml").write_text(SETTINGS + '[[alert]]\nname = "log"\nchannel = "stdout"\n')
        ran = run("alerts", "test", "--json")
        assert (ran.code, json.loads(ran.out)) == (0, [{"alert": "log", "error": None}])
        assert json.loads(ran.err)["event"] == "test"
        assert '"event":"test"' in run("alerts", "test").out

    def test_one_alert_can_be_tested_alone(self, run: Run, receiver: WebhookReceiver, here: Path) -> None:
        ran = run("alerts", "test", "good")
        assert (ran.code, ran.out.split()) == (0, ["alert", "result", "good", "confirmed"])
        assert not (here / "data").exists()

    def test_an_unknown_alert_is_told_with_the_known_ones(
        self, run: Run, receiver: WebhookReceiver, here: Path
    ) -> None:
        assert "there is no alert pager: expected one of good, down, unset" in run("alerts", "test", "pager").err
        (here / "holdfast.toml").write_text(SETTINGS)
        assert "add an [[alert]]" in run("alerts", "test").err
