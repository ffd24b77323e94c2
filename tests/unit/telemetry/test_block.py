"""Arrays of many series give the same results as one Bin after the other."""

import math
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.metrics import Histogram
from holdfast.telemetry import Bin, BinKey
from holdfast.telemetry.block import (
    COUNTS,
    EMPTY,
    Block,
    Histograms,
    build_blocks,
    decode_block,
    encode_block,
    sum_over_instances,
)
from holdfast.telemetry.series import ALL_OPERATIONS, SeriesTable
from tests.table import every_row
from tests.unit.telemetry.measured import BINS, BINS_BY_KEY, CART, HOME, KEYS, START, copied, key, total

SECONDS = 10.0
QUANTILES = (0.0, 0.5, 0.9, 0.99, 1.0)
HISTOGRAMS = st.builds(Histogram.of, st.lists(st.floats(0.0, 3600.0), max_size=6))


def find_zone(one: BinKey) -> BinKey:
    return msgspec.structs.replace(one, instance="")


def find_total(one: BinKey) -> BinKey:
    return msgspec.structs.replace(one, instance="", operation=ALL_OPERATIONS)


def sum_by_zone(bins: Mapping[BinKey, Bin]) -> dict[BinKey, list[Bin]]:
    """Return the bins that belong to each series over all instances."""
    found: dict[BinKey, list[Bin]] = {}
    for one, measured in bins.items():
        for summed in (find_zone(one), find_total(one)):
            found.setdefault(summed, []).append(measured)
    return found


def find_peak(bins: Sequence[Bin], seconds: float = SECONDS) -> int:
    """Return the most requests in one second. Those of a bin that does not know them are spread over all seconds."""
    known: dict[int, int] = {}
    spread = 0
    for measured in bins:
        if not measured.by_second:
            spread += measured.requests
        for at, requests in measured.by_second.items():
            known[at] = known.get(at, 0) + requests
    return math.ceil(max(known.values(), default=0) + spread / seconds)


def read(block: Block, table: SeriesTable) -> dict[BinKey, tuple[list[int], bool, Histogram, Histogram]]:
    """Return every row of a block but its peak."""
    assert block.numbers.tolist() == sorted(set(block.numbers.tolist()))
    return {
        table.key(number): (
            block.counts[row].tolist(),
            bool(block.coarse[row]),
            block.success.row(row),
            block.fault.row(row),
        )
        for row, number in enumerate(block.numbers.tolist())
    }


def read_peaks(block: Block, table: SeriesTable) -> dict[BinKey, int]:
    return {table.key(number): peak for number, peak in zip(block.numbers.tolist(), block.peaks.tolist(), strict=True)}


def assert_same_histogram(found: Histogram, expected: Histogram) -> None:
    assert (found.buckets, found.zeros, found.count) == (expected.buckets, expected.zeros, expected.count)
    limits = found.sum, found.min, found.max
    assert limits == pytest.approx((expected.sum, expected.min, expected.max), rel=1e-6)
    if found.count:
        assert found.quantiles(QUANTILES) == pytest.approx(expected.quantiles(QUANTILES), rel=1e-6)


def assert_has(block: Block, table: SeriesTable, expected: Mapping[BinKey, Bin]) -> None:
    found = read(block, table)
    assert found.keys() == expected.keys()
    for one, measured in expected.items():
        counts, is_coarse, success, fault = found[one]
        assert counts == [getattr(measured, name) for name in COUNTS]
        assert is_coarse == measured.is_coarse
        assert_same_histogram(success, measured.success_seconds)
        assert_same_histogram(fault, measured.fault_seconds)


@given(BINS_BY_KEY)
def test_blocks_have_the_measurements_by_instance_and_their_sums(bins: dict[BinKey, Bin]) -> None:
    table = SeriesTable()
    by_instance, by_zone = build_blocks(bins, table, SECONDS)
    assert_has(by_instance, table, bins)
    assert_has(by_zone, table, {one: total(found) for one, found in sum_by_zone(bins).items()})


