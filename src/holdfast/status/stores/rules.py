"""Rules that every store of zone statuses follows. Pure."""

import re
from dataclasses import replace

from holdfast._errors import Conflict, InvalidValue
from holdfast._names import parse_zone
from holdfast._types import ZoneState, ZoneStatus

ABSENT_VERSION = 0
"""The version of a status that is not stored, or that another tool stored without one."""
EXPIRY = "expiry"
"""Value of `by` in a status that was brought in because it had expired."""
EXPIRED_REASON = "the status has expired (its reason was: {})"
"""Format of the reason of an expired status, which quotes the original reason."""

# PostgreSQL cannot store NUL, and lone surrogates cannot be encoded as UTF-8.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_YEAR_10000 = 253_402_300_800.0
"""Seconds since the epoch: more than `datetime` can represent, far less than DynamoDB's numbers can."""


def check_status(status: ZoneStatus) -> ZoneStatus:
    """Return `status`, or raise InvalidValue if not every store can hold it."""
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
    """Return the error for a write that expected version `expected` and found another one."""
    return Conflict(
        f"the status of zone {status.zone} for {status.workload or 'all workloads'} is not at version "
        f"{expected} any more, because another process changed it: read it again, then decide"
    )


def expire_status(status: ZoneStatus, now: float, version: int) -> ZoneStatus:
    """Return `status` after it has expired at `now`: in, with its old reason quoted."""
    reason = EXPIRED_REASON.format(status.reason)
    return replace(
        status, state=ZoneState.IN, share=None, since=now, by=EXPIRY, reason=reason, expires=None, version=version
    )
