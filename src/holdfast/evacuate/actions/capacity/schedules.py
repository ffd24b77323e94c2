"""Find scheduled actions that would remove capacity while a zone is evacuated."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from shlex import join
from typing import Any
from zoneinfo import ZoneInfo

PERMISSIONS = (
    "application-autoscaling:DescribeScheduledActions",
    "autoscaling:DescribeScheduledActions",
)
HORIZON = timedelta(hours=24)
"""Later actions are found when the evacuation is looked at again: few last longer than a day."""
_NAMES = {
    **{name: str(number) for number, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"), 1)},
    **{
        name: str(number)
        for number, name in enumerate(
            ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"), 1
        )
    },
}
"""Weekdays and months in cron expressions of AWS, where a week begins on Sunday with 1."""
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (1, 7), (1970, 2199))
"""Minutes, hours, days, months, weekdays and years."""
_UNITS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}


def describe_group_actions(
    actions: Sequence[Mapping[str, Any]], *, name: str, size: int, region: str, now: float
) -> list[str]:
    """Return a sentence for each action of an Auto Scaling group that makes it smaller than `size` soon.

    `actions` are those of DescribeScheduledActions of Auto Scaling, of any group.
    """
    command = ["aws", "autoscaling", "suspend-processes", "--auto-scaling-group-name", name]
    command += ["--scaling-processes", "ScheduledActions", "--region", region]
    return [
        _describe(each["ScheduledActionName"], lowered, each.get("Recurrence", "once"), command)
        for each in actions
        if each["AutoScalingGroupName"] == name
        and (lowered := _find_lowered(each, ("MinSize", "MaxSize", "DesiredCapacity"), size))
        and _is_group_action_due(each, datetime.fromtimestamp(now, UTC))
    ]


def describe_service_actions(
    actions: Sequence[Mapping[str, Any]],
    *,
    resource: str,
    size: int,
    suspended: Mapping[str, bool],
    region: str,
    now: float,
) -> list[str]:
    """Return a sentence for each action of an ECS service that makes it smaller than `size` soon.

    `actions` are those of DescribeScheduledActions of Application Auto Scaling, of any service.
    """
    state = ",".join(f"{key}={str(value).lower()}" for key, value in suspended.items())
    command = ["aws", "application-autoscaling", "register-scalable-target", "--service-namespace", "ecs"]
    command += ["--resource-id", resource, "--scalable-dimension", "ecs:service:DesiredCount"]
    command += ["--suspended-state", state, "--region", region]
    return [
        _describe(each["ScheduledActionName"], lowered, each["Schedule"], command)
        for each in actions
        if each["ResourceId"] == resource
        and (lowered := _find_lowered(each.get("ScalableTargetAction", {}), ("MinCapacity", "MaxCapacity"), size))
        and _is_service_action_due(each, datetime.fromtimestamp(now, UTC))
    ]


def _describe(name: str, lowered: str, schedule: str, command: Sequence[str]) -> str:
    return (
        f"the scheduled action {name} ({schedule}) sets {lowered} within 24 h, and may remove capacity; to suspend "
        f"scheduled actions: {join(command)}"
    )


def _find_lowered(values: Mapping[str, Any], names: Sequence[str], size: int) -> str:
    """Return the values below a size in words; "" if there are none."""
    return " and ".join(f"{name} {values[name]}" for name in names if name in values and values[name] < size)


def _is_group_action_due(action: Mapping[str, Any], now: datetime) -> bool:
    start = action.get("StartTime")
    if "EndTime" in action and action["EndTime"] < now:
        return False
    if start is not None and start > now + HORIZON:
        return False
    # AWS sets the start of a recurring action to its next occurrence. If it is in the past, the next one is unknown.
    return "Recurrence" in action or (start is not None and start >= now)


def _is_service_action_due(action: Mapping[str, Any], now: datetime) -> bool:
    if action.get("EndTime", now) < now or action.get("StartTime", now) > now + HORIZON:
        return False
    anchor = action.get("StartTime", action["CreationTime"])
    try:
        return is_due(action["Schedule"], action.get("Timezone", "UTC"), anchor, now)
    except (ValueError, KeyError):  # a schedule that is not understood may be due
        return True


def is_due(schedule: str, timezone: str, anchor: datetime, now: datetime) -> bool:
    """Return whether a schedule of AWS, such as `at(...)`, `rate(...)` or `cron(...)`, runs within the next 24 h.

    A rate counts from `anchor`. Raise ValueError or KeyError for a schedule or time zone that is not understood.
    """
    kind, _, text = schedule.removesuffix(")").partition("(")
    zone = ZoneInfo(timezone)
    if kind == "at":
        return now <= datetime.fromisoformat(text).replace(tzinfo=zone) <= now + HORIZON
    if kind == "rate":
        number, unit = text.split()
        interval = int(number) * _UNITS[unit.removesuffix("s")]
        missed = max((now - anchor) // interval + 1, 0)
        return anchor + missed * interval <= now + HORIZON
    if kind != "cron":
        raise ValueError(f"{schedule} is neither at, rate nor cron")
    fields = re.sub("[A-Z]{3}", lambda found: _NAMES[found[0]], text.upper()).split()
    minutes = (now.replace(second=0, microsecond=0) + timedelta(minutes=number) for number in range(24 * 60 + 1))
    return any(_matches_time(fields, each.astimezone(zone)) for each in minutes)


def _matches_time(fields: Sequence[str], time: datetime) -> bool:
    values = (time.minute, time.hour, time.day, time.month, time.isoweekday() % 7 + 1, time.year)
    return all(_matches(*each) for each in zip(fields, values, _RANGES, strict=True))


def _matches(field: str, value: int, limits: tuple[int, int]) -> bool:
    """Return whether a value is in a field such as `1-5`, `0/15` or `2,4`. The last day and the like always match."""
    for part in field.split(","):
        base, _, step = part.partition("/")
        if re.search("[LW#]", base):
            return True
        first, _, last = base.partition("-")
        low = limits[0] if first in ("*", "?") else int(first)
        high = int(last) if last else (limits[1] if step or first in ("*", "?") else low)
        if low <= value <= high and (value - low) % int(step or 1) == 0:
            return True
    return False
