"""Tell a failing zone from a healthy one: rules over windows of telemetry that end in a verdict.

May import the base and `telemetry`. Start reading at `detector.py` for the seam, and in `detectors/` for what there is.
"""

from holdfast.detect.detector import DETECTORS, Detector, DetectorType, build_detector

__all__ = ["DETECTORS", "Detector", "DetectorType", "build_detector"]
