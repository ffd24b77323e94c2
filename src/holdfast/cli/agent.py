"""`holdfast agent`: tell a host that is not Python which zones are out."""

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast.cli.output import Json, SettingsFile
from holdfast.cli.remote import read_token
from holdfast.config import load


def agent(
    *,
    zone: Annotated[str | None, Parameter(help="The AZ-ID of this host. Instead of agent.zone.")] = None,
    workload: Annotated[str | None, Parameter(help="What this host is part of. Instead of agent.workload.")] = None,
    endpoint: Annotated[
        list[str] | None, Parameter(help="A server to follow, or https://host/{zone}; repeat it. Else agent.endpoints.")
    ] = None,
    host: Annotated[str | None, Parameter(help="Instead of agent.host.")] = None,
    port: Annotated[int | None, Parameter(help="Instead of agent.port; 0 for any free one.")] = None,
    file: Annotated[Path | None, Parameter(help="A file to keep the state in. Instead of agent.file.")] = None,
    hook: Annotated[
        str | None, Parameter(help="A command to run at the start and on every change. Instead of agent.hook.")
    ] = None,
    settings: SettingsFile = None,
    json: Json = False,
) -> None:
    """Follow which zones are out and tell this host: over HTTP, in a file, by a hook. Runs until it is told to stop.

    GET /health answers 200 while the own zone is in, and 503 while it is out. Logs go to standard error.
    A server that wants a credential gets the token in $HOLDFAST_TOKEN.
    Example: holdfast agent --zone use1-az1 --file /run/zones.json
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
    own = values.agent
    from holdfast.agent import run
    from holdfast.server.logs import configure_logging

    configure_logging(values.log)

    def announce(address: str) -> None:
        if json:
            facts = {"address": address, "zone": own.zone, "workload": own.workload}
            print(msgspec.json.encode(facts).decode(), flush=True)
        else:
            whom = own.zone if own.workload is None else f"{own.workload} in {own.zone}"
            print(f"Holdfast {holdfast.__version__} agent for {whom} on {address}", flush=True)

    run(values, announce, read_token())
