"""The states and changes of a simulated cluster, as values."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class RdsTimes:
    """How long changes take, in seconds."""

    modification: float = 700.0
    """Class changes usually take 5 to 15 minutes."""
    delay_before_modifying: float = 20.0
    """After ModifyDBInstance, the instance is still `available` for this long."""
    failover: float = 30.0
    reboot: float = 20.0
    """The old writer is unavailable for this long after a failover."""
    creation: float = 500.0
    deletion: float = 300.0
    start: float = 1_500.0


@dataclass(frozen=True, slots=True)
class InstanceState:
    """An instance at one moment."""

    instance_class: str
    status: str
    is_writer: bool
    is_pending: bool = False
    """Whether RDS has accepted a change that is not complete."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster from `at` to the next snapshot."""

    at: float
    cluster_status: str
    instances: Mapping[str, InstanceState]

    @property
    def writers(self) -> list[str]:
        return [name for name, state in self.instances.items() if state.is_writer]


@dataclass(frozen=True, slots=True)
class AcceptedCall:
    """A change that RDS has accepted."""

    at: float
    operation: str
    instance_id: str
    instance_class: str = ""


class Outcome(StrEnum):
    """How RDS completes an accepted change."""

    DONE = "done"
    IGNORED = "ignored"
    """Nothing changes."""
    REVERTED = "reverted"
    """The change begins, but the former state returns."""


@dataclass(frozen=True, slots=True)
class StateVisit:
    """A state that an execution has entered."""

    at: float
    name: str


@dataclass(frozen=True, slots=True)
class PublishedMessage:
    """A message that SNS has accepted."""

    at: float
    subject: str
    text: str
