"""The settings of canaries: one probe per zone, and mistakes are told with their place."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import InvalidValue, NotFound, Operation, SettingsError, Zone
from holdfast.canary import HttpCheck, Probe, PythonCheck, TcpCheck
from holdfast.compose import build_probes
from holdfast.config import Settings, load
from tests.table import every_row

WORKLOAD = """[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2"]
"""
TEMPLATE = 'operation = "Home/Index"\nendpoint = "https://{zone}.shop.internal"\n'


def loaded(text: str, folder: Path) -> Settings:
    file = folder / "holdfast.toml"
    file.write_text(text)
    return load(file, environment={}).settings


def test_a_template_gives_a_probe_in_each_zone(tmp_path: Path) -> None:
    settings = loaded(f"{WORKLOAD}[[workload.canary]]\n{TEMPLATE}", tmp_path)
    first, second = build_probes(settings)
    assert first == Probe(
        workload="shop",
        operation=Operation("Home", "Index"),
        zone=Zone("use1-az1"),
        address="https://use1-az1.shop.internal",
        check=HttpCheck(),
    )
    assert (second.zone, second.address) == ("use1-az2", "https://use1-az2.shop.internal")
    assert build_probes(settings, zone=Zone("use1-az2")) == build_probes(settings, ["shop"])[1:]


def test_a_table_gives_a_probe_in_each_of_its_zones(tmp_path: Path) -> None:
    options = """method = "POST"
path = "/pay"
status = 401
text = "sign in"
headers = { Host = "shop.example.com" }
interval = 5
timeout = 1
endpoint = { use1-az2 = "https://us-east-1d.shop-123.elb.amazonaws.com" }
"""
    text = f'{WORKLOAD}[[workload.canary]]\noperation = "Pay/Card/Once"\n{options}'
    [probe] = build_probes(loaded(text, tmp_path))
    assert (probe.zone, probe.address) == ("use1-az2", "https://us-east-1d.shop-123.elb.amazonaws.com")
    assert (probe.operation, probe.interval, probe.timeout) == (Operation("Pay", "Card/Once"), 5.0, 1.0)
    headers = {"Host": "shop.example.com"}
    assert probe.check == HttpCheck(method="POST", path="/pay", status=401, text="sign in", headers=headers)


def test_a_port_and_a_function_are_checked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "canary_checks.py").write_text("def checkout(address):\n    return address\n")
    text = f"""{WORKLOAD}
[[workload.canary]]
operation = "Cache/Get"
kind = "tcp"
endpoint = "{{zone}}.cache.internal:6379"
[[workload.canary]]
operation = "Shop/Checkout"
kind = "python"
function = "canary_checks:checkout"
endpoint = "{{zone}}"
"""
    settings = loaded(text, tmp_path)
    tcp, python = build_probes(settings, zone=Zone("use1-az1"))
    assert (tcp.address, tcp.check) == ("use1-az1.cache.internal:6379", TcpCheck())
    assert isinstance(python.check, PythonCheck)
    assert python.check.function(python.address) == "use1-az1"


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("canary_nothing:x", "canary_nothing:x: there is no module canary_nothing"),
        ("json:nothing", "json:nothing: there is no function 'nothing' in json; expected MODULE:FUNCTION"),
        ("json:__doc__", "json:__doc__: there is no function '__doc__' in json"),
    ],
)
def test_a_function_that_cannot_be_found_is_told_when_the_canary_starts(
    function: str, told: str, tmp_path: Path
) -> None:
    text = f'{WORKLOAD}[[workload.canary]]\n{TEMPLATE}kind = "python"\nfunction = "{function}"\n'
    settings = loaded(text, tmp_path)
    with pytest.raises(InvalidValue, match=told):
        build_probes(settings)


def test_a_mistake_is_told_with_its_setting(tmp_path: Path) -> None:
    def check(row: tuple[str, str]) -> None:
        text, told = row
        with pytest.raises(SettingsError) as raised:
            loaded(f"{WORKLOAD}[[workload.canary]]\n{text}", tmp_path)
        assert told in str(raised.value)

    every_row(
        [
            ('operation = "Home/Index"', "workload[0].canary[0].endpoint is missing"),
            (TEMPLATE.replace("Home/", ""), "workload[0].canary[0].operation: expected SERVICE/NAME"),
            (TEMPLATE.replace("{zone}", "a"), "workload[0].canary[0].endpoint: expected text with {zone}"),
            (TEMPLATE.replace("{zone}", "{zone}{x}"), "canary[0].endpoint: expected text with {zone}, and no other"),
            (TEMPLATE.replace("https:", "ftp:"), "canary[0].endpoint: address 'ftp://use1-az1.shop.internal'"),
            (TEMPLATE.replace('nal"', 'nal/x"'), "expected no path in it; set `path` instead"),
            ('operation = "a/b"\nendpoint = {}', "canary[0].endpoint: expected text with {zone}, or an address"),
            ('operation = "a/b"\nendpoint = { us-east-1a = "http://a" }', "canary[0].endpoint: us-east-1a is the name"),
            (
                'operation = "a/b"\nendpoint = { use1-az9 = "http://a" }',
                "a/b has an endpoint in use1-az9, which is not",
            ),
            ('operation = "a/b"\nendpoint = 5', "canary[0].endpoint: expected"),
            (f"{TEMPLATE}timeout = 10", "canary[0].timeout: expected less than the interval, 10"),
            (f"{TEMPLATE}interval = 0.5", "canary[0].interval: expected"),
            (f'{TEMPLATE}path = "x"', "canary[0].path: expected one that begins with /"),
            (f'{TEMPLATE}headers = {{ A = "b\\nc" }}', "canary[0].headers: 'A' or its value contains a character"),
            (f"{TEMPLATE}headers = {{ A = 1 }}", "canary[0].headers"),
            (f'{TEMPLATE}kind = "python"', 'canary[0].function: needed with kind = "python", and only then'),
            (f'{TEMPLATE}function = "a:b"', 'canary[0].function: needed with kind = "python", and only then'),
            (f'{TEMPLATE}kind = "python"\nfunction = "a"', "canary[0].function: expected MODULE:FUNCTION"),
            (f'{TEMPLATE}kind = "smtp"', "canary[0].kind: expected one of http, tcp, python"),
            (f'{TEMPLATE}kind = "tcp"\npath = "/x"', 'canary[0].path: expected it only with kind = "http"'),
            (
                f'{TEMPLATE}kind = "tcp"\nheaders = {{ A = "b" }}',
                'canary[0].headers: expected it only with kind = "http"',
            ),
            (f'{TEMPLATE}kind = "tcp"', "canary[0].endpoint: address 'https://use1-az1.shop.internal': expected host"),
            (f"{TEMPLATE}[[workload.canary]]\n{TEMPLATE}", "expected every canary's operation once"),
        ],
        check,
    )


def test_a_workload_or_zone_without_canaries_is_told(tmp_path: Path) -> None:
    settings = loaded(f"{WORKLOAD}[[workload.canary]]\n{TEMPLATE}", tmp_path)
    without = loaded(WORKLOAD, tmp_path)
    rows: list[tuple[Settings, dict[str, Any], str]] = [
        (settings, {"workloads": ["other"]}, "no workload other is configured: expected one of shop"),
        (settings, {"zone": Zone("use1-az9")}, "no zone use1-az9 is configured: expected one of use1-az1, use1-az2"),
        (without, {"workloads": ["shop"]}, "no canary of shop has an endpoint: add a"),
        (without, {"zone": Zone("use1-az1")}, "no canary has an endpoint in zone use1-az1: add a"),
    ]
    for given, options, told in rows:
        with pytest.raises(NotFound, match=told):
            build_probes(given, **options)


def test_the_values_of_headers_are_masked_wherever_settings_are_shown(tmp_path: Path) -> None:
    text = f'{WORKLOAD}[[workload.canary]]\n{TEMPLATE}headers = {{ Authorization = "Bearer secret" }}\n'
    settings = loaded(text, tmp_path)
    assert "secret" not in repr(settings)
    file = load(tmp_path / "holdfast.toml", environment={})
    shown = {path: value for path, value, _ in file.list_effective()}
    assert shown["workload", 0, "canary", 0, "headers", "Authorization"] == "****"
    assert shown["workload", 0, "canary", 0, "endpoint"] == "https://{zone}.shop.internal"
    assert settings == loaded(text, tmp_path)
    assert settings != loaded(text.replace("secret", "other"), tmp_path)
    [header] = settings.workload[0].canary[0].headers.values()
    assert len({header, header}) == 1
    assert b"secret" not in msgspec.json.encode(settings, enc_hook=str)


def test_settings_and_library_have_the_same_defaults(tmp_path: Path) -> None:
    [probe, _] = build_probes(loaded(f"{WORKLOAD}[[workload.canary]]\n{TEMPLATE}", tmp_path))
    fields = {name: getattr(probe, name) for name in ("workload", "operation", "zone", "address")}
    assert probe == Probe(**fields, check=HttpCheck())
