"""When runs start: schedule expressions, and a name for each run that makes a double start harmless. Pure."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo

from holdfast._errors import InvalidValue

JST = timezone(timedelta(hours=9), "JST")
"""The time zone of `scheduleTime` without another one. Japan has no daylight-saving time."""
DEFAULT_TIMEZONE = "Asia/Tokyo"
"""The default time zone by the name that EventBridge Scheduler uses."""
MAX_EVENT_AGE = 900
"""Seconds. A run that starts later than that is worse than none: the night may be over."""
DELIVERY = {"MaximumEventAgeInSeconds": MAX_EVENT_AGE, "MaximumRetryAttempts": 10}
"""How long EventBridge tries to deliver the event of a schedule."""
_DAILY = re.compile(r"(\d{2}):(\d{2})")
_ONCE = re.compile(r"(\d{4})-(\d{2})-(\d{2}) (\d{2}):(\d{2})")
_CLUSTER_ID = re.compile(r"[a-z](?!.*--)[a-z0-9-]{0,61}[a-z0-9]|[a-z]", re.ASCII)
_CLASS = re.compile(r"db\.[a-z0-9-]+\.[a-z0-9-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A time of day, or one point in time."""

    hour: int
    minute: int
    date: tuple[int, int, int] | None = None
    """Year, month and day; None for every day."""

    @property
    def is_once(self) -> bool:
        return self.date is not None


def parse_schedule(text: str, name: str = "scheduleTime") -> Schedule:
    """Parse `HH:MM` (every day) or `YYYY-MM-DD HH:MM` (once). Raise InvalidValue, which calls the text `name`."""
    daily, once = _DAILY.fullmatch(text), _ONCE.fullmatch(text)
    if daily is None and once is None:
        raise InvalidValue(
            f"{name} is {text!r}: expected HH:MM for every day, such as 07:00, or YYYY-MM-DD HH:MM for once"
        )
    numbers = [int(group) for group in (daily or once or ()).groups()]  # type: ignore[union-attr]
    try:
        datetime(*(numbers if once else [2000, 1, 1, *numbers]))  # type: ignore[arg-type]  # noqa: DTZ001
    except ValueError as error:
        raise InvalidValue(f"{name} is {text!r}: there is no such time ({error})") from error
    year_month_day = (numbers[0], numbers[1], numbers[2]) if once else None
    return Schedule(numbers[-2], numbers[-1], year_month_day)


def build_rule_expression(schedule: Schedule, now: float, zone: tzinfo = JST) -> str:
    """Return the cron expression of an EventBridge rule, in UTC. Raise InvalidValue for a time that has passed."""
    year, month, day = schedule.date or (2000, 1, 2)
    at = datetime(year, month, day, schedule.hour, schedule.minute, tzinfo=zone).astimezone(UTC)
    if not schedule.is_once:
        return f"cron({at.minute} {at.hour} * * ? *)"
    if at.timestamp() <= now:
        raise InvalidValue(f"{format_schedule(schedule)} has passed: choose a later time")
    return f"cron({at.minute} {at.hour} {at.day} {at.month} ? {at.year})"


def is_one_off_expression(expression: str) -> bool:
    """Return whether a cron expression names a year, so that it cannot fire again after that."""
    return re.fullmatch(r"cron\(\d+ \d+ \d+ \d+ \? \d{4}\)", expression) is not None


def build_scheduler_expression(schedule: Schedule, now: float, zone: tzinfo) -> str:
    """Return the expression of an EventBridge Scheduler schedule, in `zone`. Raise InvalidValue for a past time."""
    if schedule.date is None:
        return f"cron({schedule.minute} {schedule.hour} * * ? *)"
    at = datetime(*schedule.date, schedule.hour, schedule.minute, tzinfo=zone)
    if at.timestamp() <= now:
        raise InvalidValue(f"{format_schedule(schedule)} has passed: choose a later time")
    return f"at({at:%Y-%m-%dT%H:%M:%S})"


def format_schedule(schedule: Schedule) -> str:
    """Return the text that `parse_schedule` reads."""
    time = f"{schedule.hour:02}:{schedule.minute:02}"
    return time if schedule.date is None else "{:04}-{:02}-{:02} ".format(*schedule.date) + time


def build_execution_name(cluster_id: str, scheduled: datetime) -> str:
    """Return the name of the run that a schedule starts at a time: the same for every delivery of the same event.

    An underscore cannot occur in the id of a cluster, so the runs of one cluster can be found by their names.
    """
    return f"{cluster_id}_{scheduled.astimezone(UTC):%Y%m%dT%H%MZ}"


def check_cluster_id(value: object, name: str = "clusterIdentifier") -> str:
    """Return `value` if it can be the id of a cluster. Raise InvalidValue, which calls it `name`, otherwise."""
    if not isinstance(value, str) or not _CLUSTER_ID.fullmatch(value):
        raise InvalidValue(f"{name} is {value!r}: expected the id of a cluster, in lower case, such as shop-cluster")
    return value


def check_class(value: object, name: str = "targetClass") -> str:
    """Return `value` if it can be an instance class. Raise InvalidValue, which calls it `name`, otherwise."""
    if not isinstance(value, str) or not _CLASS.fullmatch(value):
        raise InvalidValue(f"{name} is {value!r}: expected an instance class, such as db.t4g.medium")
    return value


def read_expression(expression: str, stored: tzinfo, zone: tzinfo) -> Schedule | None:
    """Return the schedule of an expression in the time zone `stored`, as a time in `zone`; None for other expressions.

    A daily time is converted for a day in January: an EventBridge rule does not follow daylight-saving time.
    """
    if found := re.fullmatch(r"cron\((\d+) (\d+) \* \* \? \*\)", expression):
        at = datetime(2000, 1, 2, int(found[2]), int(found[1]), tzinfo=stored).astimezone(zone)
        return Schedule(at.hour, at.minute)
    if found := re.fullmatch(r"cron\((\d+) (\d+) (\d+) (\d+) \? (\d+)\)", expression):
        minute, hour, day, month, year = map(int, found.groups())
        at = datetime(year, month, day, hour, minute, tzinfo=stored).astimezone(zone)
    elif found := re.fullmatch(r"at\((.+)\)", expression):
        at = datetime.fromisoformat(found[1]).replace(tzinfo=stored).astimezone(zone)
    else:
        return None
    return Schedule(at.hour, at.minute, (at.year, at.month, at.day))


def find_next_time(schedule: Schedule, now: float, zone: tzinfo) -> float:
    """Return the next time at which a schedule fires."""
    if schedule.date is not None:
        return datetime(*schedule.date, schedule.hour, schedule.minute, tzinfo=zone).timestamp()
    today = datetime.fromtimestamp(now, zone)
    at = today.replace(hour=schedule.hour, minute=schedule.minute, second=0, microsecond=0)
    return (at if at.timestamp() > now else at + timedelta(days=1)).timestamp()
