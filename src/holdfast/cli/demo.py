"""`holdfast demo`: show detection and evacuation on one machine."""

import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from holdfast._errors import EngineUnavailable, MissingExtra
from holdfast.cli.output import Json, print_json


def demo(
    *,
    zone: Annotated[str, Parameter(help="The zone that fails: use1-az1, use1-az2 or use1-az3.")] = "use1-az2",
    fault: Annotated[
        Literal["errors", "latency", "both"], Parameter(help="How the zone fails: 40 % errors, 0.8 s slower, or both.")
    ] = "both",
    rate: Annotated[float, Parameter(help="Requests per second, over all zones.")] = 60.0,
    bin_seconds: Annotated[float, Parameter(help="Length of the detector's bins; shorter ones decide sooner.")] = 10.0,
    directory: Annotated[
        Path | None, Parameter(help="An empty folder for records, summary.json and timeline.svg. Default: temporary.")
    ] = None,
    keep_running: Annotated[bool, Parameter(help="Keep all processes running until Ctrl-C.")] = False,
    json: Json = False,
) -> None:
    """Run a shop in three zones, let one zone fail, and watch it be detected and evacuated. Takes about a minute.

    Real processes on loopback: six instances, a client, the server, a simulated AWS. Exit code 3 if the zone was not
    detected, or a process ended early.
    Example: holdfast demo --fault latency --json
    """
    # The server and the simulated AWS, separate processes, need them.
    if not (find_spec("litestar") and find_spec("uvicorn") and find_spec("boto3")):
        raise MissingExtra("holdfast demo", "server,aws")
    from holdfast.demo.run import DemoOptions, DemoRun
    from holdfast.demo.terminal import format_summary, open_display

    options = DemoOptions(
        directory=directory or Path(),
        zone=zone,
        fault=fault,
        rate=rate,
        bin_seconds=bin_seconds,
        keep_running=keep_running,
    )
    if directory is None:  # only now: refused options leave no folder behind
        options = replace(options, directory=Path(tempfile.mkdtemp(prefix="holdfast-demo-")))
    folder = options.directory
    if json:
        summary = DemoRun(options, lambda _: None).run()
        print_json({"summary": summary, "found": summary.found, "directory": str(folder)})
    else:
        with open_display() as show:
            summary = DemoRun(options, show).run()
        print(f"\n{format_summary(summary)}\n  picture                 {folder / 'timeline.svg'}")
    if not summary.found:
        raise EngineUnavailable(f"zone {zone} was not detected and evacuated in time: see the records in {folder}")
