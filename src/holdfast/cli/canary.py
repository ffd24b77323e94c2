"""`holdfast canary`: probe the endpoints of a zone from inside it, and send the results to a server."""

import asyncio
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast._errors import HoldfastError, InvalidValue
from holdfast._names import format_count
from holdfast._types import Outcome, Sink
from holdfast.cli.output import Json, SettingsFile, pick_attributes, print_rows
from holdfast.cli.remote import read_token
from holdfast.compose import build_probes, find_zone
from holdfast.config import Settings, load

if TYPE_CHECKING:
    from holdfast.canary import Canary, Probe, ProbeResult

logger = logging.getLogger("holdfast.canary")

CLOSE_SECONDS = 1.5
"""Seconds for sending the last results: the process stops within 2 s, even if the server does not answer."""
COMPONENT = "canary"
"""The part after the slash in the CloudWatch namespace: apart from the requests that the service itself reports."""


def canary(
    *,
    workload: Annotated[
        list[str] | None, Parameter(help="Probe only this workload; repeat it for more. Default: all.")
    ] = None,
    zone: Annotated[
        str | None,
        Parameter(
            help="The AZ-ID of this host. Its endpoints are probed. Default: agent.zone, or the zone that AWS reports."
        ),
    ] = None,
    all_zones: Annotated[bool, Parameter(help="Probe the endpoints of all zones from here.")] = False,
    once: Annotated[bool, Parameter(help="Probe once, print the results, and send nothing.")] = False,
    server: Annotated[str | None, Parameter(help="The server to send to. Overrides telemetry.server.")] = None,
    export: Annotated[
        list[str] | None,
        Parameter(help="Export metrics of the canary, as NAME or NAME:ARGUMENT, such as prometheus:9465; repeatable."),
    ] = None,
    settings: SettingsFile = None,
    json: Json = False,
) -> None:
    """Probe the endpoints of this host's zone, and send the results to a server. Runs until stopped.

    The settings name the endpoints, in [[workload.canary]]. The server gets the token in $HOLDFAST_TOKEN, of role
    sender. With --once, the exit code is 1 if a probe fails. Logs go to standard error.
    Example: holdfast canary --zone use1-az1 --once
    """
    if zone is not None and all_zones:
        raise InvalidValue("--zone and --all-zones: expected one of them")
    values = load(settings, options={("agent", "zone"): zone, ("telemetry", "server"): server}).settings
    probes = build_probes(values, workload or (), None if all_zones else find_zone(values).zone)
    if once:
        _print_once(probes, as_json=json)
        return
    from holdfast.metrics import EXPORTERS
    from holdfast.server.logs import configure_logging

    configure_logging(values.log)
    is_output_used = any(EXPORTERS.get(text.partition(":")[0]).uses_standard_output for text in export or ())

    def announce() -> None:
        zones = sorted({probe.zone for probe in probes})
        text = f"Holdfast {holdfast.__version__} canary: {format_count(len(probes), 'probe')} in {', '.join(zones)}"
        if json:
            text = msgspec.json.encode({"probes": len(probes), "zones": zones}).decode()
        print(text, file=sys.stderr if is_output_used else sys.stdout, flush=True)

    with _open_canary(values, probes, export or ()) as opened:
        details = {"probes": len(probes), "server": values.telemetry.server, "version": holdfast.__version__}
        logger.info("starting", extra=details)
        asyncio.run(_run_until_signal(opened, announce))
    logger.info("stopped")


class _NoSink:
    """A sink for results that are only printed."""

    def emit(self, event: Outcome) -> None:
        pass


def _print_once(probes: "Sequence[Probe]", *, as_json: bool) -> None:
    from holdfast.canary import Canary, ResultKind

    results = asyncio.run(Canary(probes, _NoSink()).run_once())
    print_rows(
        [_to_document(result) for result in results],
        ("zone", "workload", "operation", "result", "status", "latency", "error"),
        [
            (
                *(result.probe.zone, result.probe.workload, result.probe.operation, result.kind, result.status),
                *(f"{result.seconds * 1000:.1f} ms", result.error),
            )
            for result in results
        ],
        as_json=as_json,
    )
    failed = sum(result.kind is not ResultKind.PASSED for result in results)
    if failed:
        raise HoldfastError(f"{failed} of {format_count(len(results), 'probe')} failed")


def _to_document(result: "ProbeResult") -> dict[str, object]:
    probe = result.probe
    return {
        **pick_attributes(probe, "workload", "zone", "address"),
        "operation": str(probe.operation),
        **pick_attributes(result, "status", "seconds", "error"),
        "result": result.kind,
    }


class _SinkByWorkload:
    """A sink that passes each outcome to the sink of its workload, whose region it carries."""

    def __init__(self, sinks: dict[str, Sink[Outcome]]) -> None:
        self._sinks = sinks

    def emit(self, event: Outcome) -> None:
        self._sinks[event.workload].emit(event)


@contextmanager
def _open_canary(values: Settings, probes: "Sequence[Probe]", exports: Sequence[str]) -> "Iterator[Canary]":
    """Open the canary with its sinks. At the end, send the last results."""
    from holdfast.canary import Canary, CanaryMetrics
    from holdfast.metrics import ExportContext, LogExporter, open_exporters
    from holdfast.telemetry.sinks.lines import EmfSink
    from holdfast.telemetry.sinks.server import ServerSink

    lines = ServerSink(values.telemetry.server, token=read_token())
    sink = _SinkByWorkload(
        {each.name: EmfSink(lines, component=COMPONENT, region=each.region) for each in values.workload}
    )
    with open_exporters(exports, ExportContext(namespace="holdfast/canary")) as exporters, _closing(lines.close):
        lines.start()
        yield Canary(probes, sink, results=CanaryMetrics(LogExporter(), *exporters))


@contextmanager
def _closing(close: Callable[[], None]) -> Iterator[None]:
    """Call `close` at the end, in a thread that is left behind if it takes too long."""
    try:
        yield
    finally:
        thread = threading.Thread(target=close, name="holdfast-close", daemon=True)
        thread.start()
        thread.join(CLOSE_SECONDS)
        if thread.is_alive():
            logger.warning("the server did not accept the last results in %g s; they are lost", CLOSE_SECONDS)


async def _run_until_signal(opened: "Canary", announce: Callable[[], None]) -> None:
    """Probe until SIGTERM or SIGINT."""
    running = asyncio.ensure_future(opened.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    announce()
    with suppress(asyncio.CancelledError):
        await running
