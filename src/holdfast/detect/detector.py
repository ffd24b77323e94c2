"""The interface between the detection loop and its detectors: one protocol, and a registry of detectors by name.

A detector is one module in `detectors/`, or an entry point of another distribution in the group `holdfast.detectors`.
"""

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from holdfast._errors import InvalidValue
from holdfast._plugins import Plugins
from holdfast._types import Verdict

if TYPE_CHECKING:
    from holdfast.telemetry.window import Window

State = TypeVar("State")


class Detector(Protocol[State]):
    """A method of detecting failing zones. Pure: the same state and window give the same verdict."""

    def step(self, state: State, window: "Window") -> tuple[State, Verdict]:
        """Evaluate one window. Windows come in order; a window that starts after the last one's end follows a gap."""


class DetectorType(Protocol):
    """The class that a detector registers. Called with options, it returns a Detector."""

    @property
    def options_type(self) -> type[Any]:
        """A frozen dataclass or msgspec.Struct whose fields are the settings of the detector, all with defaults."""

    @property
    def state_type(self) -> type[Any]:
        """The class of the detector's state. Called without arguments, it returns the initial state.

        The detection loop saves the state with every bin, so msgspec must be able to encode and decode it; NumPy arrays
        are allowed. A saved state older than a minute is not used, unless the class has an attribute `max_age` in
        seconds. A detector whose state has `max_age` learns: without a saved state, it is shown the stored windows of
        the last hour first. If the state has a method `to_saved`, its result is saved. If it has a method
        `fits(zones, bin_seconds)`, and that returns False, a saved state is not used.
        """

    def __call__(self, options: Any) -> Detector[Any]:
        """Build a detector. If the class has an attribute `max_bin_seconds`, it refuses longer bins."""


DEFAULT_DETECTOR = "calibrated"
"""Compares every zone with its own past and with the other zones, with a set number of false alarms."""
DETECTORS: Plugins[DetectorType] = Plugins("detector", package="holdfast.detect.detectors", group="holdfast.detectors")
"""The registered detectors, by name."""


def build_detector(name: str, options: Mapping[str, Any]) -> Detector[Any]:
    """Return the detector called `name`. Raise InvalidValue for an unknown option or an invalid value."""
    return DETECTORS.get(name)(parse_options(name, options))


def require_bin_seconds(name: str, seconds: float) -> None:
    """Raise InvalidValue if the detector called `name` cannot evaluate bins of this length."""
    limit = getattr(DETECTORS.get(name), "max_bin_seconds", math.inf)
    if seconds > limit:
        raise InvalidValue(
            f"telemetry.bin_seconds is {seconds:g}: the detector {name} needs bins of {limit:g} s or less; choose "
            "shorter bins, or another detector"
        )


def parse_options(name: str, given: Mapping[str, Any]) -> Any:
    """Return the options of the detector called `name`, with defaults where `given` has none."""
    detector = DETECTORS.get(name)
    for attribute in ("options_type", "state_type"):
        if attribute not in dir(detector):  # not hasattr: `state_type` may import NumPy
            raise InvalidValue(f"detector {name} has no {attribute}: see holdfast.detect.DetectorType")
    kind = detector.options_type
    known = list_option_names(kind)
    for option in given:
        if option not in known:
            raise InvalidValue(f"{option}: unknown option of detector {name}, expected {', '.join(sorted(known))}")
    try:
        return msgspec.convert(dict(given), kind)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$.")
        raise InvalidValue(f"{path.rstrip('`')}: {problem}" if path else problem) from error


def list_option_names(kind: type[Any]) -> tuple[str, ...]:
    """Return the option names of an options class."""
    return tuple(each.name for each in (fields(kind) if is_dataclass(kind) else msgspec.structs.fields(kind)))
