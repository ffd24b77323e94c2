"""What tests of Holdfast, and of services that stand on it, are made of: time and chance under the test's control.

May import every part and is imported by none; nothing here needs pytest. Start reading at `clock.py`. What needs a
server or a socket is a module of its own, to be imported by its full name.
"""

from holdfast.testing.clock import FakeClock
from holdfast.testing.randomness import seeded

__all__ = ["FakeClock", "seeded"]
