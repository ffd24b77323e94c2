"""Where the endpoints of a service are found: lists, patterns, functions, DNS and AWS.

May import the base and the engines; boto3 only when something of AWS is asked. Start reading at `resolver.py`, then at
`refreshing.py`, which keeps what any of them finds.
"""

from holdfast.calls.resolvers.cloud_map import CloudMap
from holdfast.calls.resolvers.dns import Dns
from holdfast.calls.resolvers.dynamodb import DynamoDbMap
from holdfast.calls.resolvers.parameter_store import ParameterStore
from holdfast.calls.resolvers.refreshing import Refreshing
from holdfast.calls.resolvers.resolver import ByZone, Called, Directory, Listed, Pattern, Resolver

__all__ = [
    "ByZone",
    "Called",
    "CloudMap",
    "Directory",
    "Dns",
    "DynamoDbMap",
    "Listed",
    "ParameterStore",
    "Pattern",
    "Refreshing",
    "Resolver",
]
