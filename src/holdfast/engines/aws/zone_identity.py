"""Find the AZ-ID of this process: from a setting, Lambda, ECS, Kubernetes, EC2, or its network interface.

The sources are asked in this order. Those that need an environment variable of their platform come first, so that a
process outside AWS waits only for EC2's instance metadata, at most two seconds. Where a platform knows only the name of
the zone, EC2 is asked for its AZ-ID; see `zone_names.py`. boto3 is needed for that, and for the network interface.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from holdfast._clock import Clock, SystemClock
from holdfast._errors import EngineUnavailable, HoldfastError, NotFound
from holdfast._names import parse_zone
from holdfast._types import Zone
from holdfast.engines.aws import zone_sources
from holdfast.engines.aws.zone_documents import ZoneReport
from holdfast.engines.aws.zone_names import OpenSession, ZoneNames
from holdfast.engines.aws.zone_sources import ZoneOptions

if TYPE_CHECKING:
    from holdfast.engines.aws.session import AwsSession

logger = logging.getLogger("holdfast.aws")

ZONE_VARIABLE = "HOLDFAST_AGENT__ZONE"
ADDRESS_VARIABLE = "HOLDFAST_AWS__ADDRESS_ENDPOINT"
"""The variables of the settings `agent.zone` and `aws.address_endpoint`, for programs that load no settings."""


class ZoneSource(StrEnum):
    """How the zone was found, in the order in which the sources are asked."""

    SETTING = "setting"
    LAMBDA = "lambda"
    ECS_TASK = "ecs-task"
    ECS_FILE = "ecs-file"
    KUBERNETES = "kubernetes"
    EC2 = "ec2"
    NETWORK_INTERFACE = "network-interface"


TITLES = {
    ZoneSource.SETTING: "setting",
    ZoneSource.LAMBDA: "Lambda metadata",
    ZoneSource.ECS_TASK: "ECS task metadata",
    ZoneSource.ECS_FILE: "ECS metadata file",
    ZoneSource.KUBERNETES: "Kubernetes node labels",
    ZoneSource.EC2: "EC2 instance metadata",
    ZoneSource.NETWORK_INTERFACE: "network interface",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundZone:
    """The zone of this process, and how it was found."""

    zone: Zone
    source: ZoneSource
    name: str | None = None
    """The name of the zone in this account, if the source reports it. For people; it means nothing elsewhere."""
    is_cached: bool = False
    """Whether the AZ-ID of the name was read from the cache, and not asked of EC2."""
    max_age: float | None = None
    """Seconds for which this is valid; None means as long as the process runs."""

    @property
    def how(self) -> str:
        """How the zone was found, as text for people."""
        known = "" if self.name is None else f", where it is called {self.name}"
        return f"{TITLES[self.source]}{known}{', from the cache' if self.is_cached else ''}"


class ZoneFinder:
    """Finds the zone of this process, and remembers it for as long as it is valid. Thread-safe.

    Lambda limits how long an answer is valid: a function that is restored from a snapshot may run in another zone.
    Failures are not remembered.
    """

    def __init__(
        self,
        options: ZoneOptions | None = None,
        *,
        open_session: OpenSession | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._options = ZoneOptions() if options is None else options
        self._clock = SystemClock() if clock is None else clock
        self._names = ZoneNames(open_session or open_own_session, self._options.cache_folder)
        self._lock = threading.Lock()
        self._found: FoundZone | None = None
        self._found_at = 0.0

    def find(self) -> FoundZone:
        """Return the zone. Raise NotFound, which names every source and why it failed; EngineUnavailable: try again.

        Raise InvalidValue if a zone is given, and is no AZ-ID.
        """
        with self._lock:
            now = self._clock.monotonic()
            found = self._found
            if found is None or (found.max_age is not None and now >= self._found_at + found.max_age):
                self._found = None  # an answer that has expired may be wrong
                found = self._look()
                self._found, self._found_at = found, now
            return found

    def _look(self) -> FoundZone:
        environment = self._options.variables
        given = environment.get(ZONE_VARIABLE) if self._options.zone is None else self._options.zone
        if given is not None:
            return FoundZone(zone=parse_zone(given), source=ZoneSource.SETTING)
        options, clock = self._options, self._clock
        sources: dict[ZoneSource, Callable[[], ZoneReport]] = {
            ZoneSource.LAMBDA: lambda: zone_sources.read_lambda(options),
            ZoneSource.ECS_TASK: lambda: zone_sources.read_ecs_task(options),
            ZoneSource.ECS_FILE: lambda: zone_sources.read_ecs_file(options, clock),
            ZoneSource.KUBERNETES: lambda: zone_sources.read_kubernetes_node(options),
            ZoneSource.EC2: lambda: zone_sources.read_instance(options),
            ZoneSource.NETWORK_INTERFACE: self._find_interface,
        }
        failures: dict[ZoneSource, HoldfastError] = {}
        for source, read in sources.items():
            try:
                found = self._identify(source, read())
            except HoldfastError as error:
                failures[source] = error
            else:
                logger.info("this process runs in %s (%s)", found.zone, found.how)
                return found
        reasons = "; ".join(f"{TITLES[source]}: {error}" for source, error in failures.items())
        kind = EngineUnavailable if any(isinstance(each, EngineUnavailable) for each in failures.values()) else NotFound
        raise kind(
            f"the AZ-ID of this process cannot be found ({reasons}). Set {ZONE_VARIABLE} to it, such as "
            "use1-az1; commands also read agent.zone in the settings"
        )

    def _identify(self, source: ZoneSource, report: ZoneReport) -> FoundZone:
        if report.zone is not None:
            return FoundZone(zone=report.zone, source=source, name=report.name, max_age=report.max_age)
        assert report.name is not None
        found = self._names.look_up(report.name, report.account)
        return FoundZone(zone=found.zone, source=source, name=report.name, is_cached=found.is_cached)

    def _find_interface(self) -> ZoneReport:
        environment = self._options.variables
        endpoint = self._options.address_endpoint or environment.get(ADDRESS_VARIABLE)
        if not endpoint:
            raise NotFound("aws.address_endpoint is not set")
        caller = zone_sources.ask_address(self._options, endpoint)
        return self._names.find_interface(caller, environment.get("AWS_LAMBDA_FUNCTION_NAME"))


def find_zone(options: ZoneOptions | None = None) -> Zone:
    """Return the AZ-ID of this process, for options such as `MiddlewareOptions(zone=find_zone())`.

    Raise NotFound, which names every source and why it failed. Takes milliseconds on AWS, and at most two seconds on
    other machines. A Lambda function with SnapStart keeps a ZoneFinder instead, and asks it in every invocation.
    """
    return ZoneFinder(options).find().zone


def open_own_session(
    region: str | None, *, profile: str | None = None, endpoint_url: str | None = None
) -> "AwsSession":
    """Open a session that looks zones up. Raise MissingExtra without boto3.

    It assumes no role: in the account of a role, the name of a zone may mean another one. It gives up soon, because
    the start of a process waits for it.
    """
    from holdfast.engines.aws import AwsOptions, AwsSession

    return AwsSession(
        AwsOptions(region=region, profile=profile, endpoint_url=endpoint_url, read_timeout=5.0, max_attempts=2)
    )
