"""Learn how each operation behaves in each zone, and collect evidence against zones. Pure.

A bin is learned ten minutes late, and not at all while there is evidence against its operation: a failure must not
become the new normal before it is found. In its first half hour, an operation is only learned.
"""

from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from holdfast._types import Operation, Side
from holdfast.detect import counts, latency, throughput
from holdfast.detect.counts import CountState, CountStep
from holdfast.detect.cusum import MAX_FROZEN, SUSPICIOUS, Array, Conditions, Mask, decay, find_threshold
from holdfast.detect.latency import LatencyState, LatencyStep, Scores
from holdfast.detect.measurements import BUCKETS, MIDDLES, Measurements, StreamKey, find_rows
from holdfast.detect.throughput import ThroughputState

LEARNING = 1800.0
"""Seconds in which an operation is only learned."""
SETTLING = LEARNING / 2
"""Seconds after which the baseline is good enough to measure noise against it."""
LAG = 600.0
"""Seconds after which a bin is learned."""
DEPLOY_WINDOW = 600.0
"""Seconds of evidence that are kept to find out whether it outlasts a deploy."""
INSTANCE_WINDOW = 300.0
"""Seconds of measurements by instance that are kept to find out whether a few instances cause the evidence."""
FORGET = 86_400.0
"""Seconds after which an operation without requests is forgotten."""
MIN_REFERENCE = 200.0
"""Requests from which the distribution of an operation's latencies is known."""
MINUTE = 60.0

Small: TypeAlias = NDArray[np.float32]
PackedEvidence: TypeAlias = NDArray[np.int8]
PACKED = 16.0
"""Evidence in packed form is in sixteenths, from -8 to 8. It makes the saved state a third smaller."""


class PendingBin(Struct):
    """A bin that is not learned yet."""

    values: Small
    """Requests, faults, expected slow requests, slow requests, and the three arrays of Scores."""
    suspicious: Mask
    """By stream: whether there was evidence against any zone."""
    active: Mask
    balanced: Mask
    """By zone: as in `advance`."""


class PendingMinute(Struct):
    """Latencies of a minute, by operation and bucket, that are not learned yet."""

    histograms: Small
    suspicious: Mask


class InstanceBin(Struct):
    """Measurements of a bin by instance. They are not saved: after a restart, some minutes are missing."""

    keys: tuple[StreamKey, ...]
    names: tuple[tuple[str, ...], ...]
    """The operations, and the instances of each zone."""
    requests: Array
    faults: Array
    latencies: Array
    """Requests with a known latency."""
    slow: Array
    scores: Array
    predicted: Array
    slow_predicted: Array


class StreamState(Struct):
    """Knowledge about the operations of a workload, and the evidence against its zones."""

    zones: tuple[str, ...]
    keys: tuple[StreamKey, ...]
    """The operations: the rows of all arrays."""
    is_server: Mask
    """By operation: whether it is one of the service, as the service itself measures it."""
    first_seen: Array
    last_seen: Array
    """Times by operation."""
    started_at: float
    counts: CountState
    slow: CountState
    latency: LatencyState
    throughput: ThroughputState
    usual: Array
    """By operation and zone: requests in a bin, averaged over half an hour."""
    missing: Array
    """By operation and zone: requests that are missing since the last one."""
    frozen: Array
    """By operation: seconds for which nothing was learned."""
    pending: list[PendingBin]
    minute: PendingMinute
    minute_bins: int
    minutes: list[PendingMinute]
    deploy_faults: list[PackedEvidence]
    deploy_slow: list[PackedEvidence]
    deploy_latency: list[PackedEvidence]
    """Evidence of the last bins, by rise, stream and zone."""


class StreamStep(Struct):
    """The outcome of one bin."""

    state: StreamState
    fault_step: CountStep
    slow_step: CountStep
    latency_step: LatencyStep
    predicted_requests: Array
    """By zone."""
    instances: InstanceBin
    thresholds: Array
    """By stream: the evidence that isolates."""
    is_known: Mask
    """By stream: whether it was learned long enough."""


