"""What crosses to another process."""

import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Carrier
from holdfast.calls.scope import OverrideScope, Scope, build_headers, find_options, get_trace_id, parse_carrier
from tests.table import rows

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_what_is_sent_is_what_arrives() -> None:
    carrier = Carrier(trace=TRACE, remaining=1.25, retry_owner="web")
    assert parse_carrier(build_headers(carrier)) == carrier
    assert parse_carrier(build_headers(Carrier())) == Carrier()
    assert build_headers(Carrier()) == {}


@given(st.floats(0, 1e9))
def test_the_time_that_is_left_arrives_to_the_microsecond(remaining: float) -> None:
    arrived = parse_carrier(build_headers(Carrier(remaining=remaining))).remaining
    assert arrived == pytest.approx(remaining, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "remaining"), [("-3", 0.0), ("1e3", 1000.0), ("nan", None), ("inf", None), ("-inf", 0.0), ("soon", None)]
)
def test_a_time_that_makes_no_sense_is_ignored(text: str, remaining: float | None) -> None:
    assert parse_carrier({"holdfast-remaining": text}).remaining == remaining


@pytest.mark.parametrize("owner", ["", "x" * 129, "a\nb"])
def test_an_owner_that_makes_no_sense_is_ignored(owner: str) -> None:
    assert parse_carrier({"holdfast-retry-owner": owner}).retry_owner is None


@pytest.mark.parametrize(
    "trace", ["", "00-trace", "größe", TRACE.replace("0af7", "0AF7"), f"{TRACE}-more", "ff" + TRACE[2:]]
)
def test_a_trace_that_makes_no_sense_is_not_handed_on(trace: str) -> None:
    assert parse_carrier({"traceparent": trace}).trace is None


def test_a_trace_of_a_later_version_may_have_more() -> None:
    later = f"01{TRACE[2:]}-more"
    assert parse_carrier({"traceparent": later}).trace == later


XRAY = "1-5759e988-bd862e3fe1be46a994272793"


@rows(
    ("trace", "xray", "found"),
    [
        (None, None, ""),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", f"Root={XRAY}", "0af7651916cd43dd8448eb211c80319c"),
        (None, f"Root={XRAY}", XRAY),
        (None, f"Self=1-67891234-12456789abcdef012345678; Root={XRAY};Parent=53995c3f42cd8ad8;Sampled=1", XRAY),
        (None, "Self=1-67891234-12456789abcdef012345678", ""),
        (None, "Root=1-5759e988-bd862e3f", ""),
        (None, f"Root={XRAY}00", ""),
        (None, f"NotRoot={XRAY}", ""),
    ],
)
def test_the_trace_id_is_that_of_w3c_or_of_xray(trace: str | None, xray: str | None, found: str) -> None:
    assert get_trace_id(trace, xray) == found


def test_a_name_that_is_not_ascii_or_too_long_still_travels() -> None:
    sent = build_headers(Carrier(retry_owner="größe" + "x" * 200))["holdfast-retry-owner"]
    assert sent.startswith("gr??e")
    assert len(sent) == 128


def test_no_time_is_not_an_endless_one() -> None:
    assert math.isfinite(float(build_headers(Carrier(remaining=0.0))["holdfast-remaining"]))


def test_the_innermost_block_with_other_options_for_a_dependency_counts() -> None:
    state, other, never = (SimpleNamespace(was_overridden=known) for known in (True, True, False))
    first, second = object(), object()
    outer = OverrideScope(math.inf, None, None, state, first)
    inner = OverrideScope(math.inf, None, Scope(1.0, None, outer), state, second)
    assert find_options(state, inner) is second
    assert find_options(state, inner.enclosing) is first
    assert find_options(other, inner) is other
    assert find_options(never, inner) is never
