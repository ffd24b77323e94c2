"""Everything that can be set, as frozen values. Defaults are written here, once, each with its reason.

`docs/reference/settings.md` describes every one of them; a test sees to it that none is left out.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import unquote

from msgspec import Meta, Struct, to_builtins
from msgspec.structs import force_setattr

from holdfast._errors import InvalidValue, NotFound, SettingsError
from holdfast._names import WORKLOAD_PATTERN, parse_zone
from holdfast._types import Zone
from holdfast.config.queues import QueueSettings, require_once
from holdfast.telemetry import BIN_SECONDS

if TYPE_CHECKING:
    from holdfast.watch import WatchedWorkload

SNS_TOPIC_PATTERN = re.compile(r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,256}", re.ASCII)

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
"""A duration: more than nothing, a day at the most."""


# What may be secret must be told from what may be shown: a password is over at the first of these characters.
_POSTGRES_URL = re.compile(
    r"(?P<scheme>postgres|postgresql)://(?:(?P<user>[^:@/?#]*)(?P<password>:[^@/?#]*)?@)?(?P<rest>[^@#]*)"
)


class _SecretUrl:
    """An address that may contain a password: shown with it masked; `reveal` gives all of it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the whole address, for whoever connects to it."""
        return self._text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


class DatabaseUrl(_SecretUrl):
    """Where a database is."""

    __slots__ = ()

    def __init__(self, text: str) -> None:
        super().__init__(text)
        if self.scheme == "sqlite" and text != "sqlite:":
            raise InvalidValue("expected 'sqlite:' alone, found more: the files are kept in data_directory")
        if self.scheme not in ("sqlite", "postgresql", "postgres"):
            found = f"one of scheme {self.scheme!r}" if "://" in text else "one without a scheme"
            raise InvalidValue(f"expected 'sqlite:' or an address such as postgresql://user@host/name, found {found}")
        if self.scheme != "sqlite" and not _POSTGRES_URL.fullmatch(text):
            raise InvalidValue(
                f"expected an address such as {self.scheme}://user:password@host/name, found another form of "
                f"{self.scheme}: write @ : / ? # in a name or a password as %40 %3A %2F %3F %23"
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
    """Where queues are kept: an address that a queue backend is registered for."""

    __slots__ = ("_masked_text",)

    def __init__(self, text: str) -> None:
        from holdfast.queue.open import get_backend_kind  # imports backends, which few settings name

        super().__init__(text)
        self._masked_text = get_backend_kind(text).describe(text)

    def __str__(self) -> str:
        return self._masked_text


def _mask_secret(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    secret = any(word in unquote(name).lower() for word in ("password", "secret"))
    return f"{name}{equals}****" if secret else pair


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the server listens, and who may speak to it."""

    host: Annotated[str, Meta(pattern=r"^[A-Za-z0-9.:_-]+$")] = "127.0.0.1"
    """Loopback: nothing is reachable from outside until somebody decides so."""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8470
    """No well-known service uses it; 0 takes any free port."""
    allow_anonymous: bool = False
    """Ask for no credentials. For a machine of one's own: refused beyond loopback."""
    shutdown_timeout: Seconds = 2.0
    """Orchestrators wait 10 to 30 s before they kill; two leave room for a slow machine."""


class LogSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is logged, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "text"] = "auto"
    """`auto` writes text to a terminal and JSON, one object a line, to anything else."""


class DatabaseSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where state is kept."""

    url: DatabaseUrl = DatabaseUrl("sqlite:")
    """`sqlite:` keeps one file for each subsystem in the data directory: nothing to install or to run."""
    timeout: Seconds = 5.0
    """How long to wait for a lock or an absent server: longer than a restart's hiccup, shorter than a caller's."""
    max_connections: Annotated[int, Meta(ge=1, le=1000)] = 10
    """PostgreSQL only. A server's default is 100 in all, and Holdfast should leave most of them to others."""


class TelemetrySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How what happened is added up."""

    bin_seconds: Annotated[float, Meta(ge=0.5, le=600)] = BIN_SECONDS
    """The length of a bin, for every workload."""


class MetricsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the server exports its metrics, beside `GET /metrics`."""

    export: tuple[str, ...] = ()
    """Exporters as NAME or NAME:ARGUMENT. None: a scrape and the log are enough for most."""

    def __post_init__(self) -> None:
        for text in self.export:
            from holdfast.metrics import EXPORTERS

            try:
                EXPORTERS.get(text.partition(":")[0])
            except SettingsError as error:
                raise InvalidValue(f"export: {error}") from error


class AwsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who to be and where to call on AWS. What is not set is left to boto3's own variables and files."""

    region: str | None = None
    profile: str | None = None
    role_arn: str | None = None
    external_id: str | None = None
    endpoint_url: str | None = None


def _require_topic(topic: str | None) -> None:
    if topic is not None and not SNS_TOPIC_PATTERN.fullmatch(topic):
        raise InvalidValue(f"sns_topic: expected one like arn:aws:sns:us-east-1:123456789012:zones, found {topic!r}")


class StatusSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the server keeps which zones are out, and how it tells."""

    store: str = "database"
    """The database that holds everything else, so that there is one thing less to look after."""
    refresh_interval: Annotated[float, Meta(ge=0.1, le=60)] = 0.5
    """How often the store is read for what others wrote: with the push, everybody knows within a second."""
    allow_anonymous_reads: bool = True
    """Every host has to know, and a balancer has no credential; who is out is no secret to those who are inside."""
    sns_topic: str | None = None
    """The topic that every change is published to."""

    def __post_init__(self) -> None:
        if self.store != "database":  # the default needs no look at the stores, which take time to import
            from holdfast.status.stores import check_store_address

            try:
                check_store_address(self.store)
            except InvalidValue as error:
                raise InvalidValue(f"store: {error}") from error
        _require_topic(self.sns_topic)


class AgentSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `holdfast agent` follows on behalf of a host, and how it tells the host."""

    zone: str | None = None
    """The host's own AZ-ID: a health check can only speak for one zone."""
    workload: str | None = None
    """None follows what is out for all workloads."""
    endpoints: tuple[str, ...] = ("http://127.0.0.1:8470",)
    """The server's default address. A zone is out when most of the endpoints listed here say so."""
    poll_interval: Annotated[float, Meta(ge=0.5, le=3600)] = 5.0
    """Seconds between pulls; push is quicker where an endpoint has it, so that this only bounds a gap."""
    stale_after: Annotated[float, Meta(ge=1, le=86_400)] = 15.0
    """Silence after which an endpoint no longer counts: three pulls."""
    when_silent: Literal["keep", "all_in", "own_zone_out"] = "keep"
    """Last known good: an outage of the status service changes nothing."""
    host: Annotated[str, Meta(pattern=r"^[A-Za-z0-9.:_-]+$")] = "127.0.0.1"
    """Loopback; a balancer that checks from elsewhere needs another."""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8471
    """The next after the server's."""
    file: Path | None = None
    hook: str | None = None
    hook_timeout: Seconds = 30.0
    """A hook that takes longer is ended: one that hangs must not keep the next change from being told."""
    sns_topic: str | None = None
    sns_endpoint: str | None = None
    """The address of this agent as SNS reaches it."""

    def __post_init__(self) -> None:
        if not self.endpoints and self.sns_topic is None:
            raise InvalidValue("endpoints: expected at least one, found none")
        if self.stale_after < 2 * self.poll_interval:
            raise InvalidValue(
                f"stale_after is {self.stale_after:g} and poll_interval {self.poll_interval:g}: "
                "expected at least twice the poll_interval, "
                "or endpoints would count as silent between two pulls"
            )
        if (self.sns_topic is None) != (self.sns_endpoint is None):
            raise InvalidValue("sns_topic and sns_endpoint: expected both or none")
        _require_topic(self.sns_topic)


class WorkloadSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One service that is watched, and leaves a zone, as a whole."""

    name: Annotated[str, Meta(pattern=WORKLOAD_PATTERN)]
    """As it stands in the namespace of its telemetry, before the slash."""
    region: Annotated[str, Meta(min_length=1)]
    zones: Annotated[tuple[str, ...], Meta(min_length=2, max_length=32)]
    """AZ-IDs, never names: `use1-az1`, not `us-east-1a`. Two at least: with one there is nowhere to go."""
    detector: dict[str, Any] = {}
    """The detector by its `name`, and its own options; all of them after loading, also those that were not written."""

    def __post_init__(self) -> None:
        for zone in self.zones:
            parse_zone(zone)
        if len(set(self.zones)) < len(self.zones):
            raise InvalidValue(f"expected every zone once, found {', '.join(self.zones)}")
        force_setattr(self, "detector", _complete_detector(self.detector))

    def to_watched_workload(self) -> "WatchedWorkload":
        """Return what the loop needs to know of the workload."""
        from holdfast.watch import WatchedWorkload  # most commands never need the loop

        name, options = self.detector["name"], {key: self.detector[key] for key in self.detector if key != "name"}
        return WatchedWorkload(
            name=self.name, zones=tuple(Zone(zone) for zone in self.zones), detector=name, options=options
        )


def _complete_detector(given: dict[str, Any]) -> dict[str, Any]:
    """Return the name and every option of a detector. Raise InvalidValue for what it does not have or accept."""
    from holdfast.detect.detector import (  # only for those who have workloads
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
    # One by one: msgspec leaves out what a dataclass has from its class.
    return {"name": name} | {option: to_builtins(getattr(found, option)) for option in list_option_names(type(found))}


def require_known(workloads: Sequence[WorkloadSettings], zone: Zone | None, workload: str | None) -> None:
    """Raise NotFound for a zone or a workload that is not configured: most likely a slip, and a costly one.

    Where no workload is configured, Holdfast only keeps the status of zones, and all are welcome.
    """
    if not workloads:
        return
    named = [each for each in workloads if workload in (None, each.name)]
    if not named:
        raise NotFound(f"no workload {workload} is configured: {', '.join(each.name for each in workloads)}")
    zones = sorted({known for each in named for known in each.zones})
    if zone is not None and zone not in zones:
        raise NotFound(f"no zone {zone} is configured{f' for {workload}' if workload else ''}: {', '.join(zones)}")


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of one Holdfast."""

    data_directory: Path = Path("holdfast-data")
    """Beside where it is started, so that trying it out leaves nothing elsewhere."""
    server: ServerSettings = ServerSettings()
    log: LogSettings = LogSettings()
    database: DatabaseSettings = DatabaseSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    metrics: MetricsSettings = MetricsSettings()
    aws: AwsSettings = AwsSettings()
    status: StatusSettings = StatusSettings()
    agent: AgentSettings = AgentSettings()
    workload: tuple[WorkloadSettings, ...] = ()
    queue_store: QueueUrl | None = None
    """The address of the queues, for any registered backend; None keeps them in the database, like all else."""
    queue: tuple[QueueSettings, ...] = ()
    """Queues that are made if they do not exist; those that do are left as they are."""

    def __post_init__(self) -> None:
        require_once("workload", [workload.name for workload in self.workload])
        require_once("queue", [queue.name for queue in self.queue])
