"""How a queue treats its tenants: what cannot be right is named."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import EngineMismatch, InvalidValue
from holdfast.queue.policy import (
    Limits,
    OverMaxRate,
    QueuePolicy,
    decode_limits,
    decode_policy,
    format_differences,
    list_differences,
)
from tests.table import rows

NEVER_A_NUMBER = [math.nan, math.inf, -math.inf, "5", True]


def policy(**options: Any) -> QueuePolicy:
    return QueuePolicy(**options)


@rows("name", ["spill_rate", "spill_burst", "max_rate", "max_burst", "run_rate", "run_burst"])
@rows("value", [0, -1.0, 1e-9, 1e15, *NEVER_A_NUMBER])
def test_a_rate_that_cannot_be_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidValue, match=rf"limit {name} .*{value!r}: expected a number from .* or none"):
        Limits(**{name: value})


@rows("name", ["concurrency", "max_waiting"])
@rows("value", [0, -1, 1.5, 2.0, 1 << 50, *NEVER_A_NUMBER])
def test_a_count_that_cannot_be_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidValue, match=rf"limit {name} .*{value!r}: expected a whole number from 1 to .* or none"):
        Limits(**{name: value})


def test_what_becomes_of_excess_is_one_of_two() -> None:
    assert Limits(over_max_rate="delay").over_max_rate is OverMaxRate.DELAY  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="limit over_max_rate 'drop': expected refuse or delay"):
        Limits(over_max_rate="drop")  # type: ignore[arg-type]


@pytest.mark.parametrize("limits", [{"spill_rate": 1}, None, 5.0])
def test_limits_are_limits(limits: Any) -> None:
    with pytest.raises(InvalidValue, match=f"queue limits of type {type(limits).__name__}: expected Limits"):
        policy(limits=limits)


BAD = {
    "lanes": [0, -1, 4097, 1.5],
    "lanes_per_tenant": [-1, 65, 129, 2.0],
    "spill_above": [-1, 0.5],
    "max_waiting": [0, -5, 1.5],
    "rate_under_backpressure": [0, -1.0, 1e13],
    "fresh_for": [-1.0, 1e9],
    "backlog_share": [-0.1, 0.6],
    "low_priority_share": [-0.1, 0.6],
    "spill_share": [-0.1, 0.6],
    "ttl": [0, -1.0, 1e9],
    "max_attempts": [0, 1001, 1.5],
    "lease": [0, 0.01, 50_000],
    "dedupe_for": [-1.0, 1e9],
}
OPTIONAL = {"spill_above", "max_waiting", "ttl"}


@rows("name", BAD)
def test_what_a_queue_cannot_do_is_named(name: str) -> None:
    for value in [*BAD[name], *NEVER_A_NUMBER]:
        with pytest.raises(InvalidValue, match=rf"queue {name} .*{value!r}: expected"):
            policy(**{name: value})


@rows("name", BAD)
def test_what_may_be_left_out_is_known(name: str) -> None:
    if name in OPTIONAL:
        assert getattr(policy(**{name: None}), name) is None
    else:
        with pytest.raises(InvalidValue, match=f"queue {name} None: expected"):
            policy(**{name: None})


def test_every_number_of_a_policy_is_checked() -> None:
    assert {*BAD, "limits"} == {*QueuePolicy.__struct_fields__}


def test_a_hand_is_dealt_from_the_lanes_there_are() -> None:
    assert QueuePolicy(lanes=4, lanes_per_tenant=4).lanes_per_tenant == 4
    with pytest.raises(InvalidValue, match="lanes_per_tenant 4: expected at most 3, the number of lanes"):
        QueuePolicy(lanes=3, lanes_per_tenant=4)


def test_shares_leave_something_for_the_fresh_and_urgent() -> None:
    assert QueuePolicy(backlog_share=0.3, low_priority_share=0.3, spill_share=0.3).backlog_share == 0.3
    with pytest.raises(
        InvalidValue, match=r"backlog_share, low_priority_share and spill_share 1\.1 together: expected at most 0\.9"
    ):
        QueuePolicy(backlog_share=0.5, low_priority_share=0.5, spill_share=0.1)


def test_a_burst_that_is_not_set_follows_from_its_rate() -> None:
    """Ten seconds of what is sent, a tenth of a second of what is handed out, and at least one."""
    limits = Limits(spill_rate=5.0, max_rate=7.0, run_rate=50.0)
    assert limits.bucket("spill_rate") == (5.0, 50.0)
    assert limits.bucket("max_rate") == (7.0, 70.0)
    assert limits.bucket("run_rate") == (50.0, 5.0)
    assert Limits(run_rate=0.5).bucket("run_rate") == (0.5, 1.0)


def test_a_burst_that_is_set_is_its_own() -> None:
    limits = Limits(spill_rate=5.0, spill_burst=1.0, max_rate=5.0, max_burst=2.0, run_rate=5.0, run_burst=3.0)
    buckets = [limits.bucket(name) for name in ("spill_rate", "max_rate", "run_rate")]
    assert buckets == [(5.0, 1.0), (5.0, 2.0), (5.0, 3.0)]
    assert Limits(spill_burst=5.0).bucket("spill_rate") is None


@given(
    st.builds(
        QueuePolicy,
        lanes=st.integers(64, 4096),
        lanes_per_tenant=st.integers(0, 64),
        ttl=st.none() | st.floats(0.01, 1000),
        limits=st.builds(
            Limits, spill_rate=st.none() | st.floats(0.1, 100), over_max_rate=st.sampled_from(OverMaxRate)
        ),
    )
)
def test_a_policy_is_kept_as_it_is(kept: QueuePolicy) -> None:
    """Every store keeps it as JSON."""
    assert msgspec.json.decode(msgspec.json.encode(kept), type=QueuePolicy) == kept


def test_what_is_not_in_a_policy_is_told() -> None:
    with pytest.raises(msgspec.ValidationError, match="lane_count"):
        msgspec.json.decode(b'{"lane_count": 5}', type=QueuePolicy)


class TestKept:
    """What is in a store may have been written by another release."""

    def test_it_is_what_was_kept(self) -> None:
        kept = QueuePolicy(
            lanes=16, lanes_per_tenant=2, ttl=5.0, limits=Limits(spill_rate=2.0, over_max_rate=OverMaxRate.DELAY)
        )
        assert decode_policy(msgspec.json.encode(kept)) == kept
        assert decode_limits(msgspec.json.encode(kept.limits)) == kept.limits
        assert decode_policy(b"{}") == QueuePolicy()

    def test_what_a_newer_release_has_added_is_passed_over(self) -> None:
        """Older processes go on while the newer ones are rolled out."""
        kept = b'{"lanes": 16, "new": {"lanes": 3}, "limits": {"spill_rate": 2.0, "newer": [1]}}'
        assert decode_policy(kept) == QueuePolicy(lanes=16, limits=Limits(spill_rate=2.0))
        assert decode_limits(b'{"spill_rate": 2.0, "newer": null}') == Limits(spill_rate=2.0)

    def test_whoever_writes_one_must_know_what_it_says(self) -> None:
        with pytest.raises(msgspec.ValidationError, match="new"):
            msgspec.json.decode(b'{"new": 1}', type=QueuePolicy)

    @pytest.mark.parametrize("kept", [b'{"lanes": 100000}', b'{"lanes": "many"}', b'{"limits": 5}', b"[]", b"?"])
    def test_a_policy_that_means_something_else_by_now_says_what_to_do(self, kept: bytes) -> None:
        with pytest.raises(EngineMismatch, match=r"QueuePolicy .*: upgrade this process"):
            decode_policy(kept)

    def test_so_do_limits(self) -> None:
        with pytest.raises(EngineMismatch, match=r"Limits .*: .*queue.*: upgrade this process"):
            decode_limits(b'{"over_max_rate": "queue"}')


def test_differences_are_named_with_both_values() -> None:
    kept, wanted = (
        QueuePolicy(lease=7.0, ttl=60.0),
        QueuePolicy(lease=9.0, limits=Limits(spill_rate=5, over_max_rate=OverMaxRate.DELAY)),
    )
    assert list_differences(kept, wanted, " of mail") == [
        "limits.spill_rate of mail is none and not 5",
        "limits.over_max_rate of mail is refuse and not delay",
        "ttl of mail is 60 and not none",
        "lease of mail is 7 and not 9",
    ]
    assert list_differences(kept, kept) == []


def test_of_many_differences_the_first_are_named() -> None:
    assert format_differences(["a", "b"]) == "a, b"
    assert format_differences([str(number) for number in range(12)]) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"
