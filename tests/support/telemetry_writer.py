"""A process that adds bins to a history of telemetry and saves them, until it is killed.

It prints the number of every bin when it is saved. Arguments: the engine and the address of its database.
"""

import sys
from pathlib import Path

from holdfast import Operation, Side, Zone
from holdfast.engines import Database
from holdfast.engines.postgres import PostgresDatabase, PostgresOptions
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.telemetry import Bin, BinKey
from holdfast.telemetry.history import TelemetryHistory
from holdfast.telemetry.series import SeriesTable

FIRST = 170_000_040
"""The number of the first bin, of ten seconds."""
KEY = BinKey("shop", Operation("Home", "Index"), Zone("az1"), "i-1", Side.SERVER)


def open_database(engine: str, address: str) -> Database:
    return SqliteDatabase(Path(address)) if engine == "sqlite" else PostgresDatabase(PostgresOptions(url=address))


def main(engine: str, address: str) -> None:
    history = TelemetryHistory(open_database(engine, address), SeriesTable(), 10.0, ["shop"], FIRST * 10.0)
    for count in range(1, 10_000):
        number = FIRST + count - 1
        now = (number + 1) * 10.0 + 1.5
        history.add([(number, {KEY: Bin(count_2xx=count)})], {}, {}, now)
        history.save(now)
        print(number, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
