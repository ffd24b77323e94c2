"""Files are replayed in the order of time, whatever their number, format and order."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from holdfast._errors import HoldfastError, InvalidValue
from holdfast._types import Operation, Zone, ZoneState
from holdfast.alarms.declaration import AlarmDeclaration
from holdfast.replay import run
from holdfast.replay.files import ReadingOptions
from holdfast.replay.report import ReplayResult
from holdfast.replay.run import ReplayedWorkload, ReplayOptions, replay
from holdfast.replay.windows import StateSpan
from holdfast.telemetry.context import SharedResource
from holdfast.telemetry.window import Window
from tests.unit.replay.recorded import HEADER, START, ZONES, write_lines

LINES = list(write_lines(40, failing=range(20, 30), operations=1))


def run_files(*paths: Path, seconds: float | None = None, skips_bad: bool = False, **options: Any) -> ReplayResult:
    reading = ReadingOptions(paths=paths, seconds=seconds, skips_bad=skips_bad, workloads=())
    chosen: dict[str, Any] = {"default_detector": "threshold", "with_alarms": False, **options}
    return replay(ReplayOptions(reading=reading, **chosen))


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def show(result: ReplayResult) -> list[tuple[str, str | None, float]]:
    return [(each.kind, each.zone, each.opened - START) for each in result.verdicts]


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return write(tmp_path / "bins.csv", LINES)


EXPECTED = [("isolated", "use1-az2", 220.0)]


def test_a_recording_has_verdicts_and_counts(plain: Path) -> None:
    result = run_files(plain)
    assert show(result) == EXPECTED
    assert (result.bins, result.bins_without_data, result.rows, result.seconds) == (40, 0, 120, 10)
    assert (result.start, result.end, result.judges) == (START, START + 400, ("threshold",))
    assert result.zones == {"shop": ZONES}


def test_order_compression_and_number_of_files_make_no_difference(tmp_path: Path) -> None:
    header, rows = LINES[0], LINES[1:]
    backwards = write(tmp_path / "backwards.csv", [header, *reversed(rows)])
    packed = tmp_path / "bins.csv.gz"
    packed.write_bytes(gzip.compress(("\n".join(LINES) + "\n").encode()))
    zones = [
        write(tmp_path / f"{zone}.csv", [header, *(row for row in rows if zone in row)]) for zone in reversed(ZONES)
    ]
    for paths in ((backwards,), (packed,), tuple(zones)):
        assert show(run_files(*paths)) == EXPECTED


def test_a_file_sorted_by_zone_is_read_again_and_sorted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "HORIZON_SECONDS", 30.0)
    monkeypatch.setattr("holdfast.replay.csv_bins.BLOCK_BYTES", 500)
    rows = [row for zone in ZONES for row in LINES[1:] if zone in row]
    seen: list[Window | None] = []
    reading = ReadingOptions(paths=(write(tmp_path / "bins.csv", [HEADER, *rows]),))
    result = replay(
        ReplayOptions(reading=reading, default_detector="threshold", with_alarms=False), observe=seen.append
    )
    assert show(result) == EXPECTED
    assert seen.count(None) > 1  # it began again
    assert result.bins == 40


def test_a_zone_that_appears_later_is_part_of_all_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "HORIZON_SECONDS", 30.0)
    monkeypatch.setattr("holdfast.replay.csv_bins.BLOCK_BYTES", 500)
    silent = [row for row in LINES[1:] if "az3" not in row or int(row.split(",")[0]) > START + 200]
    result = run_files(write(tmp_path / "bins.csv", [HEADER, *silent]))
    assert result.zones == {"shop": ZONES}
    assert result.bins == 40


def test_a_second_process_gives_the_same_result(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SECOND_PROCESS_BYTES", 0)
    assert show(run_files(plain)) == EXPECTED
    with pytest.raises(InvalidValue, match="line 122: expected 10 fields"):
        run_files(write(plain.parent / "bad.csv", [*LINES, "oops"]))


def test_a_second_process_that_is_killed_is_told(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_read", lambda _: (_ for _ in ()))
    with pytest.raises(HoldfastError, match="the process that reads the files has ended"):
        run_files(plain)


def test_prometheus_and_embedded_metric_format_are_told_from_csv(tmp_path: Path) -> None:
    metric = {"zone": "use1-az1", "handler": "/", "status": "200"}
    values = [[START + 30 * number, "5"] for number in range(4)]
    prometheus = tmp_path / "p.json"
    prometheus.write_text(
        json.dumps({"data": {"resultType": "matrix", "result": [{"metric": metric, "values": values}]}})
    )
    assert (run_files(prometheus).bins, run_files(prometheus).seconds) == (4, 30)
    emf = tmp_path / "emf.log"
    emf.write_text('{"_aws": {}}\n')
    with pytest.raises(InvalidValue, match=r"emf\.log, line 1: `\$\._aws"):
        run_files(emf)


def test_files_that_cannot_be_read_are_told(tmp_path: Path, plain: Path) -> None:
    broken = tmp_path / "broken.csv.gz"
    broken.write_bytes(gzip.compress(plain.read_bytes())[:-20])
    torn = tmp_path / "torn.csv.gz"
    torn.write_bytes(gzip.compress("\n".join(write_lines(400)).encode())[:-200])
    for path, complaint in (
        (tmp_path / "none.csv", "No such file"),
        (tmp_path, "Is a directory"),
        (broken, "cannot be read"),
        (torn, r"torn\.csv\.gz cannot be read"),
        (write(tmp_path / "empty.csv", [HEADER]), "there are no rows"),
    ):
        with pytest.raises(InvalidValue, match=complaint):
            run_files(path)


def test_bad_rows_late_rows_columns_and_pauses_are_noted(tmp_path: Path) -> None:
    rows = [f"{row},{int(row.split(',')[0]) + 11},x" for row in LINES[1:]]
    rows[5] = rows[5].replace(f",{START + 21},x", f",{START + 99},x")
    later = f"{START + 200_000},{rows[0].partition(',')[2]}".replace(f",{START + 11},", f",{START + 200_011},")
    path = write(tmp_path / "bins.csv", [HEADER + ",arrived,colour", *rows, "oops", later])
    result = run_files(path, skips_bad=True)
    assert (result.bad_rows, result.lost_requests) == (1, 60)
    assert result.arrivals[START] == START + 11
    assert result.notes == [
        "ignored columns: colour",
        f"the first bad row: {path}, line 122: expected 12 fields, found 1",
        "2.3 days without any row are skipped",
    ]


def test_the_length_of_a_bin_may_be_given_or_is_ten_seconds(tmp_path: Path) -> None:
    single = write(tmp_path / "bins.csv", LINES[:4])
    assert run_files(single).seconds == 10
    assert run_files(single, seconds=30).seconds == 30


def test_settings_have_the_zones_detector_alarms_and_resources_of_a_workload(plain: Path) -> None:
    operation = Operation("db", "write")
    zones = (Zone("use1-az1"), Zone("use1-az2"))
    workload = ReplayedWorkload(
        name="shop",
        zones=zones,
        alarms=AlarmDeclaration(workload="shop", zones=zones, resources=(("db", (operation,)),)),
        detector="threshold",
        options={"max_fault_rate": 0.9},
    )
    options = ReplayOptions(reading=ReadingOptions(paths=(plain,)), workloads=(workload,))
    result = replay(options)
    assert (result.zones, result.judges) == ({"shop": zones}, ("threshold", "alarms"))
    assert [each for each in result.verdicts if each.judge == "threshold"] == []
    assert options.find_resources("shop") == (SharedResource("db", (operation,)),)
    assert options.find_resources("other") == ()
    declared = ReplayOptions(reading=options.reading, resources=(SharedResource("q", (operation,)),))
    assert declared.declare_alarms("shop", zones).resources == (("q", (operation,)),)


def test_alarms_are_left_out_where_bins_do_not_fit(tmp_path: Path) -> None:
    path = write(tmp_path / "bins.csv", [HEADER, *(f"{START + 300 * n},shop,a/b,z,i-1,9,0,,," for n in range(3))])
    result = run_files(path, with_alarms=True)
    assert result.seconds == 300
    assert "alarms are not evaluated" in result.notes[0]


def test_a_zone_that_is_out_is_not_isolated(plain: Path) -> None:
    out = StateSpan(START, START + 1000, Zone("use1-az2"), ZoneState.OUT)
    assert [each for each in show(run_files(plain, states=(out,), with_alarms=True)) if each[0] == "isolated"] == []


def test_progress_is_reported(plain: Path) -> None:
    seen: list[tuple[float, float]] = []
    reading = ReadingOptions(paths=(plain,))
    replay(ReplayOptions(reading=reading, with_alarms=False), report_progress=lambda *progress: seen.append(progress))
    assert seen[-1] == (1.0, START + 400)
