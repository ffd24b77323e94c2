"""What is sent: all about a message follows from its number, so that whoever finds one knows what it is. Pure."""

import zlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from holdfast._backoff import Backoff
from holdfast.queue.message import OutgoingMessage
from holdfast.queue.policy import Limits, OverMaxRate, QueuePolicy

QUEUE = "soak"
ATTEMPTS = 2
"""Of the job that always fails."""
SOON: Final = Backoff(base=0.1, cap=0.3)
POSTPONED = 0.15
SLOW_SECONDS = 0.01


class Fate(StrEnum):
    """What a handler does with a message."""

    DONE = "done"
    SLOW = "slow"
    """Done, after a while."""
    FAILS_ONCE = "fails"
    POSTPONED_ONCE = "postponed"
    REJECTED = "rejected"
    """Buried at once."""
    FAILS_ALWAYS = "hopeless"
    """Buried after some attempts."""

    @property
    def is_dead_in_the_end(self) -> bool:
        return self in (Fate.REJECTED, Fate.FAILS_ALWAYS)


@dataclass(frozen=True, slots=True)
class Item:
    """One message."""

    number: int
    tenant: str
    fate: Fate
    job: str
    group: str | None
    is_keyed: bool
    delay: float
    priority: int

    @property
    def key(self) -> str | None:
        return f"number-{self.number}" if self.is_keyed else None

    def message(self, body: bytes) -> OutgoingMessage:
        return OutgoingMessage(
            tenant=self.tenant,
            body=body,
            priority=self.priority,
            delay=self.delay,
            group=self.group,
            key=self.key,
        )


# Out of 100: the rest is spread over ordinary tenants.
_SHARES = (("big", 30), ("steady", 5), ("capped", 2), ("pressed", 2), ("slow", 1), ("waits", 1), ("tiny", 1))
ORDINARY = 24
TENANTS = (*(name for name, _ in _SHARES), *(f"tenant-{number}" for number in range(ORDINARY)))


def item(number: int, segment: int) -> Item:
    """The message of a number, which the producer of a segment sends."""
    chance = zlib.crc32(number.to_bytes(8, "big"))
    tenant_chance, chance = chance % 100, chance // 100
    tenant = f"tenant-{chance % ORDINARY}"
    for name, share in _SHARES:
        if tenant_chance < share:
            tenant = name
            break
        tenant_chance -= share
    chance, fate_chance = divmod(chance // ORDINARY, 500)
    fate = _fate(fate_chance)
    chance, kind = divmod(chance, 8)
    # Producers are killed and take up their own work again, so what one of them sends to a group has one order.
    group = f"segment-{segment}-{number % 5}" if kind == 0 and tenant.startswith("tenant-") else None
    return Item(
        number=number,
        tenant=tenant,
        fate=fate,
        job="hopeless" if fate is Fate.FAILS_ALWAYS else ("blocking", "cooperative")[number % 2],
        group=group,
        is_keyed=number % 4 == 1,
        delay=(number % 7) * 0.2 if kind == 1 else 0.0,
        priority=2 if group or kind < 5 else kind - 5,
    )


def _fate(chance: int) -> Fate:
    """Out of 500."""
    for fate, share in (
        (Fate.REJECTED, 1),
        (Fate.FAILS_ALWAYS, 1),
        (Fate.FAILS_ONCE, 8),
        (Fate.POSTPONED_ONCE, 8),
        (Fate.SLOW, 5),
    ):
        if chance < share:
            return fate
        chance -= share
    return Fate.DONE


def limits(messages: int) -> dict[str, Limits]:
    """What some tenants may do: enough that all of theirs is handled in half a minute or so."""
    steady = messages / 1000
    return {
        "steady": Limits(spill_rate=max(5.0, steady)),
        "capped": Limits(concurrency=4),
        "pressed": Limits(max_rate=max(20.0, 2 * steady), max_burst=max(20.0, 2 * steady)),
        "slow": Limits(run_rate=max(20.0, steady)),
        "waits": Limits(max_rate=max(20.0, steady), max_burst=5, over_max_rate=OverMaxRate.DELAY),
        "tiny": Limits(max_waiting=50),
    }


def policy(lease: float) -> QueuePolicy:
    """Of the queue. Many attempts: a message must not be buried because its workers happened to be killed."""
    return QueuePolicy(lease=lease, max_attempts=12, fresh_for=5.0, dedupe_for=1200.0, lanes=32)
