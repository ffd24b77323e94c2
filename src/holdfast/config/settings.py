"""All settings, as frozen values. Each default is defined here only, with its reason.

`docs/reference/settings.md` describes every setting; a test fails if one is missing there.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import unquote

from msgspec import Meta, Struct, field, to_builtins
from msgspec.structs import force_setattr

from holdfast._errors import InvalidValue, NotFound, SettingsError
from holdfast._names import WORKLOAD_PATTERN, check_address, check_region, get_region_code, parse_zone
from holdfast._types import Zone
from holdfast.config.alarms import AlarmSettings
from holdfast.config.alerts import AlertSettings, HeartbeatSettings
from holdfast.config.canaries import CanarySettings
from holdfast.config.evacuation import EvacuationSettings, WorkloadResourceSettings
from holdfast.config.queues import QueueSettings, require_unique_names
from holdfast.telemetry import BIN_SECONDS
from holdfast.telemetry.series import MAX_INSTANCES, MAX_OPERATIONS, MAX_SERIES, SeriesLimits
from holdfast.telemetry.sources.emf_mapping import EmfMapping

if TYPE_CHECKING:
    from holdfast.watch import WatchedWorkload

SNS_TOPIC_PATTERN = re.compile(r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,256}", re.ASCII)

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
"""A duration above 0, at most a day."""


# To mask the password, this must know where it ends: at the first of these characters.
_POSTGRES_URL = re.compile(
    r"(?P<scheme>postgres|postgresql)://(?:(?P<user>[^:@/?#]*)(?P<password>:[^@/?#]*)?@)?(?P<rest>[^@#]*)"
)


class _SecretUrl:
    """An address that may contain a password. `str` and `repr` mask it; `reveal` does not."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the address with its password, to connect with."""
        return self._text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


class DatabaseUrl(_SecretUrl):
    """The address of a database."""

    __slots__ = ()

    def __init__(self, text: str) -> None:
        super().__init__(text)
        if self.scheme == "sqlite" and text != "sqlite:":
            raise InvalidValue("expected 'sqlite:' alone, found more: the files are stored in data_directory")
        if self.scheme not in ("sqlite", "postgresql", "postgres"):
            found = f"an address with the scheme {self.scheme!r}" if "://" in text else "one without a scheme"
            raise InvalidValue(f"expected 'sqlite:' or an address such as postgresql://user@host/name, found {found}")
        if self.scheme != "sqlite" and not _POSTGRES_URL.fullmatch(text):
            raise InvalidValue(
                f"expected an address such as {self.scheme}://user:password@host/name, found another form: "
                "write @ : / ? # in a user name or password as %40 %3A %2F %3F %23"
            )

    @property
    def scheme(self) -> str:
        return self._text.partition(":")[0]

    def __str__(self) -> str:
        address = _POSTGRES_URL.fullmatch(self._text)
        if address is None:
            return self._text
        location, mark, query = address["rest"].partition("?")
        user = "" if address["user"] is None else f"{address['user']}{':****' if address['password'] else ''}@"
        return f"{address['scheme']}://{user}{location}{mark}{'&'.join(map(_mask_secret, query.split('&')))}"


class QueueUrl(_SecretUrl):
    """The address of the queues. A queue backend must be registered for its scheme."""

    __slots__ = ("_masked_text",)

    def __init__(self, text: str) -> None:
        from holdfast.queue.open import get_backend_kind  # imports backends, which few settings need

        super().__init__(text)
        self._masked_text = get_backend_kind(text).describe(text)

    def __str__(self) -> str:
        return self._masked_text


