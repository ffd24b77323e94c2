"""How a run goes."""

import tempfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from holdfast import EngineUnavailable, InvalidValue, Zone
from holdfast.cli import main
from holdfast.demo.history import MINUTES, generate_history, send_history
from holdfast.demo.run import FAULTS, DemoOptions, DemoRun
from holdfast.telemetry import FaultStatuses
from holdfast.telemetry.source import SourceWorkload
from holdfast.telemetry.sources.emf import EmfDecoder


def options(**changes: Any) -> DemoOptions:
    return DemoOptions(**{"directory": Path("unused"), **changes})


@pytest.mark.parametrize(
    "changes",
    [{"zone": "use1-az9"}, {"rate": 5}, {"rate": 201}, {"rate": 20, "bin_seconds": 1}, {"bin_seconds": 0}, {"rate": 0}],
)
def test_what_could_not_be_found_or_sent_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match="expected"):
        options(**changes)


def test_the_usual_run_takes_about_a_minute() -> None:
    usual = options()
    assert usual.healthy_seconds + usual.timeout + usual.recovery_seconds < 90


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_does_something(fault: str) -> None:
    assert FAULTS[fault].errors or FAULTS[fault].delay


def test_the_generated_history_is_a_healthy_past_up_to_now() -> None:
    now, rate = 1_700_000_000.0, 10.0  # 150 requests for a series and bin, so two lines
    shop = SourceWorkload("shop", frozenset({Zone("az1"), Zone("az2")}), FaultStatuses.parse(("5xx",)).count_faults)
    lines = list(generate_history({"az1": ["i-1"], "az2": ["i-2"]}, "us-east-1", rate, 60.0, now))
    batch = EmfDecoder([shop]).decode(b"\n".join(lines), now)
    assert (batch.accepted, batch.refused) == (len(lines), {})
    counts = [(each.start, each.key.zone, each.measured) for each in batch.deltas]
    assert sum(each.requests for _, _, each in counts) == pytest.approx(MINUTES * 60 * rate, rel=0.02)
    assert sum(each.success_seconds.count for _, _, each in counts) == sum(each.requests for _, _, each in counts)
    assert {each.faults for _, _, each in counts} == {0}
    assert {zone for _, zone, _ in counts} == {"az1", "az2"}
    assert (min(start for start, _, _ in counts), max(start for start, _, _ in counts)) == (now - 2070, now - 30)


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (202, b'{"accepted": 0, "refused": 1, "too_late": 0, "reason": "no such zone"}'),
        (202, b'{"accepted": 1, "refused": 0, "too_late": 7}'),
        (503, b'{"detail": "later"}'),
    ],
)
def test_a_history_that_the_server_does_not_store_ends_the_run(status: int, answer: bytes) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with pytest.raises(EngineUnavailable, match="the server did not store the history"):
            send_history(f"http://127.0.0.1:{server.server_port}", iter([b"{}"]))
        thread.join()


def test_a_folder_with_the_records_of_another_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "client.jsonl").write_text("")
    with pytest.raises(InvalidValue, match="is not empty"):
        DemoRun(options(directory=tmp_path), lambda _: None).run()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "inside"):
        with pytest.raises(InvalidValue, match=rf"{folder} cannot be written: .*; name another folder"):
            DemoRun(options(directory=folder), lambda _: None).run()


def test_refused_options_leave_no_folder_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert main(["demo", "--rate", "3"]) == 2
    assert main(["demo", "--rate", "3", "--directory", str(tmp_path / "new")]) == 2
    assert "rate is 3: expected 9 to 200 requests per second" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
