"""The settings of alerts: who is told of which verdicts, and the heartbeat of detection."""

from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from holdfast._errors import InvalidValue, SettingsError
from holdfast._secret import Secret, check_url
from holdfast._types import VerdictKind

KINDS = tuple(kind for kind in VerdictKind if kind is not VerdictKind.HEALTHY)


class AlertSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One receiver of alerts."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
    """Part of the key by which receivers recognize a verdict: a new name tells all open verdicts again."""
    channel: str
    """The name of a registered channel."""
    options: dict[str, Any] = {}
    """The options of the channel. After loading, secrets in it are masked."""
    kinds: tuple[str, ...] = ()
    """The kinds of verdicts; empty means all but `healthy`."""
    workloads: tuple[str, ...] = ()
    """Names of workloads; empty means all."""
    after: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    """At once: a detector has already waited for several bins."""

    def __post_init__(self) -> None:
        from holdfast.alerts.channel import parse_channel_options  # needed only if alerts are configured

        for kind in self.kinds:
            if kind not in KINDS:
                raise InvalidValue(f"kinds: expected any of {', '.join(KINDS)}, found {kind!r}")
        try:
            parsed = parse_channel_options(self.channel, self.options)
        except SettingsError as error:
            raise InvalidValue(f"channel: {error}") from error
        shown = {name: getattr(parsed, name) for name in self.options}
        secrets = {name: value for name, value in shown.items() if isinstance(value, Secret)}
        force_setattr(self, "options", {**self.options, **secrets})


class HeartbeatSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The address that is requested while detection is alive."""

    url: Secret | None = None
    interval: Annotated[float, Meta(ge=1, le=3600)] = 60.0
    """The shortest period that most monitors of heartbeats accept."""

    def __post_init__(self) -> None:
        if self.url is not None and not self.url.is_reference:
            check_url(self.url.reveal())
