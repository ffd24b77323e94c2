"""Evacuate a zone: move everything that can be moved away from it, record each step, and restore it later.

May import the base, the engines, `detect`, `calls`, `status` and `telemetry`. Start reading at `runner.py`; the rules
are in `guards.py`, `steps.py` and `journal.py`. `evacuator.py` and `guard.py` mark the zone of a verdict as out.
"""

from holdfast.evacuate.evacuator import Evacuator
from holdfast.evacuate.guard import EvacuationDecision, decide_evacuation

__all__ = ["EvacuationDecision", "Evacuator", "decide_evacuation"]