@given(BINS_BY_KEY)
def test_peaks_of_complete_bins_are_exact(bins: dict[BinKey, Bin]) -> None:
    table = SeriesTable()
    by_instance, by_zone = build_blocks(bins, table, SECONDS)
    assert read_peaks(by_instance, table) == {one: find_peak([measured]) for one, measured in bins.items()}
    assert read_peaks(by_zone, table) == {one: find_peak(found) for one, found in sum_by_zone(bins).items()}


def test_the_peak_of_several_instances_is_that_of_their_busiest_second_together() -> None:
    table, at = SeriesTable(), int(START)
    bins = {
        key(instance="i-1"): Bin(count_2xx=30, by_second={at: 10, at + 1: 20}),
        key(instance="i-2"): Bin(count_2xx=30, by_second={at: 25, at + 2: 5}),
        key(CART, instance="i-1"): Bin(count_2xx=100),
    }
    _, by_zone = build_blocks(bins, table, SECONDS)
    assert read_peaks(by_zone, table) == {
        key(HOME, instance=""): 35,
        key(CART, instance=""): 10,
        key(ALL_OPERATIONS, instance=""): 45,
    }


@pytest.mark.parametrize(("seconds", "peak"), [(0.5, 100), (7.0, 15), (10.0, 10), (60.0, 2)])
def test_requests_of_unknown_seconds_are_spread_over_the_bin(seconds: float, peak: int) -> None:
    table = SeriesTable()
    for block in build_blocks({key(): Bin(count_2xx=60, count_5xx=40)}, table, seconds):
        assert set(block.peaks.tolist()) == {peak}


@pytest.mark.no_cover
@given(st.lists(BINS_BY_KEY, max_size=4))
def test_merged_blocks_have_the_sums_of_their_series_and_the_highest_peak(parts: list[dict[BinKey, Bin]]) -> None:
    table = SeriesTable()
    expected: dict[BinKey, list[Bin]] = {}
    for part in parts:
        for one, measured in part.items():
            expected.setdefault(one, []).append(measured)
    merged = Block.merge([build_blocks(part, table, SECONDS)[0] for part in parts])
    assert_has(merged, table, {one: total(found) for one, found in expected.items()})
    assert read_peaks(merged, table) == {
        one: max(find_peak([each]) for each in found) for one, found in expected.items()
    }


def test_no_blocks_merge_to_an_empty_one() -> None:
    assert len(Block.merge([])) == len(Block.merge([EMPTY, EMPTY])) == 0


@pytest.mark.no_cover
@given(BINS_BY_KEY, st.sets(KEYS))
def test_rows_are_taken_and_left_out_as_a_whole(bins: dict[BinKey, Bin], left_out: set[BinKey]) -> None:
    table = SeriesTable()
    block, _ = build_blocks(bins, table, SECONDS)
    numbers = np.array([table.number(one) for one in left_out], np.int32)
    kept = {one: measured for one, measured in bins.items() if one not in left_out}
    assert_has(block.without(numbers), table, kept)
    rows = np.flatnonzero(np.isin(block.numbers, numbers))
    assert_has(block.take(rows), table, {one: bins[one] for one in bins.keys() & left_out})
    peaks = read_peaks(block.without(numbers), table)
    assert peaks == {one: find_peak([measured]) for one, measured in kept.items()}


@pytest.mark.no_cover
@given(BINS_BY_KEY, BINS_BY_KEY)
def test_a_block_gets_the_higher_peaks_of_others_for_its_own_series(
    bins: dict[BinKey, Bin], others: dict[BinKey, Bin]
) -> None:
    table = SeriesTable()
    block, other = (build_blocks(each, table, SECONDS)[0] for each in (bins, others))
    raised = block.with_peaks_of(other, EMPTY)
    expected = {
        one: max(find_peak([measured]), find_peak([others[one]]) if one in others else 0)
        for one, measured in bins.items()
    }
    assert read_peaks(raised, table) == expected
    assert read_peaks(block, table) == {one: find_peak([measured]) for one, measured in bins.items()}, "not changed"
    assert_has(raised, table, bins)


