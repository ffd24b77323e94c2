"""The services and files that say in which zone a process runs: Lambda, ECS, Kubernetes, EC2.

Every function returns what one source reports, or raises an error that says why it cannot: NotFound if the process does
not run there, EngineUnavailable if the source does not answer. No function waits longer than two timeouts.
"""

import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from holdfast._clock import Clock
from holdfast._errors import EngineUnavailable, HoldfastError, InvalidValue, NotAllowed, NotFound
from holdfast.engines.aws import zone_documents
from holdfast.engines.aws.metadata_http import TRIES, NoAnswer, fetch, request, require_success
from holdfast.engines.aws.zone_documents import CallerAddress, ZoneReport

LAMBDA_PATH = "/2026-01-15/metadata/execution-environment"
IMDS_TOKEN_PATH = "/latest/api/token"  # noqa: S105 - a path
IMDS_ZONE_PATH = "/latest/meta-data/placement/availability-zone-id"
IMDS_TOKEN_SECONDS = 60
"""Lifetime of a token of instance metadata. It is used once, at once."""
FILE_SECONDS = 5.0
"""How long to wait for the ECS agent to complete its file, which mostly takes it less than one second."""
FILE_INTERVAL_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneOptions:
    """Where to look for the AZ-ID of this process. The defaults are right on AWS; tests set others."""

    zone: str | None = None
    """The AZ-ID, if it is known: nothing else is asked then. None means `HOLDFAST_AGENT__ZONE`, or to look for it."""
    address_endpoint: str | None = None
    """The endpoint that tells Lambda functions their address. None means `HOLDFAST_AWS__ADDRESS_ENDPOINT`, or none."""
    cache_directory: Path | None = None
    """Folder for the AZ-IDs of zone names. None means `$XDG_CACHE_HOME/holdfast`, or `~/.cache/holdfast`."""
    environment: Mapping[str, str] | None = field(default=None, repr=False)
    """The environment variables of the platform; None means those of this process."""
    imds_endpoints: tuple[str, ...] = ("http://169.254.169.254", "http://[fd00:ec2::254]")
    """Addresses of EC2's instance metadata. `AWS_EC2_METADATA_SERVICE_ENDPOINT` overrides them, as in AWS SDKs."""
    service_account: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount")
    """Folder with the token and the certificate for the Kubernetes API."""
    timeout: float = 1.0
    """Seconds for one request to a metadata service on this host, which answers in milliseconds if it is there."""
    remote_timeout: float = 3.0
    """Seconds for one request to the Kubernetes API and to `address_endpoint`: enough to send one lost packet again."""

    def __post_init__(self) -> None:
        for name in ("timeout", "remote_timeout"):
            if not 0 < getattr(self, name) <= 60:
                raise InvalidValue(f"{name} is {getattr(self, name)}: expected seconds, more than 0 and at most 60")

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables of the platform."""
        return os.environ if self.environment is None else self.environment

    @property
    def cache_folder(self) -> Path | None:
        """The folder for cached AZ-IDs, or None if this user has no home."""
        if self.cache_directory is not None:
            return self.cache_directory
        for name, below in (("XDG_CACHE_HOME", "holdfast"), ("HOME", ".cache/holdfast")):
            given = self.variables.get(name, "")
            if given.startswith("/"):
                return Path(given) / below
        return None


def read_lambda(options: ZoneOptions) -> ZoneReport:
    """Ask the metadata endpoint of Lambda."""
    host = _require_variable(options, "AWS_LAMBDA_METADATA_API")
    token = _require_variable(options, "AWS_LAMBDA_METADATA_TOKEN")
    headers = {"Authorization": f"Bearer {token}"}
    answer = fetch(f"http://{host}{LAMBDA_PATH}", headers=headers, seconds=options.timeout)
    return zone_documents.parse_lambda(answer.body, answer.headers.get("cache-control"))


def read_ecs_task(options: ZoneOptions) -> ZoneReport:
    """Ask the task metadata endpoint of ECS, version 4, on Fargate or EC2."""
    address = _require_variable(options, "ECS_CONTAINER_METADATA_URI_V4")
    return zone_documents.parse_task(fetch(f"{address.rstrip('/')}/task", seconds=options.timeout).body)


def read_ecs_file(options: ZoneOptions, clock: Clock) -> ZoneReport:
    """Read the metadata file of the ECS agent. Wait until the agent has completed it."""
    path = Path(_require_variable(options, "ECS_CONTAINER_METADATA_FILE"))
    deadline = clock.monotonic() + FILE_SECONDS
    while True:
        try:
            report = zone_documents.parse_task_file(path.read_bytes())
        except OSError as error:
            reason = f"cannot be read: {error.strerror}"
        else:
            if report is not None:
                return report
            reason = "is not complete (MetadataFileStatus is not READY)"
        if clock.monotonic() >= deadline:
            raise EngineUnavailable(f"{path} {reason}, after {FILE_SECONDS:g} s")
        clock.sleep(FILE_INTERVAL_SECONDS)


def read_kubernetes_node(options: ZoneOptions) -> ZoneReport:
    """Ask the Kubernetes API for the labels of the node on which this pod runs."""
    host = _require_variable(options, "KUBERNETES_SERVICE_HOST")
    port = options.variables.get("KUBERNETES_SERVICE_PORT", "443")
    names = ("HOLDFAST_NODE_NAME", "NODE_NAME")
    node = next((value for name in names if (value := options.variables.get(name))), None)
    if node is None:
        raise NotFound(
            "neither NODE_NAME nor HOLDFAST_NODE_NAME is set: set one of them to spec.nodeName in the pod's manifest"
        )
    try:
        token = (options.service_account / "token").read_text().strip()
        tls = ssl.create_default_context(cafile=str(options.service_account / "ca.crt"))
    except (OSError, UnicodeDecodeError) as error:  # an invalid certificate is an OSError, too
        raise NotFound(f"the pod has no service account in {options.service_account} ({error})") from error
    url = f"https://{f'[{host}]' if ':' in host else host}:{port}/api/v1/nodes/{quote(node, safe='')}"
    try:
        answer = fetch(url, headers={"Authorization": f"Bearer {token}"}, seconds=options.remote_timeout, tls=tls)
    except NotAllowed as error:
        raise NotAllowed(f"{error}. Allow the service account to `get` nodes") from error
    return zone_documents.parse_node(answer.body)


def read_instance(options: ZoneOptions) -> ZoneReport:
    """Ask EC2's instance metadata, version 2. A process that does not run on EC2 waits at most two timeouts."""
    environment = options.variables
    if environment.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        raise NotFound("AWS_EC2_METADATA_DISABLED is true")
    if environment.get("AWS_LAMBDA_FUNCTION_NAME") or environment.get("AWS_EXECUTION_ENV") == "AWS_ECS_FARGATE":
        raise NotFound("Lambda and Fargate have no instance metadata")
    given = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT")
    endpoints = (given.rstrip("/"),) if given else options.imds_endpoints
    deadline = time.monotonic() + TRIES * options.timeout
    reasons: dict[str, HoldfastError] = {}
    for _ in range(TRIES):
        for endpoint in endpoints:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            try:
                return _ask_instance(endpoint, min(options.timeout, left))
            except EngineUnavailable as error:
                reasons[endpoint] = error
    told = "; ".join(str(error) for error in reasons.values())
    if all(isinstance(error, NoAnswer) for error in reasons.values()):
        raise NotFound(f"{told}. In a container on EC2, set the hop limit of instance metadata to 2")
    raise EngineUnavailable(told)


