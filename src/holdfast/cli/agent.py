"""`holdfast agent`: publish to a host without Python which zones are out."""

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter
from msgspec.structs import replace

import holdfast
from holdfast.cli.output import Json, SettingsFile
from holdfast.cli.remote import read_token
from holdfast.compose import find_zone
from holdfast.config import load


def agent(
    *,
    zone: Annotated[
        str | None, Parameter(help="The AZ-ID of this host. Overrides agent.zone. Default: the zone that AWS reports.")
    ] = None,
    workload: Annotated[str | None, Parameter(help="The workload of this host. Overrides agent.workload.")] = None,
    endpoint: Annotated[
        list[str] | None,
        Parameter(help="A server to follow, or https://host/{zone}. May be repeated. Overrides agent.endpoints."),
    ] = None,
    host: Annotated[str | None, Parameter(help="The address to listen on. Overrides agent.host.")] = None,
    port: Annotated[int | None, Parameter(help="The port, 0 for any free one. Overrides agent.port.")] = None,
    file: Annotated[Path | None, Parameter(help="A file to write the state to. Overrides agent.file.")] = None,
    hook: Annotated[
        str | None, Parameter(help="A command to run at the start and on every change. Overrides agent.hook.")
    ] = None,
    settings: SettingsFile = None,
    json: Json = False,
) -> None:
    """Track which zones are out, and publish it to this host: over HTTP, in a file, by a hook. Runs until stopped.

    GET /health answers 200 while the host's own zone is in, and 503 while it is out. Logs go to standard error.
    Servers that require a credential get the token in $HOLDFAST_TOKEN.
    Example: holdfast agent --workload shop --file /run/zones.json
    """
    given: dict[str, object] = {
        "zone": zone,
        "workload": workload,
        "endpoints": endpoint or None,
        "host": host,
        "port": port,
    }
    given |= {"file": file, "hook": hook}
    values = load(settings, options={("agent", name): value for name, value in given.items()}).settings
    from holdfast.agent import run
    from holdfast.server.logs import configure_logging

    configure_logging(values.log)
    own = replace(values.agent, zone=find_zone(values).zone)
    values = replace(values, agent=own)

    def announce(address: str) -> None:
        if json:
            facts = {"address": address, "zone": own.zone, "workload": own.workload}
            print(msgspec.json.encode(facts).decode(), flush=True)
        else:
            owner = own.zone if own.workload is None else f"{own.workload} in {own.zone}"
            print(f"Holdfast {holdfast.__version__} agent for {owner} on {address}", flush=True)

    run(values, announce, read_token())
