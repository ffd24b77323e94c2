"""Detectors by name, and their options."""

import dataclasses

import msgspec
import pytest

from holdfast import InvalidValue, SettingsError, Verdict, VerdictKind
from holdfast.detect import DETECTORS, build_detector
from holdfast.detect.detectors.threshold import ThresholdDetector
from holdfast.telemetry import Window


class Options(msgspec.Struct, frozen=True):
    limit: int = 3
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise ValueError("limit is negative")


class Toy:
    options_type = Options
    state_type = int

    def __init__(self, options: Options) -> None:
        self.options = options

    def step(self, state: int, window: Window) -> tuple[int, Verdict]:
        return state, Verdict(id="", workload=window.workload, kind=VerdictKind.HEALTHY, since=0.0, at=0.0)


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DETECTORS._registered, "toy", Toy)


def test_a_detector_is_built_with_its_options_and_their_defaults() -> None:
    assert isinstance(build_detector("threshold", {"consecutive_windows": 3}), ThresholdDetector)
    built = build_detector("toy", {"names": ["a", "b"]})
    assert isinstance(built, Toy)
    assert built.options == Options(3, ("a", "b"))


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"lmit": 1}, "lmit: unknown option of detector toy, expected limit, names"),
        ({"limit": "x"}, "limit: Expected `int`, got `str`"),
        ({"names": [1]}, r"names\[0\]: Expected `str`, got `int`"),
        ({"limit": -1}, "^limit is negative"),
    ],
)
def test_an_option_that_a_detector_does_not_have_or_accept_is_named(given: dict[str, object], complaint: str) -> None:
    with pytest.raises(InvalidValue, match=complaint):
        build_detector("toy", given)


def test_an_unknown_detector_is_answered_with_those_there_are() -> None:
    with pytest.raises(SettingsError, match=r"no detector is called 'oracle': expected one of .*threshold"):
        build_detector("oracle", {})


def test_every_detector_has_options_and_a_state_that_need_nothing_to_begin() -> None:
    """The loop builds both without arguments, and saves the state with every bin."""
    for name in DETECTORS.names():
        kind = DETECTORS.get(name)
        assert dataclasses.is_dataclass(kind.options_type) or issubclass(kind.options_type, msgspec.Struct)
        assert build_detector(name, {}) is not None
        state = kind.state_type()
        assert msgspec.json.decode(msgspec.json.encode(state), type=kind.state_type) == state


def test_a_plug_in_that_is_no_detector_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DETECTORS._registered, "no-detector", object)
    with pytest.raises(InvalidValue, match=r"^detector no-detector has no options_type"):
        build_detector("no-detector", {})
