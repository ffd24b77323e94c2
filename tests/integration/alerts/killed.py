"""A process that follows one verdict and sends its messages to a webhook, once. For `test_kill.py`."""

import sys
from pathlib import Path

from holdfast.alerts import CHANNELS, Alert, Alerter, AlertStore, ChannelContext
from holdfast.alerts.channel import parse_channel_options
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.testing import FakeClock
from tests.unit.alerts.world import Verdicts, verdict


def main(path: str, url: str, at: str) -> None:
    context = ChannelContext(open_aws=lambda: sys.exit("needs no AWS"))
    channel = CHANNELS.get("webhook")(parse_channel_options("webhook", {"url": url}), context)
    verdicts = Verdicts()
    verdicts.open = [verdict()]
    with SqliteDatabase(Path(path)) as database:
        store = AlertStore(database)
        alert = Alert(name="on-call", channel=channel)
        alerter = Alerter([alert], store, verdicts, clock=FakeClock(wall=float(at)))
        alerter.follow_verdicts()
        alerter.send_due("on-call")


if __name__ == "__main__":
    main(*sys.argv[1:])
