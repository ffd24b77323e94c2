"""The tenants that may cause workers to fail, found by comparing their shards with the failing workers. Pure."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import combinations
from typing import Generic, NamedTuple, TypeVar

from holdfast._errors import InvalidValue

Tenant = TypeVar("Tenant")
_MAX_SETS_TRIED = 20_000
"""Maximum number of sets of tenants that are tried: tens of milliseconds. Four harmful tenants rarely give more than a
dozen candidates."""


@dataclass(frozen=True, slots=True)
class Suspect(Generic[Tenant]):
    """A tenant with failing workers."""

    tenant: Tenant
    failing: tuple[str, ...]
    healthy: tuple[str, ...]
    """Its workers that do not fail. A poison request of this tenant would have reached them, too."""
    score: float
    """Its failing workers, as a fraction of all workers that fail or are its own: 1 if exactly its workers fail."""
    is_likely: bool
    """Whether it is in the smallest set of tenants that explains the failures (see `find_suspects`): check it first."""


class _Candidate(NamedTuple, Generic[Tenant]):
    number: int
    tenant: Tenant
    workers: frozenset[str]
    score: float


def find_suspects(
    failing: Collection[str], shards: Iterable[tuple[Tenant, Collection[str]]], *, limit: int = 10
) -> list[Suspect[Tenant]]:
    """Return up to `limit` tenants whose workers match the failing workers best, best first, reading all shards once.

    A tenant can explain failing workers if all its own workers fail. The smallest set of such tenants that together
    explain as many failing workers as possible comes first: several tenants may be harmful at the same time.
    """
    if limit < 1:
        raise InvalidValue(f"{limit} suspects: expected 1 or more")
    wanted = frozenset(failing)
    fully_failing: list[_Candidate[Tenant]] = []
    ranked: list[_Candidate[Tenant]] = []
    for number, (tenant, workers) in enumerate(shards):
        if wanted.isdisjoint(workers):
            continue
        shard = frozenset(workers)
        candidate = _Candidate(number, tenant, shard, len(shard & wanted) / len(shard | wanted))
        if shard <= wanted:
            fully_failing.append(candidate)
        ranked.append(candidate)
        if len(ranked) > 1000 + 2 * limit:
            ranked = _select_best(ranked, limit)
    minimal = _find_minimal_set(wanted, fully_failing, limit)
    chosen = {candidate.number for candidate in minimal}
    rest = (candidate for candidate in _select_best(ranked, limit) if candidate.number not in chosen)
    return [
        Suspect(tenant, tuple(sorted(shard & wanted)), tuple(sorted(shard - wanted)), score, number in chosen)
        for number, tenant, shard, score in [*minimal, *rest][:limit]
    ]


def _select_best(candidates: list[_Candidate[Tenant]], limit: int) -> list[_Candidate[Tenant]]:
    return nsmallest(limit, candidates, key=lambda candidate: (-candidate.score, candidate.number))


def _find_minimal_set(
    wanted: frozenset[str], candidates: Sequence[_Candidate[Tenant]], limit: int
) -> list[_Candidate[Tenant]]:
    """Return the smallest set of candidates that together have the workers of all candidates.

    If there are too many sets to try, return an approximation.
    """
    covered = frozenset[str]().union(*(candidate.workers for candidate in candidates))
    for count in range(1, limit + 1):
        if math.comb(len(candidates), count) > _MAX_SETS_TRIED:
            break
        for some in combinations(candidates, count):
            if covered == frozenset[str]().union(*(candidate.workers for candidate in some)):
                return list(some)
    left = wanted
    found: list[_Candidate[Tenant]] = []
    while left and candidates and len(found) < limit:
        best = max(candidates, key=lambda candidate: len(candidate.workers & left))
        if left.isdisjoint(best.workers):
            break
        found.append(best)
        left -= best.workers
    return found
