"""What can be said about an AWS account: who to be, where to call, and how patient to be."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import urlsplit

from holdfast._errors import InvalidValue

# What IAM and STS accept: https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html
_ROLE_ARN = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+", re.ASCII)
_EXTERNAL_ID = re.compile(r"[\w+=,.@:/-]{2,1224}", re.ASCII)
_SESSION_NAME = re.compile(r"[\w+=,.@-]{2,64}", re.ASCII)
# A region becomes a part of host names.
_REGION = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsOptions:
    """Who to be and where to call. What is None is left to boto3: its environment variables and shared files."""

    region: str | None = None
    profile: str | None = None
    """A profile of the shared configuration file; its credentials are also those that assume `role_arn`."""
    role_arn: str | None = None
    """A role to assume; its credentials are refreshed before they expire."""
    external_id: str | None = field(default=None, repr=False)
    """What the owner of the role asks for, so that nobody else can have us use it."""
    session_name: str = "holdfast"
    """How CloudTrail names what is done in the role. Ours, so that an operator can tell it from the service's own."""
    endpoint_url: str | None = None
    """Where all services are, for an emulator or a VPC endpoint."""
    endpoint_urls: Mapping[str, str] = field(default_factory=dict)
    """Where single services are, by boto3's names for them (`{"dynamodb": "http://127.0.0.1:8000"}`)."""
    connect_timeout: float = 2.0
    """Seconds. A handshake takes milliseconds, across regions some hundred; two seconds outlast one lost packet,
    which is sent again after one. boto3's own 60 would hold up an evacuation."""
    read_timeout: float = 10.0
    """Seconds between two bytes of a reply. Control planes take seconds at worst. A long poll has to ask for less."""
    attempts: int = 3
    """Requests per call, the first one included: what AWS recommends for its SDKs. The only retries there are, so a
    call costs at most `attempts` times both timeouts, and the pauses between (at most 1 s, then 2 s, 4 s, ...)."""

    def __post_init__(self) -> None:
        _expect("region", self.region, _REGION, "a name like eu-west-1")
        _expect("role_arn", self.role_arn, _ROLE_ARN, "arn:aws:iam::123456789012:role/name")
        _expect("external_id", self.external_id, _EXTERNAL_ID, "2 to 1224 letters, digits and any of _+=,.@:/-")
        _expect("session_name", self.session_name, _SESSION_NAME, "2 to 64 letters, digits and any of _+=,.@-")
        if self.profile == "":
            raise InvalidValue("profile is '': expected the name of a profile, or None")
        if self.external_id is not None and self.role_arn is None:
            raise InvalidValue("external_id is given without role_arn: it says nothing except when a role is assumed")
        for name, url in {"endpoint_url": self.endpoint_url, **self.endpoint_urls}.items():
            if url is not None and not _is_web_address(url):
                raise InvalidValue(f"endpoint {url!r} of {name} is no address: expected http(s)://host or host:port")
        for name in ("connect_timeout", "read_timeout"):
            if not 0 < getattr(self, name) < math.inf:
                raise InvalidValue(f"{name} is {getattr(self, name)}: expected seconds, more than 0")
        # Ten attempts already wait up to a minute and a half between them: past that it is a job for a queue.
        if not 1 <= self.attempts <= 10:
            raise InvalidValue(f"attempts is {self.attempts}: expected 1 to 10")
        object.__setattr__(self, "endpoint_urls", MappingProxyType(dict(self.endpoint_urls)))

    def endpoint(self, service: str) -> str | None:
        """Where to find `service`; None where AWS, or boto3's own settings, have it."""
        return self.endpoint_urls.get(service, self.endpoint_url)


def _expect(name: str, value: str | None, pattern: re.Pattern[str], expected: str) -> None:
    if value is not None and not pattern.fullmatch(value):
        raise InvalidValue(f"{name} is {value!r}: expected {expected}")


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for one that is no number
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname)
