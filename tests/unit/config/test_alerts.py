"""The settings of alerts and the heartbeat: defaults, mistakes, and no secret in sight."""

import pickle
from pathlib import Path

import msgspec
import pytest

from holdfast import SettingsError
from holdfast.compose import Databases, open_alerts
from holdfast.config import ServerSettings, Settings, load
from tests.table import every_row

WORKLOAD = """[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2"]
"""
ALERT = """[[alert]]
name = "chat"
channel = "webhook"
options = { url = "https://hooks.example/services/hunter2", format = "slack" }
"""


def read(folder: Path, text: str) -> Settings:
    (folder / "holdfast.toml").write_text(text)
    return load(folder / "holdfast.toml", environment={}).settings


def test_an_alert_is_for_all_verdicts_and_workloads_at_once_unless_it_says_otherwise(tmp_path: Path) -> None:
    [alert] = read(tmp_path, ALERT).alert
    assert (alert.kinds, alert.workloads, alert.after) == ((), (), 0.0)
    more = 'kinds = ["regional", "unknown"]\nworkloads = ["shop"]\nafter = 600\n'
    settings = read(tmp_path, ALERT + more + WORKLOAD)
    with Databases(settings) as databases:
        [opened] = open_alerts(settings, databases)
    assert (opened.kinds, opened.workloads) == (frozenset({"regional", "unknown"}), frozenset({"shop"}))
    assert opened.after == 600.0


def test_secrets_are_masked_wherever_settings_are_shown(tmp_path: Path) -> None:
    settings = read(tmp_path, f'{ALERT}[heartbeat]\nurl = "https://beat.example/hunter2"\n')
    file = load(tmp_path / "holdfast.toml", environment={})
    shown = {path: value for path, value, _ in file.list_effective()}
    assert shown["alert", 0, "options", "url"] == "https://hooks.example/****"
    assert shown["alert", 0, "options", "format"] == "slack"
    assert shown["heartbeat", "url"] == "https://beat.example/****"
    assert "hunter2" not in repr(settings)
    assert b"hunter2" not in msgspec.json.encode(settings, enc_hook=str)
    copied = pickle.loads(pickle.dumps(settings))
    assert copied == settings, "the detection process gets it"
    assert copied.heartbeat.url.reveal() == "https://beat.example/hunter2"


def test_mistakes_are_named_with_their_line(tmp_path: Path) -> None:
    rows = [
        (ALERT.replace("webhook", "pager"), r"line 3: alert\[0\].channel: no alert channel is called 'pager'"),
        (ALERT.replace("chat", "a b"), r"line 2: alert\[0\].name: expected text matching"),
        (ALERT.replace("slack", "teams"), r"line 4: alert\[0\].options.format: Invalid enum value 'teams'"),
        (ALERT.replace("https:", "mailto:"), r"line 4: alert\[0\].options.url: expected an address"),
        (ALERT + 'kinds = ["healthy"]', r"line 5: alert\[0\].kinds: expected any of instance, isolated"),
        (ALERT + "after = -1", r"line 5: alert\[0\].after: expected"),
        (ALERT + 'workloads = ["bank"]', r"alert\[0\].workloads: no workload 'bank' is configured"),
        (ALERT + ALERT, "expected every alert's name once, found chat, chat"),
        ('[heartbeat]\nurl = "hunter2"', "line 2: heartbeat.url: expected an address such as"),
        ("[heartbeat]\ninterval = 0", "line 2: heartbeat.interval: expected"),
        ('[server]\npublic_url = "holdfast"', "line 2: server.public_url: address 'holdfast'"),
    ]

    def check(row: tuple[str, str]) -> None:
        with pytest.raises(SettingsError, match=row[1]) as raised:
            read(tmp_path, row[0])
        assert "hunter2" not in str(raised.value)

    every_row(rows, check)


def test_a_missing_secret_is_told_with_its_alert(tmp_path: Path) -> None:
    settings = read(tmp_path, '[[alert]]\nname = "chat"\nchannel = "webhook"\noptions = { url = "env:NO_SUCH_URL" }\n')
    with (
        Databases(settings) as databases,
        pytest.raises(SettingsError, match="alert chat: environment variable NO_SUCH_URL is not set"),
    ):
        open_alerts(settings, databases)


def test_links_lead_to_the_address_that_people_can_reach() -> None:
    rows: list[tuple[dict[str, object], str | None]] = [
        ({}, "http://127.0.0.1:8470/"),
        ({"public_url": "https://holdfast.example/"}, "https://holdfast.example/"),
        ({"public_url": "https://ops.example/holdfast", "port": 0}, "https://ops.example/holdfast/"),
        ({"host": "::1"}, "http://[::1]:8470/"),
        ({"host": "0.0.0.0"}, None),
        ({"port": 0}, None),
    ]

    def check(row: tuple[dict[str, object], str | None]) -> None:
        assert msgspec.convert(row[0], ServerSettings).page_url == row[1]

    every_row(rows, check)
