"""Tools for tests of services that use Holdfast, and conformance suites for what you implement yourself.

May import every part; no part imports it. Start reading at `clock.py` for a fake clock and seeded random numbers, at
`calls/` for fault injection, and at the conformance suite of the interface that you implement: `status.py`, `queue/`,
`detectors.py`, `evacuation.py`.
"""

from holdfast.testing.clock import FakeClock, seeded

__all__ = ["FakeClock", "seeded"]
