"""How exporters are found and opened by name, and what holds for each of them."""

import logging
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import pytest

from holdfast import MissingExtra, SettingsError
from holdfast.config import Settings, load
from holdfast.config.settings import MetricsSettings
from holdfast.metrics import (
    EXPORTERS,
    EmfExporter,
    ExportContext,
    Exporter,
    Instrument,
    InstrumentType,
    Label,
    LogExporter,
    LogLine,
    Measurement,
    MetricsSink,
    OpenTelemetryExporter,
    PrometheusExporter,
    Series,
    open_exporters,
)
from tests.services.start import free_port

TARGET = ExportContext(namespace="shop/worker")
COUNTER = Instrument(type=InstrumentType.COUNTER, name="toy.things", description="Things.", labels=(Label("kind"),))
GAUGE = Instrument(
    type=InstrumentType.GAUGE, name="toy.level", unit="s", description="A level.", cloudwatch_names={"": ("Level",)}
)


class Toys(MetricsSink[str]):
    instruments = (COUNTER,)

    def measure(self, event: str) -> Sequence[Measurement]:
        return (Measurement(Series(COUNTER, (event,)), 1),)

    def describe(self, event: str) -> LogLine | None:
        return LogLine(
            logger="toys",
            level=logging.WARNING,
            subject=event,
            event="Toy",
            message=lambda: f"a {event}",
            fields=dict,
        )


class Pigeon(Exporter):
    """An exporter of another distribution."""

    def __init__(self, argument: str = "") -> None:
        self.argument = argument
        self.seen: list[Measurement] = []
        self.is_closed = False

    @classmethod
    def open(cls, argument: str, context: ExportContext) -> "Pigeon":
        return cls(f"{context.namespace} to {argument}")

    def record(self, measurements: Sequence[Measurement]) -> None:
        self.seen += measurements

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution with the exporter, as far as the entry points know."""
    module = ModuleType("pigeon_post")
    module.Pigeon = Pigeon  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pigeon_post", module)
    point = EntryPoint("pigeon", "pigeon_post:Pigeon", "holdfast.metrics_exporters")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point] if group == point.group else [])
    yield
    EXPORTERS._registered.pop("pigeon", None)


@pytest.mark.usefixtures("installed")
def test_an_exporter_of_another_distribution_is_found_by_its_name() -> None:
    assert "pigeon" in EXPORTERS.names()
    with open_exporters(["pigeon:home:1", "logs"], TARGET) as (pigeon, logs):
        assert isinstance(pigeon, Pigeon)
        assert isinstance(logs, LogExporter)
        Toys(pigeon, logs).emit("ball")
        assert pigeon.argument == "shop/worker to home:1"
        assert [measurement.series.labels for measurement in pigeon.seen] == [("ball",)]
    assert pigeon.is_closed


@pytest.mark.usefixtures("installed")
def test_settings_name_it_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert Settings(metrics=MetricsSettings(export=("pigeon:home",))).metrics.export == ("pigeon:home",)
    with pytest.raises(SettingsError, match=r"metrics.*no metrics exporter is called 'owl': expected one of emf, logs"):
        load(environment={"HOLDFAST_METRICS__EXPORT": "owl"})


def test_the_names_of_built_in_exporters() -> None:
    kinds = {"emf": EmfExporter, "logs": LogExporter, "opentelemetry": OpenTelemetryExporter}
    assert {name: EXPORTERS.get(name) for name in EXPORTERS.names()} == kinds | {"prometheus": PrometheusExporter}


def test_prometheus_by_name_takes_the_port_of_its_process() -> None:
    port = free_port()
    context = ExportContext(namespace="x", process=1, processes=2)
    for argument in (str(port - 1), f"127.0.0.1:{port - 1}", f"[127.0.0.1]:{port - 1}"):
        with PrometheusExporter.open(argument, context) as exporter:
            exporter.close()  # may be repeated
    with pytest.raises(SettingsError, match="with a port from 1 to 65533; each of several processes"):
        PrometheusExporter.open("65534", ExportContext(namespace="x", processes=3))


def test_the_others_by_name(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    with open_exporters(["emf", "emf:shop/toys", "logs:shop", "opentelemetry"], TARGET) as exporters:
        for exporter in exporters:
            exporter.observe((GAUGE,), lambda: [Measurement(Series(GAUGE), 1.5)])
        Toys(*exporters).emit("ball")
    assert [record.name for record in caplog.records] == ["shop"]
    first, second = sorted(capfd.readouterr().out.splitlines(), key=lambda line: "shop/toys" in line)
    assert '"Namespace":"shop/worker","Dimensions":[[]]' in first
    assert '"Namespace":"shop/toys"' in second
    assert '"Level":1.5' in second
    with pytest.raises(SettingsError, match="OpenTelemetryExporter takes no argument, found 'x'"):
        OpenTelemetryExporter.open("x", TARGET)


def test_an_exporter_that_raises_changes_nothing_for_the_others(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Exporter):
        __hash__ = None  # type: ignore[assignment] # as a dataclass has it

        uses_logs = True

        def record(self, measurements: Sequence[Measurement]) -> None:
            raise OSError("no record")

        def log(self, line: LogLine) -> None:
            raise OSError("no log")

    pigeon = Pigeon()
    sink = Toys(Broken(), Broken(), pigeon)
    sink.emit("ball")
    sink.emit("doll")
    assert [measurement.series.labels for measurement in pigeon.seen] == [("ball",), ("doll",)]
    assert sink.failures == 8
    assert len(caplog.records) == 2, "the first failure of each"
    assert "no record" in caplog.text


def test_gauges_that_cannot_be_read_do_not_stop_a_scrape(caplog: pytest.LogCaptureFixture) -> None:
    exporter = PrometheusExporter()

    def broken() -> list[Measurement]:
        raise RuntimeError("not now")

    exporter.observe((GAUGE,), broken)
    exporter.observe((GAUGE,), lambda: [Measurement(Series(GAUGE), 1.5)])
    for _ in range(2):
        assert "toy_level_seconds{} 1.5\n" in exporter.render()
    assert len(caplog.records) == 1


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingExtra, match="the OpenTelemetry exporter needs the extra"):
        OpenTelemetryExporter()
