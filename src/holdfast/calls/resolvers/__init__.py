"""Resolvers, which find the endpoints of a service: by list, pattern, function, DNS or AWS.

May import the base and the engines, and boto3 only when AWS is called. Start reading at `resolver.py`, then at
`refreshing.py`, which caches the answers of any resolver.
"""

from holdfast.calls.resolvers.aws import CloudMapResolver, DynamoDbResolver, ParameterStoreResolver
from holdfast.calls.resolvers.dns import DnsResolver
from holdfast.calls.resolvers.refreshing import RefreshingEndpointCache
from holdfast.calls.resolvers.resolver import (
    AddressesByZone,
    EndpointCache,
    FunctionResolver,
    PatternResolver,
    Resolver,
    StaticResolver,
)

__all__ = [
    "AddressesByZone",
    "CloudMapResolver",
    "DnsResolver",
    "DynamoDbResolver",
    "EndpointCache",
    "FunctionResolver",
    "ParameterStoreResolver",
    "PatternResolver",
    "RefreshingEndpointCache",
    "Resolver",
    "StaticResolver",
]
