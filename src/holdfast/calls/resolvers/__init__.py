"""Where the endpoints of a service are found: lists, patterns, functions, DNS and AWS.

May import the base and the engines; boto3 only when something of AWS is asked. Start reading at `resolver.py`, then at
`refreshing.py`, which keeps what any of them finds.
"""

from holdfast.calls.resolvers.aws import CloudMap, DynamoDbMap, ParameterStore
from holdfast.calls.resolvers.dns import Dns
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
