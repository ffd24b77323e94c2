"""AWS: sessions, shared clients, assumed roles, pagination, errors that say what to do, and the zone of this process.

May import the base only; boto3 is imported nowhere else. Start reading at `session.py`; `errors.py` translates the
errors of botocore. `dynamodb_table.py` is a table, for stores. `zone_identity.py` finds the AZ-ID of this process. All
names are imported when they are first used, because the zone is mostly found without boto3, and sessions work without
the other packages of Holdfast.
"""

import importlib
from typing import TYPE_CHECKING, Any

from holdfast._errors import MissingExtra

if TYPE_CHECKING:
    from holdfast.engines.aws.session import AwsOptions, AwsSession
    from holdfast.engines.aws.zone_identity import FoundZone, ZoneFinder, ZoneSource, find_zone
    from holdfast.engines.aws.zone_sources import ZoneOptions

__all__ = [
    "AwsOptions",
    "AwsSession",
    "FoundZone",
    "ZoneFinder",
    "ZoneOptions",
    "ZoneSource",
    "find_zone",
]
_ZONE_MODULES = {
    "FoundZone": "zone_identity",
    "ZoneFinder": "zone_identity",
    "ZoneOptions": "zone_sources",
    "ZoneSource": "zone_identity",
    "find_zone": "zone_identity",
}


def __getattr__(name: str) -> Any:
    if name in _ZONE_MODULES:  # not by an import statement: Lambda functions of Holdfast are packed without them
        return getattr(importlib.import_module(f"{__name__}.{_ZONE_MODULES[name]}"), name)
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from holdfast.engines.aws import session
    except ImportError as error:
        raise MissingExtra("the AWS engine", "aws") from error
    return getattr(session, name)