def _mask_secret(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    secret = any(word in unquote(name).lower() for word in ("password", "secret"))
    return f"{name}{equals}****" if secret else pair


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The address of the server, and its access."""

    host: Annotated[str, Meta(pattern=r"^[A-Za-z0-9.:_-]+$")] = "127.0.0.1"
    """Loopback, so that the server can be reached from outside only if an operator says so."""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8470
    """No well-known service uses this port; 0 means any free port."""
    allow_anonymous: bool = False
    """Require no credentials. For a developer's machine: allowed on loopback only."""
    public_url: str | None = None
    """The address at which people reach the page, for links in alerts. None means `host` and `port`."""
    max_connections: Annotated[int, Meta(ge=20, le=1_000_000)] = 20_000
    """Twice the number of streams that `benchmarks/status.py` measures. The limit of open files may allow fewer."""
    shutdown_timeout: Seconds = 2.0
    """Orchestrators wait 10 to 30 s before they kill a process; 2 s leave room for a slow machine."""
    advertise: str | None = None
    """The URL at which other servers on the same database reach this one. None means where it listens, or the name of
    the host if it listens on all addresses."""
    lease_seconds: Annotated[float, Meta(ge=1, le=300)] = 10.0
    """Seconds after which another server takes over from one that was paused or cut off. Longer than most short
    failures of a database, and a take-over still ends within 15 s."""

    def __post_init__(self) -> None:
        for name in ("public_url", "advertise"):
            address = getattr(self, name)
            if address is not None:
                try:
                    check_address(address)
                except InvalidValue as error:
                    raise InvalidValue(f"{name}: {error}") from error

    @property
    def page_url(self) -> str | None:
        """The address of the page; None if the settings do not tell it."""
        if self.public_url is not None:
            return f"{self.public_url.rstrip('/')}/"
        if self.port == 0 or self.host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not listened on
            return None
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/"


class LogSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The log on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "text"] = "auto"
    """`auto` means text on a terminal, and otherwise JSON, one object per line."""


class DatabaseSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The database that stores the state."""

    url: DatabaseUrl = DatabaseUrl("sqlite:")
    """`sqlite:` stores one file per subsystem in the data directory: there is nothing to install or run."""
    timeout: Seconds = 5.0
    """Maximum wait for a lock or an unavailable server: longer than a quick restart, shorter than callers wait."""
    max_connections: Annotated[int, Meta(ge=1, le=1000)] = 10
    """PostgreSQL only. A PostgreSQL server allows 100 by default, and most of them should be left to other clients."""


class TelemetrySourceSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A source that the server polls for telemetry, in addition to what services send."""

    kind: str
    """The name of a registered source."""
    options: dict[str, Any] = {}

    def __post_init__(self) -> None:
        from holdfast.telemetry.source import parse_source_options  # needed only if sources are configured

        try:
            parse_source_options(self.kind, self.options)
        except SettingsError as error:
            raise InvalidValue(f"kind: {error}") from error


class TelemetrySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reading and aggregation of telemetry."""

    bin_seconds: Annotated[float, Meta(ge=0.5, le=600)] = BIN_SECONDS
    """The length of a bin, for all workloads."""
    max_operations: Annotated[int, Meta(ge=1, le=100_000)] = MAX_OPERATIONS
    max_instances: Annotated[int, Meta(ge=1, le=1_000_000)] = MAX_INSTANCES
    max_series: Annotated[int, Meta(ge=1, le=10_000_000)] = MAX_SERIES
    """Limits of each workload. Beyond them, measurements are added to `other`, so that memory stays bounded."""
    server: str = "http://127.0.0.1:8470"
    """The server that `holdfast canary` sends to: by default at the server's own default address."""
    emf: tuple[EmfMapping, ...] = ()
    """How to read the lines of other programs: one mapping for each namespace."""
    source: tuple[TelemetrySourceSettings, ...] = ()

    def __post_init__(self) -> None:
        require_unique_names("[[telemetry.emf]]", [mapping.namespace for mapping in self.emf], "namespace")
        try:
            check_address(self.server)
        except InvalidValue as error:
            raise InvalidValue(f"server: {error}") from error

    @property
    def limits(self) -> SeriesLimits:
        return SeriesLimits(
            max_operations=self.max_operations, max_instances=self.max_instances, max_series=self.max_series
        )


class MetricsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The exporters of the server's metrics, in addition to `GET /metrics`."""

    export: tuple[str, ...] = ()
    """Exporters as NAME or NAME:ARGUMENT. Empty, because `GET /metrics` and the log are enough for most servers."""

    def __post_init__(self) -> None:
        for text in self.export:
            from holdfast.metrics import EXPORTERS

            try:
                EXPORTERS.get(text.partition(":")[0])
            except SettingsError as error:
                raise InvalidValue(f"export: {error}") from error


class AwsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The identity, region and endpoint for AWS. boto3's own variables and files apply where a value is None."""

    region: str | None = None
    profile: str | None = None
    role_arn: str | None = None
    external_id: str | None = None
    endpoint_url: str | None = None
    address_endpoint: str | None = None
    """An endpoint that answers with the caller's address, for Lambda functions without Lambda's metadata endpoint."""


def _require_topic(topic: str | None) -> None:
    if topic is not None and not SNS_TOPIC_PATTERN.fullmatch(topic):
        raise InvalidValue(f"sns_topic: expected an ARN like arn:aws:sns:us-east-1:123456789012:zones, found {topic!r}")


class StatusSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The store of zone statuses, and how the server publishes them."""

    store: str = "database"
    """The same database as for all other state, so that there is one store less to operate."""
    refresh_interval: Annotated[float, Meta(ge=0.1, le=60)] = 0.5
    """Seconds between reads of the store for changes by other processes. With push, all clients know in a second."""
    allow_anonymous_reads: bool = True
    """Every host needs the statuses, and balancers have no credential; inside a network they are no secret."""
    sns_topic: str | None = None
    """The ARN of the SNS topic to which every change is published."""

    def __post_init__(self) -> None:
        if self.store != "database":  # the default needs no check, and importing the stores takes time
            from holdfast.status.stores import STATUS_STORES

            try:
                STATUS_STORES.check(self.store)
            except InvalidValue as error:
                raise InvalidValue(f"store: {error}") from error
        _require_topic(self.sns_topic)


class AgentSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The endpoints that `holdfast agent` follows for a host, and how it publishes the zone statuses there."""

    zone: str | None = None
    """The AZ-ID of this host. None means to find it: the agent always does, a worker if it follows zone statuses."""
    workload: str | None = None
    """None means to follow only the zones that are out for all workloads."""
    endpoints: tuple[str, ...] = ("http://127.0.0.1:8470",)
    """The server's default address. A zone is out when most of the endpoints listed here say so."""
    poll_interval: Annotated[float, Meta(ge=0.5, le=3600)] = 5.0
    """Seconds between polls. Endpoints with push report changes earlier; polling only bounds the delay."""
    stale_after: Annotated[float, Meta(ge=1, le=86_400)] = 15.0
    """Seconds without an answer after which an endpoint no longer counts: three polls."""
    when_silent: Literal["keep", "all_in", "own_zone_out"] = "keep"
    """What to do while no majority of endpoints answers. `keep`: an outage of the status service changes nothing."""
    host: Annotated[str, Meta(pattern=r"^[A-Za-z0-9.:_-]+$")] = "127.0.0.1"
    """Loopback. A balancer on another host needs another address."""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8471
    """The port after the server's."""
    file: Path | None = None
    hook: str | None = None
    hook_timeout: Seconds = 30.0
    """A hook that takes longer is killed, so that a hanging hook does not delay the next change forever."""
    sns_topic: str | None = None
    sns_endpoint: str | None = None
    """The address under which SNS reaches this agent."""

    def __post_init__(self) -> None:
        if not self.endpoints and self.sns_topic is None:
            raise InvalidValue("endpoints: expected at least one, found none")
        if self.stale_after < 2 * self.poll_interval:
            raise InvalidValue(
                f"stale_after is {self.stale_after:g} and poll_interval {self.poll_interval:g}: "
                "expected at least twice the poll_interval, "
                "or endpoints would count as unavailable between two polls"
            )
        if (self.sns_topic is None) != (self.sns_endpoint is None):
            raise InvalidValue("sns_topic and sns_endpoint: expected both or neither")
        _require_topic(self.sns_topic)


class WorkloadSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One service that is watched and evacuated as a whole."""

    name: Annotated[str, Meta(pattern=WORKLOAD_PATTERN)]
    """The part of its telemetry's namespace before the slash."""
    region: Annotated[str, Meta(min_length=1)]
    zones: Annotated[tuple[str, ...], Meta(min_length=2, max_length=32)]
    """AZ-IDs, never names: `use1-az1`, not `us-east-1a`. At least two, because traffic needs a zone to move to."""
    fault_statuses: tuple[str, ...] = ("5xx",)
    """HTTP statuses that count against availability: classes, `4xx` or `5xx`, and single statuses, such as `429`."""
    detector: dict[str, Any] = {}
    """The `name` of the detector and its options. After loading, this contains the defaults, too."""
    canary: tuple[CanarySettings, ...] = ()
    """The operations that `holdfast canary` probes."""
    alarms: AlarmSettings = AlarmSettings()
    """The thresholds of its alarms, which advise people."""
    resources: WorkloadResourceSettings = field(default_factory=WorkloadResourceSettings)
    """The AWS resources that belong to it. By default all of the configured accounts, because AWS does not know
    workloads."""

    def __post_init__(self) -> None:
        for zone in self.zones:
            try:
                check_region(parse_zone(zone), self.region)
            except InvalidValue as error:
                raise InvalidValue(f"zones: {error}") from error
        if len(set(self.zones)) < len(self.zones):
            raise InvalidValue(f"zones: expected every zone once, found {', '.join(self.zones)}")
        from holdfast.telemetry.faults import FaultStatuses  # needed only if workloads are configured

        try:
            FaultStatuses.parse(self.fault_statuses)
        except InvalidValue as error:
            raise InvalidValue(f"fault_statuses: {error}") from error
        require_unique_names("canary", [canary.operation for canary in self.canary], "operation")
        for canary in self.canary:
            canary.require_zones(self.zones)
        self.alarms.require_zones(self.zones)
        force_setattr(self, "detector", _complete_detector(self.detector))

    def to_watched_workload(self, evacuation: EvacuationSettings) -> "WatchedWorkload":
        """Return the workload as the detection loop needs it."""
        from holdfast.watch import WatchedWorkload  # most commands do not need the loop

        name, options = self.detector["name"], {key: self.detector[key] for key in self.detector if key != "name"}
        return WatchedWorkload(
            name=self.name,
            zones=tuple(Zone(zone) for zone in self.zones),
            detector=name,
            options=options,
            may_evacuate=name in evacuation.detectors,
            alarms=self.alarms.to_declaration(self.name, self.region, self.zones),
        )


def _complete_detector(given: dict[str, Any]) -> dict[str, Any]:
    """Return the name and all options of a detector. Raise InvalidValue for an unknown option or a wrong value."""
    from holdfast.detect.detector import (  # needed only if workloads are configured
        DEFAULT_DETECTOR,
        list_option_names,
        parse_options,
    )

    options = dict(given)
    name = options.pop("name", DEFAULT_DETECTOR)
    if not isinstance(name, str):
        raise InvalidValue(f"detector.name: expected text, found {name!r}")
    try:
        found = parse_options(name, options)
    except SettingsError as error:
        raise InvalidValue(f"detector.name: {error}") from error
    except InvalidValue as error:
        raise InvalidValue(f"detector.{error}") from error
    # One by one, because msgspec omits the inherited fields of a dataclass.
    return {"name": name} | {option: to_builtins(getattr(found, option)) for option in list_option_names(type(found))}


