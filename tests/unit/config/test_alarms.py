"""The settings of alarms: small, with the defaults of the library, and mistakes are told with their place."""

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Operation, SettingsError, Zone
from holdfast._alarm_options import AlarmOptions
from holdfast.alarms.declaration import AlarmDeclaration
from holdfast.config import load
from holdfast.config.alarms import AlarmSettings
from holdfast.config.evacuation import EvacuationSettings
from holdfast.telemetry import SharedResource

WORKLOAD = """[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2"]
"""


def test_a_verdict_knows_the_zone_that_a_shared_resource_is_in(tmp_path: Path) -> None:
    resource = '[[workload.alarms.resource]]\nname = "{}"\noperations = ["db/query"]\n'
    found = declare(resource.format("db") + 'zone = "use1-az2"\n' + resource.format("cache"), tmp_path)
    assert found is not None
    query = (Operation("db", "query"),)
    assert found.list_resources() == (
        SharedResource("db", query, Zone("use1-az2")),
        SharedResource("cache", query, None),
    )


def declare(text: str, folder: Path) -> AlarmDeclaration | None:
    file = folder / "holdfast.toml"
    file.write_text(WORKLOAD + text)
    [workload] = load(file, environment={}).settings.workload
    return workload.to_watched_workload(EvacuationSettings()).alarms


def test_every_option_of_the_library_is_a_setting(tmp_path: Path) -> None:
    assert AlarmSettings().to_declaration("shop", "us-east-1", ["use1-az1"]).options == AlarmOptions()
    text = '[workload.alarms]\nperiod = 300\nextra_periods = 0\npercentile_interpolation = "linear"\n'
    found = declare(text, tmp_path)
    assert found is not None
    assert found.options == AlarmOptions(period=300, extra_periods=0, percentile_interpolation="linear")


def test_settings_are_read_without_numpy() -> None:
    code = "import sys, holdfast.config; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_workload_declares_its_alarms(tmp_path: Path) -> None:
    text = """[workload.alarms]
min_availability = 99.9
operations = ["Home/Index"]
[[workload.alarms.resource]]
name = "primary-database"
operations = ["orders-db/query"]
"""
    assert declare(text, tmp_path) == AlarmDeclaration(
        workload="shop",
        region="us-east-1",
        zones=(Zone("use1-az1"), Zone("use1-az2")),
        options=AlarmOptions(min_availability=99.9),
        operations=(Operation("Home", "Index"),),
        resources=(("primary-database", (Operation("orders-db", "query"),)),),
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('operations = ["Home"]', "alarms.*service/name"),
        ('operations = ["a/b", "a/b"]', "once"),
        ('latency_statistic = "best"', "latency_statistic"),
        ("min_availability = 0", "min_availability"),
        ("period = 45", "alarms.*period is 45: expected 10, 20, 30, or a multiple of 60"),
        ("extra_periods = 21", "extra_periods"),
        ('percentile_interpolation = "cubic"', "percentile_interpolation"),
        ('resource = [{ name = "db", operations = [] }]', "operations"),
        (
            'resource = [{ name = "db", operations = ["a/b"], zone = "use1-az9" }]',
            r"alarms.resource\[0\].zone: no zone use1-az9 of the workload: expected one of use1-az1, use1-az2",
        ),
        ('resource = [{ name = "db", operations = ["query"] }]', "service/name"),
        ('resource = [{ name = "db", operations = ["a/b"] }, { name = "db", operations = ["a/b"] }]', "once"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=problem):
        declare(f"[workload.alarms]\n{text}\n", tmp_path)
