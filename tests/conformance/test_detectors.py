"""Every detector keeps the promises that the detection loop relies on."""

from typing import ClassVar

from holdfast.detect.detectors.calibrated import CalibratedDetector
from holdfast.detect.detectors.outlier import OutlierDetector
from holdfast.detect.detectors.threshold import ThresholdDetector
from holdfast.testing.detectors import DetectorConformance


class TestThreshold(DetectorConformance):
    detector_type: ClassVar = ThresholdDetector
    detects_within = 2
    reports_regional = True


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
