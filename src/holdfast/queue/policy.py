"""How a queue treats its tenants and its messages: frozen values, kept with the queue itself. Pure."""

from enum import StrEnum
from typing import Any, Literal, TypeVar

import msgspec

from holdfast._errors import EngineMismatch, InvalidValue
from holdfast.queue.message import MAX_DURATION

_MAX_COUNT = 1 << 40
_RATE_RANGE = (1e-6, 1e6)
"""Per second: one in twelve days, to more than any backend takes, and than times are exact enough for."""
_BURSTS = {
    "rate": ("burst", 10.0),
    "max_rate": ("max_burst", 10.0),
    # More would come in bursts, less would need too many looks.
    "run_rate": ("run_burst", 0.1),
}
_MAX_SHARES = 0.9
MAX_DIFFERENCES = 10
"""Differences that are named: settings may have thousands of tenants."""
_OPTIONAL = ("spill_above", "max_backlog", "ttl")
_INTEGER_RANGES: dict[str, tuple[int, int]] = {
    "lanes": (1, 4096),
    "hand": (0, 64),
    "spill_above": (0, _MAX_COUNT),
    "max_backlog": (1, _MAX_COUNT),
    "max_attempts": (1, 1000),
}
_NUMBER_RANGES: dict[str, tuple[float, float]] = {
    "drain_rate": (1e-6, 1e12),
    "fresh_for": (0, MAX_DURATION),
    "backlog_share": (0, 0.5),
    "low_priority_share": (0, 0.5),
    "spill_share": (0, 0.5),
    "ttl": (1e-3, MAX_DURATION),
    "lease": (0.1, 43200),
    "dedupe_for": (0, MAX_DURATION),
}


def _require(
    what: str, value: Any, minimum: float, maximum: float, *, is_optional: bool = False, is_whole: bool = False
) -> None:
    if value is None and is_optional:
        return
    kinds = int if is_whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not minimum <= value <= maximum:
        kind = "a whole number from" if is_whole else "a number from"
        none = ", or none" if is_optional else ""
        raise InvalidValue(f"{what} {value!r}: expected {kind} {minimum:g} to {maximum:g}{none}")


class OverMaxRate(StrEnum):
    """What becomes of a message beyond a tenant's `max_rate`."""

    REJECT = "reject"
    DELAY = "delay"
    """It is kept, and may be handled when the rate allows it."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one tenant may do, across all producers and workers. None: as much as it likes."""

    rate: float | None = None
    """Messages per second beside everybody else's. What is more is spilled: it waits apart, until there is room."""
    burst: float | None = None
    """Messages at once within `rate`; None: those of ten seconds."""
    max_rate: float | None = None
    """Messages per second that are accepted at all."""
    max_burst: float | None = None
    """Messages at once within `max_rate`; None: those of ten seconds."""
    over_max_rate: OverMaxRate = OverMaxRate.REJECT
    """What becomes of what exceeds `max_rate`."""
    run_rate: float | None = None
    """Messages per second that are handed to workers, of which ever so many are waiting."""
    run_burst: float | None = None
    """Messages at once within `run_rate`; None: those of a tenth of a second."""
    concurrency: int | None = None
    """Messages that workers may hold at the same time."""
    max_backlog: int | None = None
    """Messages that may wait, due or not, before more are refused; None: the queue's. Pressure begins at a tenth."""

    def __post_init__(self) -> None:
        for name, (burst, _) in _BURSTS.items():
            _require(f"limit {name}", getattr(self, name), *_RATE_RANGE, is_optional=True)
            _require(f"limit {burst}", getattr(self, burst), 1e-6, _MAX_COUNT, is_optional=True)
        for name in ("concurrency", "max_backlog"):
            _require(f"limit {name}", getattr(self, name), 1, _MAX_COUNT, is_optional=True, is_whole=True)
        if self.over_max_rate not in tuple(OverMaxRate):
            raise InvalidValue(f"limit over_max_rate {self.over_max_rate!r}: expected {' or '.join(OverMaxRate)}")
        msgspec.structs.force_setattr(self, "over_max_rate", OverMaxRate(self.over_max_rate))

    def bucket(self, name: Literal["rate", "max_rate", "run_rate"]) -> tuple[float, float] | None:
        """The rate and burst of one of the rates; None: it has no limit."""
        rate: float | None = getattr(self, name)
        if rate is None:
            return None
        burst_name, seconds = _BURSTS[name]
        burst: float | None = getattr(self, burst_name)
        return rate, max(1.0, rate * seconds) if burst is None else burst


class QueuePolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Everything about one queue that its producers and workers must agree on; it is kept where the messages are."""

    lanes: int = 128
    """Lanes that tenants share. Ten noisy tenants fill at most 40 of them, and so all four lanes of 0.5 % of others."""
    hand: int = 4
    """Lanes of each tenant: a message goes to the least deep of them. 0: a lane of its own for each tenant."""
    limits: Limits = Limits()
    """What tenants may do that have no limits of their own."""
    spill_above: int | None = 1000
    """Waiting messages of a tenant beyond which it spills: what it sends then waits apart, until there is room. As many
    again in every `fresh_for` have their turns as others' have, in a lane of its own: what is fresh comes soon."""
    max_backlog: int | None = 1_000_000
    """Waiting messages of a tenant, due or not, at which more are refused; None: never, as accepting is the point."""
    drain_rate: float = 1000.0
    """Messages per second that a tenant may still send when backpressure begins; the limit falls to 0 from there."""
    fresh_for: float = 60.0
    """Seconds for which a message comes before those that are older."""
    backlog_share: float = 0.1
    """The share of turns that older messages get while there are fresh ones; 0: none."""
    low_priority_share: float = 0.1
    """The share of turns that less urgent messages get while there are more urgent ones."""
    spill_share: float = 0.1
    """The share of turns that spilled messages get while there are others."""
    ttl: float | None = None
    """Seconds after which messages are worth nothing, and dropped; None: never."""
    max_attempts: int = 5
    """Deliveries after which a message that still fails is buried."""
    lease: float = 30.0
    """Seconds after which a message is delivered again, if the worker that holds it is not heard of."""
    dedupe_for: float = 300.0
    """Seconds for which a deduplication key is remembered; 5 minutes, as in SQS."""

    def __post_init__(self) -> None:
        for name, expected in (*_INTEGER_RANGES.items(), *_NUMBER_RANGES.items()):
            is_optional, is_whole = name in _OPTIONAL, name in _INTEGER_RANGES
            _require(f"queue {name}", getattr(self, name), *expected, is_optional=is_optional, is_whole=is_whole)
        if not isinstance(self.limits, Limits):
            raise InvalidValue(
                f"queue limits of type {type(self.limits).__name__}: expected Limits, such as Limits(rate=5)"
            )
        if self.hand > self.lanes:
            raise InvalidValue(f"queue hand {self.hand}: expected at most its {self.lanes} lanes")
        shares = self.backlog_share + self.low_priority_share + self.spill_share
        if shares > _MAX_SHARES + 1e-9:
            raise InvalidValue(
                f"queue backlog_share, low_priority_share and spill_share {shares:g} together: "
                f"expected at most {_MAX_SHARES:g}, so that fresh and urgent messages have turns, too"
            )


def decode_policy(kept: bytes) -> QueuePolicy:
    """Return a kept policy, without what a newer release has added. Raise EngineMismatch for one of no use here."""
    return _decode(kept, QueuePolicy)


def decode_limits(kept: bytes) -> Limits:
    """The limits of a tenant as they are kept, in the same way."""
    return _decode(kept, Limits)


_Kind = TypeVar("_Kind", Limits, QueuePolicy)


def _decode(kept: bytes, kind: type[_Kind]) -> _Kind:
    try:
        values = _keep_known(msgspec.json.decode(kept, type=dict[str, Any]), kind)
        if kind is QueuePolicy and isinstance(values.get("limits"), dict):
            values["limits"] = _keep_known(values["limits"], Limits)
        return msgspec.convert(values, kind)
    except msgspec.MsgspecError as error:
        raise EngineMismatch(
            f"a queue has a {kind.__name__} that this release of Holdfast cannot go by: {error}; a newer one wrote it: "
            "upgrade this process"
        ) from error


def _keep_known(values: dict[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in kind.__struct_fields__}


def list_differences(kept: msgspec.Struct, wanted: msgspec.Struct, whose: str = "") -> list[str]:
    """Each value that differs, such as `limits.rate is 5 and not none`."""
    here = _flatten(kept)
    return [
        f"{name}{whose} is {format_value(here[name])} and not {format_value(value)}"
        for name, value in _flatten(wanted).items()
        if here[name] != value
    ]


def format_differences(differing: list[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(differing) - MAX_DIFFERENCES} more" if len(differing) > MAX_DIFFERENCES else ""
    return f"{', '.join(differing[:MAX_DIFFERENCES])}{more}"


def _flatten(rules: msgspec.Struct) -> dict[str, object]:
    """Each value by its name in the settings."""
    found: dict[str, object] = {}
    for name, value in msgspec.structs.asdict(rules).items():
        inner = (
            {f"{name}.{key}": each for key, each in _flatten(value).items()}
            if isinstance(value, msgspec.Struct)
            else {}
        )
        found |= inner or {name: value}
    return found


def format_value(value: object) -> str:
    """Return a limit or an option of a policy for people."""
    return "none" if value is None else f"{value:.12g}" if isinstance(value, float) else str(value)