def build_stream_state(zones: tuple[str, ...], at: float) -> StreamState:
    """Return the state without any operation."""
    return StreamState(
        zones,
        (),
        np.zeros(0, np.bool_),
        np.zeros(0),
        np.zeros(0),
        at,
        counts.build_count_state(0, len(zones)),
        counts.build_count_state(0, len(zones)),
        latency.build_latency_state(0, len(zones), BUCKETS),
        throughput.build_throughput_state(len(zones)),
        np.zeros((0, len(zones))),
        np.zeros((0, len(zones))),
        np.zeros(0),
        [],
        PendingMinute(np.zeros((0, BUCKETS), np.float32), np.zeros(1, np.bool_)),
        0,
        [],
        [],
        [],
        [],
    )


def arrange(state: StreamState, keys: Sequence[StreamKey], shared: Collection[Operation], at: float) -> StreamState:
    """Return the state with a row for each of `keys`, too, and without operations that have no requests any more.

    Operations of `shared` resources are not those of the service: the zone that has the resource has all of them.
    """

    def find_own(of: Sequence[StreamKey]) -> Mask:
        if not shared:
            return np.fromiter((key.side is Side.SERVER for key in of), np.bool_, len(of))
        return np.fromiter((key.side is Side.SERVER and key.operation not in shared for key in of), np.bool_, len(of))

    found = find_rows(state.keys, keys)
    new = [key for key, row in zip(keys, found, strict=True) if row < 0]
    last_seen = state.last_seen.copy()
    last_seen[[row for row in found if row >= 0]] = at
    kept = np.flatnonzero(last_seen > at - FORGET).tolist()
    if not new and len(kept) == len(state.keys):
        return replace(state, last_seen=last_seen, is_server=find_own(state.keys))
    rows = np.array([*kept, *[-1] * len(new)], np.intp)

    def by_operation(array: Any, axis: int = 0) -> Any:
        taken = (
            np.take(array, np.maximum(rows, 0), axis=axis)
            if array.shape[axis]
            else np.zeros((*array.shape[:axis], len(rows), *array.shape[axis + 1 :]), array.dtype)
        )
        shape = [1] * taken.ndim
        shape[axis] = len(rows)
        return np.where((rows >= 0).reshape(shape), taken, np.zeros((), array.dtype))

    def by_stream(array: Any, axis: int = 0) -> Any:
        pool = np.take(array, [array.shape[axis] - 1], axis=axis)
        operations = np.take(array, range(array.shape[axis] - 1), axis=axis)
        return np.concatenate([by_operation(operations, axis), pool], axis=axis)

    def rearrange(part: Any, operations: tuple[str, ...], streams: tuple[str, ...], rises: tuple[str, ...]) -> Any:
        changes = {name: by_operation(getattr(part, name)) for name in operations}
        changes |= {name: by_stream(getattr(part, name)) for name in streams}
        changes |= {name: by_stream(getattr(part, name), 1) for name in rises}
        return replace(part, **changes)

    def arrange_minute(minute: PendingMinute) -> PendingMinute:
        return PendingMinute(by_operation(minute.histograms), by_stream(minute.suspicious))

    return replace(
        state,
        keys=(*(state.keys[row] for row in kept), *new),
        is_server=find_own((*(state.keys[row] for row in kept), *new)),
        first_seen=np.append(state.first_seen[kept], np.full(len(new), at)),
        last_seen=np.append(last_seen[kept], np.full(len(new), at)),
        counts=rearrange(state.counts, *counts.AXES),
        slow=rearrange(state.slow, *counts.AXES),
        latency=rearrange(state.latency, *latency.AXES),
        usual=by_operation(state.usual),
        missing=by_operation(state.missing),
        frozen=by_operation(state.frozen),
        pending=[
            replace(each, values=by_operation(each.values, 1), suspicious=by_stream(each.suspicious))
            for each in state.pending
        ],
        minute=arrange_minute(state.minute),
        minutes=[arrange_minute(each) for each in state.minutes],
        deploy_faults=[by_stream(each, 1) for each in state.deploy_faults],
        deploy_slow=[by_stream(each, 1) for each in state.deploy_slow],
        deploy_latency=[by_stream(each, 1) for each in state.deploy_latency],
    )


