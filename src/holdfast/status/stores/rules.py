"""What every store of zone statuses holds to, wherever it keeps them. Pure."""

import re
from dataclasses import replace

from holdfast._errors import Conflict, InvalidValue
from holdfast._names import parse_zone
from holdfast._types import ZoneState, ZoneStatus

EXPIRY = "expiry"
"""Who brings in what has expired."""
EXPIRED_REASON_PARTS = ("the status has expired (its reason was: ", ")")
"""What stands before and after the reason that a status had before it expired."""

# PostgreSQL cannot hold NUL, and nothing can send half a surrogate pair as UTF-8.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_YEAR_10000 = 253_402_300_800.0
"""Past what `datetime` can show, and long before what DynamoDB's numbers can hold."""


def check_status(status: ZoneStatus) -> ZoneStatus:
    """The status, if every store can hold it. Raises InvalidValue."""
    parse_zone(status.zone)
    if status.workload == "":
        raise InvalidValue("workload is '': expected a name, or None for all workloads")
    for name in ("workload", "by", "reason"):
        text = getattr(status, name)
        if text is not None and _UNSTORABLE.search(text):
            raise InvalidValue(f"{name} {text[:80]!r} of zone {status.zone}: expected Unicode text without NUL")
    for name in ("since", "expires"):
        seconds = getattr(status, name)
        if seconds is not None and not 0 <= seconds < _YEAR_10000:
            raise InvalidValue(f"{name} of zone {status.zone} is {seconds}: expected seconds since the epoch")
    return status


def build_conflict(status: ZoneStatus, expected: int) -> Conflict:
    """What to raise when somebody else was quicker to write."""
    return Conflict(
        f"the status of zone {status.zone} for {status.workload or 'all workloads'} is not at version "
        f"{expected} any more: read it again, then decide again"
    )


def expire_status(status: ZoneStatus, now: float, version: int) -> ZoneStatus:
    """Return the status after it has expired: in, with the reason for which the zone was not."""
    before, after = EXPIRED_REASON_PARTS
    reason = f"{before}{status.reason}{after}"
    return replace(
        status, state=ZoneState.IN, share=None, since=now, by=EXPIRY, reason=reason, expires=None, version=version
    )
