"""The settings of queues. Their defaults are those of `holdfast.queue.policy`, and defined only there.

Settings apply when a queue is created. After that, its policy and limits are stored with its messages, where all its
users read them, and are changed there (`holdfast queue limits`).
"""

from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast._errors import InvalidValue
from holdfast._names import WORKLOAD_PATTERN
from holdfast._types import MAX_TENANT_BYTES
from holdfast.queue.policy import Limits, QueuePolicy


def _check_setting(check: Callable[[], None], what: str) -> None:
    """Check, and remove the prefix `what` of an error, so that it begins with the name of the setting."""
    try:
        check()
    except InvalidValue as error:
        raise InvalidValue(str(error).removeprefix(what)) from error


class LimitSettings(Limits, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=False):
    """The limits of a tenant. `Limits` defines and explains them."""

    def __post_init__(self) -> None:
        _check_setting(super().__post_init__, "limit ")


class TenantSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tenant that starts with its own limits, which replace all limits of the queue."""

    name: Annotated[str, Meta(min_length=1)]
    limits: LimitSettings

    def __post_init__(self) -> None:
        if len(self.name.encode()) > MAX_TENANT_BYTES or "\0" in self.name:
            raise InvalidValue(
                f"name {self.name[:32]!r}: expected at most {MAX_TENANT_BYTES} UTF-8 bytes, none of them 0"
            )


class QueueSettings(QueuePolicy, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=False):
    """A queue that is created if it does not exist. `QueuePolicy` defines and explains its values."""

    name: Annotated[str, Meta(pattern=WORKLOAD_PATTERN)]
    limits: LimitSettings = LimitSettings()
    tenant: tuple[TenantSettings, ...] = ()

    def __post_init__(self) -> None:
        _check_setting(super().__post_init__, "queue ")
        require_unique_names("tenant", [tenant.name for tenant in self.tenant])

    @property
    def policy(self) -> QueuePolicy:
        """The policy that the queue is created with."""
        fields = {name: getattr(self, name) for name in QueuePolicy.__struct_fields__}
        return QueuePolicy(**{**fields, "limits": _plain(self.limits)})

    @property
    def own_limits(self) -> dict[str, Limits]:
        """The initial limits by tenant, for tenants with limits of their own."""
        return {tenant.name: _plain(tenant.limits) for tenant in self.tenant}


def require_unique_names(owner: str, names: Sequence[str], noun: str = "name") -> None:
    """Raise InvalidValue if a name occurs twice."""
    if len(set(names)) < len(names):
        raise InvalidValue(f"expected every {owner}'s {noun} once, found {', '.join(names)}")


def _plain(limits: LimitSettings) -> Limits:
    """Return the limits in the form that is stored, which omits unset values."""
    return Limits(**msgspec.structs.asdict(limits))
