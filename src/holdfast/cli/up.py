"""`holdfast up`: start the server."""

from typing import Annotated

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast._errors import MissingExtra
from holdfast.cli.output import DataDirectory, Json, SettingsFile
from holdfast.config import load
from holdfast.config.places import Place


def up(
    *,
    settings: SettingsFile = None,
    host: Annotated[str | None, Parameter(help="Instead of server.host.")] = None,
    port: Annotated[int | None, Parameter(help="Instead of server.port; 0 for any free one.")] = None,
    data_directory: DataDirectory = None,
    json: Json = False,
) -> None:
    """Start the server and run until it is told to stop (Ctrl-C or SIGTERM).

    The first start prints an operator's credential, once: keep it. Logs go to standard error.
    Example: holdfast up --port 0 --data-directory /var/lib/holdfast
    """
    options: dict[Place, object] = {
        ("server", "host"): host,
        ("server", "port"): port,
        ("data_directory",): data_directory,
    }
    values = load(settings, options=options).settings
    try:
        from holdfast.server.logs import configure
        from holdfast.server.run import serve
    except ModuleNotFoundError as error:
        raise MissingExtra("holdfast up", "server") from error
    configure(values.log)

    def announce(address: str, token: str | None) -> None:
        if json:
            print(msgspec.json.encode({"address": address, "token": token}).decode(), flush=True)
            return
        print(f"Holdfast {holdfast.__version__} on {address}", flush=True)
        if token is not None:
            print(f"Operator's credential, shown this once: {token}", flush=True)

    serve(values, announce)
