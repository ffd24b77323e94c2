"""Evacuate a zone: move everything that can be moved away from it, record each step, and restore it later.

May import the base, the engines, `detect`, `calls`, `status` and `telemetry`. Start reading at `evacuator.py`, which
commands and the server use; the rules are in `guards.py`, `steps.py` and `journal.py`. Actions are in `actions/`.
"""

from holdfast.evacuate.evacuator import Evacuator, Proposal
from holdfast.evacuate.guards import GuardName, GuardResult
from holdfast.evacuate.service import EvacuationMode, EvacuationService

__all__ = ["EvacuationMode", "EvacuationService", "Evacuator", "GuardName", "GuardResult", "Proposal"]
