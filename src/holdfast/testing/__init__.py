"""Tools for tests of services that use Holdfast, and conformance suites for status stores and queue backends.

May import every part, and no part imports it. Start reading at `clock.py` for time and chance under the test's
control, at `calls/` for faults, and at the suite of the seam that you implement: `status.py`, `queue/`.
"""

from holdfast.testing.clock import FakeClock, seeded

__all__ = ["FakeClock", "seeded"]
