"""Leaving a zone: what a verdict leads to, and what stands in the way.

May import the base, the engines, `detect`, `calls`, `status` and `telemetry`. Start reading at `guard.py`.
"""

from holdfast.evacuate.evacuator import Evacuator
from holdfast.evacuate.guard import EvacuationDecision, decide_evacuation

__all__ = ["EvacuationDecision", "Evacuator", "decide_evacuation"]
