"""Tests of code that calls dependencies: without waiting, with failures on demand, and with all events at hand.

Nothing here needs pytest; the fixture `holdfast_calls` of `holdfast.testing.plugin` has all three in one. Start reading
at `instant.py`, then `faults.py`.
"""

from holdfast.testing.calls.faults import Faults, HttpStatusError, Script
from holdfast.testing.calls.instant import RecordedEvents, instant_calls, recorded_events

__all__ = ["Faults", "HttpStatusError", "RecordedEvents", "Script", "instant_calls", "recorded_events"]
