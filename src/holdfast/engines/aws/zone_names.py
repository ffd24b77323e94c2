"""Ask EC2 for AZ-IDs: of the names that an account has for its zones, and of network interfaces.

The names of an account never change, so EC2 is asked once for each account and region. The answer is kept in a file.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from holdfast._errors import EngineError, InvalidValue, NotAllowed, NotFound
from holdfast._types import Zone
from holdfast.engines.aws.zone_documents import (
    CallerAddress,
    ZoneReport,
    get_region,
    is_zone_id,
    parse_zone_ids,
    select_zone_ids,
)

if TYPE_CHECKING:
    from holdfast.engines.aws.session import AwsSession

OpenSession: TypeAlias = Callable[[str | None], "AwsSession"]
"""Opens a session in a region, with this process's own credentials. None means the region of boto3's settings."""


class LookedUpZone(NamedTuple):
    """The AZ-ID of a name."""

    zone: Zone
    is_cached: bool
    """Whether it comes from the file, and not from EC2."""


class ZoneNames:
    """The AZ-IDs of zone names, from EC2 or from files in `folder`. Without a folder, nothing is kept."""

    def __init__(self, open_session: OpenSession, folder: Path | None) -> None:
        self._open_session = open_session
        self._folder = folder

    def look_up(self, name: str, account: str | None) -> LookedUpZone:
        """Return the AZ-ID that `name` means in `account`; None means the account of the credentials.

        Raise EngineError if the credentials belong to another account, in which the name means another zone.
        """
        region = get_region(name)
        if account is not None and (found := self._read(account, region).get(name)):
            return LookedUpZone(found, is_cached=True)
        with self._open_session(region) as session:
            own = str(_call(session, "sts", "get_caller_identity", "sts:GetCallerIdentity")["Account"])
            if account is None:
                if found := self._read(own, region).get(name):
                    return LookedUpZone(found, is_cached=True)
            elif account != own:
                raise EngineError(
                    f"{name} is a name of account {account}, but the credentials belong to account {own}, where it "
                    f"means another zone: use credentials of account {account}"
                )
            answer = _call(
                session,
                "ec2",
                "describe_availability_zones",
                "ec2:DescribeAvailabilityZones",
                AllAvailabilityZones=True,  # also Local Zones and Wavelength Zones that are not enabled
            )
        given = {str(each["ZoneName"]): str(each.get("ZoneId")) for each in answer["AvailabilityZones"]}
        ids = select_zone_ids(given, region)
        if name not in ids:
            raise NotFound(
                f"account {own} has no zone {name} in {region}: EC2 knows {', '.join(sorted(ids)) or 'none'}"
            )
        self._write(own, region, ids)
        return LookedUpZone(ids[name], is_cached=False)

    def find_interface(self, caller: CallerAddress, function: str | None) -> ZoneReport:
        """Return the zone of the network interface with this private address, in the VPC of the caller.

        If the caller's VPC is not known, it is that of the Lambda `function`.
        """
        with self._open_session(None) as session:
            vpc = caller.vpc or _find_vpc(session, function)
            filters = {caller.filter_name: caller.address} | ({} if vpc is None else {"vpc-id": vpc})
            answer = _call(
                session,
                "ec2",
                "describe_network_interfaces",
                "ec2:DescribeNetworkInterfaces",
                Filters=[{"Name": key, "Values": [value]} for key, value in filters.items()],
            )
        reports = {_read_interface(each) for each in answer["NetworkInterfaces"]}
        if len(reports) != 1:
            raise NotFound(
                f"{caller.address} in {vpc or 'any VPC'} belongs to network interfaces in {len(reports)} zones: "
                "expected one; check that the endpoint is in the VPC of this process, and returns private addresses"
            )
        return reports.pop()

    def _read(self, account: str, region: str) -> Mapping[str, Zone]:
        if self._folder is None:
            return {}
        try:
            return parse_zone_ids(self._get_path(self._folder, account, region).read_bytes(), region)
        except (OSError, InvalidValue):
            return {}  # EC2 knows, and a file that is damaged is written again

    def _write(self, account: str, region: str, ids: Mapping[str, Zone]) -> None:
        if self._folder is None:
            return
        with suppress(OSError):  # the next process asks EC2, too
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self._folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(msgspec.json.encode(ids))
                Path(temporary).replace(self._get_path(self._folder, account, region))
            except OSError:
                Path(temporary).unlink(missing_ok=True)
                raise

    @staticmethod
    def _get_path(folder: Path, account: str, region: str) -> Path:
        return folder / f"zones-{account}-{region}.json"


def _find_vpc(session: "AwsSession", function: str | None) -> str | None:
    if function is None:
        return None
    permission = "lambda:GetFunctionConfiguration"
    answer = _call(session, "lambda", "get_function_configuration", permission, FunctionName=function)
    return answer.get("VpcConfig", {}).get("VpcId") or None


def _read_interface(interface: Mapping[str, Any]) -> ZoneReport:
    name = str(interface["AvailabilityZone"])
    zone = str(interface.get("AvailabilityZoneId", ""))
    # Of a shared subnet, the owner of the interface is the account that runs the process, and whose names apply.
    account = str(interface["OwnerId"])
    return ZoneReport(zone=Zone(zone) if is_zone_id(zone) else None, name=name, account=account)


def _call(session: "AwsSession", service: str, operation: str, permission: str, **arguments: Any) -> Any:
    """Call AWS. Say which permission is needed if it is missing."""
    client = session.client(service)
    with _explain_errors(client, permission):
        return getattr(client, operation)(**arguments)


@contextmanager
def _explain_errors(client: Any, permission: str) -> Iterator[None]:
    try:
        yield
    except NotAllowed as error:
        raise NotAllowed(f"{error}. Allow {permission}") from error
    except client.exceptions.ClientError as error:
        raise EngineError(f"AWS refused {permission}: {error}") from error
