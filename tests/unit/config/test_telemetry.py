"""The settings of telemetry: names of other emitters, and sources to poll."""

from pathlib import Path

import pytest

from holdfast import SettingsError
from holdfast.config import load

WORKLOAD = """
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2"]
"""
MAPPING = """
[[telemetry.emf]]
namespace = "Shop"
workload = "shop"
service = "ServiceName"
operation = "Operation"
counts = { total = "Requests", faults = "Errors" }
latency = { all = "Latency" }
"""
SOURCE = """
[[telemetry.source]]
kind = "emf_file"
options = { paths = ["/var/log/shop/*.log"] }
"""


def read(tmp_path: Path, text: str) -> object:
    file = tmp_path / "holdfast.toml"
    file.write_text(text)
    return load(file, environment={})


def test_mappings_and_sources_are_read(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(MAPPING + SOURCE + WORKLOAD)
    loaded = load(file, environment={})
    [mapping], [source] = loaded.settings.telemetry.emf, loaded.settings.telemetry.source
    assert (mapping.namespace, mapping.zone, mapping.counts["faults"]) == ("Shop", "AZ-ID", "Errors")
    assert (source.kind, source.options) == ("emf_file", {"paths": ["/var/log/shop/*.log"]})
    shown = {path: value for path, value, _ in loaded.list_effective()}
    assert shown["telemetry", "emf", 0, "counts", "total"] == "Requests"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MAPPING, r"telemetry\.emf\[0\]\.workload: no workload 'shop' is configured"),
        (MAPPING * 2 + WORKLOAD, r"expected every \[\[telemetry\.emf\]\]'s namespace once, found Shop, Shop"),
        (MAPPING.replace("total", "sum") + WORKLOAD, "sum"),
        (MAPPING.replace("faults = ", "5xx = ") + WORKLOAD, "either classes"),
        (MAPPING.replace('"Operation"', '""') + WORKLOAD, "operation"),
        (SOURCE.replace("emf_file", "tape"), "no telemetry source is called 'tape': expected one of emf_file"),
        (
            SOURCE.replace("paths", "files"),
            r"line 4: telemetry\.source\[0\]\.options\.files: unknown option of source emf_file, expected paths",
        ),
        (
            SOURCE.replace("options", "# options"),
            r"telemetry\.source\[0\]\.options: Object missing required field `paths`",
        ),
        (
            SOURCE.replace('["/var/log/shop/*.log"]', "[]"),
            r"line 4: telemetry\.source\[0\]\.options\.paths: Expected `array` of length >= 1",
        ),
        (
            SOURCE.replace('["/var/log/shop/*.log"]', '"x"'),
            r"line 4: telemetry\.source\[0\]\.options\.paths: expected a list, found text",
        ),
        (
            '[telemetry]\nserver = "nowhere"',
            r"line 2: telemetry\.server: address 'nowhere': expected one such as http://",
        ),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(SettingsError, match=expected):
        read(tmp_path, text)
