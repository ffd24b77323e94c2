"""`holdfast up`, `check` and `backup`: start the server, validate its settings, copy its databases."""

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast._errors import Conflict, InvalidValue, MissingExtra, NotFound
from holdfast.cli.output import SETTINGS, Json, SettingsFile, SettingsOptions, create_progress, print_result, print_rows
from holdfast.compose import SQLITE_SUFFIX, require_access
from holdfast.config import load
from holdfast.config.paths import format_path


def up(
    *,
    host: Annotated[str | None, Parameter(help="Overrides server.host.")] = None,
    port: Annotated[int | None, Parameter(help="Overrides server.port; 0 for any free port.")] = None,
    options: SettingsOptions = SETTINGS,
    json: Json = False,
) -> None:
    """Start the server and run until Ctrl-C or SIGTERM.

    The first start prints the credential of an operator, only once: store it. Logs go to standard error.
    Example: holdfast up --port 0 --data-directory /var/lib/holdfast
    """
    values = options.load({("server", "host"): host, ("server", "port"): port})
    try:
        from holdfast.server.logs import configure_logging
        from holdfast.server.run import serve
    except ModuleNotFoundError as error:
        raise MissingExtra("holdfast up", "server") from error
    configure_logging(values.log)

    def announce(address: str, token: str | None) -> None:
        if json:
            print(msgspec.json.encode({"address": address, "token": token}).decode(), flush=True)
            return
        print(f"Holdfast {holdfast.__version__} on {address}", flush=True)
        if token is not None:
            print(f"Operator's credential, shown only once: {token}", flush=True)

    serve(values, announce)


def check(
    file: Annotated[Path | None, Parameter(help="The settings file. Default: the one that `up` would use.")] = None,
    /,
    *,
    settings: SettingsFile = None,
    json: Json = False,
) -> None:
    """Validate settings and show all values in effect, with their origins. Secrets are masked.

    Example: holdfast check holdfast.toml
    """
    loaded = load(file or settings)
    effective = [(format_path(path), value, origin) for path, value, origin in loaded.list_effective()]
    print_rows(
        {
            "file": None if loaded.file is None else str(loaded.file),
            "settings": {name: {"value": value, "from": origin} for name, value, origin in effective},
        },
        ("setting", "value", "from"),
        [(name, msgspec.json.encode(value).decode(), origin) for name, value, origin in effective],
        as_json=json,
    )


def backup(
    target: Annotated[Path, Parameter(help="A folder for the copies, created if needed. No file is overwritten.")],
    /,
    *,
    options: SettingsOptions = SETTINGS,
    json: Json = False,
) -> None:
    """Copy every SQLite file of the data directory consistently, while the server runs.

    Each copy is one file that can replace the original when the server is stopped.
    Example: holdfast backup /backups/monday
    """
    from holdfast.engines.sqlite import SqliteDatabase

    values = options.load()
    if values.database.url.scheme != "sqlite":
        raise InvalidValue(f"database.url is {values.database.url}: back up PostgreSQL with its own tools (pg_dump)")
    require_access(values.data_directory)  # a folder without permission to read would look empty
    sources = sorted(values.data_directory.glob(f"*{SQLITE_SUFFIX}"))
    if not sources:
        raise NotFound(f"there is no database in {values.data_directory}: name another folder with --data-directory")
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValue(f"{target} cannot be created: {error.strerror}; name a folder for the copies") from error
    copies = []
    with create_progress() as shown:
        for source in sources:
            task = shown.add_task(source.name)
            copy = target / source.name
            try:
                with SqliteDatabase(source, timeout=values.database.timeout) as database:
                    database.backup(
                        copy,
                        lambda done, total, task=task: shown.update(task, completed=done, total=total),  # type: ignore[misc]
                    )
            except Conflict as error:
                raise Conflict(f"{error}; name another folder") from error
            copies.append({"source": str(source), "copy": str(copy), "bytes": copy.stat().st_size})
    lines = [f"{entry['source']} -> {entry['copy']} ({entry['bytes']:,} bytes)" for entry in copies]
    print_result(copies, "\n".join(lines), as_json=json)
