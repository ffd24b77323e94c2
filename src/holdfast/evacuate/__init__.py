"""Evacuate a zone: mark a verdict's zone as out, if the guard allows it.

May import the base, the engines, `detect`, `calls`, `status` and `telemetry`. Start reading at `guard.py`.
"""

from holdfast.evacuate.evacuator import Evacuator
from holdfast.evacuate.guard import EvacuationDecision, decide_evacuation

__all__ = ["EvacuationDecision", "Evacuator", "decide_evacuation"]
