"""The trace that travels with a message."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.queue.trace import pack, unpack

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
HEX = re.compile("00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


@given(st.from_regex(HEX, fullmatch=True))
def test_a_traceparent_comes_back_as_it_was(trace: str) -> None:
    packed = pack(trace)
    assert packed is not None
    assert len(packed) == 25
    assert unpack(packed, 1, 2) == trace


@pytest.mark.parametrize("trace", [None, "", "nonsense", TRACE.upper(), TRACE + "-more", "01" + TRACE[2:], TRACE[:-1]])
def test_what_is_no_traceparent_is_not_kept(trace: str | None) -> None:
    assert pack(trace) is None


@given(st.integers(1, (1 << 63) - 1), st.integers(1, (1 << 63) - 1))
def test_a_message_without_a_trace_has_one_of_its_own(origin: int, message: int) -> None:
    trace = unpack(None, origin, message)
    assert HEX.fullmatch(trace)
    assert trace.endswith("-00"), "nobody has asked for it to be recorded"
    assert unpack(pack(trace), 5, 6) == trace
    assert unpack(None, origin, message) == trace
    assert unpack(None, origin, message + 1) != trace != unpack(None, origin + 1, message)
