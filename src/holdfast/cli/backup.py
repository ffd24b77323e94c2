"""`holdfast backup`: copy the data directory's databases while they are in use."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from holdfast._errors import InvalidValue, NotFound
from holdfast.cli.output import DataDirectory, Json, SettingsFile, print_json
from holdfast.compose import SQLITE_SUFFIX, require_access
from holdfast.config import load


def backup(
    target: Annotated[Path, Parameter(help="A folder for the copies; made if need be. Nothing in it is overwritten.")],
    /,
    *,
    settings: SettingsFile = None,
    data_directory: DataDirectory = None,
    json: Json = False,
) -> None:
    """Copy every SQLite file of the data directory, whole and consistent, while the server goes on.

    Each copy is one file that can take the original's place when the server is stopped.
    Example: holdfast backup /backups/monday
    """
    from rich.progress import Progress

    from holdfast.engines.sqlite import SqliteDatabase

    values = load(settings, options={("data_directory",): data_directory}).settings
    if values.database.url.scheme != "sqlite":
        raise InvalidValue(f"database.url is {values.database.url}: back up PostgreSQL with its own tools (pg_dump)")
    require_access(values.data_directory)  # a folder that cannot be read looks empty
    sources = sorted(values.data_directory.glob(f"*{SQLITE_SUFFIX}"))
    if not sources:
        raise NotFound(f"there is nothing to back up in {values.data_directory}")
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValue(f"{target} cannot be made: {error.strerror}; name a folder for the copies") from error
    copies = []
    with Progress(transient=True, disable=not sys.stderr.isatty()) as progress:
        for source in sources:
            task = progress.add_task(source.name)
            copy = target / source.name
            with SqliteDatabase(source, patience=values.database.patience) as database:
                database.backup(copy, lambda done, total, task=task: progress.update(task, completed=done, total=total))  # type: ignore[misc]
            copies.append({"source": str(source), "copy": str(copy), "bytes": copy.stat().st_size})
    if json:
        print_json(copies)
    else:
        for entry in copies:
            print(f"{entry['source']} -> {entry['copy']} ({entry['bytes']:,} bytes)")
