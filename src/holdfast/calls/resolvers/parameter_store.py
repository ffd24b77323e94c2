"""Endpoints in the Parameter Store of AWS Systems Manager."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._errors import EngineError, InvalidValue, NotAllowed
from holdfast._names import zone_of
from holdfast._types import Zone
from holdfast.calls.resolvers.resolver import ByZone

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession


class ParameterStore:
    """One parameter for each zone under a path: `/pricing/endpoints/use1-az1` has the addresses of that zone.

    Its value is a list with commas or a JSON list; an empty JSON list takes a zone's endpoints away. A parameter that
    makes no sense is an error as a whole, so that a slip of the hand changes nothing. Thread-safe.
    """

    def __init__(self, session: "AwsSession", path: str) -> None:
        if not path.startswith("/") or len(path.rstrip("/")) == 0:
            raise InvalidValue(f"path is {path!r}: expected one such as /pricing/endpoints")
        self._session = session
        self._path = path.rstrip("/")

    def resolve(self) -> ByZone:
        known = self._session.client("ssm").exceptions
        try:
            found = dict(
                _entry(parameter)
                for parameter in self._session.paginate("ssm", "get_parameters_by_path", Path=self._path)
            )
        except NotAllowed as error:
            raise NotAllowed(f"{error}. For {self._path} allow ssm:GetParametersByPath") from error
        except known.ClientError as error:
            raise EngineError(f"Parameter Store refuses to tell of {self._path}: {error}") from error
        return found


def _entry(parameter: Mapping[str, Any]) -> tuple[Zone, list[str]]:
    name, value = parameter["Name"], parameter["Value"]
    if parameter["Type"] == "SecureString":
        raise InvalidValue(f"parameter {name} is encrypted: expected a String or a StringList; addresses are no secret")
    try:
        return zone_of(name.rpartition("/")[2]), _addresses(value)
    except (InvalidValue, msgspec.MsgspecError) as error:
        raise InvalidValue(f"parameter {name}: {error}") from error


def _addresses(value: str) -> list[str]:
    if value.lstrip().startswith("["):
        return msgspec.json.decode(value, type=list[str])
    return [address.strip() for address in value.split(",") if address.strip()]