def arrange_instances(bins: Sequence[InstanceBin], keys: tuple[StreamKey, ...]) -> list[InstanceBin]:
    """Return the measurements by instance with the rows of `keys`."""
    return [each if each.keys == keys else _arrange_instance_bin(each, keys) for each in bins]


def _arrange_instance_bin(found: InstanceBin, keys: tuple[StreamKey, ...]) -> InstanceBin:
    known = {key: row for row, key in enumerate(found.keys)}
    rows = [known.get(key, len(known)) for key in keys]  # a row of zeros follows the known ones

    def by_operation(array: Array) -> Array:
        return np.concatenate([array, np.zeros((1, *array.shape[1:]))])[rows]

    def by_stream(array: Array) -> Array:
        return np.concatenate([by_operation(array[:-1]), array[-1:]])

    changes: dict[str, Any] = {
        name: by_operation(getattr(found, name)) for name in ("requests", "faults", "latencies", "slow", "scores")
    }
    changes |= {name: by_stream(getattr(found, name)) for name in ("predicted", "slow_predicted")}
    return replace(found, keys=keys, **changes)


def shift_times(state: StreamState, seconds: float) -> StreamState:
    """Return the state with all times later by `seconds`: for a clock that was set."""
    return replace(
        state,
        first_seen=state.first_seen + seconds,
        last_seen=state.last_seen + seconds,
        started_at=state.started_at + seconds,
    )


def clear_evidence(state: StreamState, zone: int | None) -> StreamState:
    """Return the state without the evidence against a zone, or all zones: for the time after a verdict has closed."""
    zones = slice(None) if zone is None else zone

    def clear(array: Any) -> Any:
        found = array.copy()
        found[..., zones] = 0
        return found

    def clear_part(part: Any, names: tuple[str, ...]) -> Any:
        return replace(part, **{name: clear(getattr(part, name)) for name in names})

    return replace(
        state,
        counts=clear_part(state.counts, counts.AXES[2]),
        slow=clear_part(state.slow, counts.AXES[2]),
        latency=clear_part(state.latency, latency.AXES[2]),
        throughput=clear_part(state.throughput, ("evidence", "rising_bins")),
        deploy_faults=[clear(each) for each in state.deploy_faults],
        deploy_slow=[clear(each) for each in state.deploy_slow],
        deploy_latency=[clear(each) for each in state.deploy_latency],
    )


def keep_only_baseline(state: StreamState) -> StreamState:
    """Return the state with everything that was learned, but without evidence: for the time after a gap."""
    recent = (*counts.AXES[1], *counts.AXES[2])
    return replace(
        state,
        counts=_clear(state.counts, recent),
        slow=_clear(state.slow, recent),
        latency=_clear(state.latency, latency.RECENT_FIELDS),
        throughput=_clear(state.throughput, throughput.RECENT_FIELDS),
        pending=[],
        minutes=[],
        deploy_faults=[],
        deploy_slow=[],
        deploy_latency=[],
    )