def _ask_instance(endpoint: str, seconds: float) -> ZoneReport:
    deadline = time.monotonic() + seconds
    lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": str(IMDS_TOKEN_SECONDS)}
    issued = request(endpoint + IMDS_TOKEN_PATH, method="PUT", headers=lifetime, seconds=seconds)
    require_success(endpoint + IMDS_TOKEN_PATH, issued.status, "instance metadata is disabled")
    token = {"X-aws-ec2-metadata-token": issued.body.decode(errors="replace").strip()}
    left = max(deadline - time.monotonic(), 0.001)  # 0 would mean no timeout
    answer = request(endpoint + IMDS_ZONE_PATH, headers=token, seconds=left)
    if answer.status == 401:
        raise EngineUnavailable(f"{endpoint} refuses the token that it has issued (401)")  # the next try gets another
    require_success(endpoint + IMDS_ZONE_PATH, answer.status, "instance metadata is disabled")
    return zone_documents.parse_zone_id(answer.body.decode(errors="replace").strip())


def ask_address(options: ZoneOptions, endpoint: str) -> CallerAddress:
    """Ask `address_endpoint` for the address of this process."""
    return zone_documents.parse_address(fetch(endpoint, seconds=options.remote_timeout).body)


def _require_variable(options: ZoneOptions, name: str) -> str:
    value = options.variables.get(name)
    if not value:
        raise NotFound(f"{name} is not set")
    return value
