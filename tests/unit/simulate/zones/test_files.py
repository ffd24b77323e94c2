"""The files of a scenario have everything that its windows have."""

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast import Conflict, InvalidValue
from holdfast.simulate.zones.files import BIN_COLUMNS, GROWTH, write_scenario
from holdfast.simulate.zones.scenario import (
    START,
    Scenario,
    Size,
    TelemetryFault,
    Times,
    build_fleet,
    build_scenario,
)
from holdfast.simulate.zones.scenarios import create_scenario
from holdfast.simulate.zones.windows import run_scenario


def build(*telemetry: TelemetryFault, requests: float = 600.0, **parts: Any) -> Scenario:
    fleet = build_fleet(np.random.default_rng(1), Size(), operations=2, requests=requests, instances=2)
    return build_scenario(fleet, Times(START, START, START, START + 50), telemetry=telemetry, **parts)


def write(folder: Path, scenario: Scenario) -> dict[str, list[dict[str, str]]]:
    """Write the files, and return the rows of each."""
    found = {}
    for written in write_scenario(folder, scenario, np.random.default_rng(3)):
        with written.path.open(encoding="utf-8", newline="") as file:
            found[written.path.name] = list(csv.DictReader(file))
        assert len(found[written.path.name]) == written.rows
    return found


def parse(text: str) -> dict[int, int]:
    return {int(bucket): int(count) for bucket, _, count in (pair.partition(":") for pair in text.split())}


@pytest.mark.parametrize("requests", [12.0, 600.0, 30_000.0])
def test_every_cell_with_requests_has_a_row_with_its_counts_and_latencies(tmp_path: Path, requests: float) -> None:
    scenario = build(requests=requests)
    rows = write(tmp_path, scenario)["bins.csv"]
    bins = [reported.measured for reported in run_scenario(scenario, np.random.default_rng(3))]
    expected = [
        (
            f"{measured.start:.0f}",
            f"{measured.start + 11:.0f}",
            "shop",
            f"shop/operation{operation + 1:03}",
            f"use1-az{zone + 1}",
            f"use1-az{zone + 1}-{instance + 1:02}",
            "",
            str(measured.requests[operation, zone, instance]),
            str(measured.faults[operation, zone, instance]),
            "1.1",
        )
        for measured in bins
        for operation, zone, instance in np.ndindex(*measured.requests.shape)
        if measured.requests[operation, zone, instance]
    ]
    assert [tuple(row.values())[:-1] for row in rows] == expected
    assert tuple(rows[0]) == BIN_COLUMNS
    histograms = [parse(row["histogram"]) for row in rows]
    assert [sum(each.values()) for each in histograms] == [int(row[7]) - int(row[8]) for row in expected]
    sums = sum(count * GROWTH ** (bucket + 0.5) / 1000 for each in histograms for bucket, count in each.items())
    assert math.isclose(sums, sum(float(measured.latencies.sums.sum()) for measured in bins), rel_tol=0.03)


def test_lost_rows_are_missing_late_ones_say_so_and_wrong_clocks_have_wrong_times(tmp_path: Path) -> None:
    scenario = build(
        TelemetryFault(start=START + 10, end=START + 20, zone=0, lost=1.0),
        TelemetryFault(start=START + 20, end=START + 30, zone=1, delay=30.0),
        TelemetryFault(start=START + 30, end=START + 40, zone=2, instance=1, skew=-20.0),
    )
    found: dict[tuple[str, str], set[tuple[float, float]]] = {}
    for row in write(tmp_path, scenario)["bins.csv"]:
        times = float(row["time"]) - START, float(row["arrived"]) - START
        found.setdefault((row["zone"], row["instance"][-2:]), set()).add(times)
    usual = {(10.0 * number, 10.0 * number + 11) for number in range(5)}
    for instance in ("01", "02"):
        assert found["use1-az1", instance] == usual - {(10, 21)}
        assert found["use1-az2", instance] == usual - {(20, 31)} | {(20, 61)}
    assert found["use1-az3", "01"] == usual
    assert found["use1-az3", "02"] == usual - {(30, 41)} | {(10, 41)}


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("zone-fails", {"bins.csv", "labels.csv"}),
        ("zone-drained", {"bins.csv", "labels.csv", "states.csv"}),
        ("deploys-announced", {"bins.csv", "labels.csv", "deploys.csv"}),
        ("deploys-unannounced", {"bins.csv", "labels.csv"}),
        ("shared-writer", {"bins.csv", "labels.csv", "resources.csv"}),
    ],
)
def test_a_scenario_has_the_files_that_it_needs(tmp_path: Path, name: str, files: set[str]) -> None:
    scenario, random = create_scenario(name, 1, Size(hours=1, operations=1))
    written = write_scenario(tmp_path / "new" / "folder", scenario, random)
    assert {each.path.name for each in written} == files == {path.name for path in (tmp_path / "new/folder").iterdir()}


def test_labels_states_deploys_and_resources_are_those_of_the_scenario(tmp_path: Path) -> None:
    created = [create_scenario(name, 1, Size(hours=1, operations=1)) for name in ("shared-writer", "zone-drained")]
    parts: dict[str, Any] = {"labels": created[0][0].labels, "resources": created[0][0].resources}
    parts |= {"states": created[1][0].states}
    parts |= {"deployments": create_scenario("deploys-announced", 1, Size(hours=1))[0].deployments[:1]}
    found = write(tmp_path, build(**parts))
    [label], [deploy] = parts["labels"], parts["deployments"]
    assert found["labels.csv"] == [
        {
            "start": f"{label.start:.0f}",
            "end": f"{label.end:.0f}",
            "kind": "shared",
            "zone": label.zone,
            "resource": "orders-database",
            "instance": "",
        }
    ]
    assert found["resources.csv"] == [
        {"resource": "orders-database", "operation": f"orders-database/{name}", "zone": label.zone}
        for name in ("insert", "update")
    ]
    assert [row["state"] for row in found["states.csv"]] == ["draining", "out"]
    assert found["deploys.csv"] == [{"start": f"{deploy.start:.0f}", "end": f"{deploy.end:.0f}", "zone": deploy.zone}]


def test_the_measurements_of_clients_have_their_side(tmp_path: Path) -> None:
    scenario, random = create_scenario("shared-writer", 1, Size(hours=1, operations=1))
    write_scenario(tmp_path, scenario, random)
    with (tmp_path / "bins.csv").open(encoding="utf-8", newline="") as file:
        sides = {(row["operation"].partition("/")[0], row["side"]) for row in csv.DictReader(file)}
    assert sides == {("shop", ""), ("orders-database", "client")}


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("mine", encoding="utf-8")
    with pytest.raises(Conflict, match=r"labels\.csv exists already: remove it, or name another folder"):
        write(tmp_path, build())
    assert (tmp_path / "labels.csv").read_text(encoding="utf-8") == "mine"


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidValue, match="file/below cannot be created: Not a directory"):
        write(tmp_path / "file" / "below", build())
    (tmp_path / "taken" / "labels.csv").mkdir(parents=True)
    with pytest.raises(Conflict, match="exists already"):
        write(tmp_path / "taken", build())


def test_progress_is_reported_for_each_bin(tmp_path: Path) -> None:
    calls: list[None] = []
    write_scenario(tmp_path, build(), np.random.default_rng(3), advance=lambda: calls.append(None))
    assert len(calls) == 5
