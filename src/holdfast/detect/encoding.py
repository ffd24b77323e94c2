"""Encode the states of detectors as bytes, with NumPy arrays in them. Pure.

A state may have a method `to_saved` that returns the part of it that is worth saving.
"""

import zlib
from typing import Any, TypeVar, get_origin

import msgspec

State = TypeVar("State")

_COMPRESSION = 1
"""zlib's fastest level: counts shrink to a quarter, and higher levels take several times as long."""


def encode_state(state: Any) -> bytes:
    """Return a state as bytes."""
    saved = state.to_saved() if hasattr(state, "to_saved") else state
    return zlib.compress(msgspec.msgpack.encode(saved, enc_hook=_encode_array), _COMPRESSION)


def decode_state(content: bytes, kind: type[State]) -> State | None:
    """Return the state, or None if `content` is damaged, or was encoded by another release in another form."""
    try:
        return msgspec.msgpack.decode(zlib.decompress(content), type=kind, dec_hook=_decode_array)
    except (zlib.error, msgspec.MsgspecError, ValueError, TypeError):
        return None


def _encode_array(value: Any) -> Any:
    if type(value).__name__ != "ndarray":  # without an import: states without arrays need no NumPy
        raise NotImplementedError(f"a detector's state contains {type(value).__name__}, which cannot be saved")
    return value.dtype.str, list(value.shape), value.tobytes()


def _decode_array(kind: type[Any], value: Any) -> Any:
    import numpy as np  # only for states with arrays

    if get_origin(kind) is not np.ndarray and kind is not np.ndarray:
        raise NotImplementedError(f"a detector's state contains {kind}, which cannot be loaded")
    dtype, shape, content = value
    return np.frombuffer(content, dtype).reshape(shape)
