"""Report the zone that is worse than its own past and than the other zones, with a set number of false alarms. Pure.

This module has the options, which settings need, and no more: the rest needs NumPy, and is in `calibration.py`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast._errors import InvalidValue
from holdfast.detect.detector import DETECTORS

if TYPE_CHECKING:
    from holdfast._types import Verdict
    from holdfast.detect.calibration import CalibratedState
    from holdfast.telemetry.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedOptions:
    """Settings of the calibrated detector."""

    false_isolations: float = 0.2
    """Expected false isolations in 90 days. 0.2 is about one a year. 1, four a year, is only some seconds quicker."""
    deploys_are_announced: bool = False
    """Whether every deploy is announced. Then evidence must outlast a deploy only during one and 5 minutes after it."""

    def __post_init__(self) -> None:
        if not 0.001 <= self.false_isolations <= 100:
            raise InvalidValue(f"false_isolations is {self.false_isolations}: expected 0.001 to 100 in 90 days")


class _StateType:
    """Imports the class of the state when it is needed: it needs NumPy."""

    def __get__(self, instance: object, owner: type[Any] | None = None) -> "type[CalibratedState]":
        from holdfast.detect.calibration import CalibratedState

        return CalibratedState


@DETECTORS.register("calibrated")
class CalibratedDetector:
    """The default detector. See `holdfast.detect.Detector`."""

    max_bin_seconds: ClassVar = 60.0
    """Longer bins leave too few of them to tell a failure from a deploy."""
    options_type: ClassVar = CalibratedOptions
    state_type: ClassVar = _StateType()

    def __init__(self, options: CalibratedOptions | None = None) -> None:
        self._options = options or CalibratedOptions()

    def step(self, state: "CalibratedState", window: "Window") -> "tuple[CalibratedState, Verdict]":
        """Evaluate one window."""
        from holdfast.detect.calibration import evaluate

        return evaluate(
            state, window, self._options.false_isolations, deploys_are_announced=self._options.deploys_are_announced
        )
