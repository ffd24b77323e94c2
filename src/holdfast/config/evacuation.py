"""Settings of evacuations."""

from typing import Any, Literal

from msgspec import Struct, to_builtins
from msgspec.structs import force_setattr

from holdfast._errors import InvalidValue, SettingsError
from holdfast._secret import parse_options


class EvacuationActionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to move resources away from a zone."""

    name: str
    """The name of a registered action."""
    options: dict[str, Any] = {}
    """The options of the action. After loading, this contains the defaults, too."""

    def __post_init__(self) -> None:
        if self.name != "status" or self.options:  # the default needs no check, and importing the actions takes time
            force_setattr(self, "options", to_builtins(self.parse_options()))

    def parse_options(self) -> Any:
        """Return the options as the action takes them. Raise InvalidValue if one is unknown or wrong."""
        from holdfast.evacuate.action import ACTIONS

        try:
            return parse_options(ACTIONS.get(self.name).options_type, self.options, f"action {self.name}")
        except SettingsError as error:
            raise InvalidValue(f"name: {error}") from error


class EvacuationAccountSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One AWS account whose resources are evacuated, in the region of the zone."""

    profile: str | None = None
    role_arn: str | None = None
    external_id: str | None = None

    def __post_init__(self) -> None:
        if self.profile is None and self.role_arn is None:
            raise InvalidValue("expected a profile, a role_arn or both")

    @property
    def name(self) -> str:
        """The name for messages."""
        return self.role_arn or f"profile {self.profile}"


class WorkloadResourceSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The AWS resources of one workload. A resource must have one of the names and all tags."""

    names: tuple[str, ...] = ()
    """Patterns such as `shop-*`; none means all names."""
    tags: dict[str, str] = {}
    """Tags with their exact values; none means all resources."""


class EvacuationSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How zones are evacuated, and by whom."""

    mode: Literal["advise", "confirm", "automatic"] = "advise"
    """What the server does about a zone that fails alone. By default it only tells people: they decide, until they
    know how often verdicts about their workloads are wrong."""
    detectors: tuple[str, ...] = ("calibrated",)
    """Detectors whose verdicts may evacuate a zone in the mode `automatic`. The others only advise. By default only
    `calibrated`: the false alarms of the others have no limit."""
    journal: str = "database"
    """Address of the journal. By default it is in the same database as all other state."""
    action: tuple[EvacuationActionSettings, ...] = (EvacuationActionSettings(name="status"),)
    """The actions of an evacuation. By default only `status`: marking the zone as out needs no AWS."""
    account: tuple[EvacuationAccountSettings, ...] = ()
    """Accounts whose resources are evacuated. Without any, it is the account of [aws]."""

    def __post_init__(self) -> None:
        for name in self.detectors if self.detectors != ("calibrated",) else ():  # the default needs no check
            from holdfast.detect import DETECTORS

            try:
                DETECTORS.get(name)
            except SettingsError as error:
                raise InvalidValue(f"detectors: {error}") from error
        if self.journal != "database":  # the default needs no check, and importing the journals takes time
            from holdfast.evacuate.journals import JOURNALS

            try:
                JOURNALS.check(self.journal)
            except InvalidValue as error:
                raise InvalidValue(f"journal: {error}") from error
        names = [each.name for each in self.action]
        if not names or len(set(names)) < len(names):
            raise InvalidValue(
                f"action: expected at least one action, and every action once, found {', '.join(names) or 'none'}"
            )
