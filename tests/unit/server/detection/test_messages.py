"""Messages between the server and its detection process."""

import pytest

from holdfast import Conflict, EngineError, EngineUnavailable, HoldfastError, InvalidValue, NotFound
from holdfast.server.detection.messages import (
    LENGTH,
    Answer,
    Ingest,
    Ready,
    build_error_answer,
    build_result,
    decode_from_child,
    decode_to_child,
    encode_message,
    get_content,
)
from holdfast.telemetry.collector import Arrivals
from holdfast.telemetry.source import SourceBatch


def test_a_message_arrives_as_it_was_sent() -> None:
    ingest = Ingest(7, b"\x00\xff", True, "sender", ["shop"], None)
    encoded = encode_message(ingest)
    assert LENGTH.unpack(encoded[: LENGTH.size])[0] == len(encoded) - LENGTH.size
    assert decode_to_child(encoded[LENGTH.size :]) == ingest
    assert decode_from_child(encode_message(Ready())[LENGTH.size :]) == Ready()
    assert get_content(Answer(7, b"content")) == b"content"


@pytest.mark.parametrize("kind", [Conflict, EngineUnavailable, InvalidValue, NotFound])
def test_an_error_that_the_other_side_handles_keeps_its_class(kind: type[HoldfastError]) -> None:
    with pytest.raises(kind, match="the reason"):
        get_content(build_error_answer(1, kind("the reason")))


@pytest.mark.parametrize("error", [HoldfastError("the reason"), RuntimeError("the reason")])
def test_any_other_error_is_one_of_the_engine(error: Exception) -> None:
    with pytest.raises(EngineError, match="the reason"):
        get_content(build_error_answer(1, error))


@pytest.mark.parametrize(("oldest", "lag"), [(None, None), (90.0, 10.0), (130.0, 0.0)])
def test_a_result_says_what_became_of_a_batch(oldest: float | None, lag: float | None) -> None:
    batch = SourceBatch(accepted=3, refused={"invalid": 1, "unknown_zone": 1}, problem="bad", oldest=oldest)
    result = build_result(batch, Arrivals(on_time=1, late=2, too_late=3, too_early=5, overflowed=4), 100.0)
    assert (result.accepted, result.refused, result.reason, result.lag) == (3, 2, "bad", lag)
    assert (result.late, result.too_late, result.too_early, result.overflowed) == (2, 3, 5, 4)
