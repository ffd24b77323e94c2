"""Evacuate a zone in a process of its own, to be killed: python -m tests.integration.evacuate.child URL FILE."""

import sys
from pathlib import Path

from holdfast import Zone
from holdfast._clock import SystemClock
from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.evacuate.accounts import Accounts
from holdfast.evacuate.action import Target
from holdfast.evacuate.actions.zonal_shift import ZonalShift
from holdfast.evacuate.journals.database import SqlJournal
from holdfast.evacuate.runner import Runner


def open_accounts(url: str) -> Accounts:
    def open_session(region: str, max_attempts: int) -> AwsSession:
        return AwsSession(AwsOptions(region=region, endpoint_url=url, max_attempts=max_attempts))

    return Accounts([("the default account", open_session)], lambda _: "us-east-1")


def main(url: str, file: str) -> None:
    with SqliteDatabase(Path(file)) as database, open_accounts(url) as accounts:
        runner = Runner({"zonal-shift": ZonalShift(accounts)}, SqlJournal(database), SystemClock())
        plan = runner.plan(Target(zone=Zone("use1-az1"), run="hf-1", reason="a test"))
        runner.evacuate(runner.begin(plan, by="me@here"), plan)


if __name__ == "__main__":
    main(*sys.argv[1:])