def advance(
    state: StreamState,
    measurements: Measurements,
    at: float,
    seconds: float,
    *,
    active: Mask,
    balanced: Mask,
    false_isolations: float,
    is_learning: bool,
) -> StreamStep:
    """Add one bin, whose end is `at`.

    Only zones that are `active` are evaluated, and only the traffic of those that are `balanced`, which have their
    usual share. Without `is_learning` nothing is learned, as long as a verdict is open.
    """
    state = _learn(state, at, seconds, may_learn=is_learning)
    operations, zones, _ = measurements.shape
    is_new = at - state.first_seen < LEARNING
    requests, faults = measurements.requests.sum(axis=2), measurements.faults.sum(axis=2)
    by_zone = requests[state.is_server].sum(axis=0)
    bin_ = _measure_latencies(state, measurements)
    scores = Scores(bin_.latencies.sum(axis=2), bin_.scores.sum(axis=2), bin_.logs)
    slow_expected = scores.counts * bin_.tails[:, None]
    slow_counts = bin_.slow.sum(axis=2)
    values = np.array([requests, faults, slow_expected, slow_counts, *scores])
    if is_learning and is_new.any():
        state = _learn_bin(state, values, is_new[:, None] & active, seconds)
        reference = latency.learn_reference(state.latency, bin_.histograms, is_new, seconds)
        state = replace(state, latency=reference)
    if is_learning and at - state.started_at < LEARNING:
        is_usual = np.ones(zones, np.bool_)
        shares = throughput.learn_shares(state.throughput, by_zone, is_usual, active & balanced, seconds)
        state = replace(state, throughput=shares)
    known = int((~is_new).sum())
    threshold = find_threshold(known, zones, false_isolations, seconds)
    pool = find_threshold(1, zones, false_isolations, seconds)
    thresholds = np.append(np.full(operations, threshold), pool)
    in_pool = state.is_server & ~is_new
    conditions = Conditions(seconds, thresholds, active, in_pool, at - state.first_seen >= SETTLING)
    fault_step = counts.advance_counts(state.counts, requests, faults, conditions, has_baseline=False)
    slow_step = counts.advance_counts(state.slow, slow_expected, slow_counts, conditions, has_baseline=True)
    latency_step = latency.advance_latency(state.latency, scores, conditions)
    throughput_step = throughput.advance_throughput(state.throughput, by_zone, active & balanced, pool, seconds)
    is_known = np.append(~is_new, bool(in_pool.any()))
    kept, keep = round(DEPLOY_WINDOW / seconds), decay(throughput.SHARE_MEMORY, seconds)
    state = replace(
        state,
        counts=_forget_new(fault_step.state, is_known),
        slow=_forget_new(slow_step.state, is_known),
        latency=_forget_new(latency_step.state, is_known),
        throughput=throughput_step.state,
        usual=np.where(active, state.usual * keep + requests * (1 - keep), state.usual),
        missing=np.where((requests > 0) | ~active, 0.0, state.missing + state.usual),
        deploy_faults=[*state.deploy_faults, pack_evidence(fault_step.deploy_evidence)][-kept:],
        deploy_slow=[*state.deploy_slow, pack_evidence(slow_step.deploy_evidence)][-kept:],
        deploy_latency=[*state.deploy_latency, pack_evidence(latency_step.deploy_evidence)][-kept:],
    )
    suspicious = find_suspicious(state)
    waiting = PendingBin(_shorten(values), suspicious, active, balanced)
    minute = PendingMinute(
        state.minute.histograms + bin_.histograms.astype(np.float32), state.minute.suspicious | suspicious
    )
    minute_bins = state.minute_bins + 1
    minutes = state.minutes
    if minute_bins * seconds >= MINUTE:
        minutes = [*minutes, minute]
        minute, minute_bins = PendingMinute(np.zeros_like(minute.histograms), np.zeros_like(suspicious)), 0
    state = replace(state, pending=[*state.pending, waiting], minute=minute, minute_bins=minute_bins, minutes=minutes)
    by_instance = InstanceBin(
        state.keys,
        measurements.instances,
        measurements.requests,
        measurements.faults,
        bin_.latencies,
        bin_.slow,
        bin_.scores,
        fault_step.predicted,
        slow_step.predicted,
    )
    return StreamStep(
        state, fault_step, slow_step, latency_step, throughput_step.predicted, by_instance, thresholds, is_known
    )


def pack_evidence(evidence: Array) -> PackedEvidence:
    """Return evidence in packed form."""
    return np.clip(np.rint(evidence * PACKED), -128, 127).astype(np.int8)


def _shorten(values: Array) -> Small:
    """Return numbers with 12 significant bits: four digits are enough to learn from, and take half of the space."""
    bits = values.astype(np.float32).view(np.int32)
    return (bits & ~np.int32(0xFFF)).view(np.float32)


def find_suspicious(state: StreamState) -> Mask:
    """Return, by stream, whether there is evidence against any zone."""
    faults, slow = counts.get_evidence(state.counts), counts.get_evidence(state.slow)
    highest = np.maximum(np.maximum(faults, slow), latency.get_evidence(state.latency)).max(axis=1)
    return np.asarray(highest > SUSPICIOUS)


class _Latencies(Struct):
    """The latencies of one bin, compared with the reference."""

    latencies: Array
    scores: Array
    slow: Array
    """By operation, zone and instance: requests, sums of scores, and slow requests."""
    logs: Array
    """By operation and zone: sums of logarithms."""
    histograms: Array
    """By operation and bucket."""
    tails: Array
    """By operation: the share of requests that is usually slow."""


