"""The limits of tenants and the policy of a queue: frozen values that are stored with the queue. Pure."""

from enum import StrEnum
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from holdfast._errors import EngineMismatch, InvalidValue
from holdfast.queue.message import MAX_DURATION

_MAX_COUNT = 1 << 40
_RATE_RANGE = (1e-6, 1e6)
"""Messages per second: from one in twelve days, to more than any backend can accept."""
_BURSTS = {
    "spill_rate": ("spill_burst", 10.0),
    "max_rate": ("max_burst", 10.0),
    # More seconds would release messages in bursts, fewer would need too many polls.
    "run_rate": ("run_burst", 0.1),
}
"""The name of each rate's burst, and the seconds of the rate that it defaults to."""
_MAX_SHARES = 0.9
MAX_DIFFERENCES = 10
"""Maximum number of differences between stored and wanted values that an error lists: settings may have thousands of
tenants."""
_OPTIONAL = ("spill_above", "max_waiting", "ttl")
_INTEGER_RANGES: dict[str, tuple[int, int]] = {
    "lanes": (1, 4096),
    "lanes_per_tenant": (0, 64),
    "spill_above": (0, _MAX_COUNT),
    "max_waiting": (1, _MAX_COUNT),
    "max_attempts": (1, 1000),
}
_NUMBER_RANGES: dict[str, tuple[float, float]] = {
    "rate_under_backpressure": (1e-6, 1e12),
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
    """What happens to a message above a tenant's `max_rate`."""

    REFUSE = "refuse"
    DELAY = "delay"
    """Store the message, and deliver it when the rate allows."""


class RateLimit(NamedTuple):
    """A rate in messages per second, and its maximum burst in messages: see `rules/bucket.py`."""

    rate: float
    burst: float


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The limits of one tenant, across all producers and workers. A rate or concurrency of None is unlimited."""

    spill_rate: float | None = None
    """Messages per second that a tenant may put into the shared lanes, and that workers lease from there. Above it,
    messages are spilled to the tenant's overflow lane: when they are sent, or when a worker finds them."""
    spill_burst: float | None = None
    """Maximum burst within `spill_rate`, in messages. None means as many as `spill_rate` allows in ten seconds."""
    max_rate: float | None = None
    """Messages per second that are accepted. `over_max_rate` says what happens to messages above it."""
    max_burst: float | None = None
    """Maximum burst within `max_rate`, in messages. None means as many as `max_rate` allows in ten seconds."""
    over_max_rate: OverMaxRate = OverMaxRate.REFUSE
    """What happens to messages above `max_rate`."""
    run_rate: float | None = None
    """Messages per second that are leased to workers, however many wait."""
    run_burst: float | None = None
    """Maximum burst within `run_rate`, in messages. None means as many as `run_rate` allows in a tenth of a second."""
    concurrency: int | None = None
    """Messages that may be leased at the same time."""
    max_waiting: int | None = None
    """Waiting messages, due or not, at which more are refused. None means the queue's. Backpressure begins at 10 %."""

    def __post_init__(self) -> None:
        for name, (burst, _) in _BURSTS.items():
            _require(f"limit {name}", getattr(self, name), *_RATE_RANGE, is_optional=True)
            _require(f"limit {burst}", getattr(self, burst), 1e-6, _MAX_COUNT, is_optional=True)
        for name in ("concurrency", "max_waiting"):
            _require(f"limit {name}", getattr(self, name), 1, _MAX_COUNT, is_optional=True, is_whole=True)
        if self.over_max_rate not in tuple(OverMaxRate):
            raise InvalidValue(f"limit over_max_rate {self.over_max_rate!r}: expected {' or '.join(OverMaxRate)}")
        msgspec.structs.force_setattr(self, "over_max_rate", OverMaxRate(self.over_max_rate))

    def bucket(self, name: Literal["spill_rate", "max_rate", "run_rate"]) -> RateLimit | None:
        """Return one of the rates with its burst, or None if it is unlimited."""
        rate: float | None = getattr(self, name)
        if rate is None:
            return None
        burst_name, seconds = _BURSTS[name]
        burst: float | None = getattr(self, burst_name)
        return RateLimit(rate, max(1.0, rate * seconds) if burst is None else burst)


class QueuePolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The settings of a queue that its producers and workers share. Stored with the messages."""

    lanes: int = 128
    """Shared lanes for each priority. Ten noisy tenants with four lanes each fill at most 40: 0.5 % of the others have
    no free lane."""
    lanes_per_tenant: int = 4
    """Shared lanes of each tenant. A message goes to the least loaded of them. 0 means one lane for each tenant."""
    limits: Limits = Limits()
    """The limits of tenants without limits of their own."""
    spill_above: int | None = 1000
    """Waiting messages of a tenant above which its further messages leave the shared lanes. In every `fresh_for`
    seconds, the first ones, up to this number, go to the tenant's own lane, which is served like a shared one. The rest
    is spilled to its overflow lane, which is served last. None means never."""
    max_waiting: int | None = 1_000_000
    """Waiting messages of a tenant, due or not, at which further ones are refused. None means never."""
    rate_under_backpressure: float = 1000.0
    """Messages per second that a tenant may send when 10 % of its `max_waiting` is used, where backpressure begins.
    Falls to 0 at `max_waiting`."""
    fresh_for: float = 60.0
    """Seconds for which a message is fresh, and is leased before backlog messages."""
    backlog_share: float = 0.1
    """Share of leases for backlog messages while fresh ones wait; 0 for none."""
    low_priority_share: float = 0.1
    """Share of leases for less urgent messages while more urgent ones wait."""
    spill_share: float = 0.1
    """Share of leases for spilled messages while others wait."""
    ttl: float | None = None
    """Time to live of messages in seconds: older ones are dropped. None means no limit."""
    max_attempts: int = 5
    """Deliveries after which a message that still fails is buried."""
    lease: float = 30.0
    """Seconds after which a leased message is delivered again, unless its worker settles it or extends the lease."""
    dedupe_for: float = 300.0
    """Seconds for which a deduplication key is stored: 5 minutes, as in SQS."""

    def __post_init__(self) -> None:
        for name, expected in (*_INTEGER_RANGES.items(), *_NUMBER_RANGES.items()):
            is_optional, is_whole = name in _OPTIONAL, name in _INTEGER_RANGES
            _require(f"queue {name}", getattr(self, name), *expected, is_optional=is_optional, is_whole=is_whole)
        if not isinstance(self.limits, Limits):
            raise InvalidValue(
                f"queue limits of type {type(self.limits).__name__}: expected Limits, such as Limits(spill_rate=5)"
            )
        if self.lanes_per_tenant > self.lanes:
            raise InvalidValue(
                f"lanes_per_tenant {self.lanes_per_tenant}: expected at most {self.lanes}, the number of lanes"
            )
        shares = self.backlog_share + self.low_priority_share + self.spill_share
        if shares > _MAX_SHARES + 1e-9:
            raise InvalidValue(
                f"queue backlog_share, low_priority_share and spill_share {shares:g} together: "
                f"expected at most {_MAX_SHARES:g}, so that fresh and urgent messages are leased, too"
            )


def decode_policy(stored: bytes) -> QueuePolicy:
    """Return a stored policy, without fields of a newer release. Raise EngineMismatch if it cannot be read."""
    return _decode(stored, QueuePolicy)


def decode_limits(stored: bytes) -> Limits:
    """Return stored limits, without fields of a newer release. Raise EngineMismatch if they cannot be read."""
    return _decode(stored, Limits)


_Kind = TypeVar("_Kind", Limits, QueuePolicy)


def _decode(stored: bytes, kind: type[_Kind]) -> _Kind:
    try:
        values = _keep_known(msgspec.json.decode(stored, type=dict[str, Any]), kind)
        if kind is QueuePolicy and isinstance(values.get("limits"), dict):
            values["limits"] = _keep_known(values["limits"], Limits)
        return msgspec.convert(values, kind)
    except msgspec.MsgspecError as error:
        raise EngineMismatch(
            f"a queue has a stored {kind.__name__} that this release of Holdfast cannot read: {error}; a newer release "
            "wrote it: upgrade this process"
        ) from error


def _keep_known(values: dict[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in kind.__struct_fields__}


def list_differences(stored: msgspec.Struct, wanted: msgspec.Struct, whose: str = "") -> list[str]:
    """Return a text for each value that differs, such as `limits.spill_rate is 5 and not none`."""
    here = _flatten(stored)
    return [
        f"{name}{whose} is {format_value(here[name])} and not {format_value(value)}"
        for name, value in _flatten(wanted).items()
        if here[name] != value
    ]


def format_differences(differing: list[str]) -> str:
    """Return the first `MAX_DIFFERENCES` texts, and the number of further ones."""
    more = f" and {len(differing) - MAX_DIFFERENCES} more" if len(differing) > MAX_DIFFERENCES else ""
    return f"{', '.join(differing[:MAX_DIFFERENCES])}{more}"


def _flatten(rules: msgspec.Struct) -> dict[str, object]:
    """Return each value by its name in the settings."""
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
    """Return the text of a limit or a policy value for people."""
    return "none" if value is None else f"{value:.12g}" if isinstance(value, float) else str(value)
