"""States of detectors as bytes."""

import zlib
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pytest
from msgspec import Struct
from numpy.typing import NDArray

from holdfast.detect.encoding import decode_state, encode_state


class Inner(Struct):
    mask: NDArray[np.bool_]
    plain: np.ndarray


class State(Struct):
    counts: NDArray[np.float64]
    inner: list[Inner] = []
    recent: list[int] = []

    def to_saved(self) -> "State":
        return msgspec.structs.replace(self, recent=[])


@dataclass
class Plain:
    names: dict[str, int] = field(default_factory=dict)


def test_arrays_keep_their_type_and_shape() -> None:
    counts = np.arange(6.0).reshape(2, 3)
    inner = Inner(np.array([True, False]), np.array([[1], [2]], np.int8))
    found = decode_state(encode_state(State(counts, [inner])), State)
    assert found is not None
    assert np.array_equal(found.counts, counts)
    assert [each.dtype.str for each in (found.counts, found.inner[0].mask, found.inner[0].plain)] == [
        "<f8",
        "|b1",
        "|i1",
    ]
    assert found.inner[0].plain.tolist() == [[1], [2]]


def test_only_the_part_that_is_worth_saving_is_saved() -> None:
    found = decode_state(encode_state(State(np.zeros(0), recent=[1, 2])), State)
    assert found is not None
    assert found.recent == []
    assert decode_state(encode_state(Plain({"a": 1})), Plain) == Plain({"a": 1})


def test_damaged_and_foreign_bytes_are_no_state() -> None:
    content = encode_state(State(np.zeros(3)))
    swapped = zlib.compress(msgspec.msgpack.encode({"counts": ["<f8", [2], b"\0" * 24]}))
    nonsense = zlib.compress(msgspec.msgpack.encode({"counts": 7}))
    for damaged in (b"", b"x", content[:-3], content[1:], encode_state(Plain({"a": 1})), swapped, nonsense):
        assert decode_state(damaged, State) is None


class Unsuitable(Struct):
    value: complex


def test_other_types_are_refused_by_name() -> None:
    with pytest.raises(NotImplementedError, match="contains complex, which cannot be saved"):
        encode_state(Unsuitable(1j))
    with pytest.raises(NotImplementedError, match="complex"):
        decode_state(zlib.compress(msgspec.msgpack.encode({"value": [1]})), Unsuitable)
