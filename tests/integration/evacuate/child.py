"""Evacuate a zone in a process of its own, to be killed: python -m tests.integration.evacuate.child URL FILE."""

import sys
from pathlib import Path

from holdfast import Zone
from holdfast._clock import SystemClock
from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.evacuate.action import Target
from holdfast.evacuate.actions.zonal_shift import Account, ZonalShift
from holdfast.evacuate.journals.database import SqlJournal
from holdfast.evacuate.runner import Runner


def main(url: str, file: str) -> None:
    options = AwsOptions(region="us-east-1", endpoint_url=url, max_attempts=1)
    with SqliteDatabase(Path(file)) as database, AwsSession(options) as session:
        action = ZonalShift([Account(session, "123456789012", "us-east-1")])
        runner = Runner({"zonal-shift": action}, SqlJournal(database), SystemClock())
        runner.start(runner.plan(Target(zone=Zone("use1-az1"), run="hf-1", reason="a test")), by="me@here")


if __name__ == "__main__":
    main(*sys.argv[1:])