@pytest.mark.no_cover
@given(BINS_BY_KEY)
def test_sums_of_stored_instances_are_exact_and_their_peak_is_a_lower_bound(bins: dict[BinKey, Bin]) -> None:
    table = SeriesTable()
    by_instance, _ = build_blocks(bins, table, SECONDS)
    summed = sum_over_instances(by_instance, table, SECONDS)
    expected = sum_by_zone(bins)
    assert_has(summed, table, {one: total(found) for one, found in expected.items()})
    for one, peak in read_peaks(summed, table).items():
        found = expected[one]
        mean = math.ceil(sum(each.requests for each in found) / SECONDS)
        assert peak == max(mean, *(find_peak([each]) for each in found))


@given(st.lists(HISTOGRAMS, max_size=6), st.data())
def test_histograms_of_many_rows_add_up_as_single_ones_do(rows: list[Histogram], data: st.DataObject) -> None:
    groups = data.draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows)))
    cut = data.draw(st.integers(0, len(rows)))
    parts = [Histograms.of(rows[:cut]), Histograms.of(rows[cut:])]
    merged = Histograms.merge(parts, np.array(groups, np.int64), 3)
    for group in range(3):
        expected = Histogram()
        for row, own in zip(rows, groups, strict=True):
            if own == group:
                expected.merge(row)
        assert_same_histogram(merged.row(group), expected)
    order = data.draw(st.permutations(range(len(rows))))
    taken = Histograms.of(rows).take(np.array(order, np.int64))
    for position, index in enumerate(order):
        assert_same_histogram(taken.row(position), rows[index])


@given(st.lists(HISTOGRAMS, max_size=6), st.data())
def test_spread_histograms_are_at_their_positions_and_empty_elsewhere(
    rows: list[Histogram], data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.sampled_from(range(len(rows))), max_size=6)) if rows else []
    size = len(chosen) + data.draw(st.integers(0, 4))
    positions = sorted(data.draw(st.permutations(range(size)))[: len(chosen)])
    found = Histograms.of(rows).spread(np.array(chosen, np.int64), np.array(positions, np.int64), size)
    assert len(found.offsets) == size + 1
    expected = dict(zip(positions, chosen, strict=True))
    for position in range(size):
        wanted = rows[expected[position]] if position in expected else Histogram()
        assert_same_histogram(found.row(position), wanted)
    merged = Histograms.merge([found], np.zeros(size, np.int64), 1).row(0)
    assert merged.count == sum(rows[row].count for row in chosen)


@pytest.mark.no_cover
@given(BINS_BY_KEY)
def test_another_process_reads_the_same_measurements(bins: dict[BinKey, Bin]) -> None:
    """Its numbers differ, so the order of the series does, too."""
    table, other = SeriesTable(), SeriesTable()
    for one in sorted(bins, key=str, reverse=True):
        other.number(one)
    for block in build_blocks(bins, table, SECONDS):
        decoded = decode_block(encode_block(block, table), "shop", other)
        assert_has(decoded, other, {one: rebuild(found) for one, found in read(block, table).items()})
        assert read_peaks(decoded, other) == read_peaks(block, table)


def rebuild(row: tuple[list[int], bool, Histogram, Histogram]) -> Bin:
    counts, is_coarse, success, fault = row
    measured = Bin(success_seconds=success, fault_seconds=fault, is_coarse=is_coarse)
    for name, count in zip(COUNTS, counts, strict=True):
        setattr(measured, name, count)
    return measured


