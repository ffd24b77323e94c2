"""Tools for tests of code that calls dependencies: calls that do not wait, injected faults, recorded events.

Nothing here needs pytest. The fixture `holdfast_calls` of `holdfast.testing.plugin` combines all three. Start reading
at `instant.py`, then `faults.py`.
"""

from holdfast.testing.calls.faults import Faults, HttpStatusError, Script
from holdfast.testing.calls.instant import RecordedEvents, instant_calls, recorded_events

__all__ = ["Faults", "HttpStatusError", "RecordedEvents", "Script", "instant_calls", "recorded_events"]
