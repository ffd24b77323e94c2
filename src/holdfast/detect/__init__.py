"""Telling a sick zone from a healthy one: rules over windows of telemetry, which end in a verdict. Pure.

May import the base and `telemetry`. Start reading at `threshold.py`, the first detector.
"""

from holdfast.detect.threshold import ThresholdDetector, ThresholdOptions, ThresholdState

__all__ = ["ThresholdDetector", "ThresholdOptions", "ThresholdState"]
