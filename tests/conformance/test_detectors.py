"""Every detector keeps the promises that the detection loop relies on."""

from typing import Any, ClassVar

import pytest

from holdfast.detect import Detector
from holdfast.detect.detectors.calibrated import CalibratedDetector
from holdfast.detect.detectors.outlier import OutlierDetector
from holdfast.detect.detectors.threshold import ThresholdDetector
from holdfast.testing.detectors import DetectorConformance, SimulatedService


class TestThreshold(DetectorConformance):
    detector_type: ClassVar = ThresholdDetector
    detects_within = 2
    reports_regional = True

    @pytest.mark.xfail(strict=True, reason="the threshold detector calls a zone without requests healthy")
    def test_silence_is_never_healthy(self, detector: Detector[Any], learned: Any, service: SimulatedService) -> None:
        super().test_silence_is_never_healthy(detector, learned, service)


class TestOutlier(DetectorConformance):
    detector_type: ClassVar = OutlierDetector
    detects_within = 20
    least_zones = 3  # two zones are equally far from their mean


class TestCalibrated(DetectorConformance):
    detector_type: ClassVar = CalibratedDetector
    learning = 180
    detects_within = 6
    reports_regional = True
    tells_instances = True