def require_known(workloads: Sequence[WorkloadSettings], zone: Zone | None, workload: str | None) -> None:
    """Raise NotFound if the zone or workload is not configured: it is probably misspelled, which would be costly.

    Without configured workloads, Holdfast only stores zone statuses. It then accepts every name of a workload, and
    every AZ-ID of AWS.
    """
    if not workloads:
        if zone is not None and not get_region_code(zone):
            raise NotFound(
                f"zone {zone} is no AZ-ID such as use1-az1, and no workload is configured: correct it, or add a "
                "[[workload]] with the names of your zones to the settings"
            )
        return
    named = [each for each in workloads if workload in (None, each.name)]
    if not named:
        names = ", ".join(each.name for each in workloads)
        raise NotFound(f"no workload {workload} is configured: expected one of {names}")
    zones = sorted({known for each in named for known in each.zones})
    if zone is not None and zone not in zones:
        scope = f" for {workload}" if workload else ""
        raise NotFound(f"no zone {zone} is configured{scope}: expected one of {', '.join(zones)}")


def require_watched(workloads: Sequence[WorkloadSettings], workload: str | None, zone: Zone | None = None) -> None:
    """Raise NotFound if the workload is not configured, or has no such zone."""
    names = ", ".join(each.name for each in workloads)
    if workload is None or not names:
        expected = f"expected one of {names}" if names else "no workload is configured; add a [[workload]]"
        raise NotFound(f"name a workload: {expected}")
    require_known(workloads, zone, workload)


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of one installation."""

    data_directory: Path = Path("holdfast-data")
    """A folder in the current directory, so that a trial leaves no files elsewhere."""
    server: ServerSettings = ServerSettings()
    log: LogSettings = LogSettings()
    database: DatabaseSettings = DatabaseSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    metrics: MetricsSettings = MetricsSettings()
    aws: AwsSettings = AwsSettings()
    status: StatusSettings = StatusSettings()
    agent: AgentSettings = AgentSettings()
    evacuation: EvacuationSettings = EvacuationSettings()
    heartbeat: HeartbeatSettings = HeartbeatSettings()
    alert: tuple[AlertSettings, ...] = ()
    workload: tuple[WorkloadSettings, ...] = ()
    queue_backend: QueueUrl | None = None
    """The address of the queues, for any registered backend; None means the database, as for all other state."""
    queue: tuple[QueueSettings, ...] = ()
    """Queues to create if they do not exist. Existing queues are not changed."""

    def __post_init__(self) -> None:
        require_unique_names("workload", [workload.name for workload in self.workload])
        require_unique_names("queue", [queue.name for queue in self.queue])
        require_unique_names("alert", [alert.name for alert in self.alert])
        for workload in self.workload:
            from holdfast.detect.detector import require_bin_seconds

            require_bin_seconds(workload.detector["name"], self.telemetry.bin_seconds)
        workloads = {workload.name for workload in self.workload}
        for index, mapping in enumerate(self.telemetry.emf):
            if mapping.workload not in workloads:
                raise InvalidValue(
                    f"telemetry.emf[{index}].workload: no workload {mapping.workload!r} is configured: "
                    f"expected one of {', '.join(sorted(workloads)) or 'those that [[workload]] defines'}"
                )
        for index, alert in enumerate(self.alert):
            for name in alert.workloads:
                if name not in workloads:
                    raise InvalidValue(f"alert[{index}].workloads: no workload {name!r} is configured")
        if self.server.allow_anonymous and not self.status.allow_anonymous_reads:
            raise InvalidValue(
                "server.allow_anonymous is true and status.allow_anonymous_reads is false: the first requires no "
                "credentials at all, so the second would have no effect; set server.allow_anonymous = false, or "
                "status.allow_anonymous_reads = true"
            )
