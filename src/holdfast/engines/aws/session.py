"""A session with one AWS account as one user or role: shared clients, and pages that are read as needed.

Only botocore retries, in its `standard` mode and as often as the options allow.
"""

import base64
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self
from urllib.parse import urlsplit

import boto3.session
from botocore import exceptions as boto
from botocore.client import BaseClient
from botocore.config import Config
from botocore.credentials import AssumeRoleCredentialFetcher, Credentials, DeferredRefreshableCredentials
from botocore.parsers import ResponseParserError
from botocore.session import Session
from botocore.signers import RequestSigner

from holdfast._errors import EngineError, InvalidValue
from holdfast.engines.aws.errors import reply_was_lost, translate

# IAM and STS accept these: https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html
_ROLE_ARN = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+", re.ASCII)
_EXTERNAL_ID = re.compile(r"[\w+=,.@:/-]{2,1224}", re.ASCII)
_SESSION_NAME = re.compile(r"[\w+=,.@-]{2,64}", re.ASCII)
# A region becomes a part of host names.
_REGION = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
EKS_TOKEN_EXPIRY = 60
"""Seconds after which STS refuses the call in a token of EKS. Clusters allow 15 minutes, whatever it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsOptions:
    """The identity, region and timeouts of a session. Where a value is None, boto3's variables and files apply."""

    region: str | None = None
    profile: str | None = None
    """A profile of the shared configuration file. Its credentials also assume `role_arn`."""
    role_arn: str | None = None
    """A role to assume. Its credentials are refreshed before they expire."""
    external_id: str | None = field(default=None, repr=False)
    """The external id that the owner of the role requires, so that no third party can make us use the role."""
    session_name: str = "holdfast"
    """The name of the session in CloudTrail, so that operators can distinguish Holdfast's calls from the service's."""
    endpoint_url: str | None = None
    """The address of all services, for an emulator or a VPC endpoint."""
    endpoint_urls: Mapping[str, str] = field(default_factory=dict)
    """Addresses of single services by boto3's names (`{"dynamodb": "http://127.0.0.1:8000"}`)."""
    connect_timeout: float = 2.0
    """Seconds. A handshake takes milliseconds, or about 100 ms across regions. Two seconds allow for one lost packet,
    which is sent again after one second. boto3's default of 60 would delay an evacuation."""
    read_timeout: float = 10.0
    """Seconds between two bytes of a reply. Control planes take seconds at worst. A long poll must be shorter."""
    max_attempts: int = 3
    """Requests per call including the first, as AWS recommends for its SDKs. Nothing else retries, so a call takes at
    most `max_attempts` times both timeouts, plus the pauses between (at most 1 s, then 2 s, 4 s, ...)."""

    def __post_init__(self) -> None:
        _require_match("region", self.region, _REGION, "a name like eu-west-1")
        _require_match("role_arn", self.role_arn, _ROLE_ARN, "arn:aws:iam::123456789012:role/name")
        _require_match("external_id", self.external_id, _EXTERNAL_ID, "2 to 1224 letters, digits and any of _+=,.@:/-")
        _require_match("session_name", self.session_name, _SESSION_NAME, "2 to 64 letters, digits and any of _+=,.@-")
        if self.profile == "":
            raise InvalidValue("profile is '': expected the name of a profile, or None")
        if self.external_id is not None and self.role_arn is None:
            raise InvalidValue("external_id is set without role_arn: it applies only when a role is assumed")
        for name, url in {"endpoint_url": self.endpoint_url, **self.endpoint_urls}.items():
            if url is not None and not _is_web_address(url):
                raise InvalidValue(f"endpoint {url!r} of {name}: expected an address such as http(s)://host:port")
        for name in ("connect_timeout", "read_timeout"):
            if not 0 < getattr(self, name) < math.inf:
                raise InvalidValue(f"{name} is {getattr(self, name)}: expected seconds, more than 0")
        # Ten attempts already pause for up to 90 s in total. Work that may take longer belongs in a queue.
        if not 1 <= self.max_attempts <= 10:
            raise InvalidValue(f"max_attempts is {self.max_attempts}: expected 1 to 10")
        object.__setattr__(self, "endpoint_urls", MappingProxyType(dict(self.endpoint_urls)))

    def endpoint(self, service: str) -> str | None:
        """Return the address of `service`, or None to use that of AWS or of boto3's own settings."""
        return self.endpoint_urls.get(service, self.endpoint_url)


def _require_match(name: str, value: str | None, pattern: re.Pattern[str], expected: str) -> None:
    if value is not None and not pattern.fullmatch(value):
        raise InvalidValue(f"{name} is {value!r}: expected {expected}")


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises if the port is not a number
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname)


