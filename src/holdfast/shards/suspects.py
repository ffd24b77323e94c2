"""Which tenants explain that these workers fail. Pure."""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from heapq import nlargest
from itertools import combinations
from typing import Generic, TypeVar

from holdfast._errors import InvalidValue

Tenant = TypeVar("Tenant")
_MAX_SETS_TRIED = 20_000
"""Sets of tenants that are tried: tens of milliseconds. Four bad tenants rarely leave a dozen to choose from."""


@dataclass(frozen=True, slots=True)
class Suspect(Generic[Tenant]):
    """A tenant some of whose workers fail."""

    tenant: Tenant
    failing: tuple[str, ...]
    """Its workers that fail."""
    healthy: tuple[str, ...]
    """Its workers that do not: a poison request would have reached them, too, sooner or later."""
    score: float
    """Of all workers that fail or are its own, the share that are both: 1 explains everything, and nothing else."""
    is_in_minimal_set: bool
    """Whether it is one of the few that explain together all that one can: those who are looked at first."""


def find_suspects(
    failing: Collection[str], shards: Iterable[tuple[Tenant, Collection[str]]], *, limit: int = 10
) -> list[Suspect[Tenant]]:
    """Return the tenants that explain these failing workers best, best first, reading all shards once.

    When several tenants fail at once, those that are needed come first: as few as possible that explain together all
    that can be explained, of those whose workers all fail.
    """
    if limit < 1:
        raise InvalidValue(f"{limit} suspects: expected 1 or more")
    wanted = frozenset(failing)
    whole: list[tuple[Tenant, frozenset[str]]] = []
    ranked: list[tuple[float, int, Tenant, frozenset[str]]] = []
    for number, (tenant, workers) in enumerate(shards):
        if wanted.isdisjoint(workers):
            continue
        shard = frozenset([*workers])  # not the caller's own, which several tenants may have
        if shard <= wanted:
            whole.append((tenant, shard))
        ranked.append((len(shard & wanted) / len(shard | wanted), -number, tenant, shard))
        if len(ranked) > 1000 + 2 * limit:
            ranked = nlargest(limit, ranked, key=lambda one: one[:2])
    best = nlargest(limit, ranked, key=lambda one: one[:2])
    needed = _find_cover(wanted, whole, limit)
    chosen = {id(shard) for _, shard in needed}
    listed = [(len(shard) / len(wanted), tenant, shard) for tenant, shard in needed]
    listed += [(score, tenant, shard) for score, _, tenant, shard in best if id(shard) not in chosen]
    return [
        Suspect(tenant, tuple(sorted(shard & wanted)), tuple(sorted(shard - wanted)), score, id(shard) in chosen)
        for score, tenant, shard in listed[:limit]
    ]


def _find_cover(
    wanted: frozenset[str], whole: list[tuple[Tenant, frozenset[str]]], limit: int
) -> list[tuple[Tenant, frozenset[str]]]:
    """Return as few tenants as possible that have all these workers; where there are too many sets, a good guess."""
    covered = frozenset[str]().union(*(shard for _, shard in whole))
    for count in range(1, limit + 1):
        if math.comb(len(whole), count) > _MAX_SETS_TRIED:
            break
        for some in combinations(whole, count):
            if covered == frozenset[str]().union(*(shard for _, shard in some)):
                return list(some)
    left = wanted
    found: list[tuple[Tenant, frozenset[str]]] = []
    while left and whole and len(found) < limit:
        best = max(whole, key=lambda one: len(one[1] & left))
        if left.isdisjoint(best[1]):
            break
        found.append(best)
        left -= best[1]
    return found
