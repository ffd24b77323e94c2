"""Detect failing zones: rules over windows of telemetry that lead to a verdict.

May import the base and `telemetry`. Start reading at `detector.py` for the interface; detectors are in `detectors/`.
"""

from holdfast.detect.detector import DETECTORS, Detector, DetectorType, build_detector

__all__ = ["DETECTORS", "Detector", "DetectorType", "build_detector"]