class AwsSession:
    """Clients for the services of one account. Thread-safe; use as a context manager, or call `close`.

    Every call of a client raises the errors of `errors.py`, and botocore's ClientError for the rest. The constructor
    raises if the profile does not exist. Credentials are loaded, and a role is assumed, when a call needs them.
    """

    def __init__(self, options: AwsOptions) -> None:
        self._options = options
        self._lock = threading.Lock()  # using a client is thread-safe, creating one is not
        self._clients: dict[str, Any] = {}
        self._closed = False
        with _translate_errors("session"):
            core = _create_botocore_session(options)
            if options.role_arn is not None:
                core.register_component("credential_provider", _AssumedRoleProvider(options, options.role_arn))
            self._boto = boto3.session.Session(botocore_session=core)

    def client(self, service: str) -> Any:
        """Return the boto3 client of `service`. All callers share it."""
        with self._lock:
            if self._closed:
                raise EngineError(f"the AWS session is closed: open another one to use {service}")
            if service not in self._clients:
                with _translate_errors(service):
                    self._clients[service] = _create_client(self._boto.client, service, self._options)
            return self._clients[service]

    def paginate(
        self, service: str | BaseClient, operation: str, /, *, result: str | None = None, **arguments: Any
    ) -> Iterator[Any]:
        """Yield all items of a paginated operation. A page is requested when its first item is needed.

        `operation` is the name of the client's method. `result` selects a list if a page has several (`CommonPrefixes`
        of S3). No operation has an argument called `result`.
        """
        client = self.client(service) if isinstance(service, str) else service
        call = f"{client.meta.service_model.service_name} {operation}"
        try:
            pages = client.get_paginator(operation).paginate(**arguments)
        except (boto.OperationNotPageableError, KeyError) as error:
            raise InvalidValue(f"AWS {call} is not a paginated operation") from error
        keys = {key.expression: key for key in pages.result_keys or ()}
        chosen = next(iter(keys)) if result is None else result
        if chosen not in keys:
            raise InvalidValue(f"pages of AWS {call} have no {chosen!r}: expected one of {', '.join(keys)}")
        return _iterate_items(pages, keys[chosen], call)

    def presign_eks_token(self, cluster: str) -> str:
        """Return a token for the Kubernetes API of an EKS cluster, which accepts it for 15 minutes.

        It is a signed call of STS, which the cluster makes to learn whose token it is. So its host is that of AWS, even
        if this session uses another endpoint.
        """
        with _translate_errors("sts GetCallerIdentity"):
            with self._lock:
                config = Config(ignore_configured_endpoint_urls=True)  # type: ignore[call-arg] # the stubs lack it
                meta = self._boto.client("sts", self._options.region, config=config).meta
            credentials = self._boto.get_credentials()
            if credentials is None:
                raise boto.NoCredentialsError
            request = {
                "method": "GET",
                "url": f"{meta.endpoint_url}/?Action=GetCallerIdentity&Version=2011-06-15",
                "body": {},
                "headers": {"x-k8s-aws-id": cluster},
                "context": {},
            }
            model = meta.service_model
            signer = RequestSigner(model.service_id, meta.region_name, "sts", "v4", credentials, meta.events)
            url = signer.generate_presigned_url(request, "GetCallerIdentity", expires_in=EKS_TOKEN_EXPIRY)
        return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")

    def close(self) -> None:
        """Close all connections. Clients from `client` cannot be used any more. May be repeated."""
        with self._lock:
            self._closed = True
            clients = list(self._clients.values())
            self._clients.clear()
        for client in clients:
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _AssumedRoleProvider:
    """A credential provider of botocore for an assumed role. botocore refreshes the credentials before they expire."""

    def __init__(self, options: AwsOptions, role_arn: str) -> None:
        self._options = options
        self._role_arn = role_arn
        self._source = _create_botocore_session(options)

    def load_credentials(self) -> Credentials:
        source = self._source.get_credentials()
        if source is None:
            raise boto.NoCredentialsError
        arguments = {"RoleSessionName": self._options.session_name, "ExternalId": self._options.external_id}
        given = {name: value for name, value in arguments.items() if value is not None}
        fetcher = AssumeRoleCredentialFetcher(self._create_sts, source, self._role_arn, given)
        return DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")

    def _create_sts(self, service: str, **keys: str) -> Any:
        return _create_client(self._source.create_client, service, self._options, **keys)


class _AttemptState(threading.local):
    """The state of this thread's call: `reply_lost` if AWS may have carried out an attempt whose reply was lost."""

    reply_lost = False


def _create_botocore_session(options: AwsOptions) -> Session:
    """Return a botocore session whose clients raise errors of Holdfast."""
    attempts = _AttemptState()

    class Translating:
        """A mixin in front of botocore's client class. Every call, page and waiter passes through this method."""

        def _make_api_call(self, operation_name: str, api_params: Any) -> Any:
            service = self.meta.service_model.service_name  # type: ignore[attr-defined]
            # A call may make another call, to assume a role.
            outer, attempts.reply_lost = attempts.reply_lost, False
            try:
                with _translate_errors(f"{service} {operation_name}", attempts):
                    return super()._make_api_call(operation_name, api_params)  # type: ignore[misc]
            finally:
                attempts.reply_lost = outer

    def note(**event: Any) -> None:
        attempts.reply_lost = attempts.reply_lost or reply_was_lost(event["exception"], event["parsed_response"])

    core = Session(profile=options.profile)
    core.get_scoped_config()  # raises for a profile that does not exist
    core.register("creating-client-class", lambda **event: event["base_classes"].insert(0, Translating))
    core.register("response-received", note)
    return core


def _create_client(make: Callable[..., Any], service: str, options: AwsOptions, **keys: str) -> Any:
    endpoint = options.endpoint(service)
    config = Config(
        connect_timeout=options.connect_timeout,
        read_timeout=options.read_timeout,
        retries={"mode": "standard", "total_max_attempts": options.max_attempts},
    )
    if endpoint is not None:  # a given host has no sibling with a prefix such as `data-`
        config = config.merge(Config(inject_host_prefix=False))
    try:
        return make(service, options.region, endpoint_url=endpoint, config=config, **keys)
    except boto.UnknownServiceError as error:
        raise InvalidValue(f"boto3 does not know an AWS service {service!r}") from error


@contextmanager
def _translate_errors(call: str, attempts: _AttemptState | None = None) -> Iterator[None]:
    try:
        yield
    except (boto.BotoCoreError, boto.ClientError, ResponseParserError) as error:
        known = translate(error, call, reply_lost=attempts is not None and attempts.reply_lost)
        if known is None:
            raise
        raise known from error


def _iterate_items(pages: Any, key: Any, call: str) -> Iterator[Any]:
    with _translate_errors(call):
        for page in pages:
            yield from key.search(page) or ()
