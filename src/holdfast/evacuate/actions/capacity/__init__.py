"""Hold the capacity of services, measure it, and scale the other zones out first if that is wished.

Start reading at `action.py`; the formulas are in `needs.py`.
"""

from holdfast.evacuate.actions.capacity.action import Capacity

__all__ = ["Capacity"]
