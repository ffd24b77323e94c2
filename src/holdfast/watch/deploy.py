"""Announced deploys: their values, and the rules for their times and texts. Pure."""

import re
from collections.abc import Sequence

from msgspec import Struct

from holdfast._errors import Conflict, InvalidValue, NotFound
from holdfast._names import CONTROL_CHARACTERS, check_workload_name, parse_zone
from holdfast._types import Zone
from holdfast.telemetry.context import Deployment

DEFAULT_SECONDS = 900.0
"""Seconds after which an announcement expires: longer than most deploys, so that few are still running then."""
MAX_SECONDS = 3600.0
"""An announcement makes a detector more careful. A forgotten one must not do that for a day."""
KEPT_SECONDS = 86_400.0
"""Seconds that an announcement stays in the list after its end."""
AHEAD_SECONDS = 5.0
"""Seconds by which the clock of the announcing host may be ahead."""
MAX_RUNNING = 100
"""Running announcements of one workload: more than it has zones and teams. A loop in a script reaches it at once."""
MAX_BY_CHARACTERS, MAX_NOTE_CHARACTERS = 200, 500
TEXT_PATTERN = rf"^[^{CONTROL_CHARACTERS}]*$"
"""No control characters: names and notes are shown on operators' terminals."""
ID_PATTERN = "^[A-Za-z0-9_-]{1,64}$"


class AnnouncedDeploy(Struct, frozen=True, kw_only=True):
    """An announced deploy, from its beginning to its end."""

    id: str
    workload: str
    zone: Zone | None
    """None means all zones of the workload."""
    started_at: float
    expires_at: float
    """When the announcement ends by itself."""
    ended_at: float | None = None
    """When it was ended; None if it was not."""
    by: str
    note: str

    @property
    def end(self) -> float:
        """When the deploy ended, or will end at the latest."""
        return self.expires_at if self.ended_at is None else self.ended_at

    def is_running(self, now: float) -> bool:
        return self.end > now

    def to_deployment(self) -> Deployment:
        """Return the deploy as a detector sees it."""
        return Deployment(self.zone, self.started_at, self.end)


def build_deploy(
    deploy_id: str,
    workload: str,
    zone: str | None,
    *,
    now: float,
    by: str,
    note: str = "",
    seconds: float | None = None,
    at: float | None = None,
) -> AnnouncedDeploy:
    """Return the deploy that begins at `at`, or now. Raise InvalidValue for a wrong name, text or time."""
    if not re.search(ID_PATTERN, deploy_id):
        raise InvalidValue(f"id {deploy_id[:80]!r}: expected 1 to 64 letters, digits and any of _ -")
    duration = DEFAULT_SECONDS if seconds is None else seconds
    if not 1 <= duration <= MAX_SECONDS:
        raise InvalidValue(f"a deploy of {duration:g} s: expected 1 s to 1 hour; announce a longer one again")
    start = now if at is None else at
    if not start <= now + AHEAD_SECONDS:
        raise InvalidValue(f"the deploy begins {start - now:.0f} s in the future: announce it when it begins")
    if start + duration <= now:
        raise InvalidValue("the deploy has expired before it was announced: give a later beginning, or a longer `for`")
    return AnnouncedDeploy(
        id=deploy_id,
        workload=check_workload_name(workload),
        zone=None if zone is None else parse_zone(zone),
        started_at=start,
        expires_at=start + duration,
        by=_check_text("by", by, MAX_BY_CHARACTERS),
        note=_check_text("note", note, MAX_NOTE_CHARACTERS),
    )


def choose_open_deploy(found: Sequence[AnnouncedDeploy], workload: str, zone: Zone | None) -> AnnouncedDeploy:
    """Return the only running deploy of a zone, or of all zones. Raise NotFound for none, Conflict for several."""
    scope = f"zone {zone} of {workload}" if zone else f"all zones of {workload}"
    if not found:
        raise NotFound(f"no deploy of {scope} is running: see `holdfast deploy list`")
    if len(found) > 1:
        ids = ", ".join(each.id for each in found)
        raise Conflict(f"{len(found)} deploys of {scope} are running: name one by its id, {ids}")
    return found[0]


def choose_end(deploy: AnnouncedDeploy, now: float, at: float | None) -> float:
    """Return when a deploy ended: at `at`, or now, but not after it expired. Raise InvalidValue for a wrong time."""
    if at is None:
        return min(max(now, deploy.started_at), deploy.expires_at)  # the host that announced it may be ahead
    if not at <= now + AHEAD_SECONDS:
        raise InvalidValue(f"deploy {deploy.id} ends {at - now:.0f} s in the future: end it when it ends")
    if at < deploy.started_at:
        raise InvalidValue(f"deploy {deploy.id} would end {deploy.started_at - at:.0f} s before it began")
    return min(at, deploy.expires_at)


def _check_text(name: str, text: str, max_characters: int) -> str:
    text = text.strip()
    if len(text) > max_characters or not re.search(TEXT_PATTERN, text):
        raise InvalidValue(f"{name}: expected one line of at most {max_characters} characters")
    return text
