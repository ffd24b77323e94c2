"""The options of the calibrated detector, and what it needs before it runs."""

import subprocess
import sys

import pytest

from holdfast import InvalidValue, VerdictKind, Zone
from holdfast.detect import build_detector
from holdfast.detect.calibration import CalibratedState
from holdfast.detect.detectors.calibrated import CalibratedDetector, CalibratedOptions
from holdfast.telemetry import build_window


@pytest.mark.parametrize("number", [0, -1, 0.0009, 101])
def test_an_impossible_number_of_false_isolations_is_refused(number: float) -> None:
    with pytest.raises(InvalidValue, match="false_isolations"):
        build_detector("calibrated", {"false_isolations": number})
    assert CalibratedOptions(false_isolations=0.001).false_isolations == 0.001


def test_the_first_window_is_unknown() -> None:
    assert CalibratedDetector.state_type is CalibratedState
    window = build_window("shop", (Zone("az1"), Zone("az2")), 0.0, 10.0, {})
    state, verdict = CalibratedDetector().step(CalibratedState(), window)
    assert (verdict.kind, state.seen_until) == (VerdictKind.UNKNOWN, 10.0)


def test_its_options_are_read_without_numpy() -> None:
    """Settings are read by commands that detect nothing."""
    code = (
        "import sys; from holdfast.detect import build_detector; build_detector('calibrated', {}); "
        "sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
