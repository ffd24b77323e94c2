"""What a queue begins with, as settings: the defaults are those of `holdfast.queue.policy`, written there once.

Settings only begin: they are for a queue that does not exist yet. From then on its policy and its limits are kept with
its messages, where everybody who uses the queue finds the same, and are changed there (`holdfast queue limits`).
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
    """Check, and begin a complaint with the name of the setting: what it is a setting of is told with its place."""
    try:
        check()
    except InvalidValue as error:
        raise InvalidValue(str(error).removeprefix(what)) from error


class LimitSettings(Limits, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=False):
    """What a tenant may do; each default is that of `Limits`, and explained there."""

    def __post_init__(self) -> None:
        _check_setting(super().__post_init__, "limit ")


class TenantSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tenant that begins with limits of its own, which take the place of all those of the queue."""

    name: Annotated[str, Meta(min_length=1)]
    limits: LimitSettings

    def __post_init__(self) -> None:
        if len(self.name.encode()) > MAX_TENANT_BYTES or "\0" in self.name:
            raise InvalidValue(
                f"name {self.name[:32]!r}: expected at most {MAX_TENANT_BYTES} UTF-8 bytes, none of them 0"
            )


class QueueSettings(QueuePolicy, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=False):
    """A queue that is made if it does not exist; each default is that of `QueuePolicy`, and explained there."""

    name: Annotated[str, Meta(pattern=WORKLOAD_PATTERN)]
    limits: LimitSettings = LimitSettings()
    tenant: tuple[TenantSettings, ...] = ()

    def __post_init__(self) -> None:
        _check_setting(super().__post_init__, "queue ")
        require_unique_names("tenant", [tenant.name for tenant in self.tenant])

    @property
    def policy(self) -> QueuePolicy:
        """What it is made with."""
        fields = {name: getattr(self, name) for name in QueuePolicy.__struct_fields__}
        return QueuePolicy(**{**fields, "limits": _plain(self.limits)})

    @property
    def own_limits(self) -> dict[str, Limits]:
        """What its tenants begin with that have limits of their own."""
        return {tenant.name: _plain(tenant.limits) for tenant in self.tenant}


def require_unique_names(what: str, names: Sequence[str]) -> None:
    """Raise InvalidValue if a name occurs twice."""
    if len(set(names)) < len(names):
        raise InvalidValue(f"expected every {what}'s name once, found {', '.join(names)}")


def _plain(limits: LimitSettings) -> Limits:
    """As they are kept: what is not set is not written down."""
    return Limits(**msgspec.structs.asdict(limits))