@given(st.dictionaries(KEYS, BINS, min_size=1, max_size=3), st.data())
def test_damaged_bytes_are_reported_as_such(bins: dict[BinKey, Bin], data: st.DataObject) -> None:
    table, other = SeriesTable(), SeriesTable()
    encoded = encode_block(build_blocks(bins, table, SECONDS)[0], table)
    damaged = bytearray(encoded)
    damaged[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    # The format of zlib has a few bits that mean nothing. If only they are damaged, the content is whole.
    with suppress(zlib.error):
        if zlib.decompress(damaged) == zlib.decompress(encoded):
            damaged = bytearray()
    for each in (cut, bytes(damaged)):
        with pytest.raises(InvalidValue, match="a stored bin of workload shop cannot be read"):
            decode_block(each, "shop", other)
    assert len(other) == 0


def test_arrays_that_do_not_fit_together_are_reported_as_damaged() -> None:
    """The checksum is right, so another release has written them."""
    table = SeriesTable()
    bins = {key(instance=name): Bin(success_seconds=Histogram.of([0.1, 0.2])) for name in ("i-1", "i-2")}
    encoded = encode_block(build_blocks(bins, table, SECONDS)[0], table)
    labels, counts, success, fault = msgspec.msgpack.decode(zlib.decompress(encoded))
    integers = np.array([0, 1, 2], "<i4")

    def change(arrays: list[bytes], index: int, array: bytes) -> list[bytes]:
        return [*arrays[:index], array, *arrays[index + 1 :]]

    rows: list[tuple[str, list[object]]] = [
        ("not a block", [1, 2]),
        ("no labels", [[], counts, success, fault]),
        ("fewer labels", [labels[:1], counts, success, fault]),
        ("an unknown side", [[[*labels[0][:4], "moon"], labels[1]], counts, success, fault]),
        ("fewer arrays", [labels, counts[:2], success, fault]),
        ("half a number", [labels, change(counts, 0, counts[0][:-1]), success, fault]),
        ("fewer counts", [labels, change(counts, 0, counts[0][:-4]), success, fault]),
        ("more peaks", [labels, change(counts, 1, integers.tobytes()), success, fault]),
        ("no coarse", [labels, change(counts, 2, b""), success, fault]),
        ("fewer offsets", [labels, counts, change(success, 0, integers[:2].tobytes()), fault]),
        ("offsets from 1 on", [labels, counts, change(success, 0, (integers + 2).tobytes()), fault]),
        ("falling offsets", [labels, counts, change(success, 0, np.array([0, 9, 4], "<i4").tobytes()), fault]),
        ("offsets beyond the end", [labels, counts, change(success, 0, np.array([0, 2, 9], "<i4").tobytes()), fault]),
        ("fewer buckets", [labels, counts, change(success, 1, success[1][:-2]), fault]),
        ("fewer values", [labels, counts, change(success, 2, success[2][:-4]), fault]),
        *(
            (f"no rows in array {index}", [labels, counts, success, change(fault, index, b"")])
            for index in range(3, len(fault))
        ),
    ]

    def check(row: tuple[str, list[object]]) -> None:
        with pytest.raises(InvalidValue, match="a stored bin of workload shop cannot be read"):
            decode_block(zlib.compress(msgspec.msgpack.encode(row[1])), "shop", SeriesTable())

    every_row(rows, check, name=lambda row: row[0])
    decode_block(zlib.compress(msgspec.msgpack.encode([labels, counts, success, fault])), "shop", SeriesTable())


def test_a_count_beyond_32_bits_becomes_the_largest_one() -> None:
    table = SeriesTable()
    block, _ = build_blocks({key(): Bin(count_2xx=10**12)}, table, SECONDS)
    assert read(block, table)[key()][0][0] == 2**31 - 1
    assert Block.merge([block, block]).counts.max() == 2**31 - 1


def test_a_block_knows_its_size_in_memory() -> None:
    bins = {key(instance=f"i-{number}"): Bin(count_2xx=1, by_second={1: 1}) for number in range(1000)}
    block, _ = build_blocks(bins, SeriesTable(), SECONDS)
    assert EMPTY.nbytes < 100
    assert 50_000 < block.nbytes < 110_000


@pytest.mark.no_cover
@given(BINS_BY_KEY)
def test_building_blocks_changes_no_measurements(bins: dict[BinKey, Bin]) -> None:
    before = copied(bins)
    build_blocks(bins, SeriesTable(), SECONDS)
    assert bins == before
