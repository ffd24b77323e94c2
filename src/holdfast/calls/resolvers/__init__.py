"""Where the endpoints of a service are found: lists, patterns, functions, DNS and AWS.

May import the base and the engines; boto3 only when something of AWS is asked. Start reading at `resolver.py`, then at
`refreshing.py`, which keeps what any of them finds.
"""

from holdfast.calls.resolvers.aws import CloudMapResolver, DynamoDbResolver, ParameterStoreResolver
from holdfast.calls.resolvers.dns import DnsResolver
from holdfast.calls.resolvers.refreshing import RefreshingDirectory
from holdfast.calls.resolvers.resolver import (
    AddressesByZone,
    Directory,
    FunctionResolver,
    PatternResolver,
    Resolver,
    StaticResolver,
)

__all__ = [
    "AddressesByZone",
    "CloudMapResolver",
    "Directory",
    "DnsResolver",
    "DynamoDbResolver",
    "FunctionResolver",
    "ParameterStoreResolver",
    "PatternResolver",
    "RefreshingDirectory",
    "Resolver",
    "StaticResolver",
]
