"""What shards cost beside those of others, and what they promise: counted exactly, not sampled.

Single: from a tenant to its workers, one after the other, 4 of 2048. The Kubernetes dealer takes a hash of the name; a
design takes the tenant's number, which a registry keeps. Batch: the same with NumPy, a million at once. Search: shards
that share at most two, by search, as Infima does and as `SearchedSharding` does. Registry: names to numbers on SQLite,
in batches, beside a loop by hand over the same driver and table.

Everything about overlap is counted over all pairs of tenants, in a process of its own whose memory is looked at.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # finds `benchmarks`, and no file of it instead of a standard module

import apsw
import numpy as np

from benchmarks._harness import Benchmark, Contender, Goal, Results, Work, main, paired_ratio
from benchmarks._shard_peers import Dealer, Ring, SimpleSignature, StatefulSearch
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.shards import DesignedSharding, Fleet, HashedSharding, SearchedSharding, Slot, TenantRegistry
from holdfast.shards.batch import BatchSharding, SlotTable
from holdfast.shards.report import count_overlaps
from holdfast.shards.stores import SqlShardStore
from holdfast.shards.stores.sql import MIGRATIONS

KEY = b"a key of thirty-two bytes, or so"
WORKERS, SIZE = 2048, 4
NAMES = [f"tenant-{number}".encode() for number in range(20_000)]
TOGETHER = 1000
# Shares of tenants that have a neighbour with three of four workers in common, when shards are drawn by chance: what is
# known of 1,000,000 tenants on 2048 workers, and of 10,000 on 128 and on 100, without and with zones.
KNOWN = {"2048": (0.0112, 0.0294), "128": (0.36, 0.70), "100": (0.62, 0.91)}


def flat(count: int) -> Fleet:
    return Fleet.from_workers(f"worker-{number}" for number in range(count))


def zoned(zones: int, each: int) -> Fleet:
    return Fleet.from_groups({f"az{zone}": [f"az{zone}-{number}" for number in range(each)] for zone in range(zones)})


QUADRUPLES = DesignedSharding(flat(WORKERS), SIZE, 2, key=KEY)
PARITY = DesignedSharding(zoned(SIZE, 512), SIZE, 2, key=KEY)
POLYNOMIALS = DesignedSharding(zoned(SIZE, 512), SIZE, 1, key=KEY)
DEALER = Dealer(WORKERS, SIZE)


def one_by_one(shard: Callable[[int], object], count: int) -> int:
    for number in range(count):
        shard(number)
    return count


def by_name(shard: Callable[[bytes], object], count: int) -> int:
    for number in range(count):
        shard(NAMES[number % len(NAMES)])
    return count


def deal_name(name: bytes) -> tuple[int, ...]:
    return DEALER.deal(DEALER.hash_value(b"schema", name))


def hashes(count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.random.default_rng(1).integers(0, 2**64, count, dtype=np.uint64)


@contextmanager
def dealt(count: int) -> Iterator[Work]:
    values = hashes(count)
    yield lambda _: len(DEALER.deal_batch(values))


@contextmanager
def batched(sharding: DesignedSharding, count: int) -> Iterator[Work]:
    batch, numbers = BatchSharding(sharding), np.arange(count)
    yield lambda _: len(batch.slot_indexes(numbers))


@contextmanager
def searched() -> Iterator[Work]:
    found = SearchedSharding(flat(WORKERS), SIZE, 2, key=KEY)
    yield partial(by_name, found.assign)


@contextmanager
def infima_searched() -> Iterator[Work]:
    search = StatefulSearch({("all",): range(WORKERS)}, SIZE, 2, seed=1)
    yield lambda count: one_by_one(lambda _: search.shard(), count)


@contextmanager
def bare_table() -> Iterator[tuple[apsw.Connection, Callable[[Sequence[bytes]], None]]]:
    with tempfile.TemporaryDirectory() as folder:
        connection = apsw.Connection(f"{folder}/bare.sqlite")
        for statement in ("pragma journal_mode = wal", "pragma synchronous = full", *MIGRATIONS[0].statements):
            connection.execute(statement).fetchall()
        following = 0

        def assign(names: Sequence[bytes]) -> None:
            nonlocal following
            connection.execute("begin immediate")
            missing = [name for name in names if not connection.execute(FIND, ("r", name)).fetchall()]
            rows = [("r", name, following + number) for number, name in enumerate(missing)]
            connection.executemany(INSERT, rows)
            following += len(rows)
            connection.execute("commit")

        yield connection, assign
        connection.close()


FIND = "select number from holdfast_shard_tenant where registry = $1 and tenant = $2"
INSERT = "insert into holdfast_shard_tenant (registry, tenant, number) values ($1, $2, $3)"


def chunks(count: int, prefix: str = "tenant") -> Iterator[list[bytes]]:
    for start in range(0, count, TOGETHER):
        yield [f"{prefix}-{number}".encode() for number in range(start, min(count, start + TOGETHER))]


@contextmanager
def bare_assigning() -> Iterator[Work]:
    with bare_table() as (_, assign):

        def work(count: int) -> int:
            for names in chunks(count):
                assign(names)
            return count

        yield work


@contextmanager
def bare_finding(count: int) -> Iterator[Work]:
    with bare_table() as (connection, assign):
        for names in chunks(count):
            assign(names)

        def work(wanted: int) -> int:
            for names in chunks(wanted):
                connection.execute("begin")
                found = [connection.execute(FIND, ("r", name)).fetchall()[0][0] for name in names]
                connection.execute("commit")
                assert len(found) == len(names)
            return wanted

        yield work


@contextmanager
def registry(known: int) -> Iterator[Work]:
    with tempfile.TemporaryDirectory() as folder, SqliteDatabase(f"{folder}/holdfast.sqlite") as database:
        numbers = TenantRegistry(SqlShardStore(database, "r"), QUADRUPLES.capacity).assign_many
        for names in chunks(known):
            numbers(names)

        def work(count: int) -> int:
            for names in chunks(count):
                numbers(names)
            return count

        yield work


def counted(tenants: int, sizes: Sequence[int], overlap: int) -> dict[str, float]:
    """The exact count of all pairs that share more than promised, in another process."""
    code = (
        "import json, sys, time; sys.path.insert(0, sys.argv[1]); from benchmarks.shards import count_here; "
        "print(json.dumps(count_here(*json.loads(sys.argv[2]))))"
    )
    words = [sys.executable, "-c", code, sys.path[0], json.dumps([tenants, sizes, overlap])]
    found: dict[str, float] = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    return found


def count_here(tenants: int, sizes: Sequence[int], overlap: int) -> dict[str, float]:
    start = time.perf_counter()
    fleet = flat(sizes[0]) if len(sizes) == 1 else zoned(len(sizes), sizes[0])
    table = BatchSharding(DesignedSharding(fleet, SIZE, overlap, key=KEY)).slot_indexes(np.arange(tenants))
    found = count_overlaps(table)
    return {
        "beyond": sum(found.pairs_by_shared_workers[overlap + 1 :]),
        "pairs": sum(found.pairs_by_shared_workers),
        "seconds": time.perf_counter() - start,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def by_chance(workers: int, tenants: int) -> tuple[float, float]:
    """The share of tenants with a neighbour that shares three of four, drawn from all workers, and one of each zone."""
    values = hashes(tenants)
    each = workers // SIZE
    zonal = np.stack([zone * each + (values >> np.uint64(16 * zone)) % np.uint64(each) for zone in range(SIZE)], axis=1)
    everywhere = Dealer(workers, SIZE).deal_batch(values)
    return count_overlaps(everywhere).fraction_sharing(3), count_overlaps(zonal.astype(np.int64)).fraction_sharing(3)


def moved(before: DesignedSharding, after: DesignedSharding, tenants: int) -> float:
    """The share of tenants that have other workers, exactly."""
    numbers = np.arange(tenants)
    old, new = (_workers(one, BatchSharding(one).slot_indexes(numbers)) for one in (before, after))
    return float((np.sort(old, axis=1) != np.sort(new, axis=1)).any(axis=1).mean())


def _workers(sharding: DesignedSharding, table: SlotTable) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    numbers = np.array([hash(slot.worker) for slot in sharding.fleet.slots], dtype=np.int64)
    return numbers[table]


def changes(tenants: int) -> Iterator[tuple[str, float]]:
    fleet = QUADRUPLES.fleet
    made = partial(DesignedSharding, size=SIZE, overlap=2, key=KEY, design_slot_count=WORKERS)
    slot_shared = made(fleet.share_slot("worker-7", by="worker-2048"))
    spare = made(fleet.add(Slot(worker="worker-2048")))
    substituted = made(spare.fleet.replace_with_spare("worker-7", "worker-2048"))
    yield "one worker more", moved(QUADRUPLES, slot_shared, tenants)
    yield "one worker less", moved(spare, substituted, tenants)
    yield (
        "one worker less (of a shared slot)",
        moved(slot_shared, made(slot_shared.fleet.drain("worker-2048")), tenants),
    )
    twins = [f"twin-{number}" for number in range(WORKERS)]
    yield "doubled, quadruples", moved(QUADRUPLES, QUADRUPLES.double(twins), tenants)
    yield "doubled, parity", moved(PARITY, PARITY.double(twins), tenants)


def growth(tenants: int) -> float:
    """Bytes that a design has more after so many tenants."""
    QUADRUPLES.slot_indexes(0)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        one_by_one(QUADRUPLES.slot_indexes, tenants)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return float(after - before)


def build(quick: bool) -> Benchmark:
    single, kept = (5_000, 2_000) if quick else (50_000, 20_000)
    many = 1_000_000
    large = 100_000 if quick else 1_000_000
    ring = Ring({"": range(WORKERS)}, SIZE, seed=1)
    signature = SimpleSignature([range(WORKERS)], SIZE, seed=1)
    hashed = HashedSharding(flat(WORKERS), SIZE, key=KEY)
    hand = [DEALER.hash_value(b"schema", name) for name in NAMES]

    def goals(results: Results) -> Sequence[Goal]:
        found = []
        for name in ("quadruples", "parity", "polynomials"):
            rates, base = results.rates(f"{name}, single"), results.rates("dealer, single")
            found.append(
                Goal(f"{name} against the dealer from a name, single", paired_ratio(rates, base), 1.0, "higher")
            )
            known = paired_ratio(rates, results.rates("dealer, hash known"))
            print(f"{name}: {known:.2f} x the dealer that is handed the hash of the name")
            rates, base = results.rates(f"{name}, batch"), results.rates("dealer, batch")
            found.append(Goal(f"{name} against the dealer, batch", paired_ratio(rates, base), 0.5, "higher"))
        found.append(Goal("bytes that a design grows by 20,000 tenants", growth(20_000), 4096, "lower"))
        for tenants, sizes, overlap in (
            (large, [WORKERS], 2),
            (large, [512] * SIZE, 2),
            (10_000, [128], 2),
            (10_000, [25] * SIZE, 2),
        ):
            result = counted(tenants, sizes, overlap)
            what = f"{tenants:,} on {'x'.join(map(str, sizes[:1] if len(sizes) == 1 else [len(sizes), sizes[0]]))}"
            print(f"{what}: {int(result['pairs']):,} pairs counted")
            found.append(Goal(f"{what}: pairs above the bound", result["beyond"], 0, "lower"))
            found.append(Goal(f"{what}: seconds", result["seconds"], 60, "lower"))
            found.append(Goal(f"{what}: megabytes", result["megabytes"], 2048, "lower"))
        print(f"{'share with a neighbour >= 3 of 4':<34} {'by chance':>10} {'in zones':>10} {'designed':>10}")
        for workers, tenants in ((2048, large), (128, 10_000), (100, 10_000)):
            chance, zones = by_chance(workers, tenants)
            print(f"{f'{tenants:,} on {workers}':<34} {chance:>10.2%} {zones:>10.2%} {0:>10}")
            if tenants == 10_000 or not quick:
                apart = max(
                    abs(one / known - 1) for one, known in zip((chance, zones), KNOWN[str(workers)], strict=True)
                )
                found.append(
                    Goal(f"{tenants:,} on {workers}: by chance, apart from what is known", apart, 0.05, "lower")
                )
        for what, share in changes(large):
            found.append(Goal(f"{what}: share that moves", share, 0.0 if "doubled" in what else 0.0025, "lower"))
        for what in ("look-ups", "new tenants"):
            rates, base = results.rates(f"registry, {what}"), results.rates(f"bare loop, {what}")
            found.append(Goal(f"registry against a bare loop, {what}", paired_ratio(rates, base), 0.5, "higher"))
        return found

    return Benchmark(
        contenders=[
            Contender.plain("dealer, single", partial(by_name, deal_name), single),
            Contender.plain(
                "dealer, hash known",
                lambda count: one_by_one(lambda n: DEALER.deal(hand[n % len(hand)]), count),
                single,
            ),
            Contender.plain("quadruples, single", partial(one_by_one, QUADRUPLES.slot_indexes), single),
            Contender.plain("parity, single", partial(one_by_one, PARITY.slot_indexes), single),
            Contender.plain("polynomials, single", partial(one_by_one, POLYNOMIALS.slot_indexes), single),
            Contender.plain("ring, single", partial(by_name, ring.shard), single // 5),
            Contender.plain("signature shuffle, single", partial(by_name, signature.shard), max(5, single // 500)),
            Contender.plain("rendezvous, single", partial(by_name, hashed.shard), max(5, single // 500)),
            Contender("dealer, batch", partial(dealt, many), many),
            Contender("quadruples, batch", partial(batched, QUADRUPLES, many), many),
            Contender("parity, batch", partial(batched, PARITY, many), many),
            Contender("polynomials, batch", partial(batched, POLYNOMIALS, min(many, POLYNOMIALS.capacity)), many),
            Contender("infima search", infima_searched, single // 10),
            Contender("searched", searched, single // 10),
            Contender("bare loop, look-ups", partial(bare_finding, kept), kept),
            Contender("registry, look-ups", partial(registry, kept), kept),
            Contender("bare loop, new tenants", bare_assigning, kept),
            Contender("registry, new tenants", partial(registry, 0), kept),
        ],
        goals=goals,
        rounds=3 if quick else 7,
        base="dealer, single",
    )


if __name__ == "__main__":
    sys.exit(main("shards", build))