def _measure_latencies(state: StreamState, measurements: Measurements) -> _Latencies:
    operations, zones, instances = measurements.shape
    reference = state.latency.reference
    cumulative = np.cumsum(reference, axis=1)
    weights = latency.build_weights(reference, cumulative)
    last, tails = latency.find_tails(cumulative)
    is_known = cumulative[:, -1] >= MIN_REFERENCE
    cells, buckets, values = measurements.cells, measurements.buckets, measurements.values
    rows = cells // (zones * instances)
    shape, size = measurements.shape, operations * zones * instances

    def count(positions: Any, weighted: Array, length: int) -> Array:
        return np.bincount(positions, weighted, length).astype(np.float64, copy=False)

    scored = values * is_known[rows]
    return _Latencies(
        count(cells, values, size).reshape(shape),
        count(cells, scored * weights[rows, buckets], size).reshape(shape),
        count(cells, scored * (buckets > last[rows]), size).reshape(shape),
        count(cells // instances, values * MIDDLES[buckets], operations * zones).reshape(operations, zones),
        count(rows * BUCKETS + buckets, values, operations * BUCKETS).reshape(operations, BUCKETS),
        np.where(is_known, tails, 0.0),
    )


def _learn(state: StreamState, at: float, seconds: float, *, may_learn: bool) -> StreamState:
    """Learn the bin that is old enough by now, except for operations that were new then: they have learned it."""
    pending, minutes = state.pending, state.minutes
    now = find_suspicious(state)
    was_known = at - LAG - state.first_seen >= LEARNING
    if len(pending) >= round(LAG / seconds):
        bin_, pending = pending[0], pending[1:]
        suspicious = bin_.suspicious | now
        is_held = suspicious[:-1] | suspicious[-1:] | np.full(1, not may_learn)
        frozen = np.where(is_held, state.frozen + seconds, 0.0)
        learned = (~is_held | (frozen > MAX_FROZEN)) & was_known
        state = replace(state, frozen=frozen, pending=pending)
        values = bin_.values.astype(np.float64)
        state = _learn_bin(state, values, learned[:, None] & bin_.active, seconds)
        is_usual = throughput.get_evidence(state.throughput) < SUSPICIOUS
        by_zone = values[0, state.is_server].sum(axis=0)
        balanced = bin_.active & bin_.balanced
        shares = throughput.learn_shares(state.throughput, by_zone, is_usual, balanced, seconds)
        state = replace(state, throughput=shares)
    if len(minutes) > LAG / MINUTE:
        minute, minutes = minutes[0], minutes[1:]
        suspicious = minute.suspicious | now
        is_held = suspicious[:-1] | suspicious[-1:] | np.full(1, not may_learn)
        learned = (~is_held | (state.frozen > MAX_FROZEN)) & was_known
        reference = latency.learn_reference(state.latency, minute.histograms.astype(np.float64), learned, MINUTE)
        state = replace(state, latency=reference, minutes=minutes)
    return state


def _learn_bin(state: StreamState, values: Array, taken: Mask, seconds: float) -> StreamState:
    """Learn the values of a PendingBin, for each operation and zone that is `taken`."""
    requests, faults, slow_expected, slow_counts, *scores = values
    return replace(
        state,
        counts=counts.learn_counts(state.counts, requests, faults, taken, seconds, has_baseline=False),
        slow=counts.learn_counts(state.slow, slow_expected, slow_counts, taken, seconds, has_baseline=True),
        latency=latency.learn_scores(state.latency, Scores(*scores), taken, seconds),
    )


def _forget_new(part: Any, is_known: Mask) -> Any:
    """Return a state without the evidence of streams that are not known well enough."""
    names = [name for name in ("evidence", "against_others", "against_past") if hasattr(part, name)]
    return replace(part, **{name: getattr(part, name) * is_known[:, None] for name in names})


def _clear(part: Any, names: tuple[str, ...]) -> Any:
    """Return a state with zeros in the arrays that have these names."""
    return replace(part, **{name: np.zeros_like(getattr(part, name)) for name in names})
